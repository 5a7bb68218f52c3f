"""How large row groups are when they are decoded, from the facts of their column chunks and their dictionaries.

A page of dictionary indices says nothing about the size of its values: 8 Mi rows of 1 KB are a few hundred KB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from bowstring.errors import InvalidMetadata, LimitExceeded
from bowstring.kernels.launch import launch
from bowstring.kernels.parquet import footer as kernel
from bowstring.parquet.logical import PHYSICAL, WIDTHS
from bowstring.parquet.thrift import Reader
from bowstring.parquet.types import logical_of

if TYPE_CHECKING:
    from bowstring.limits import Limits
    from bowstring.parquet.chunks import Chunks
    from bowstring.parquet.footer import Footer, SchemaElement

__all__ = ["Size", "Sizes", "TooLargeError"]

_CODECS: Final = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_DICTIONARY: Final = 1 << 2 | 1 << 8
_PREFIXES: Final = 1 << 7
# Of each value: an offset, its validity, and the levels that pyarrow keeps while it reads.
_BESIDE: Final = 8
_DECIMAL: Final = 32
_MIB: Final = 1 << 20
_HEADER: Final = 64 * 1024
_DEPTH: Final = 64


class TooLargeError(Exception):
    """A row group has more bytes than was likely: it is to be read piece by piece."""


class Size(NamedTuple):
    """How large some columns of a row group are when they are decoded.

    Attributes
    ----------
    likely
        Their bytes, estimated.
    most
        More than that they do not have.
    rows
        So many of their rows have few bytes, whichever these are.
    """

    likely: int
    most: int
    rows: int


class _Text(NamedTuple):
    """The bytes of a value of a column chunk: of most of them, and of the longest."""

    likely: float
    longest: float


class Sizes:
    """The sizes of the row groups of a file.

    Parameters
    ----------
    footer, chunks
        The footer, and its column chunks.
    source
        The file, of which dictionary pages are read.
    limits
        ``window_bytes``, and the bounds on what is decompressed.
    encoded
        The columns of values that stay dictionary-encoded when a row group is read whole.
    """

    def __init__(
        self,
        footer: Footer,
        chunks: Chunks,
        source: Any,
        limits: Limits,
        encoded: frozenset[int] = frozenset(),
    ) -> None:
        self._encoded = encoded
        self._facts = chunks.facts
        self._source = source
        self._limits = limits
        nodes = [node for node in footer.nodes() if node.element.physical is not None]
        self._widths = [_width(node.element) for node in nodes]
        self._paths = [node.path for node in nodes]
        self._texts: dict[tuple[int, int], _Text] = {}
        self._chosen: dict[tuple[int, ...], tuple[Any, Any, list[int]]] = {}

    def of(self, group: int, rows: int, leaves: tuple[int, ...], *, look: bool = True) -> Size:
        """Return the size of some columns of values of a row group of so many rows.

        Without `look`, what the footer claims of text is not compared with dictionaries: ``likely`` alone counts.

        Raises
        ------
        LimitExceeded
            One row, or one page, may be larger than the bounds on what is decompressed.
        """
        if leaves not in self._chosen:
            fixed = [leaf for leaf in leaves if self._widths[leaf] is not None]
            widths = np.array([self._widths[leaf] for leaf in fixed], np.float64)
            texts = [leaf for leaf in leaves if self._widths[leaf] is None]
            self._chosen[leaves] = np.array(fixed, np.int64), widths, texts
        fixed_leaves, widths, texts = self._chosen[leaves]
        counts = np.maximum(self._facts[group, fixed_leaves, kernel.VALUES], 0).astype(np.float64)
        likely = most = float((counts * (widths + _BESIDE)).sum())
        row = float((np.maximum(counts / max(rows, 1), 1.0) * (widths + _BESIDE)).sum())
        # All values of a chunk may be in one row, but one for each of the others.
        large = (1 + np.maximum(counts - rows, 0)) * widths
        for place in np.flatnonzero(large > self._limits.decompression_floor).tolist():
            self._check(group, int(fixed_leaves[place]), float(large[place]))
        for leaf in texts:
            facts = self._facts[group, leaf]
            values = max(int(facts[kernel.VALUES]), 0)
            pages = max(int(facts[kernel.UNCOMPRESSED]), 0)
            text = self._text(group, leaf, values, look=look)
            is_encoded = leaf in self._encoded
            likely += values * _BESIDE + (pages if is_encoded else values * text.likely)
            most += values * _BESIDE + (pages if is_encoded else values * text.longest)
            row += max(values / max(rows, 1), 1.0) * (text.longest + _BESIDE)
            self._check(group, leaf, text.longest + max(values - rows, 0) * text.likely)
        budget = max(self._limits.window_bytes // 4, _MIB)
        return Size(int(likely), int(most), max(int(budget / max(row, 1.0)), 1))

    def _check(self, group: int, leaf: int, nbytes: float) -> None:
        """Raise an error where a row may have more bytes than the bounds on what is decompressed."""
        compressed = max(int(self._facts[group, leaf, kernel.COMPRESSED]), 0)
        most = max(self._limits.decompression_floor, int(self._limits.decompression_ratio * compressed))
        if nbytes > most:
            raise LimitExceeded(
                "a row of a Parquet file may be too large when it is decoded",
                expected=f"at most {most} bytes: Limits.decompression_ratio times its column chunk",
                found=f"{int(nbytes)} bytes",
                where=f"row group {group}, column {'.'.join(self._paths[leaf])}",
                hint="Raise Limits.decompression_floor for files that you trust.",
            )

    def _text(self, group: int, leaf: int, values: int, *, look: bool) -> _Text:
        """Return the sizes of the values of a chunk of BYTE_ARRAY."""
        facts = self._facts[group, leaf]
        pages = max(int(facts[kernel.UNCOMPRESSED]), 0)
        encodings = int(facts[kernel.ENCODINGS])
        average = pages / max(values, 1)
        if encodings & (_DICTIONARY | _PREFIXES) == 0:
            return _Text(average, average)
        if values * pages <= self._limits.window_bytes // 16:
            return _Text(pages, pages)
        key = (group, leaf)
        claimed = int(facts[kernel.TEXT_BYTES])
        if key not in self._texts and claimed >= 0 and not look:
            return _Text(claimed / max(values, 1), claimed / max(values, 1))
        if key not in self._texts:
            longest = float(pages)
            if encodings & _PREFIXES == 0:
                average, longest = self._dictionary(group, leaf, average)
            likely = average if claimed < 0 else claimed / max(values, 1)
            self._texts[key] = _Text(min(likely, longest), max(longest, pages / max(values, 1)))
        return self._texts[key]

    def _dictionary(self, group: int, leaf: int, average: float) -> tuple[float, float]:
        """Return the size of an average value of a dictionary, with that of plain pages, and of its longest."""
        facts = self._facts[group, leaf]
        begin = int(facts[kernel.DICTIONARY_PAGE])
        if begin <= 0:
            begin = int(facts[kernel.DATA_PAGE])
        header, at = self._page(begin)
        raw, packed = header.get(2, 0), header.get(3, 0)
        if header.get(1) != 2 or raw < 0 or packed < 0:  # pyarrow says what is wrong with it
            return average, average
        if raw > max(self._limits.decompression_floor, self._limits.decompression_ratio * packed):
            self._check(group, leaf, raw)
        codec = int(facts[kernel.CODEC])
        if codec and codec not in _CODECS:
            return average, float(raw)
        data = self._source.read_at(packed, at)
        try:
            plain = pa.Codec(_CODECS[codec]).decompress(data, raw) if codec else data
        except (pa.ArrowException, OSError):
            return average, float(raw)
        counts = np.zeros(2, np.int64)
        launch(kernel.longest_value, 1, np.frombuffer(plain, np.uint8), counts)
        longest, entries = counts.tolist()
        return average + raw / max(entries, 1), float(longest)

    def _page(self, begin: int) -> tuple[dict[int, int], int]:
        """Return the numbers of the header of a page, and where it ends."""
        data = self._source.read_at(_HEADER, begin) if begin >= 0 else b""
        reader = Reader(data, _DEPTH)
        try:
            fields = reader.struct()
        except InvalidMetadata:
            return {}, begin
        return {
            each.id: each.value for each in fields if isinstance(each.value, int)
        }, begin + reader.position


def _width(element: SchemaElement) -> int | None:
    """Return the most bytes that a value of a column becomes, ``None`` for text."""
    name = PHYSICAL[element.physical or 0]
    logical = logical_of(element)
    is_decimal = logical is not None and logical.name == "DECIMAL"
    if name == "BYTE_ARRAY" and not is_decimal:
        return None
    width = WIDTHS.get(name, max(element.length or 0, 16))
    return max(width, _DECIMAL) if is_decimal else width
