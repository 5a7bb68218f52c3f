"""Values by path from shredded columns of a file: which leaves they need, and what statistics say about them.

The specification: *Variant Shredding*, "Objects" and "Data Skipping". A field that is shredded is in its own group
and nowhere else, so nothing around it is read. Where statistics say that all of a ``value`` are null, it is not
read either, and the typed column is all that there is.
"""

from __future__ import annotations

import contextlib
import decimal
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bowstring import variant
from bowstring.columnar.marks import is_variant, marked_field
from bowstring.errors import UnknownColumn, UsageError
from bowstring.memory import cpu
from bowstring.parquet.columns import ColumnPath, children_of, count_leaves, storage_of
from bowstring.parquet.comparisons import is_number
from bowstring.variant.column import VariantType
from bowstring.variant.reference import Reference, reference_of
from bowstring.variant.status import Losses, counted, first_error

if TYPE_CHECKING:
    from bowstring.limits import Limits
    from bowstring.parquet.file import OpenFile, Selection

_EMPTY_METADATA: Final = b"\x01\x00\x00"
_DECIMALS: Final = pa.decimal256(76, 38)
"""Every whole number and every decimal of a Variant fits."""
Chosen = tuple[str | None, "ColumnPath | Reference"]
"""A column of a result: its name where it is another one, and what it is."""


class Compared(Reference):
    """A path whose values a filter compares by their own types, not as the type that they are read as."""

    # The typed column where all values are of it; else a struct: `decimal` has whole numbers and decimals, `float`
    # the other numbers, `integer` again what fits, `value` values of other types; `other` names the type of what
    # cannot be compared.


def named_columns(columns: Any) -> list[Chosen] | None:
    """Return columns as a reader is asked for them, each with the name that it is to have."""
    return None if columns is None else [_chosen(column) for column in columns]


def _chosen(column: Any) -> Chosen:
    if not isinstance(column, pc.Expression):
        return None, column
    # pyarrow shows a reference as its name; a name of path() is JSON, which has no line breaks.
    reference = reference_of(str(column).removeprefix("FieldRef.Name(").removesuffix(")"))
    if reference is None:
        raise UsageError(
            "a column is no expression",
            expected="a name, a path, or variant.path(…)",
            found=str(column)[:200],
        )
    return reference.label, reference


class _Way(NamedTuple):
    """Where a path leads in a shredded column."""

    metadata: int  # the leaf of the metadata
    names: tuple[str, ...]  # the names down to the group where the path leaves the typed columns, or ends
    value: int | None  # the leaf of the ``value`` there, ``None`` without one
    inside: tuple[int, ...]  # the leaves of the ``typed_value`` there
    # The type of the ``typed_value`` if it is the only leaf, and the path ends there.
    typed: pa.DataType | None

    @property
    def values(self) -> tuple[int, ...]:
        """The leaves of the values there."""
        return self.inside if self.value is None else (self.value, *self.inside)


def _way(file: OpenFile, reference: Reference) -> _Way | None:
    """Return where a path leads, ``None`` where the whole column is needed."""
    leaves, field = _column_of(file, reference)
    group = _placed(field, leaves[0]) if leaves else {}
    if not is_variant(field) or "typed_value" not in group or "metadata" not in group:
        return None
    names: list[str] = []
    metadata = group["metadata"][1]
    path = list(reference.path)
    while path and isinstance(path[0], str) and "typed_value" in group:
        typed, first = group["typed_value"]
        fields = _placed(typed, first)
        if not pa.types.is_struct(typed.type) or path[0] not in fields:
            break
        names += ["typed_value", path[0]]
        group = _placed(*fields[str(path.pop(0))])
    value = group["value"][1] if "value" in group else None
    if "typed_value" not in group:
        return None if value is None else _Way(metadata, tuple(names), value, (), None)
    typed, first = group["typed_value"]
    if path and pa.types.is_struct(typed.type) and value is not None:
        # A field that has no group is in what is left of the object.
        return _Way(metadata, tuple(names), value, (), None)
    alone = None if children_of(typed.type) or path else typed.type
    inside = tuple(range(first, first + count_leaves(typed.type)))
    return _Way(metadata, tuple(names), value, inside, alone)


def _placed(field: pa.Field, first: int) -> dict[str, tuple[pa.Field, int]]:
    """Return the children of a field by name, each with the number of its first leaf."""
    children = {}
    for child in children_of(field.type):
        children[child.name] = child, first
        first += count_leaves(child.type)
    return children


class Columns:
    """Columns of a file: whole ones, leaves, and values by path out of Variant columns."""

    def __init__(
        self, file: OpenFile, columns: Sequence[Chosen] | None, losses: Losses | None = None
    ) -> None:
        self._file = file
        self._losses = losses
        self._paths: list[tuple[Reference, _Way | None, pa.Field]] = []
        self._order: list[tuple[bool, int]] = []
        """For each column whether it is one by path, and its number among these or the others."""
        self._leaves_by_group: dict[int, tuple[int, ...]] = {}
        named = None if columns is None else [each for _, each in columns if not isinstance(each, Reference)]
        self._plain = file.select(named)
        if columns is None or len(named or ()) == len(columns):
            self.schema = self._plain.schema
            return
        seen: set[int] = set()
        for name, each in columns:
            if isinstance(each, Reference):
                self._order.append((True, len(self._paths)))
                way = _way(file, each)
                self._paths.append((each, way, self._result(name or each.label, each, way)))
                continue
            column = file.column_of(each)
            if column not in seen:  # not another leaf of a column that is there already
                self._order.append((False, len(seen)))
                seen.add(column)
        fields = [
            self._paths[number][2] if is_path else self._plain.schema.field(number)
            for is_path, number in self._order
        ]
        self.schema = pa.schema(fields, metadata=file.schema.metadata)  # of the batches

    def read(
        self, group: int, rows: int | None = None, masks: Iterable[pa.Array] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read a row group, in pieces of so many rows if given; `masks` of these say which values are counted."""

        def batches(selection: Selection) -> Iterable[pa.RecordBatch]:
            if rows is None:
                return self._file.read_row_group(group, selection)
            return self._file.iter_row_groups([group], selection, rows)

        if not self._paths:
            yield from batches(self._plain)
            return
        leaves = self._leaves(group)
        by_path = batches(self._file.select_leaves(leaves))
        beside = batches(self._plain) if self._plain.schema.names else ()
        flags = None if masks is None else (mask.to_numpy(zero_copy_only=False) for mask in masks)
        parts: Iterable[Any]
        if rows is None:
            parts = [(by_path, beside, None if flags is None else np.concatenate(list(flags)))]
        else:
            # Of these, the first is what ends; no mask is computed for a piece that is not there.
            others = ([batch] for batch in beside) if self._plain.schema.names else itertools.repeat([])
            parts = zip(([batch] for batch in by_path), others, flags or itertools.repeat(None), strict=False)
        first = sum(map(self._file.row_group_rows, range(group)))
        for some, plain, wanted in parts:
            yield from self._together(some, plain, leaves, first, wanted)
            first += sum(batch.num_rows for batch in some)

    def leaves(self, group: int) -> set[int]:
        """Return the columns of values that are read of a row group."""
        return {*self._plain.leaves, *(self._leaves(group) if self._paths else ())}

    def _leaves(self, group: int) -> tuple[int, ...]:
        """Return the columns of values that the paths need of a row group."""
        if group not in self._leaves_by_group:
            leaves: set[int] = set()
            for reference, way, _ in self._paths:
                if way is None:
                    leaves.update(_column_of(self._file, reference)[0])
                    continue
                held = way.value is not None and not (way.inside and _is_null(self._file, group, way.value))
                leaves.update(way.values if held else way.inside)
                if held or way.typed is None or isinstance(reference.type, VariantType):
                    leaves.add(way.metadata)
            self._leaves_by_group[group] = tuple(sorted(leaves))
        return self._leaves_by_group[group]

    def _together(
        self,
        found: Iterable[pa.RecordBatch],
        plain: Iterable[pa.RecordBatch],
        leaves: tuple[int, ...],
        first: int,
        wanted: Any,
    ) -> list[pa.RecordBatch]:
        """Return batches of the columns by path, and of the others, in their order.

        `first` is the number of the first row in the file; of rows that are not `wanted`, no values are counted.
        """
        made, row = [], 0
        for batch in found:
            flags = None if wanted is None else wanted[row : row + batch.num_rows]
            made.append(self._values(batch, leaves, first + row, flags))
            row += batch.num_rows
        if not made or not self._plain.schema.names:
            return made
        tables = pa.Table.from_batches(plain), pa.Table.from_batches(made)
        columns = [tables[is_path].column(number) for is_path, number in self._order]
        fields = [tables[is_path].schema.field(number) for is_path, number in self._order]
        schema = pa.schema(fields, metadata=self.schema.metadata)
        return list(pa.Table.from_arrays(columns, schema=schema).to_batches())

    def _values(
        self, batch: pa.RecordBatch, leaves: tuple[int, ...], first: int, wanted: Any
    ) -> pa.RecordBatch:
        arrays, fields = [], []
        for reference, way, field in self._paths:
            array = batch.column(batch.schema.get_field_index(reference.column))
            statuses = typed = None
            if way is not None and (way.value is None or way.value not in leaves):
                typed = [*way.names, "typed_value"]  # all that there is
            if isinstance(reference, Compared):
                if typed is not None and _comparable(way, reference) is not None:
                    arrays.append(pc.struct_field(array, typed))
                else:
                    arrays.append(_compared(array, reference, self._file.limits))
                fields.append(field.with_type(arrays[-1].type))
                continue
            if way is not None and typed is not None and way.typed == field.type:
                values = pc.struct_field(array, typed)
            else:
                column, status = _got(array, reference, self._file.limits).columns
                values, statuses = storage_of(column.to_arrow()), status.values
                values = values if values.type.equals(field.type) else values.cast(field.type)
            arrays.append(values)
            fields.append(field)
            if self._losses is not None:
                self._count(self._losses, reference, values, statuses, first, wanted)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=self.schema.metadata))

    def _count(
        self, losses: Losses, reference: Reference, values: Any, statuses: Any, first: int, wanted: Any
    ) -> None:
        """Count the values that are there and became null, of the rows that are wanted."""
        lost, there, example = 0, len(values) - values.null_count, ""
        if statuses is not None:
            kept = (
                statuses if wanted is None else np.where(wanted, statuses, np.uint8(variant.Status.MISSING))
            )
            lost, there = counted(cpu(), [kept])
            error = first_error(kept, cpu())
            example = "" if error is None else f"row {first + error[0]} of {self._file.name}"
        elif wanted is not None:
            there = int(np.count_nonzero(values.is_valid().to_numpy(zero_copy_only=False) & wanted))
        name = (
            f"at {reference.label} of {reference.column} cannot be read as {reference.type} and became null"
        )
        losses.add(name, lost, there, example)

    def _result(self, name: str, reference: Reference, way: _Way | None) -> pa.Field:
        """Return the field of the values at a path; what is compared has a type for each row group."""
        if isinstance(reference, Compared):
            _column_of(self._file, reference)
            return pa.field(name, pa.null())
        if not isinstance(reference.type, VariantType) and not _holds_variants(reference.type):
            return pa.field(name, reference.type)
        leaves = _column_of(self._file, reference)[0]
        if way is not None:
            leaves = (way.metadata, *way.values)
        selection = self._file.select_leaves(tuple(sorted(leaves)))
        empty = pa.nulls(0, selection.schema.field(0).type)
        return _got(empty, reference, self._file.limits)[0].field.with_name(name)


def _compared(array: pa.StructArray, reference: Compared, limits: Limits) -> pa.Array:
    """Return the values at a path as a filter compares them."""
    batch = _batch_of(array, reference)
    # First what is most likely all that there is.
    types = {"value": reference.type}
    if pa.types.is_floating(reference.type):
        types = {"float": pa.float64(), "decimal": _DECIMALS}
    elif is_number(reference.type):
        integers = {"integer": pa.int64()} if pa.types.is_integer(reference.type) else {}
        types = {**integers, "decimal": _DECIMALS, "float": pa.float64()}
    arrays: dict[str, pa.Array] = {}
    others = np.ones(len(array), np.bool_)
    for name, type_ in types.items():
        if not others.any():
            arrays[name] = pa.nulls(len(array), type_)
            continue
        read = variant.get(batch, reference.path, type_, cast="exact", with_status=True, limits=limits)
        arrays[name] = storage_of(read[0].to_arrow())
        others &= read[1].values > np.uint8(variant.Status.VARIANT_NULL)
    arrays["other"] = pa.nulls(len(array), pa.string())
    if others.any():
        kinds = variant.type_of(batch, reference.path).to_arrow().cast(pa.string())
        arrays["other"] = pc.if_else(pa.array(others), kinds.fill_null("malformed"), arrays["other"])
    return pa.StructArray.from_arrays(list(arrays.values()), names=list(arrays))


def _got(array: pa.StructArray, reference: Reference, limits: Limits) -> Any:
    # With statuses, for without them each part of a file would be warned of.
    batch = _batch_of(array, reference)
    return variant.get(batch, reference.path, reference.type, with_status=True, limits=limits)


def _batch_of(array: pa.StructArray, reference: Reference) -> pa.RecordBatch:
    """Return a group that has what a path needs as a batch; without values, of no metadata."""
    if not pa.types.is_struct(array.type):
        raise UsageError(
            "a path leads into a column that is no Variant",
            expected="a Variant",
            found=f"{reference.column}: {array.type}",
        )
    fields = list(array.type)
    if array.type.get_field_index("metadata") < 0:
        indices = pa.repeat(pa.scalar(0, pa.int32()), len(array))
        blobs = pa.DictionaryArray.from_arrays(indices, pa.array([_EMPTY_METADATA], pa.binary()))
        children = [blobs, *(array.field(index) for index in range(len(fields)))]
        fields = [pa.field("metadata", blobs.type), *fields]
        mask = array.is_null() if array.null_count else None
        array = pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    field = marked_field(pa.field(reference.column, array.type))
    return pa.RecordBatch.from_arrays([array], schema=pa.schema([field]))


def _holds_variants(type_: pa.DataType) -> bool:
    return isinstance(type_, VariantType) or any(_holds_variants(each.type) for each in children_of(type_))


def _column_of(file: OpenFile, reference: Reference) -> tuple[tuple[int, ...], pa.Field]:
    if file.schema.names.count(reference.column) != 1:
        raise UnknownColumn(
            "no such column", found=repr(reference.column), expected=f"one of {file.schema.names}"[:200]
        )
    position = file.schema.get_field_index(reference.column)
    return file.leaves_of(position), file.schema.field(position)


def _is_null(file: OpenFile, group: int, leaf: int) -> bool:
    """Return whether statistics say that all values of a leaf are null."""
    found = file.statistics(group, leaf)
    return bool(found is not None and found.has_null_count and found.null_count == file.values(group, leaf))


def typed_of(file: OpenFile, reference: Reference) -> pa.DataType | None:
    """Return the type of the typed column at a path, ``None`` without one whose values a filter can compare."""
    return _comparable(_way(file, reference), reference)


def _comparable(way: _Way | None, reference: Reference) -> pa.DataType | None:
    typed = None if way is None else way.typed
    if typed is None or typed.equals(reference.type) or (is_number(typed) and is_number(reference.type)):
        return typed
    return None


def bounds_of(file: OpenFile, group: int, reference: Reference, name: str) -> Any:
    """Return what statistics say about the values at a path of a row group, as an expression of a name, if any."""
    # Nothing unless all values are in the typed column, that is all of `value` are null. Statistics leave out NaN
    # and may swap the zeros.
    way = _way(file, reference)
    typed = _comparable(way, reference)
    if way is None or typed is None:
        return None
    file.check_chunks(way.values)
    if way.value is not None and not _is_null(file, group, way.value):
        return None
    found = file.statistics(group, way.inside[0])
    if found is None or not found.has_null_count:
        return None
    place = pc.field(name)
    if found.null_count == file.values(group, way.inside[0]):
        return place.is_null()
    least = most = None
    if found.has_min_max and (not pa.types.is_floating(typed) or found.min_raw <= found.max_raw):
        with contextlib.suppress(
            UnicodeDecodeError, pa.ArrowException, TypeError, ValueError, decimal.InvalidOperation
        ):
            least, most = (_scalar(raw, typed) for raw in (found.min_raw, found.max_raw))
    if least is None:
        return None if found.null_count else place.is_valid()
    if found.null_count:
        return ((place >= least) | place.is_null()) & ((place <= most) | place.is_null())
    return (place >= least) & (place <= most)


def _scalar(raw: Any, type_: pa.DataType) -> Any:
    if pa.types.is_decimal(type_):
        number = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        return pa.scalar(decimal.Decimal(number).scaleb(-type_.scale, decimal.Context(prec=76)), type_)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return pa.scalar(raw.decode() if isinstance(raw, bytes) else raw, type_)
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_boolean(type_):
        return pa.scalar(raw, type_)
    if pa.types.is_temporal(type_):
        return pa.array([raw], pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)[0]
    return pa.scalar(raw, type_) if pa.types.is_integer(type_) or pa.types.is_floating(type_) else None
