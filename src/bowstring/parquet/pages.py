"""What the headers of pages say of column chunks, before pyarrow decodes them.

A footer may claim other numbers of values than its pages have, and sizes that their bodies do not; bodies may claim
more values than their headers. pyarrow then gives fewer rows without an error, or needs memory for what is claimed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.errors import InvalidMetadata, LimitExceeded
from bowstring.kernels.launch import launch
from bowstring.kernels.parquet import bodies, footer, thrift
from bowstring.kernels.parquet import pages as kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bowstring.limits import Limits

# As many bytes are read at once, from the end of each page on; small chunks lie together in them.
_WINDOW: Final = 16 << 10
# Elsewhere, such as in S3, a request takes as long as many bytes do.
_LOCAL: Final = (pa.OSFile, pa.BufferReader, pa.MemoryMappedFile, pa.PythonFile)
_FAR: Final = 8 << 20
# pyarrow gives up on a header that is longer.
_LONGEST: Final = 16 << 20
# Of a value of a dictionary, pyarrow keeps where it is, and how long.
_ENTRY: Final = 16
_MOST: Final = 1 << 31
_CODECS: Final = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_HADOOP_LZ4: Final = 5
_RLE: Final = 3
_NUMBERS: Final = 5
_PREFIXES: Final = 7
_DELTAS: Final = 7 << _NUMBERS
DICTIONARY: Final = 1 << 2 | 1 << 8
"""The bits of encodings of indices."""
_INTEGER: Final = 32
_PAGES: Final = 1000
_BEYOND: Final = 1 << 60
_ALL_PAGES: Final = "pages of a Parquet file are too large when they are decompressed"


class PageReader:
    """Reads what headers of pages say, and of bodies what pyarrow would believe; keeps some bytes of the file."""

    def __init__(self, source: Any, limits: Limits) -> None:
        self._source = source
        self._window = _WINDOW if isinstance(source, _LOCAL) else _FAR
        self._bounds = (
            min(limits.decompression_floor, _MOST),
            math.ceil(min(limits.decompression_ratio, _MOST)),
        )
        self._begin = 0
        self._end = 0  # of all chunks that are read one after the other
        self._data: Any = b""
        # Of one chunk: its facts, then those of its pages; and the levels of a header.
        self._known = np.empty(int(kernel.FACTS) + _PAGES * int(kernel.PAGE), np.int64)
        self._table = self._known[int(kernel.FACTS) :].reshape(_PAGES, int(kernel.PAGE))
        self._room = np.empty(int(kernel.ROOM), np.int64)

    def read(self, chunks: Any, begins: Any, wanted: Any, levels: Any) -> Any:
        """Return the facts of the pages of column chunks: see :mod:`bowstring.kernels.parquet.pages`."""
        # chunks: facts of the footer; begins: where they begin; wanted: values of each; levels: the highest ones.
        # Bodies are read only where they have lengths of their own.
        facts = np.zeros((len(chunks), int(kernel.FACTS)), np.int64)
        facts[:, kernel.AT] = begins
        facts[:, kernel.END] = begins + np.maximum(chunks[:, footer.COMPRESSED], 0)
        facts[:, kernel.WANTED] = wanted
        facts[:, kernel.STATUS] = kernel.MORE
        self._end = int(facts[:, kernel.END].max(initial=0)) + int(kernel.SLACK)
        for chunk in np.argsort(begins, kind="stable").tolist():
            codec = int(chunks[chunk, footer.CODEC])
            for table in self._tables(facts[chunk]):
                if not facts[chunk, kernel.ENCODINGS] & _DELTAS:
                    continue
                encodings = table[:, kernel.ENCODING]
                for page in table[(encodings >= _NUMBERS) & (encodings <= _PREFIXES)].tolist():
                    self._check_deltas(page, codec, levels[chunk].tolist(), facts[chunk])
        return facts

    def _bytes(self, size: int, at: int, *, keep: bool = False) -> Any:
        """Return bytes of the file: of those that are kept, or read, and kept if so asked."""
        begin = at - self._begin
        if 0 <= begin <= len(self._data) - size:
            return self._data[begin : begin + size]
        nbytes = max(size, min(self._window, self._end - at)) if keep else size
        data = np.frombuffer(self._source.read_at(nbytes, at), np.uint8)
        if keep:
            self._data, self._begin = data, at
        return data[:size]

    def _tables(self, facts: Any) -> Iterator[Any]:
        """Read a chunk page by page, on from where its facts are; yield what the headers of data pages say."""
        known, table = self._known, self._table
        known[: int(kernel.FACTS)] = facts
        size = self._window
        while facts[kernel.STATUS] == kernel.MORE:
            at = int(facts[kernel.AT])
            most = min(size, int(facts[kernel.END]) + int(kernel.SLACK) - at)
            data = self._bytes(most, at, keep=True)
            known[kernel.PAGES] = 0
            launch(kernel.read_pages, 1, data, at, *self._bounds, _PAGES, known, self._room)
            facts[: int(kernel.DELTA_BYTES)] = known[: int(kernel.DELTA_BYTES)]
            yield table[: int(known[kernel.PAGES])]
            if facts[kernel.STATUS] != kernel.MORE:
                return
            if facts[kernel.AT] > at:
                size = self._window
            elif len(data) < size or size >= _LONGEST:
                # Nobody reads what comes after the last value.
                is_whole = facts[kernel.VALUES] >= facts[kernel.WANTED]
                facts[kernel.STATUS] = thrift.OK if is_whole else thrift.MALFORMED
            else:
                size *= 4

    def _check_deltas(self, page: list[int], codec: int, levels: list[int], facts: Any) -> None:
        """Note whether the body of a page claims what it does not have; pyarrow says what is wrong otherwise."""
        data = self._values(page, codec, levels)
        if data is None:
            return
        count, encoding = page[kernel.COUNT], page[kernel.ENCODING]
        lengths = np.empty(2 * count if encoding == _PREFIXES else 0, np.int32)
        counts = np.zeros(int(bodies.COUNTS), np.int64)
        launch(bodies.check_deltas, 1, data, encoding, count, lengths, counts)
        if counts[bodies.STATUS] != bodies.OK:
            facts[kernel.STATUS] = kernel.CONTRADICTED
        facts[kernel.DELTA_BYTES] += counts[bodies.NBYTES]
        facts[kernel.DELTA_LONGEST] = max(facts[kernel.DELTA_LONGEST], counts[bodies.LONGEST])

    def _values(self, page: list[int], codec: int, levels: list[int]) -> Any:
        """Return the values of a page, decompressed; ``None`` where they cannot be."""
        at, raw, packed = page[kernel.BODY_AT], page[kernel.BODY_RAW], page[kernel.BODY_PACKED]
        if page[kernel.VERSION]:
            begin = page[kernel.REPETITION] + page[kernel.DEFINITION]
            if begin > min(raw, packed):
                return None
            codec = 0 if page[kernel.IS_PLAIN] else codec
            return decompressed(codec, self._bytes(packed - begin, at + begin), raw - begin)
        data = decompressed(codec, self._bytes(packed, at), raw)
        begin = 0
        for level, encoding in zip(levels, (page[kernel.REPETITION], page[kernel.DEFINITION]), strict=True):
            if data is not None and level:
                packed_size = (page[kernel.COUNT] * level.bit_length() + 7) // 8
                begin += _run_size(data, begin) if encoding == _RLE else packed_size
        return None if data is None else data[begin:]

    def _pages(self, chunk: Any, begin: int, wanted: int) -> Iterator[list[int]]:
        facts = np.zeros(int(kernel.FACTS), np.int64)
        facts[kernel.AT], facts[kernel.END] = begin, begin + int(chunk[footer.COMPRESSED])
        facts[kernel.WANTED], facts[kernel.STATUS] = wanted, kernel.MORE
        for table in self._tables(facts):
            yield from table.tolist()

    def rows(self, chunk: Any, begin: int, wanted: int, level: int) -> int:
        """Return how many rows a chunk of lists has by its repetition levels, of which `level` is the highest.

        -1 where they cannot be read, or where pyarrow would not read all pages, as the footer claims fewer values.
        """
        found, values, claimed = 0, 0, int(chunk[footer.VALUES])
        of_rows = np.ones(1, np.int64)  # the level 0 begins a row, all others do not
        for page in self._pages(chunk, begin, wanted):
            count = page[kernel.COUNT]
            data = self._repetition(page, int(chunk[footer.CODEC])) if count and values < claimed else None
            if data is not None:
                found += _weight(data, level.bit_length(), count, of_rows)
            elif count:
                return -1
            values += count
        return found

    def nbytes(self, chunk: Any, begin: int, wanted: int, levels: list[int], lengths: Any) -> int:
        """Return the bytes of all values of a chunk of BYTE_ARRAY, of whose dictionary the values have lengths."""
        found, codec = 0, int(chunk[footer.CODEC])
        for page in self._pages(chunk, begin, wanted):
            data = self._values(page, codec, levels)
            if data is None or not len(data):
                continue
            if 1 << page[kernel.ENCODING] & DICTIONARY:
                found += _weight(data[1:], int(data[0]), page[kernel.COUNT], lengths)
            else:
                found += len(data)
        return found

    def _repetition(self, page: list[int], codec: int) -> Any:
        at, raw, packed = page[kernel.BODY_AT], page[kernel.BODY_RAW], page[kernel.BODY_PACKED]
        if page[kernel.VERSION]:
            return self._bytes(min(page[kernel.REPETITION], packed), at)
        if page[kernel.REPETITION] != _RLE:
            return None
        data = decompressed(codec, self._bytes(packed, at), raw)
        return None if data is None else data[4 : _run_size(data, 0)]


def _weight(data: Any, width: int, count: int, weights: Any) -> int:
    counts = np.zeros(1, np.int64)
    if width <= _INTEGER:
        launch(bodies.weigh_runs, 1, data, width, count, weights, counts)
    return int(counts[0])


def _run_size(data: Any, at: int) -> int:
    """Return how many bytes runs of levels have, with their length before them."""
    return 4 + int.from_bytes(data[at : at + 4].tobytes(), "little")


def decompressed(codec: int, data: Any, size: int) -> Any:
    """Return the bytes of a page, decompressed; ``None`` where they cannot be, or pyarrow has no such codec."""
    if codec == 0:
        return data
    try:
        if codec == _HADOOP_LZ4:
            plain = _of_hadoop(data.tobytes(), size)
        elif codec in _CODECS:
            plain = pa.Codec(_CODECS[codec]).decompress(data, size)
        else:
            return None
    except (pa.ArrowException, OSError):
        return None
    return np.frombuffer(plain, np.uint8)


def _of_hadoop(data: bytes, size: int) -> bytes:
    """Return what Hadoop compressed by LZ4, in blocks with their sizes; as pyarrow does, else as a whole."""
    lz4, at = pa.Codec("lz4_raw"), 0
    found: list[bytes] = []
    try:
        while at < len(data):
            raw, packed = (int.from_bytes(data[begin : begin + 4], "big") for begin in (at, at + 4))
            if raw > size or packed > len(data):
                break
            found.append(lz4.decompress(data[at + 8 : at + 8 + packed], raw, asbytes=True))
            at += 8 + packed
            size -= raw
        else:
            return b"".join(found)
    except (pa.ArrowException, OSError):
        pass
    return bytes(lz4.decompress(data, size + sum(map(len, found)), asbytes=True))


def begins_of(chunks: Any, end: int) -> Any:
    """Return where the first page of each column chunk begins, in a file of so many bytes."""
    begins, dictionaries = chunks[..., footer.DATA_PAGE], chunks[..., footer.DICTIONARY_PAGE]
    begins = np.where((dictionaries > 0) & (dictionaries < begins), dictionaries, begins)
    # Numbers beyond any file would wrap around.
    begins = np.minimum(np.maximum(begins, 0), _BEYOND)
    ends = begins + np.minimum(np.maximum(chunks[..., footer.COMPRESSED], 0), _BEYOND)
    if ends.size and ends.max() > end:
        raise InvalidMetadata(
            "a column chunk lies beyond the end of the file",
            expected=f"an end before byte {end}",
            found=f"byte {int(ends.max())}",
        )
    return begins


def check_pages(
    facts: Any, chunks: Any, is_exact: Any, widths: Any, name: Callable[[int], str], end: int, limits: Limits
) -> None:
    """Raise an error where pages contradict the footer, or are larger than what may be decompressed."""
    # is_exact: they must not have more values than wanted; widths: the least bytes of a value of a dictionary
    found, wanted = facts[:, kernel.VALUES], facts[:, kernel.WANTED]
    status = facts[:, kernel.STATUS]
    for chunk in np.flatnonzero(status == kernel.TOO_LARGE).tolist():
        raise too_large(_ALL_PAGES, facts[chunk, kernel.LARGEST], limits.decompression_floor, name(chunk))
    for chunk in np.flatnonzero(status == kernel.CONTRADICTED).tolist():
        raise InvalidMetadata(
            "a page of a column chunk claims more than it has",
            expected="as many lengths as values, no value with more of the one before than that has, and as many "
            "miniblocks as bytes, at most",
            where=name(chunk),
        )
    wrong = (status != thrift.OK) | (found < wanted) | (chunks[:, footer.VALUES] > wanted)
    wrong |= is_exact & (found > wanted)
    if wrong.any():
        chunk = int(wrong.argmax())
        damaged = facts[chunk, kernel.STATUS] != thrift.OK and found[chunk] < wanted[chunk]
        raise InvalidMetadata(
            "a column chunk of a Parquet file has a page without a header"
            if damaged
            else "the pages of a column chunk have another number of values than the footer says",
            expected=f"{int(wanted[chunk])} values",
            found=f"{int(found[chunk])} values before byte {int(facts[chunk, kernel.AT])}; the chunk claims "
            f"{int(chunks[chunk, footer.VALUES])}",
            where=name(chunk),
        )
    raw, entries = facts[:, kernel.DICTIONARY_RAW], facts[:, kernel.DICTIONARY_VALUES]
    wrong = entries * widths > raw
    if wrong.any():
        chunk = int(wrong.argmax())
        raise InvalidMetadata(
            "a dictionary of a Parquet file has more values than bytes",
            expected=f"at most {int(raw[chunk])} bytes",
            found=f"{int(entries[chunk])} values",
            where=name(chunk),
        )
    held = facts[:, kernel.LARGEST] + facts[:, kernel.LENGTHS] + raw + _ENTRY * entries
    packed = chunks[:, footer.COMPRESSED]
    most = np.maximum(limits.decompression_floor, limits.decompression_ratio * packed)
    if (held > most).any():
        chunk = int((held > most).argmax())
        raise too_large(_ALL_PAGES, held[chunk], most[chunk], name(chunk))
    # Chunks may be the same bytes of the file.
    packed_bytes = min(int(packed.sum()), end)
    all_most = max(limits.decompression_floor, limits.window_bytes, limits.decompression_ratio * packed_bytes)
    if held.sum() > all_most:
        raise too_large(_ALL_PAGES, held.sum(), all_most, f"all columns, {name(int(held.argmax()))} the most")


def too_large(what: str, found: float, most: float, where: str) -> LimitExceeded:
    """Return the error for what has more bytes than the limits allow for its compressed ones."""
    return LimitExceeded(
        what,
        expected=f"at most {int(most)} bytes, or Limits.decompression_ratio times what is compressed",
        found=f"{int(found)} bytes",
        where=where,
        hint="Raise Limits.decompression_floor for files that you trust.",
    )
