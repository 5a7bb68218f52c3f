"""Values by path in shredded columns: down the typed columns, and into ``value`` where a row leaves these."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from bowstring.columnar.nodes import Kind
from bowstring.columnar.parts import batch_parts
from bowstring.columnar.slots import Slots, slots_of
from bowstring.kernels import bitmap
from bowstring.kernels.variant.encoding import PRIMITIVE, PRIMITIVES
from bowstring.variant.column import Gathered, VariantColumn, dictionary_of
from bowstring.variant.gather import gather
from bowstring.variant.nested import Parts, Source
from bowstring.variant.shredded.encode import Names, bytes_of
from bowstring.variant.shredded.layout import Group, flags_of, list_bounds
from bowstring.variant.shredded.unshred import encode, with_values
from bowstring.variant.status import Status, any_of
from bowstring.variant.walk import Located, locate

if TYPE_CHECKING:
    from bowstring.columnar.batch import Column
    from bowstring.limits import Limits
    from bowstring.variant.cast import Target
    from bowstring.variant.path import Path
    from bowstring.variant.shredded.layout import Shredded

_NOT_THERE: Final = np.uint8(Status.MISSING)
_VIEWS: Final = (pa.lib.Type_STRING_VIEW, pa.lib.Type_BINARY_VIEW)


class _Place(NamedTuple):
    """Where rows are on their way down: the slots of a group, one for each row, or the rows themselves (`None`)."""

    group: Group
    alive: Any
    slots: Any | None


class ShreddedPaths:
    """Where paths lead in a shredded column; the limits bound the values that are put together."""

    def __init__(self, shredded: Shredded, limits: Limits) -> None:
        self._opened, self._group = shredded
        self._limits = limits
        self._column = self._opened.column
        self._device, self._rows = self._column.device, len(self._column)

    @functools.cached_property
    def names(self) -> Names:
        """The names of the distinct metadata, which are read when they are needed first."""
        return Names(self._device, dictionary_of(self._opened))

    def gathered(
        self, path: Path, name: str, type_: pa.DataType, target: Target, *, with_status: bool
    ) -> tuple[Gathered, Any | None, Parts]:
        """Return the values at a path, their statuses, and those of their parts. A view has statuses only with
        `with_status`: to find them costs more than the view.
        """
        view = self._view(path, type_)
        if view is not None:
            gathered = self._gathered(pa.field(name, type_), view)
            return gathered, self._statuses(view) if with_status else None, Parts([], [])
        opened, located = self.located(path)
        source = Source(opened, self._limits, name)
        source.dictionary = self.names.dictionary
        return gather(source, located, type_, target), located.statuses, source.parts

    def _view(self, path: Path, type_: pa.DataType) -> list[Column] | None:
        """Return the typed column at a path where it is the result as it is, because no row has a value beside it,
        behind those that hold it: their nulls are its nulls.
        """
        group, holders = self._group, [self._group.column]
        for step in path:
            if (
                group.typed is None
                or not group.fields
                or step not in group.fields
                or self._leaves(group, holders)
            ):
                return None
            child = group.fields[str(step)]
            holders += group.typed, child.column
            group = child
        typed = group.typed
        if typed is None or group.item or group.fields is not None or not _is_same(typed.type, type_):
            return None
        if self._leaves(group, holders, typed_too=True):
            return None
        return [*holders, typed]

    def _leaves(self, group: Group, holders: list[Column], *, typed_too: bool = False) -> bool:
        """Return whether a row has a value here and no typed one, or with `typed_too` a value at all."""
        if group.value is None or group.value.null_count == len(group.value):
            return False
        if not typed_too and (group.typed is None or not group.typed.null_count):
            return False
        flags = flags_of(self._device, self._rows, *holders, group.value)
        if not typed_too:
            flags = flags & ~flags_of(self._device, self._rows, group.typed)
        return any_of(flags, self._device)

    def _gathered(self, field: pa.Field, holders: list[Column]) -> Gathered:
        column = holders[-1]
        nulls = [each for each in holders if each.null_count and each.validity is not None]
        batch, node = column.batch, column._node
        first = int(batch.layout.first_buffers(batch_parts(batch).variadic_counts)[column._index])
        kept = [batch.buffers[first + k] for k in range(1, len(node.buffer_kinds))]
        if not nulls:
            return Gathered(field, [(self._rows, 0)], [None, *kept])
        if nulls == [column]:
            return Gathered(field, [(self._rows, column.null_count)], [column._buffer(Kind.VALIDITY), *kept])
        valid = bitmap.packed(flags_of(self._device, self._rows, *nulls))
        return Gathered(field, [(self._rows, -1)], [valid, *kept])

    def _statuses(self, holders: list[Column]) -> Any:
        """Return the status of each row of a view."""
        xp = self._device.xp
        present, top = (flags_of(self._device, self._rows, *each) for each in (holders, [self._column]))
        nothing = Status.VARIANT_NULL if len(holders) == 2 else Status.MISSING
        there = xp.where(present, np.uint8(Status.OK), np.uint8(nothing))
        return xp.where(top, there, np.uint8(Status.SQL_NULL)).astype(np.uint8)

    def located(self, path: Path) -> tuple[VariantColumn, Located]:
        """Return where a path leads in every row, in a column of values that are put together for it."""
        top = flags_of(self._device, self._rows, self._column)
        place = _Place(self._group, top, None)
        found = _Found(self, top)
        for depth, step in enumerate(path):
            place = self._step(place, step, path[depth:], found)
        self._end(place, found)
        return found.opened(self._opened), Located(found.positions, found.statuses)

    def _step(self, place: _Place, step: str | int, rest: Path, found: _Found) -> _Place:
        """Go down one step: rows that leave the typed columns are found in their value."""
        group, xp = place.group, self._device.xp
        typed, stored = self._flags(place)
        if group.fields is None:
            found.refuse(typed & stored)
        elif step not in group.fields:
            self._in_value(place, stored, rest, found)
            return _Place(group, xp.zeros(self._rows, np.bool_), place.slots)
        self._in_value(place, stored & ~typed, rest, found)
        if group.fields is not None:
            return _Place(group.fields[str(step)], typed, place.slots)
        if group.item is not None and group.typed is not None and isinstance(step, int):
            starts, stops = list_bounds(group.typed)
            if place.slots is not None:
                starts, stops = self._taken(starts, place.slots), self._taken(stops, place.slots)
            slots = starts + np.int64(step) if step >= 0 else stops + np.int64(step)
            inside = slots < np.int64(group.item.rows)
            inside = typed & ~stored & (slots >= starts) & (slots < stops) & inside
            return _Place(group.item, inside, xp.where(inside, slots, np.int64(0)))
        return _Place(group, xp.zeros(self._rows, np.bool_), place.slots)

    def _flags(self, place: _Place) -> tuple[Any, Any]:
        """Return which rows have a typed value here, and which a value."""
        group = place.group
        here = flags_of(self._device, group.rows, group.column)
        typed = flags_of(self._device, group.rows, group.typed)
        stored = flags_of(self._device, group.rows, group.value)
        if place.slots is None:
            here = here & place.alive
            return here & typed, here & stored
        here = self._taken(here, place.slots) & place.alive
        return here & self._taken(typed, place.slots), here & self._taken(stored, place.slots)

    def _taken(self, array: Any, slots: Any) -> Any:
        # No row goes where there are no slots.
        return array[slots] if len(array) else self._device.xp.zeros(len(slots), array.dtype)

    def _in_value(self, place: _Place, rows: Any, rest: Path, found: _Found) -> None:
        """Find the rest of a path in the values of some rows."""
        value = place.group.value
        if value is None or not any_of(rows, self._device):
            return
        slots = slots_of(value)
        starts, stops = slots.starts, slots.stops
        if place.slots is not None:
            starts, stops = self._taken(starts, place.slots), self._taken(stops, place.slots)
        nothing = self._device.xp.empty(0, np.uint8)
        cut = Slots(starts[: self._rows], stops[: self._rows], slots.data, nothing, shared=True)
        opened = dataclasses.replace(self._opened, validity=bitmap.packed(rows), value=cut)
        [located] = locate(opened, self.names.dictionary, [rest])
        found.add(rows, located, slots.data)

    def _end(self, place: _Place, found: _Found) -> None:
        """Put together the values of the rows that went to the end of the path in typed columns."""
        group, xp = place.group, self._device.xp
        if not any_of(place.alive, self._device):
            return
        groups = self.names.dictionary.indices
        wanted = place.alive
        if place.slots is not None:
            inside = xp.full(group.rows, -1, np.int32)
            chosen = xp.flatnonzero(place.alive)
            inside[place.slots[chosen]] = groups[chosen]
            wanted = xp.zeros(group.rows, np.bool_)
            wanted[place.slots[chosen]] = True
            groups = inside
        encoded = encode(
            self._device, bytes_of(group, self.names), groups, wanted, self._column.name, self._limits
        )
        starts, sizes = encoded.offsets[:-1], encoded.sizes
        if place.slots is not None:
            starts, sizes = self._taken(starts, place.slots), self._taken(sizes, place.slots)
        statuses = xp.where(sizes == np.int64(0), np.uint8(Status.MISSING), np.uint8(Status.MALFORMED))
        if len(encoded.data):
            first = encoded.data[xp.where(sizes > np.int64(0), starts, np.int64(0))]
            there = xp.where(first == np.uint8(0), np.uint8(Status.VARIANT_NULL), np.uint8(Status.OK))
            unknown = (first & np.uint8(3) == np.uint8(PRIMITIVE)) & (first >= np.uint8(PRIMITIVES << 2))
            there = xp.where(unknown, np.uint8(Status.UNSUPPORTED), there)
            statuses = xp.where(sizes > np.int64(0), there, statuses)
        located = Located(starts.astype(np.uint64), statuses.astype(np.uint8))
        found.add(place.alive, located, encoded.data)


class _Found:
    """What has been found of rows: positions in bytes that come from several columns, and statuses."""

    def __init__(self, paths: ShreddedPaths, top: Any) -> None:
        xp = paths._device.xp
        self._device = paths._device
        self._pieces: list[Any] = []
        self._size = 0
        self.positions = xp.zeros(len(top), np.uint64)
        self.statuses = xp.where(top, _NOT_THERE, np.uint8(Status.SQL_NULL)).astype(np.uint8)

    def add(self, rows: Any, located: Located, data: Any) -> None:
        """Take what was found of some rows."""
        xp = self._device.xp
        moved = located.positions + np.uint64(self._size)
        self.positions = xp.where(rows, moved, self.positions)
        self.statuses = xp.where(rows, located.statuses, self.statuses)
        self._pieces.append(data)
        self._size += len(data)

    def refuse(self, rows: Any) -> None:
        """Take it that some rows break a rule."""
        self.statuses = self._device.xp.where(rows, np.uint8(Status.MALFORMED), self.statuses)

    def opened(self, source: VariantColumn) -> VariantColumn:
        """Return the column as one of the bytes that positions are in."""
        xp, rows = self._device.xp, len(self.statuses)
        data = (
            self._pieces[0]
            if len(self._pieces) == 1
            else xp.concatenate([xp.empty(0, np.uint8), *self._pieces])
        )
        nothing = xp.zeros(rows + 1, np.int64)
        column = with_values(source.column, nothing, xp.empty(0, np.uint8))
        value = Slots(nothing[:rows], nothing[:rows], data, xp.empty(0, np.uint8), shared=True)
        return dataclasses.replace(source, column=column, value=value)


def _is_same(typed: pa.DataType, wanted: Any) -> bool:
    """Return whether the values of a typed column are those of a type as they lie."""
    if typed.id in _VIEWS or typed.id == pa.lib.Type_NA:
        return False
    if wanted == pa.uuid():
        fixed = typed.id == pa.lib.Type_FIXED_SIZE_BINARY
        return bool(typed == pa.uuid() or (fixed and typed.byte_width == 16))
    if pa.types.is_timestamp(typed) and pa.types.is_timestamp(wanted):
        return bool(typed.unit == wanted.unit and (typed.tz is None) == (wanted.tz is None))
    return bool(typed.id != pa.lib.Type_FIXED_SIZE_BINARY and typed == wanted)
