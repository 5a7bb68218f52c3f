"""Which columns of values belong to which Arrow field, and which fields are Variants.

A Parquet schema and the Arrow schema that pyarrow makes of it have the same columns of values, the leaves, in the
same order. What lies between differs: a list is one Arrow field and three elements of a footer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bowstring.columnar.marks import VariantArray, is_variant, marked_field, unmarked_field
from bowstring.errors import BowstringError, UnknownColumn, UsageError
from bowstring.parquet.footer import once
from bowstring.parquet.logical import VARIANT
from bowstring.parquet.types import LOGICAL_KEY

if TYPE_CHECKING:
    from bowstring.parquet.footer import Footer

ColumnPath = str | tuple[str, ...]
_PAIR = 2


class Variant(NamedTuple):
    """A field that is a Variant."""

    field: pa.Field  # with the types of its children as the file has them
    leaves: tuple[int, int]  # the number of its first column of values, and one after that of its last
    metadata_leaf: int  # the number of its metadata


def count_leaves(type_: pa.DataType) -> int:
    """Return how many columns of values a type has in a file."""
    return sum([count_leaves(child.type) for child in children_of(type_)]) or 1


def leaf_fields(schema: Iterable[pa.Field]) -> Iterator[pa.Field]:
    """Return the Arrow field of each column of values."""
    for field in schema:
        children = children_of(field.type)
        if children:
            yield from leaf_fields(children)
        else:
            yield field


@once
def variant_groups(footer: Footer) -> frozenset[tuple[int, int]]:
    """Return where groups annotated as Variants lie: the first of their leaves, and one after the last.

    The specification: *VARIANT* in ``LogicalTypes.md``.
    """
    return frozenset(
        (node.first_leaf, node.end_leaf)
        for node in footer.nodes()
        if node.element.children
        and node.element.logical is not None
        and node.element.logical.id == VARIANT.id
    )


def meant(
    schema: pa.Schema,
    groups: frozenset[tuple[int, int]],
    fields: Mapping[int, Callable[[pa.Field], pa.Field]],
    maps: frozenset[tuple[int, int]] = frozenset(),
) -> pa.Schema:
    """Return a schema in which groups are marked as Variants, and leaves are what the file says.
    Nothing else is a Variant, also inside other types; the metadata of Variants are dictionaries.
    """
    # groups, maps: the first leaf, and one after the last, of each Variant, and of each map read as list of pairs
    columns, first = [], 0
    for field in schema:
        column, first = _meant(field, first, groups, fields, maps)
        columns.append(column)
    return pa.schema(columns, metadata=schema.metadata)


def variants_of(schema: Iterable[pa.Field]) -> list[Variant]:
    """Return all fields that are marked as Variants."""
    found: list[Variant] = []
    _find_variants(schema, 0, found)
    return found


def _find_variants(fields: Iterable[pa.Field], first: int, found: list[Variant]) -> int:
    """Add the Variants among some fields and inside them; return the number of the leaf behind these."""
    for field in fields:
        children = children_of(field.type)
        if not children:
            first += 1
        elif is_variant(field) and pa.types.is_struct(field.type):
            end, at = first, -1
            for child in children:
                before, end = end, end + count_leaves(child.type)
                if child.name == "metadata" and end == before + 1:
                    at = before
            if at >= 0:
                found.append(Variant(field, (first, end), at))
            first = end
        else:
            first = _find_variants(children, first, found)
    return first


def leaves_of(paths: Sequence[tuple[str, ...]], column: ColumnPath) -> list[int]:
    """Return the numbers of the leaves that a column or a path names."""
    # paths: of all leaves; column: a name, or the path of a leaf or group: a tuple, or dotted if no name holds dots
    if not isinstance(column, str | tuple):
        raise UsageError(
            "columns are names or paths", expected="str or tuple of str", found=repr(column)[:80]
        )
    names = (column,) if isinstance(column, str) else column
    leaves = [leaf for leaf, path in enumerate(paths) if path[: len(names)] == names]
    if not leaves and isinstance(column, str):
        leaves = [leaf for leaf, path in enumerate(paths) if ".".join((*path, "")).startswith(f"{column}.")]
    if not leaves:
        expected = ", ".join(dict.fromkeys(path[0] for path in paths))[:200]
        raise UnknownColumn("no such column", found=repr(column), expected=f"one of {expected}")
    return leaves


def _meant(
    field: pa.Field,
    first: int,
    groups: frozenset[tuple[int, int]],
    fields: Mapping[int, Callable[[pa.Field], pa.Field]],
    maps: frozenset[tuple[int, int]],
) -> tuple[pa.Field, int]:
    """Return what a field means, and the number of the leaf behind it."""
    children = children_of(field.type)
    if not children:
        return fields[first](field) if first in fields else field, first + 1
    new, end = [], first
    for child in children:
        inner, end = _meant(child, end, groups, fields, maps)
        new.append(inner)
    # A group around a Variant alone has the same leaves, and one child; a Variant has two or more.
    if len(children) > 1 and (first, end) in groups and pa.types.is_struct(field.type):
        return marked_field(field.with_type(pa.struct([_encoded(child) for child in new]))), end
    if (first, end) in maps and pa.types.is_list(field.type) and pa.types.is_struct(new[0].type):
        # A list around such a map alone has the same leaves, but no structs as elements; and a group has one child.
        pair = children_of(new[0].type)
        if len(pair) == _PAIR:
            return field.with_type(pa.map_(pair[0].with_nullable(False), pair[1])), end
    if is_variant(field):
        field = unmarked_field(field)
    elif all(child is before for child, before in zip(new, children, strict=True)):
        return field, end
    return with_inner(field, new), end


def _encoded(child: pa.Field) -> pa.Field:
    """Return a child of a Variant as it is read: metadata repeat, so they are dictionaries."""
    if child.name == "typed_value":
        return _with_unsigned_marked(child)
    if child.name != "metadata" or pa.types.is_dictionary(child.type):
        return child
    return child.with_type(pa.dictionary(pa.int32(), child.type))


def _with_unsigned_marked(field: pa.Field) -> pa.Field:
    """Return a field whose unsigned integers have their logical type: no file is shredded by these."""
    if pa.types.is_unsigned_integer(field.type):
        mark = f"INT({field.type.bit_width}, unsigned)".encode()
        return field.with_metadata({**(field.metadata or {}), LOGICAL_KEY: mark})
    return with_inner(field, map(_with_unsigned_marked, children_of(field.type)))


@contextlib.contextmanager
def within(where: str) -> Iterator[None]:
    """Let errors say where in the data they are, once."""
    try:
        yield
    except BowstringError as error:
        if not str(error.where).startswith(where):
            error.where = f"{where}, {error.where}" if error.where else where
        raise


def storage_of(array: Any) -> Any:
    """Return an array without the mark of a Variant."""
    return array.storage if isinstance(array, VariantArray) else array


def holds_variant(field: pa.Field) -> bool:
    """Return whether a field is a Variant, or has one inside."""
    return is_variant(field) or any(map(holds_variant, children_of(field.type)))


def children_of(type_: pa.DataType) -> list[pa.Field]:
    """Return the fields inside a type that a file has columns of."""
    if isinstance(type_, pa.BaseExtensionType):
        return children_of(type_.storage_type)
    count = type_.num_fields
    if not count:
        return []
    if pa.types.is_map(type_):
        return [type_.key_field, type_.item_field]
    return [type_.field(index) for index in range(count)] if pa.types.is_nested(type_) else []


def with_inner(field: pa.Field, children: Iterable[pa.Field]) -> pa.Field:
    """Return a field with other fields inside; itself where it has none, or is of a kind that no file has."""
    inside = list(children)
    changed = with_children(field.type, inside) if inside else None
    return field if changed is None else field.with_type(changed)


def with_children(type_: pa.DataType, children: list[pa.Field]) -> pa.DataType | None:
    """Return a nested type with other fields inside, ``None`` for kinds that no file has."""
    if pa.types.is_struct(type_):
        return pa.struct(children)
    if pa.types.is_map(type_):
        return pa.map_(*children, keys_sorted=type_.keys_sorted)
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(children[0], type_.list_size)
    if pa.types.is_large_list(type_):
        return pa.large_list(children[0])
    if pa.types.is_list_view(type_):
        return pa.list_view(children[0])
    if pa.types.is_large_list_view(type_):
        return pa.large_list_view(children[0])
    return pa.list_(children[0]) if pa.types.is_list(type_) else None


def with_child_arrays(array: Any, type_: pa.DataType, change: Callable[[Any, pa.Field, int], Any]) -> Any:
    """Return a nested array whose children are changed by ``change(child, field, number)``."""
    children = children_of(type_)
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(type_):
        inner = [change(array.field(index), child, index) for index, child in enumerate(children)]
        return pa.StructArray.from_arrays(inner, fields=children, mask=mask)
    if pa.types.is_fixed_size_list(type_):
        # Nulls have slots here, which flatten() would leave out.
        first, size = array.offset, type_.list_size
        values = change(array.values.slice(first * size, len(array) * size), children[0], 0)
        return pa.FixedSizeListArray.from_arrays(values, type=type_, mask=mask)
    if pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_):
        # Not by a cast to lists: pyarrow 26 makes one offset too few.
        sizes = pc.fill_null(pc.list_value_length(array), 0)
        starts = pc.subtract(pc.cumulative_sum_checked(sizes), sizes)
        view = pa.ListViewArray if pa.types.is_list_view(type_) else pa.LargeListViewArray
        values = change(array.flatten(), children[0], 0)
        return view.from_arrays(starts, sizes, values, type=type_, mask=mask)
    offsets, values = rebased(array)
    if pa.types.is_map(type_):
        keys, items = change(values.field(0), children[0], 0), change(values.field(1), children[1], 1)
        return pa.MapArray.from_arrays(offsets, keys, items, type=type_, mask=mask)
    kind = pa.LargeListArray if pa.types.is_large_list(type_) else pa.ListArray
    return kind.from_arrays(offsets, change(values, children[0], 0), type=type_, mask=mask)


def rebased(array: Any) -> tuple[Any, Any]:
    """Return offsets that begin at 0, and the values that they are of."""
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return pc.subtract(offsets, offsets[0]), array.values.slice(first, last - first)
