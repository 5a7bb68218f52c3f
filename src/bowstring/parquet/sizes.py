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
from bowstring.kernels.parquet import pages
from bowstring.parquet.logical import PHYSICAL, WIDTHS
from bowstring.parquet.pages import CODECS, check_pages, pages_of, rows_of
from bowstring.parquet.types import logical_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.limits import Limits
    from bowstring.parquet.chunks import Chunks
    from bowstring.parquet.footer import Footer, SchemaElement

__all__ = ["Size", "Sizes", "TooLargeError"]

_DICTIONARY: Final = 1 << 2 | 1 << 8
_PREFIXES: Final = 1 << 7
# Of each value: an offset, its validity, and the levels that pyarrow keeps while it reads.
_BESIDE: Final = 8
_DECIMAL: Final = 32
_MIB: Final = 1 << 20
_REPEATED: Final = 2


class TooLargeError(Exception):
    """A row group has more bytes than was likely: it is to be read piece by piece.

    Attributes
    ----------
    masks
        Which of its rows a filter leaves, where that is known already: values are counted once.
    """

    masks: list[Any] | None = None


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
        self._paths = [".".join(node.path) for node in nodes]
        self._least = np.array([_least(node.element) for node in nodes], np.int64)
        # The highest repetition level of each column of values.
        self._levels = np.zeros(len(nodes), np.int64)
        for node in footer.nodes():
            if node.element.repetition == _REPEATED:
                self._levels[node.first_leaf : node.end_leaf] += 1
        self._rows: dict[tuple[int, int], int] = {}
        self._texts: dict[tuple[int, int], _Text] = {}
        self._chosen: dict[tuple[int, ...], tuple[Any, Any, list[int]]] = {}

    def pages(self, group: int, rows: int, leaves: Sequence[int]) -> Any:
        """Return the facts of the pages of some columns of values of a row group, which are as the footer says.

        Raises
        ------
        InvalidMetadata, LimitExceeded
            As :func:`bowstring.parquet.pages.check_pages`.
        """
        chosen = np.array(leaves, np.int64)
        chunks = self._facts[group, chosen]
        if not len(chosen):
            return np.zeros((0, int(pages.FACTS)), np.int64)
        # Each row has a value or the level of a null, and of a repeated column at least one.
        lists = np.maximum(chunks[:, kernel.VALUES], rows)
        is_flat = self._levels[chosen] == 0
        wanted = np.where(is_flat, rows, lists)
        facts = pages_of(self._source, chunks, wanted, self._limits)
        names = [f"row group {group}, column {self._paths[leaf]}" for leaf in leaves]
        check_pages(facts, chunks, is_flat, self._least[chosen], names, self._limits)
        # Early writers of C++ did not count nulls. Of lists, only levels say whether pyarrow then reads all values.
        for place in np.flatnonzero(~is_flat & (facts[:, pages.VALUES] != chunks[:, kernel.VALUES])).tolist():
            found = self._rows_of(group, leaves[place], facts[place])
            if found != rows:
                raise InvalidMetadata(
                    "the pages of a column chunk have another number of values than the footer says",
                    expected=f"{int(chunks[place, kernel.VALUES])} values in {rows} rows",
                    found=f"{int(facts[place, pages.VALUES])} values in {found if found >= 0 else 'other'} rows",
                    where=names[place],
                )
        return facts

    def of(self, group: int, rows: int, leaves: tuple[int, ...], facts: Any | None) -> Size:
        """Return the size of some columns of values of a row group of so many rows.

        Without the `facts` of their pages, what the footer claims is believed: ``likely`` alone counts.

        Raises
        ------
        LimitExceeded
            One row may be larger than the bounds on what is decompressed.
        """
        chunks = self._facts[group, np.array(leaves, np.int64)]
        values = np.maximum(chunks[:, kernel.VALUES], 0)
        raw, encodings = np.maximum(chunks[:, kernel.UNCOMPRESSED], 0), chunks[:, kernel.ENCODINGS]
        if facts is not None:
            values, raw = np.maximum(values, facts[:, pages.VALUES]), facts[:, pages.RAW]
            encodings = facts[:, pages.ENCODINGS]
        if leaves not in self._chosen:
            fixed = [place for place, leaf in enumerate(leaves) if self._widths[leaf] is not None]
            widths = np.array([self._widths[leaves[place]] for place in fixed], np.float64)
            texts = [place for place, leaf in enumerate(leaves) if self._widths[leaf] is None]
            self._chosen[leaves] = np.array(fixed, np.int64), widths, texts
        fixed_places, widths, texts = self._chosen[leaves]
        counts = values[fixed_places].astype(np.float64)
        likely = most = float((counts * (widths + _BESIDE)).sum())
        row = float((np.maximum(counts / max(rows, 1), 1.0) * (widths + _BESIDE)).sum())
        large = np.where(self._levels[np.array(leaves, np.int64)[fixed_places]] > 0, counts, 1.0) * widths
        for each in np.flatnonzero(large > self._limits.decompression_floor).tolist():
            place, width = int(fixed_places[each]), float(widths[each])
            found = None if facts is None else facts[place]
            self._check(group, leaves[place], rows, int(values[place]), _Text(width, width), found)
        for place in texts:
            leaf, count, nbytes = leaves[place], int(values[place]), int(raw[place])
            text = self._text(
                group, leaf, count, nbytes, int(encodings[place]), None if facts is None else facts[place]
            )
            is_encoded = leaf in self._encoded
            likely += count * _BESIDE + (nbytes if is_encoded else count * text.likely)
            most += count * _BESIDE + (nbytes if is_encoded else count * text.longest)
            row += max(count / max(rows, 1), 1.0) * (text.longest + _BESIDE)
            self._check(group, leaf, rows, count, text, None if facts is None else facts[place])
        budget = max(self._limits.window_bytes // 4, _MIB)
        return Size(int(likely), int(most), max(int(budget / max(row, 1.0)), 1))

    def _rows_of(self, group: int, leaf: int, facts: Any) -> int:
        """Return how many rows a chunk of lists has by its levels, as :func:`bowstring.parquet.pages.rows_of`."""
        if (group, leaf) not in self._rows:
            found = rows_of(self._source, self._facts[group, leaf], facts, int(self._levels[leaf]))
            self._rows[group, leaf] = found
        return self._rows[group, leaf]

    def _check(self, group: int, leaf: int, rows: int, count: int, text: _Text, facts: Any | None) -> None:
        """Raise an error where a row may have more bytes than the bounds on what is decompressed."""
        compressed = max(int(self._facts[group, leaf, kernel.COMPRESSED]), 0)
        most = max(self._limits.decompression_floor, int(self._limits.decompression_ratio * compressed))
        # All values of a chunk may be in one row, but one for each of the others.
        others = max(count - 1, 0) if self._levels[leaf] else 0
        if others and text.longest + others * text.likely > most:
            others = max(count - rows, 0)
            if facts is not None and text.longest + others * text.likely <= most:
                # What the footer says of rows is believed where the levels say so, too.
                others = max(others, count - max(self._rows_of(group, leaf, facts), 1))
        nbytes = text.longest + others * text.likely
        if nbytes > most:
            raise LimitExceeded(
                "a row of a Parquet file may be too large when it is decoded",
                expected=f"at most {most} bytes: Limits.decompression_ratio times its column chunk",
                found=f"{int(nbytes)} bytes",
                where=f"row group {group}, column {self._paths[leaf]}",
                hint="Raise Limits.decompression_floor for files that you trust.",
            )

    def _text(self, group: int, leaf: int, values: int, raw: int, encodings: int, facts: Any | None) -> _Text:
        """Return the sizes of the values of a chunk of BYTE_ARRAY."""
        average = raw / max(values, 1)
        if encodings & (_DICTIONARY | _PREFIXES) == 0:
            return _Text(average, average)
        if values * raw <= self._limits.window_bytes // 16:
            return _Text(raw, raw)
        key = (group, leaf)
        claimed = int(self._facts[group, leaf, kernel.TEXT_BYTES])
        if facts is None and key not in self._texts:
            likely = average if claimed < 0 else claimed / max(values, 1)
            return _Text(likely, likely)
        if key not in self._texts:
            longest = float(raw)
            if encodings & _PREFIXES == 0:
                average, longest = self._dictionary(
                    int(self._facts[group, leaf, kernel.CODEC]), facts, average
                )
            likely = average if claimed < 0 else claimed / max(values, 1)
            self._texts[key] = _Text(min(likely, longest), max(longest, raw / max(values, 1)))
        return self._texts[key]

    def _dictionary(self, codec: int, facts: Any, average: float) -> tuple[float, float]:
        """Return the size of an average value of a dictionary, with that of plain pages, and of its longest."""
        at, raw, packed = facts[[pages.DICTIONARY_AT, pages.DICTIONARY_RAW, pages.DICTIONARY_PACKED]].tolist()
        if not at:  # pyarrow says what is wrong with it
            return average, average
        if codec and codec not in CODECS:
            return average, float(raw)
        data = self._source.read_at(packed, at)
        try:
            plain = pa.Codec(CODECS[codec]).decompress(data, raw) if codec else data
        except (pa.ArrowException, OSError):
            return average, float(raw)
        counts = np.zeros(2, np.int64)
        launch(kernel.longest_value, 1, np.frombuffer(plain, np.uint8), counts)
        longest, entries = counts.tolist()
        return average + raw / max(entries, 1), float(longest)


def _width(element: SchemaElement) -> int | None:
    """Return the most bytes that a value of a column becomes, ``None`` for text."""
    name = PHYSICAL[element.physical or 0]
    logical = logical_of(element)
    is_decimal = logical is not None and logical.name == "DECIMAL"
    if name == "BYTE_ARRAY" and not is_decimal:
        return None
    width = WIDTHS.get(name, max(element.length or 0, 16))
    return max(width, _DECIMAL) if is_decimal else width


def _least(element: SchemaElement) -> int:
    """Return the least bytes that a value of a column has in a dictionary."""
    name = PHYSICAL[element.physical or 0]
    return 4 if name == "BYTE_ARRAY" else WIDTHS.get(name, max(element.length or 0, 0))
