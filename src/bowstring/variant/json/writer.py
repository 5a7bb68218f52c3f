"""JSON text of a Variant column, by kernels on the column's device."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Column
from bowstring.columnar.slots import check_order
from bowstring.errors import LimitExceeded
from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch
from bowstring.kernels.variant.text.writer import SPARE, WORDS, quote_names, write_text
from bowstring.limits import Limits, limits_or_default
from bowstring.variant.column import column_of, dictionary_of
from bowstring.variant.json.source import Rules, check_rules
from bowstring.variant.shredded.unshred import open_column
from bowstring.variant.status import first_error, raise_error, validity_of

if TYPE_CHECKING:
    from bowstring.memory import Device
    from bowstring.variant.column import MetadataDictionary, VariantColumn

_LARGEST_TEXT: Final = (1 << 31) - 1
# On the host: rows that are written before they are put together, and rows of one work item.
_ROWS: Final = 1 << 14
_BLOCK: Final = 256
_FEWEST: Final = 8  # so that each begins with a byte of the bitmaps
_LONG_ROW: Final = 1 << 12
# Scratch for the text of a work item, in bytes for each byte and for each row; what needs more is written twice.
_GROWTH: Final = 6
_PER_ROW: Final = 64
_MOST_SCRATCH: Final = 1 << 26
# So many work items at most on a device, for each needs scratch of its own.
_ITEMS: Final = 1 << 15
# Each container takes four bytes at least, its children not counted.
_SMALLEST_CONTAINER: Final = 4


def to_json(
    column: Any, *, rules: Rules = "plain", plain: bool = False, limits: Limits | None = None
) -> Column:
    """Return each row of a Variant column as JSON text.

    Parameters
    ----------
    column, plain
        As for :func:`bowstring.variant.get`.
    rules
        ``"plain"``: decimals with all their digits, ISO 8601 with ``T``, six or nine digits and ``Z`` for
        instants, shortest doubles as Python writes them. ``"spark"``: as Spark's ``to_json`` in UTC: decimals
        without trailing zeros, a blank between date and time and no trailing zeros of a second, doubles in
        Java's notation (with the shortest digits, as Java 19 on). Both: binary as Base64, NaN and infinities as
        strings, keys in the order of the object, text as it is but for what JSON must escape.
    limits
        ``depth`` bounds the nesting, ``decompression_ratio`` how many times larger than their bytes values may
        be that are views of the same ones.

    Returns
    -------
    Column
        ``string``; null where the row is an SQL NULL, ``null`` where it is a Variant null.

    Raises
    ------
    InvalidBody, Truncated, Unsupported, LimitExceeded
        A value is not what the specification says, or too deep, or an object has thousands of keys in no order;
        the error says the row. Or the text takes more than 2 GiB.

    Examples
    --------
    >>> from bowstring.variant.json.read import from_json
    >>> column = from_json(['{"b": 1.50, "a": [true, null]}', None])
    >>> to_json(column).to_arrow().to_pylist()
    ['{"a":[true,null],"b":1.50}', None]
    """
    limits = limits_or_default(limits)
    check_rules(rules)
    opened = open_column(column, plain=plain)
    with opened.column.device.use():
        check_order(opened.value, opened.column.device, opened.column.name)
        texts = rows_of(opened, dictionary_of(opened), rules=rules, limits=limits).texts()
        error = first_error(texts.statuses, opened.column.device)
        if error is not None:
            raise_error(opened, *error, limits)
        field = pa.field(opened.column.name, pa.string())
        validity = validity_of(texts.statuses)
        return column_of(opened.column, field, validity, texts.offsets.astype(np.int32), texts.data)


class Texts(NamedTuple):
    """Texts of rows, on one device."""

    statuses: Any  # uint8: only rows that are OK have text
    offsets: Any  # int64, shape (rows + 1,)
    data: Any


class Names(NamedTuple):
    """The names of distinct metadata, as kernels need them to write keys of objects."""

    bases: Any  # index of the first name of each metadata
    counts: Any  # of each metadata; -1 where it is malformed
    ends: Any  # of each name, after a leading 0
    text: Any  # as quote_names writes it


def block_of(rows: int, device: Device) -> int:
    """Return how many rows one work item takes where each needs scratch of its own."""
    return max(_BLOCK if device.is_host else 1, -(-rows // _ITEMS))


def rows_of(
    opened: VariantColumn,
    dictionary: MetadataDictionary,
    *,
    starts: Any = None,
    stops: Any = None,
    wanted: Any = None,
    rules: Rules = "plain",
    limits: Limits,
) -> Rows:
    """Return what kernels take of the rows, or of the slots ``[starts, stops)`` in the values' bytes. `wanted`
    is a bitmap, by default the validity; other rows are ``SQL_NULL``. If it is empty, all are wanted.
    """
    device, data = opened.column.device, opened.value.data
    if starts is None:
        starts, stops = opened.value.starts[: opened.rows], opened.value.stops[: opened.rows]
        if opened.value.shared:
            _check_sharing(opened, starts, stops, limits)
        if len(opened.value.validity):
            starts, stops, data = _with_nulls(opened, starts, stops)
    starts, stops = (each.astype(np.int64) for each in (starts, stops))
    # Values nest at most as deep as the bytes of the longest allow.
    longest = int(device.to_host((stops - starts).max(keepdims=True))[0]) if len(starts) else 0
    spark, depth = int(rules == "spark"), max(1, min(limits.depth, longest // _SMALLEST_CONTAINER + 2))
    return Rows(
        device,
        opened.validity if wanted is None else wanted,
        starts,
        stops,
        data,
        dictionary.indices,
        (dictionary.starts, dictionary.stops, dictionary.data),
        dictionary.marks,
        _quoted_names(dictionary, device, spark),
        depth,
        spark,
    )


def _with_nulls(opened: VariantColumn, starts: Any, stops: Any) -> tuple[Any, Any, Any]:
    """Return slots in which a row without a value has that of a Variant null, and the bytes that they lie in."""
    device, value, rows = opened.column.device, opened.value, opened.rows
    absent = ~bitmap.expanded(value.validity, 0, rows)
    if len(opened.validity):
        absent &= bitmap.expanded(opened.validity, 0, rows)
    if not device.to_host(absent.sum(keepdims=True))[0]:
        return starts, stops, value.data
    xp, end = device.xp, np.int64(len(value.data))
    starts = xp.where(absent, end, starts.astype(np.int64))
    stops = xp.where(absent, end + np.int64(1), stops.astype(np.int64))
    return starts, stops, xp.concatenate([value.data, xp.zeros(1, np.uint8)])


def _check_sharing(opened: VariantColumn, starts: Any, stops: Any, limits: Limits) -> None:
    """Check that rows which share their bytes do not ask for work out of all proportion to these."""
    xp, nbytes = opened.column.device.xp, len(opened.value.data)
    sizes = xp.minimum(xp.maximum(stops - starts, np.int64(0)), np.int64(nbytes))
    total = int(opened.column.device.to_host(sizes.sum(keepdims=True))[0])
    if total > max(limits.decompression_floor, limits.decompression_ratio * nbytes):
        raise LimitExceeded(
            "rows that share their values",
            expected=f"at most {limits.decompression_ratio:g} times their bytes",
            found=f"{total} bytes of {nbytes}",
            where=opened.column.name,
            hint="Raise Limits.decompression_ratio.",
        )


def _quoted_names(dictionary: MetadataDictionary, device: Device, spark: int) -> Names:
    xp, count = device.xp, len(dictionary.marks)
    counts, sizes = xp.empty(count, np.int64), xp.empty(count, np.int64)
    nothing, no_ends, no_bytes = xp.zeros(count, np.int64), xp.empty(0, np.int64), xp.empty(0, np.uint8)
    metadata = dictionary.starts, dictionary.stops, dictionary.data, spark
    launch(quote_names, count, *metadata, nothing, nothing, nothing, counts, sizes, no_ends, no_bytes)
    bases, begins = _offsets(xp, xp.maximum(counts, np.int64(0))), _offsets(xp, sizes)
    last = device.to_host(xp.concatenate([bases[count:], begins[count:]]))
    ends = xp.zeros(int(last[0]) + 1, np.int64)
    names = xp.zeros(int(last[1]) + int(SPARE), np.uint8)
    launch(
        quote_names, count, *metadata, bases[:count], begins[:count], begins[1:], counts, sizes, ends, names
    )
    return Names(bases[:count], counts, ends, names)


def _offsets(xp: Any, sizes: Any) -> Any:
    return xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(sizes)])


def _check(size: int) -> None:
    if size > _LARGEST_TEXT:
        raise LimitExceeded(
            "the JSON text of a column",
            expected="at most 2 GiB",
            found=size,
            hint="Take fewer rows at a time: column.batch.slice(start, rows).",
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """Rows as kernels take them: where their values are, their metadata, and how they are written."""

    device: Device
    validity: Any
    starts: Any
    stops: Any
    data: Any
    metadata_ids: Any
    metadata: tuple[Any, Any, Any]
    marks: Any
    names: Names
    depth: int
    spark: int

    def _write(
        self, first: int, block: int, begins: Any, limits: Any, statuses: Any, sizes: Any, out: Any
    ) -> None:
        """Write the rows from `first` on, a multiple of 8, as many as there are statuses."""
        last, byte = first + len(statuses), first // 8
        items = len(begins)
        slots = self.validity[byte:], self.starts[first:last], self.stops[first:last], self.data
        metas = self.metadata_ids[first:last], self.marks, *self.names
        scratch = self.device.xp.empty(items * (self.depth + 1) * int(WORDS), np.uint64)
        room = self.depth, self.spark, begins, limits, scratch
        launch(write_text, items, block, *slots, *metas, *room, statuses, sizes, out)

    def measured(self) -> tuple[Any, Any]:
        """Return the status of each row, and the size of its text."""
        xp, rows = self.device.xp, len(self.starts)
        block = block_of(rows, self.device)
        nothing = xp.zeros(-(-rows // block), np.int64)
        statuses, sizes = xp.empty(rows, np.uint8), xp.empty(rows, np.int64)
        self._write(0, block, nothing, nothing, statuses, sizes, xp.empty(0, np.uint8))
        return statuses, sizes

    def texts(self) -> Texts:
        return self._on_host() if self.device.is_host else self._on_device()

    def _on_device(self) -> Texts:
        """Measure all rows, and write them."""
        xp, rows = self.device.xp, len(self.starts)
        statuses, sizes = self.measured()
        offsets = _offsets(xp, sizes)
        total = int(self.device.to_host(offsets[rows:])[0])
        _check(total)
        out = xp.empty(total, np.uint8)
        block = block_of(rows, self.device)
        begins = offsets[:rows:block].copy()
        self._write(0, block, begins, xp.concatenate([begins[1:], offsets[rows:]]), statuses, sizes, out)
        return Texts(statuses, offsets, out)

    def _on_host(self) -> Texts:
        """Write some thousand rows at a time into scratch that most fit, and concatenate their texts."""
        rows = len(self.starts)
        statuses, sizes = np.empty(rows, np.uint8), np.empty(rows, np.int64)
        scratch = np.empty(0, np.uint8)
        texts: list[Any] = []
        first = total = 0
        while first < rows:
            block, bounds = self._scratch_bounds(first)
            part = slice(first, min(first + block * (len(bounds) - 1), rows))
            if bounds[-1] > len(scratch):
                scratch = np.empty(bounds[-1], np.uint8)
            self._write(first, block, bounds[:-1], bounds[1:], statuses[part], sizes[part], scratch)
            written = np.add.reduceat(sizes[part], np.arange(0, part.stop - first, block))
            total += int(written.sum())
            _check(total)
            if (written > np.diff(bounds)).any():
                bounds = _offsets(np, written)
                scratch = np.empty(bounds[-1], np.uint8)
                self._write(first, block, bounds[:-1], bounds[1:], statuses[part], sizes[part], scratch)
            pairs = zip(bounds.tolist(), written.tolist(), strict=False)
            texts.append(np.concatenate([scratch[begin : begin + size] for begin, size in pairs]))
            first = part.stop
        data = np.concatenate(texts) if texts else np.empty(0, np.uint8)
        return Texts(statuses, _offsets(np, sizes), data)

    def _scratch_bounds(self, first: int) -> tuple[int, Any]:
        """Return how many rows a work item takes, and the bounds of the scratch of each item."""
        part = slice(first, first + _ROWS)
        lengths = np.clip(self.stops[part] - self.starts[part], 0, len(self.data))
        block = _BLOCK if lengths.sum() <= len(lengths) * _LONG_ROW else _FEWEST
        bounds = _offsets(
            np, np.add.reduceat(lengths * _GROWTH + _PER_ROW, np.arange(0, len(lengths), block))
        )
        count = int(np.searchsorted(bounds, _MOST_SCRATCH, side="right")) - 1
        # Where not even one fits, it is measured first.
        return block, bounds[: count + 1] if count else np.zeros(2, np.int64)
