"""Parquet as a target: whole files, of which fields of footers and page headers, levels and values are changed."""

from __future__ import annotations

import contextlib
import io
import random
import struct
import warnings
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import bowstring as bow
from bowstring.errors import BowstringError
from bowstring.parquet.thrift import Field, Reader, encode_list, encode_struct
from tests.fuzz.mutators import DEPTH, changed_bytes, changed_struct, rearranged

_LIMITS: Final = bow.Limits(
    metadata_bytes=1 << 16, decompressed_bytes=1 << 24, decompression_floor=1 << 22, window_bytes=1 << 22
)
_MAGIC: Final = b"PAR1"
_TRAILER: Final = struct.Struct("<I4s")
# Numbers of fields in parquet.thrift.
_GROUPS, _COLUMNS, _META_DATA, _CODEC, _COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE = 4, 1, 3, 4, 7, 9, 11
_RAW_SIZE, _PACKED_SIZE, _V2, _IS_COMPRESSED = 2, 3, 8, 7
_CODECS: Final = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_LONGEST: Final = 1 << 16
Page = tuple[list[Field], bytes]


def parquet(data: Any) -> None:
    """Read a file: its schema, all rows, those that a filter leaves, and its first column alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first: Any = None
        with contextlib.suppress(BowstringError):
            first = [each.path for each in bow.parquet.read_schema(data, limits=_LIMITS).columns][:1]
        _rows(data)
        if first:
            _rows(data, columns=first)
            _rows(data, filters=[(first[0], ">=", 1)])
            _rows(data, filters=[(first[0], "<", "m")])


def _rows(data: Any, **options: Any) -> None:
    with (
        _refusals(),
        bow.parquet.read(data, limits=_LIMITS, validate="full", **options) as stream,
    ):
        for batch in stream:
            found = batch.to_arrow()
            found.validate()
            batch.validate(full=True)  # with what values mean
            found.validate(full=True)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Pass over errors of ours, but for those that stand for memory that pyarrow asked for and did not get."""
    try:
        yield
    except BowstringError as error:
        if isinstance(error.__cause__, MemoryError):
            raise error.__cause__ from error


def mutated_parquet(data: bytes, rng: random.Random) -> bytes:
    """Return a file with another footer, with another chunk of pages, or with other bytes anywhere."""
    cut = _cut(data)
    which = rng.random()
    if cut is None or which < 0.15:
        return changed_bytes(data, rng)
    body, footer = cut
    if which < 0.6:
        body, footer = _with_other_pages(body, footer, rng)
    if which > 0.55:
        for _ in range(rng.choice((1, 1, 2, 4))):
            footer = changed_struct(footer, rng)
    return body + footer + _TRAILER.pack(len(footer), _MAGIC)


def _cut(data: bytes) -> tuple[bytes, bytes] | None:
    """Return what is before the footer, and the footer."""
    if len(data) < len(_MAGIC) + _TRAILER.size:
        return None
    size, _ = _TRAILER.unpack(data[-_TRAILER.size :])
    end = len(data) - _TRAILER.size
    return (data[: end - size], data[end - size : end]) if size <= end else None


class _Elements:
    """The elements of a list of structs, to be written again with one of them changed."""

    def __init__(self, data: Any) -> None:
        reader = Reader(data, DEPTH)
        count, self.kind = reader.list_header()
        self.elements: list[bytes] = []
        for _ in range(count):
            begin = reader.position
            reader.skip(self.kind)
            self.elements.append(data[begin : reader.position])

    def encoded(self) -> bytes:
        return encode_list(self.kind, self.elements)


def _with_other_pages(body: bytes, footer: bytes, rng: random.Random) -> tuple[bytes, bytes]:
    """Return a file of which a column chunk comes again behind the others, changed, and is that of the footer."""
    fields = Reader(footer, DEPTH).struct()
    groups = _Elements(_value(fields, _GROUPS))
    which_group = rng.randrange(len(groups.elements))
    group = Reader(groups.elements[which_group], DEPTH).struct()
    chunks = _Elements(_value(group, _COLUMNS))
    which = rng.randrange(len(chunks.elements))
    chunk = Reader(chunks.elements[which], DEPTH).struct()
    facts = Reader(_value(chunk, _META_DATA), DEPTH).struct()

    starts = [int(each.value) for each in facts if each.id in (_DATA_PAGE, _DICTIONARY_PAGE)]
    begin, has_dictionary = min(starts), len(starts) > 1
    codec = _value(facts, _CODEC)
    pages = list(_pages(body[begin : begin + _value(facts, _COMPRESSED)]))
    pages = rearranged(pages, lambda page: _other_page(page, codec, rng), rng, 0.2)
    written = [encode_struct(header) + content for header, content in pages]
    at = len(body)
    facts = _with(facts, _COMPRESSED, sum(map(len, written)))
    if has_dictionary:
        facts = _with(facts, _DICTIONARY_PAGE, at)
    facts = _with(facts, _DATA_PAGE, at + (len(written[0]) if has_dictionary and written else 0))
    chunks.elements[which] = encode_struct(_with(chunk, _META_DATA, encode_struct(facts)))
    groups.elements[which_group] = encode_struct(_with(group, _COLUMNS, chunks.encoded()))
    return body + b"".join(written), encode_struct(_with(fields, _GROUPS, groups.encoded()))


def _value(fields: list[Field], number: int) -> Any:
    return {each.id: each.value for each in fields}[number]


def _with(fields: list[Field], number: int, value: Any) -> list[Field]:
    return [each._replace(value=value) if each.id == number else each for each in fields]


def _pages(data: bytes) -> Iterator[Page]:
    at = 0
    while at < len(data):
        reader = Reader(data[at:], DEPTH)
        header = reader.struct()
        begin = at + reader.position
        at = begin + max(_value(header, _PACKED_SIZE), 0)
        yield header, data[begin:at]


def _other_page(page: Page, codec: int, rng: random.Random) -> Page:
    """Return a page with another header, or with other levels and values, compressed as before."""
    header, content = page
    if rng.random() < 0.4:
        return Reader(changed_struct(encode_struct(header), rng), DEPTH).struct(), content
    plain, levels = content, b""
    if codec in _CODECS and rng.random() < 0.9:
        if any(each.id == _V2 for each in header):
            inner = Reader(_value(header, _V2), DEPTH).struct()
            split = _value(inner, 5) + _value(inner, 6)
            levels, content = content[:split], content[split:]
            codec = codec if all(each.value for each in inner if each.id == _IS_COMPRESSED) else 0
        raw = _value(header, _RAW_SIZE) - len(levels)
        if not 0 <= raw <= _LONGEST:
            return header, changed_bytes(content, rng)
        content_is_raw = not raw or codec not in _CODECS
        plain = content if content_is_raw else pa.Codec(_CODECS[codec]).decompress(content, raw, asbytes=True)
    changed = changed_bytes(plain, rng)
    stored = pa.Codec(_CODECS[codec]).compress(changed, asbytes=True) if codec in _CODECS else changed
    header = _with(header, _RAW_SIZE, len(levels) + len(changed))
    return _with(header, _PACKED_SIZE, len(levels) + len(stored)), levels + stored


def parquet_seeds() -> Iterator[tuple[str, bytes]]:
    """Yield files of all encodings, codecs and versions of pages, and what Bowstring writes."""
    table = pa.table(
        {
            "n": pa.array([1, None, 3, 3, 5, 70_000], pa.int64()),
            "s": ["a", None, "ccc", "a", "", "a text of more than twelve bytes"],
            "l": [[1, 2], None, [], [None], [3], [4, 5, 6]],
            "m": pa.array([{"x": 1.5, "y": "u"}, None, {"x": None, "y": "v"}] * 2),
            "b": [True, None, False, True, True, False],
            "d": pa.array([1, 2, None, 4, 5, 6], pa.decimal128(20, 2)),
            "f": pa.array([b"12345", None] * 3, pa.binary(5)),
            "t": pa.array([0, 1, None, 3, 4, 5], pa.timestamp("us", "UTC")),
        }
    )
    for version in ("1.0", "2.0"):
        for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4"):
            chosen = table.select(["n", "s", "l"]) if codec != "none" else table
            yield f"{codec} {version}", _written(chosen, compression=codec, data_page_version=version)
    for encoding, columns in {
        "PLAIN": table.column_names,
        "DELTA_BINARY_PACKED": ["n", "t"],
        "DELTA_LENGTH_BYTE_ARRAY": ["s"],
        "DELTA_BYTE_ARRAY": ["s", "f"],
        "BYTE_STREAM_SPLIT": ["n", "f"],
        "RLE": ["b"],
    }.items():
        for version in ("1.0", "2.0"):
            chosen = table.select(columns)
            yield (
                f"{encoding} {version}",
                _written(
                    chosen,
                    use_dictionary=False,
                    data_page_version=version,
                    column_encoding=None if encoding == "PLAIN" else dict.fromkeys(columns, encoding),
                ),
            )
    long = pa.table({"n": np.arange(3000) % 7, "s": [None, "word"] * 1500})
    yield "pages and groups", _written(long, row_group_size=1000, data_page_size=256, write_page_index=True)
    yield "INT96", _written(table.select(["t"]), use_deprecated_int96_timestamps=True)
    texts = ['{"a": 1, "b": [true, "x"]}', None, '{"a": "text"}', "7"]
    sink = io.BytesIO()
    bow.parquet.write(pa.table({"v": bow.variant.from_json(pa.array(texts)).to_arrow()}), sink)
    yield "variant", sink.getvalue()


def _written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, store_schema="compression" in options, **options)
    return sink.getvalue()
