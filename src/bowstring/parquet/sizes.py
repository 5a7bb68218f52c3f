"""How large row groups are when they are decoded, from the facts of their column chunks and their dictionaries.

A page of dictionary indices says nothing about the size of its values: 8 Mi rows of 1 KB are a few hundred KB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.errors import InvalidMetadata
from bowstring.kernels.launch import launch
from bowstring.kernels.parquet import bodies, pages
from bowstring.kernels.parquet import footer as kernel
from bowstring.parquet.footer import once
from bowstring.parquet.logical import PHYSICAL, WIDTHS
from bowstring.parquet.pages import DICTIONARY, PageReader, begins_of, check_pages, decompressed, too_large
from bowstring.parquet.types import logical_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.limits import Limits
    from bowstring.parquet.chunks import Chunks
    from bowstring.parquet.footer import Footer

_PREFIXES: Final = 1 << 7
# Of each value: an offset, its validity, and the levels that pyarrow keeps while it reads.
_BESIDE: Final = 8
_DECIMAL: Final = 32
_MIB: Final = 1 << 20
_REPEATED: Final = 2
_ROW: Final = "a row of a Parquet file may be too large when it is decoded"


class TooLargeError(Exception):
    """A row group has more bytes than was likely: it is to be read piece by piece."""

    # Which of its rows a filter leaves, where that is known already: values are counted once.
    masks: list[Any] | None = None


class Size(NamedTuple):
    """How large some columns of a row group are when they are decoded."""

    likely: int  # their bytes, estimated
    most: int  # more than that they do not have
    rows: int  # so many of their rows have few bytes, whichever these are


class _Text(NamedTuple):
    """The bytes of a value of a column chunk, likely and at most, or of its densest page; and of all at most."""

    likely: float
    longest: float
    most: float


class _Leaves(NamedTuple):
    """What the schema says about the columns of values; arrays have an element for each."""

    paths: list[str]
    are_text: Any
    widths: Any  # the most bytes that a value becomes, 0 for text
    floors: list[int]  # the bytes that a value becomes, however few are stored
    least: Any  # the least bytes that a value has in a dictionary
    levels: Any  # the highest repetition level and definition level


@once
def _leaves_of(footer: Footer) -> _Leaves:
    nodes = list(footer.nodes())
    leaves = [node for node in nodes if node.element.physical is not None]
    logical = [logical_of(node.element) for node in leaves]
    floors = [_DECIMAL if each is not None and each.name == "DECIMAL" else 0 for each in logical]
    names = [PHYSICAL[node.element.physical or 0] for node in leaves]
    lengths = [WIDTHS.get(name, node.element.length or 0) for name, node in zip(names, leaves, strict=True)]
    are_text = np.array([name == "BYTE_ARRAY" for name in names], np.bool_)
    fixed = [name not in WIDTHS for name in names]
    widths = np.maximum(np.where(fixed, np.maximum(lengths, 16), lengths), floors).astype(np.float64)
    levels = np.array(
        [(node.element.repetition == _REPEATED, bool(node.element.repetition)) for node in leaves], np.int64
    ).reshape(-1, 2)
    for node in nodes:
        if node.element.physical is None and node.element.repetition:
            levels[node.first_leaf : node.end_leaf] += (node.element.repetition == _REPEATED, 1)
    return _Leaves(
        [".".join(node.path) for node in leaves],
        are_text,
        np.where(are_text, 0.0, widths),
        floors,
        np.where(are_text, 4, np.maximum(lengths, 0)),
        levels,
    )


class Sizes:
    """The sizes of the row groups of a file."""

    def __init__(
        self,
        footer: Footer,
        chunks: Chunks,
        source: Any,
        limits: Limits,
        encoded: frozenset[int] = frozenset(),
    ) -> None:
        # encoded: the columns of values that stay dictionary-encoded when a row group is read whole
        self._encoded = encoded
        self._facts = chunks.facts
        self._source = source
        self._limits = limits
        self._end = source.size()
        self._paths, self._are_text, self._widths, self._floors, self._least, self._levels = _leaves_of(
            footer
        )
        self._repetitions = self._levels[:, 0]

    def pages(self, group: int, rows: int, leaves: Sequence[int]) -> Any:
        """Return the facts of the pages of some columns of values of a row group, which are as the footer says."""
        chosen = np.array(leaves, np.int64)
        chunks = self._facts[group, chosen]
        if not len(chosen):
            return np.zeros((0, int(pages.FACTS)), np.int64)
        # Each row has a value or the level of a null, and of a repeated column at least one.
        lists = np.maximum(chunks[:, kernel.VALUES], rows)
        is_flat = self._repetitions[chosen] == 0
        wanted = np.where(is_flat, rows, lists)
        begins = begins_of(chunks, self._end)
        reader = PageReader(self._source, self._limits)
        facts = reader.read(chunks, begins, wanted, self._levels[chosen])
        # Values of fixed width are no longer than that: pyarrow decodes them before it compares.
        wrong = ~self._are_text[chosen] & (facts[:, pages.DELTA_LONGEST] > self._least[chosen])
        facts[wrong, pages.STATUS] = pages.CONTRADICTED

        def name(place: int) -> str:
            return f"row group {group}, column {self._paths[leaves[place]]}"

        check_pages(facts, chunks, is_flat, self._least[chosen], name, self._end, self._limits)
        # Early writers of C++ did not count nulls. Of lists, only levels say whether pyarrow then reads all values.
        for place in np.flatnonzero(~is_flat & (facts[:, pages.VALUES] != chunks[:, kernel.VALUES])).tolist():
            found = self._rows_of(group, leaves[place], facts[place])
            if found != rows:
                raise InvalidMetadata(
                    "the pages of a column chunk have another number of values than the footer says",
                    expected=f"{int(chunks[place, kernel.VALUES])} values in {rows} rows",
                    found=f"{int(facts[place, pages.VALUES])} values in {found if found >= 0 else 'other'} rows",
                    where=name(place),
                )
        return facts

    def of(self, group: int, rows: int, leaves: tuple[int, ...], facts: Any | None) -> Size:
        """Return the decoded size of some columns of values of a row group with this number of rows.
        Without the `facts` of their pages, the footer is believed: ``likely`` alone counts.
        """
        chosen = np.array(leaves, np.int64)
        chunks = self._facts[group, chosen]
        values = np.maximum(chunks[:, kernel.VALUES], 0)
        raw, encodings = np.maximum(chunks[:, kernel.UNCOMPRESSED], 0), chunks[:, kernel.ENCODINGS]
        if facts is not None:
            values, raw = np.maximum(values, facts[:, pages.VALUES]), facts[:, pages.RAW]
            encodings = facts[:, pages.ENCODINGS]
        counts = values.astype(np.float64)
        longest = self._widths[chosen]
        likely = most = counts * longest
        texts = np.flatnonzero(self._are_text[chosen]).tolist()
        if texts:
            most, longest = likely.copy(), longest.copy()
        for place in texts:
            leaf, count, nbytes = leaves[place], int(values[place]), int(raw[place])
            found = None if facts is None else facts[place]
            text = self._text(group, leaf, count, nbytes, int(encodings[place]), found)
            is_encoded = leaf in self._encoded
            longest[place] = text.longest
            likely[place] = nbytes if is_encoded else count * text.likely
            most[place] = nbytes if is_encoded else text.most
        if facts is not None:
            self._check_rows(group, rows, leaves, facts, counts, longest, most)
        beside = float(counts.sum() * _BESIDE)
        row = float((np.maximum(counts / max(rows, 1), 1.0) * (longest + _BESIDE)).sum())
        budget = max(self._limits.window_bytes // 4, _MIB)
        return Size(int(likely.sum() + beside), int(most.sum() + beside), max(int(budget / max(row, 1.0)), 1))

    def _rows_of(self, group: int, leaf: int, facts: Any) -> int:
        """Return how many rows a chunk of lists has by its levels, as :meth:`PageReader.rows`."""
        chunk = self._facts[group, leaf]
        begin, wanted = int(begins_of(chunk, self._end)), int(facts[pages.WANTED])
        level = int(self._repetitions[leaf])
        return PageReader(self._source, self._limits).rows(chunk, begin, wanted, level)

    def _check_rows(
        self, group: int, rows: int, leaves: Sequence[int], facts: Any, counts: Any, longest: Any, most: Any
    ) -> None:
        """Raise an error where a row may have more bytes than the bounds on what is decompressed."""
        chosen = np.array(leaves, np.int64)
        packed = np.maximum(self._facts[group, chosen, kernel.COMPRESSED], 0)
        floor, ratio = self._limits.decompression_floor, self._limits.decompression_ratio
        bounds = np.maximum(floor, ratio * packed)
        # Chunks may be the same bytes of the file.
        bound = max(floor, self._limits.window_bytes, ratio * min(int(packed.sum()), self._end))
        # All values of a list's chunk may be in one row, but one for each of the others.
        is_list = self._repetitions[chosen] > 0
        nbytes = np.minimum(np.where(is_list, counts, 1.0) * longest, most)
        if not (nbytes > bounds).any() and nbytes.sum() <= bound:
            return
        for place in np.flatnonzero(is_list).tolist():
            leaf, count = leaves[place], int(counts[place])
            values = max(count - rows, 0) + 1
            # What the footer says of rows is believed where the levels say so, too.
            if values * longest[place] < nbytes[place]:
                values = max(values, count - max(self._rows_of(group, leaf, facts[place]), 1) + 1)
            found = min(nbytes[place], values * longest[place])
            if found > bounds[place] and self._are_text[leaf]:
                found = min(found, self._nbytes_of(group, leaf, facts[place]))
            nbytes[place] = found
        worst = int((nbytes / bounds).argmax())
        name = self._paths[leaves[worst]]
        if nbytes[worst] > bounds[worst]:
            raise too_large(_ROW, nbytes[worst], bounds[worst], f"row group {group}, column {name}")
        if nbytes.sum() > bound:
            raise too_large(_ROW, nbytes.sum(), bound, f"row group {group}, all columns, {name} the most")

    def _nbytes_of(self, group: int, leaf: int, facts: Any) -> int:
        """Return the bytes of all values of a chunk of BYTE_ARRAY: the indices of a dictionary are looked at."""
        chunk = self._facts[group, leaf]
        lengths = self._dictionary(int(chunk[kernel.CODEC]), facts)
        begin, wanted = int(begins_of(chunk, self._end)), int(facts[pages.WANTED])
        reader = PageReader(self._source, self._limits)
        nbytes = reader.nbytes(chunk, begin, wanted, self._levels[leaf].tolist(), lengths)
        return nbytes + int(facts[pages.DELTA_BYTES])

    def _text(self, group: int, leaf: int, values: int, raw: int, encodings: int, facts: Any | None) -> _Text:
        """Return the sizes of the values of a chunk of BYTE_ARRAY."""
        average = raw / max(values, 1)
        # Decimals have these bytes whatever they are stored in.
        floor = self._floors[leaf]
        if encodings & (DICTIONARY | _PREFIXES) == 0:
            longest = average if facts is None else float(max(facts[pages.DENSEST], average))
            return _Text(average + floor, longest + floor, raw + values * floor)
        if values * raw <= self._limits.window_bytes // 16:
            return _Text(raw + floor, raw + floor, values * (raw + floor))
        claimed = int(self._facts[group, leaf, kernel.TEXT_BYTES])
        likely = average if claimed < 0 else claimed / max(values, 1)
        if facts is None:
            return _Text(likely + floor, likely + floor, values * (likely + floor))
        mean, longest, most = average, float(facts[pages.DENSEST]), float(raw)
        if encodings & DICTIONARY:
            lengths = self._dictionary(int(self._facts[group, leaf, kernel.CODEC]), facts)
            mean += float(lengths.mean()) if len(lengths) else 0.0
            longest = max(longest, float(lengths.max(initial=0)))
            most += values * float(lengths.max(initial=0))
        if encodings & _PREFIXES:
            mean += float(facts[pages.DELTA_BYTES]) / max(values, 1)
            longest = max(longest, float(facts[pages.DELTA_LONGEST]))
            most += float(facts[pages.DELTA_BYTES])
        likely = min(mean if claimed < 0 else likely, longest)
        return _Text(likely + floor, longest + floor, most + values * floor)

    def _dictionary(self, codec: int, facts: Any) -> Any:
        """Return the lengths of the values of a dictionary; one, of all its bytes, where it cannot be read."""
        at, raw, packed = facts[[pages.DICTIONARY_AT, pages.DICTIONARY_RAW, pages.DICTIONARY_PACKED]].tolist()
        data = np.frombuffer(self._source.read_at(packed, at), np.uint8) if at else None
        plain = None if data is None else decompressed(codec, data, raw)
        if plain is None:  # pyarrow says what is wrong with it
            return np.full(1, raw, np.int64)
        lengths, counts = np.empty(int(facts[pages.DICTIONARY_VALUES]), np.int64), np.zeros(2, np.int64)
        launch(bodies.value_lengths, 1, plain, lengths, counts)
        return lengths[: int(counts[1])]
