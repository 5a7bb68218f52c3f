"""What the headers of pages say of column chunks, before pyarrow decodes them.

A footer may claim other numbers of values than its pages have, and sizes that their bodies do not. pyarrow then
gives fewer rows without an error, or needs memory for what a header claims.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.errors import InvalidMetadata, LimitExceeded, Truncated
from bowstring.kernels.launch import launch
from bowstring.kernels.parquet import footer
from bowstring.kernels.parquet import pages as kernel
from bowstring.parquet.chunks import inside
from bowstring.parquet.thrift import Reader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.limits import Limits

# What is near is read at once; of larger chunks, what comes after the end of each page.
_SPAN: Final = 1 << 20
_WINDOW: Final = 16 << 10
# Elsewhere, such as in S3, a request takes as long as many bytes do.
_LOCAL: Final = (pa.OSFile, pa.BufferReader, pa.MemoryMappedFile, pa.PythonFile)
_FAR: Final = 8 << 20
# pyarrow gives up on a header that is longer.
_LONGEST: Final = 16 << 20
# Of a value of a dictionary, pyarrow keeps where it is, and how long.
_ENTRY: Final = 16
_MOST: Final = 1 << 31
CODECS: Final = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_RLE: Final = 3


def pages_of(source: Any, chunks: Any, wanted: Any, limits: Limits) -> Any:
    """Return the facts of the pages of column chunks: see :mod:`bowstring.kernels.parquet.pages`.

    `chunks` are facts of the footer, `wanted` how many values each should have; only headers are looked at.
    """
    facts = np.zeros((len(chunks), int(kernel.FACTS)), np.int64)
    facts[:, kernel.AT] = begins_of(chunks)
    facts[:, kernel.END] = facts[:, kernel.AT] + np.clip(chunks[:, footer.COMPRESSED], 0, 1 << 60)
    facts[:, kernel.WANTED] = wanted
    facts[:, kernel.STATUS] = kernel.MORE
    room = np.empty(len(chunks) * int(kernel.DEPTH * footer.LEVEL), np.int64)
    bounds = min(limits.decompression_floor, _MOST), math.ceil(min(limits.decompression_ratio, _MOST))
    first = int(facts[:, kernel.AT].min())
    span = int(facts[:, kernel.END].max()) - first + int(kernel.SLACK)
    if span <= (_SPAN if isinstance(source, _LOCAL) else _FAR):
        data = np.frombuffer(source.read_at(span, first), np.uint8)
        launch(kernel.read_pages, len(chunks), data, first, *bounds, facts.reshape(-1), room)
    for chunk in np.flatnonzero(facts[:, kernel.STATUS] == kernel.MORE).tolist():
        _read_on(source, bounds, facts[chunk], room)
    return facts


def begins_of(chunks: Any) -> Any:
    """Return where the first page of each column chunk begins."""
    begins, dictionaries = chunks[..., footer.DATA_PAGE], chunks[..., footer.DICTIONARY_PAGE]
    begins = np.where((dictionaries > 0) & (dictionaries < begins), dictionaries, begins)
    # Numbers beyond any file would wrap around.
    return np.clip(begins, 0, 1 << 60)


def _read_on(source: Any, bounds: tuple[int, int], facts: Any, room: Any) -> None:
    """Read a chunk page by page."""
    size = window = _WINDOW if isinstance(source, _LOCAL) else _FAR
    while facts[kernel.STATUS] == kernel.MORE:
        at = int(facts[kernel.AT])
        data = np.frombuffer(source.read_at(size, at), np.uint8)
        launch(kernel.read_pages, 1, data, at, *bounds, facts, room)
        if facts[kernel.STATUS] != kernel.MORE:
            return
        if facts[kernel.AT] > at:
            size = window
        elif len(data) < size or size >= _LONGEST:
            # Nobody reads what comes after the last value.
            is_whole = facts[kernel.VALUES] >= facts[kernel.WANTED]
            facts[kernel.STATUS] = kernel.OK if is_whole else kernel.MALFORMED
        else:
            size *= 4


def rows_of(source: Any, chunk: Any, facts: Any, levels: int) -> int:
    """Return how many rows a chunk of lists has by its repetition levels, of which `levels` is the highest.

    -1 where they cannot be read, or where pyarrow would not read all pages, as the footer counts too few values.
    """
    at, codec = int(begins_of(chunk)), int(chunk[footer.CODEC])
    rows, values = np.zeros(1, np.int64), 0
    found = 0
    try:
        while values < chunk[footer.VALUES]:
            header, at = _header(source, at)
            kind, raw, packed = (int(header.get(number, 0)) for number in (1, 2, 3))
            inner = header["data"]
            count = int(inner.get(1, 0)) if kind in (0, 3) else 0
            if count and kind == 3:
                data = source.read_at(min(int(inner.get(6, 0)), packed), at)
            elif count:
                if inner.get(4) != _RLE or (codec and codec not in CODECS):
                    return -1
                data = source.read_at(packed, at)
                data = pa.Codec(CODECS[codec]).decompress(data, raw, asbytes=True) if codec else data
                data = data[4 : 4 + int.from_bytes(data[:4], "little")]
            if count and data:
                launch(kernel.count_rows, 1, np.frombuffer(data, np.uint8), levels.bit_length(), count, rows)
                found += int(rows[0])
            values += count
            at += packed
    except (InvalidMetadata, Truncated, pa.ArrowException, OSError):
        return -1
    return found if values == facts[kernel.VALUES] else -1


def _header(source: Any, at: int) -> tuple[dict[Any, Any], int]:
    """Return the numbers of the header of a page, as ``"data"`` those for its kind, and where it ends."""
    for size in (_WINDOW, _LONGEST):
        reader = Reader(source.read_at(size, at), int(kernel.DEPTH))
        try:
            fields = reader.struct()
        except Truncated:
            if size == _LONGEST:
                raise
            continue
        inner = inside(fields, 5) or inside(fields, 8) or []
        header: dict[Any, Any] = {each.id: each.value for each in fields}
        header["data"] = {each.id: each.value for each in inner}
        return header, at + reader.position
    raise Truncated("a page has no header", where=f"byte {at}")


def check_pages(
    facts: Any, chunks: Any, is_exact: Any, widths: Any, names: Sequence[str], limits: Limits
) -> None:
    """Raise an error where pages contradict the footer, or are larger than what may be decompressed.

    Parameters
    ----------
    facts, chunks, names
        The facts of the pages, those of the footer, and what errors call each chunk.
    is_exact
        Whether they must not have more values than wanted.
    widths
        The least bytes of a value of a dictionary.
    limits
        ``decompression_ratio``, and what is allowed whatever the ratio is.

    Raises
    ------
    InvalidMetadata
        They have more or fewer values, or one of them has no header.
    LimitExceeded
        A page is larger than the limits, or all that are decoded at the same time are.
    """
    found, wanted = facts[:, kernel.VALUES], facts[:, kernel.WANTED]
    large = facts[:, kernel.STATUS] == kernel.TOO_LARGE
    if large.any():
        chunk = int(large.argmax())
        _raise_too_large(facts[chunk, kernel.LARGEST], limits.decompression_floor, names[chunk])
    wrong = (facts[:, kernel.STATUS] != kernel.OK) | (found < wanted) | (chunks[:, footer.VALUES] > wanted)
    wrong |= is_exact & (found > wanted)
    if wrong.any():
        chunk = int(wrong.argmax())
        damaged = facts[chunk, kernel.STATUS] != kernel.OK and found[chunk] < wanted[chunk]
        raise InvalidMetadata(
            "a column chunk of a Parquet file has a page without a header"
            if damaged
            else "the pages of a column chunk have another number of values than the footer says",
            expected=f"{int(wanted[chunk])} values",
            found=f"{int(found[chunk])} values before byte {int(facts[chunk, kernel.AT])}; the chunk claims "
            f"{int(chunks[chunk, footer.VALUES])}",
            where=names[chunk],
        )
    raw, entries = facts[:, kernel.DICTIONARY_RAW], facts[:, kernel.DICTIONARY_VALUES]
    wrong = entries * widths > raw
    if wrong.any():
        chunk = int(wrong.argmax())
        raise InvalidMetadata(
            "a dictionary of a Parquet file has more values than bytes",
            expected=f"at most {int(raw[chunk])} bytes",
            found=f"{int(entries[chunk])} values",
            where=names[chunk],
        )
    held = facts[:, kernel.LARGEST] + raw + _ENTRY * entries
    packed = chunks[:, footer.COMPRESSED]
    most = np.maximum(limits.decompression_floor, limits.decompression_ratio * packed)
    if (held > most).any():
        chunk = int((held > most).argmax())
        _raise_too_large(held[chunk], most[chunk], names[chunk])
    all_most = max(limits.decompression_floor, limits.window_bytes, limits.decompression_ratio * packed.sum())
    if held.sum() > all_most:
        _raise_too_large(held.sum(), all_most, f"all columns, {names[int(held.argmax())]} the most")


def _raise_too_large(found: float, most: float, where: str) -> None:
    raise LimitExceeded(
        "pages of a Parquet file are too large when they are decompressed",
        expected=f"at most {int(most)} bytes, or Limits.decompression_ratio times what is compressed",
        found=f"{int(found)} bytes",
        where=where,
        hint="Raise Limits.decompression_floor for files that you trust.",
    )
