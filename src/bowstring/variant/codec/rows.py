"""The rows of a Variant column on the host, one by one: bytes, or typed trees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from bowstring.columnar.slots import Slots
from bowstring.errors import BowstringError, InvalidBody, NotOnDevice
from bowstring.kernels import bitmap
from bowstring.limits import Limits
from bowstring.variant.codec.decode import decode, decode_names
from bowstring.variant.codec.primitives import Value
from bowstring.variant.column import VariantColumn, open_column
from bowstring.variant.metadata_dictionary import check_overlap

# Distinct metadata that are kept parsed.
_NAMES_KEPT = 64
_VARIANT_NULL: Final = b"\x00"


def open_on_host(column: Any, call: str, *, plain: bool) -> VariantColumn:
    """Return a Variant column on the host; raise `NotOnDevice` for another, since `call` has no kernel."""
    opened = open_column(column, plain=plain)
    device = opened.column.device
    if not device.is_host:
        raise NotOnDevice(
            f"variant.{call} works on the host",
            found=device.name,
            where=opened.column.name,
            hint='Use column.as_batch().to_device("cpu")[0] first.',
        )
    check_overlap(opened)
    return opened


def raw_rows(
    column: VariantColumn, chosen: Iterable[int] | None = None
) -> Iterator[tuple[bytes, bytes] | None]:
    """Yield metadata and value of each row, or of some, None for an SQL NULL; rows that share a metadata get one
    object. A row without a value has that of a Variant null, as Parquet says.
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
        bounds = metadata.bounds(slots[row], row)
        names = shared.get(bounds)
        if names is None:
            if len(shared) >= _NAMES_KEPT:
                shared.clear()
            names = shared[bounds] = metadata.cut(*bounds)
        yield names, value.cut(*value.bounds(row, row)) if value.has(row) else _VARIANT_NULL


class _Reader:
    """Slots as bytes, each checked to be within its buffer."""

    def __init__(self, slots: Slots, what: str) -> None:
        self._what = what
        self._starts = slots.starts.tolist()
        self._stops = slots.stops.tolist()
        self._valid = _flags(slots.validity, len(self._starts))
        data: Any = np.ascontiguousarray(slots.data)
        self._data = memoryview(data)

    def has(self, slot: int) -> bool:
        return 0 <= slot < len(self._starts) and (self._valid is None or self._valid[slot])

    def bounds(self, slot: int, row: int) -> tuple[int, int]:
        """Return where a slot begins and ends; the offsets are from outside, so they are checked."""
        if not self.has(slot):
            raise InvalidBody(f"a Variant has no {self._what}", where=f"row {row}")
        start, stop = self._starts[slot], self._stops[slot]
        if not 0 <= start <= stop <= len(self._data):
            raise InvalidBody(
                f"the {self._what} of a Variant is not within its buffer",
                expected=f"within 0 to {len(self._data)}",
                found=f"{start} to {stop}",
                where=f"row {row}",
            )
        return start, stop

    def cut(self, start: int, stop: int) -> bytes:
        return bytes(self._data[start:stop])


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
    names = Names()
    chosen = range(column.rows) if chosen is None else chosen
    for row, raw in zip(chosen, raw_rows(column, chosen), strict=True):
        if raw is None:
            yield None
            continue
        try:
            yield decode(names[raw[0]], raw[1], limits=limits)
        except BowstringError as error:
            raise in_row(error, row) from error


class Names(dict[bytes, tuple[str, ...]]):
    """The names of metadata, parsed once while rows share them."""

    def __missing__(self, metadata: bytes) -> tuple[str, ...]:
        # Where every row has its own, keeping them all would hold the column twice.
        if len(self) >= _NAMES_KEPT:
            self.clear()
        self[metadata] = names = decode_names(metadata)
        return names


def in_row(error: BowstringError, row: int) -> BowstringError:
    """Return an error with the row that it happened in."""
    where = f"row {row}, {error.where}" if error.where else f"row {row}"
    return type(error)(error.what, expected=error.expected, found=error.found, where=where, hint=error.hint)
