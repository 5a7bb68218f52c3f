"""The rows of a Variant column on the host, one by one: bytes, or typed trees."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from bowstring.columnar.batch import Column
from bowstring.columnar.slots import Slots
from bowstring.errors import BowstringError, InvalidBody
from bowstring.kernels import bitmap
from bowstring.limits import Limits
from bowstring.variant.codec.decode import decode, decode_names
from bowstring.variant.codec.primitives import Value
from bowstring.variant.column import VariantColumn, opened_of

# Distinct metadata that are kept parsed.
_NAMES_KEPT = 64
_VARIANT_NULL: Final = b"\x00"


def raw_rows(
    column: VariantColumn, chosen: Iterable[int] | None = None, first: int = 0
) -> Iterator[tuple[bytes, bytes] | None]:
    """Yield metadata and value of each row, or of some, None for an SQL NULL; rows that share a metadata get one
    object. A row without a value has that of a Variant null, as Parquet says. Errors count rows from `first`.
    """
    valid = _flags(column.validity, column.rows)
    slots = range(column.rows) if column.indices is None else column.indices.tolist()
    metadata, value = _Reader(column.metadata, "metadata"), _Reader(column.value, "value")
    shared: dict[tuple[int, int], bytes] = {}
    for row in range(column.rows) if chosen is None else chosen:
        if valid is not None and not valid[row]:
            yield None
            continue
        # By its place among the bytes: dictionaries and views may name the same one again and again.
        place = metadata.bounds(slots[row], first + row)
        names = shared.get((place.start, place.stop))
        if names is None:
            if len(shared) >= _NAMES_KEPT:
                shared.clear()
            names = shared[place.start, place.stop] = bytes(metadata.data[place])
        yield names, bytes(value.data[value.bounds(row, first + row)]) if value.has(row) else _VARIANT_NULL


def raw_row(column: VariantColumn, row: int) -> tuple[bytes, bytes] | None:
    """Return metadata and value of one row, wherever the column is."""
    [raw] = raw_rows(on_host(column.column.as_batch().slice(row, 1)[0]), first=row)
    return raw


def on_host(column: Column) -> VariantColumn:
    """Return a Variant column, marked or not, as it is or copied to the host."""
    return opened_of(column if column.device.is_host else column.as_batch().to_device("cpu")[0])


class _Reader:
    """Slots as bytes, each checked to be within its buffer: the offsets are from outside."""

    def __init__(self, slots: Slots, what: str) -> None:
        self._what = what
        self._starts, self._stops = slots.starts.tolist(), slots.stops.tolist()
        self._valid = _flags(slots.validity, len(self._starts))
        self.data = memoryview(np.ascontiguousarray(slots.data))  # type: ignore[arg-type]

    def has(self, slot: int) -> bool:
        return 0 <= slot < len(self._starts) and (self._valid is None or self._valid[slot])

    def bounds(self, slot: int, row: int) -> slice:
        if not self.has(slot):
            raise InvalidBody(f"a Variant has no {self._what}", where=f"row {row}")
        start, stop = self._starts[slot], self._stops[slot]
        if not 0 <= start <= stop <= len(self.data):
            raise InvalidBody(
                f"the {self._what} of a Variant is not within its buffer",
                expected=f"within 0 to {len(self.data)}",
                found=f"{start} to {stop}",
                where=f"row {row}",
            )
        return slice(start, stop)


def _flags(validity: Any, slots: int) -> list[bool] | None:
    """Return a bitmap as flags, None where nothing is null."""
    if not len(validity):
        return None
    flags: list[bool] = bitmap.expanded(validity, 0, slots).tolist()
    return flags


def values(
    column: VariantColumn, *, limits: Limits, chosen: Sequence[int] | None = None
) -> Iterator[Value | None]:
    """Yield each row, or some of them, as a typed tree, None for an SQL NULL; an error says its row."""
    # Where every row has metadata of its own, keeping them all would hold the column twice.
    names = functools.lru_cache(_NAMES_KEPT)(decode_names)
    chosen = range(column.rows) if chosen is None else chosen
    for row, raw in zip(chosen, raw_rows(column, chosen), strict=True):
        if raw is None:
            yield None
            continue
        try:
            yield decode(names(raw[0]), raw[1], limits=limits)
        except BowstringError as error:
            raise in_row(error, row) from error


def in_row(error: BowstringError, row: int) -> BowstringError:
    """Return an error with the row that it happened in."""
    where = f"row {row}, {error.where}" if error.where else f"row {row}"
    return type(error)(error.what, expected=error.expected, found=error.found, where=where, hint=error.hint)
