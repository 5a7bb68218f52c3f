"""The columns of a shredded Variant by their roles, and the rules for their types."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from bowstring.columnar.marks import NAME_KEY
from bowstring.columnar.nodes import Kind, storage_type
from bowstring.columnar.slots import Slots, slots_of
from bowstring.errors import InvalidBody, Unsupported
from bowstring.kernels import bitmap
from bowstring.variant.column import VariantColumn, metadata_of

if TYPE_CHECKING:
    from bowstring.columnar.batch import Column
    from bowstring.memory import Device

_BINARY: Final = (pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY, pa.lib.Type_BINARY_VIEW)
_TEXT: Final = (pa.lib.Type_STRING, pa.lib.Type_LARGE_STRING, pa.lib.Type_STRING_VIEW)
_PLAIN: Final = (
    *(pa.lib.Type_NA, pa.lib.Type_BOOL, pa.lib.Type_INT8, pa.lib.Type_INT16, pa.lib.Type_INT32),
    *(pa.lib.Type_INT64, pa.lib.Type_FLOAT, pa.lib.Type_DOUBLE, pa.lib.Type_DATE32, *_BINARY, *_TEXT),
)
_UNSIGNED: Final = (pa.lib.Type_UINT8, pa.lib.Type_UINT16, pa.lib.Type_UINT32)
"""What Arrow's extension type has as well, and files do not."""
_DECIMALS: Final = (pa.lib.Type_DECIMAL32, pa.lib.Type_DECIMAL64, pa.lib.Type_DECIMAL128)
_VIEWS: Final = (pa.lib.Type_LIST_VIEW, pa.lib.Type_LARGE_LIST_VIEW)
_LISTS: Final = (pa.lib.Type_LIST, pa.lib.Type_LARGE_LIST, *_VIEWS)
_MOST_DIGITS: Final = 38
_UUID: Final = 16
_UUID_NAME: Final = b"arrow.uuid"
_LOGICAL: Final = b"PARQUET:logical_type"
"""The mark that columns of files have whose logical type is none of Arrow's: ENUM, BSON, times in UTC."""


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """A ``value`` and a ``typed_value`` that hold one Variant value for each slot."""

    column: Column  # the struct, whose nulls make slots null
    rows: int
    value: Column | None
    typed: Column | None
    required: bool  # what is missing is a Variant null: in all groups but fields of objects
    item: Group | None = None  # the elements, where the typed column is of arrays
    fields: dict[str, Group] | None = None  # those of objects, in the order of their UTF-8


class Shredded(NamedTuple):
    """A shredded Variant column: its groups, and itself as kernels take it, for its metadata."""

    opened: VariantColumn
    group: Group


def open_shredded(column: Column) -> Shredded:
    """Return a shredded Variant column by the roles of its columns; those that the specification does not have
    are errors.
    """
    children = _by_name(column, ("metadata", "value", "typed_value"), "group of a Variant")
    if "metadata" not in children:
        _refuse("group of a Variant", "a child metadata", list(children), column.name)
    group = _group(column, children, column.name, required=True)
    metadata, indices = metadata_of(column, children["metadata"])
    nothing, empty = column.device.xp.zeros(0, np.int64), column.device.xp.zeros(0, np.uint8)
    value = Slots(nothing, nothing, empty, empty, shared=False)
    if group.value is not None:
        value = slots_of(group.value)
    validity = empty if column.validity is None else column.validity
    return Shredded(VariantColumn(column, len(column), validity, value, metadata, indices), group)


def _refuse(rule: str, expected: str, found: Any, where: str) -> NoReturn:
    raise Unsupported(
        f"the shredded Variant breaks the rule for the {rule}",
        expected=expected,
        found=str(found),
        where=where,
    )


def _by_name(column: Column, names: tuple[str, ...], rule: str) -> dict[str, Column]:
    """Return the children of a group, which must have some of these names, each once."""
    if column.dictionary is not None or column.type.id != pa.lib.Type_STRUCT:
        _refuse(rule, f"a struct of {' and '.join(names[-2:])}", column.type, column.name)
    found = {child.name: child for child in column.children}
    wrong = len(found) != len(column.children) or not set(found) <= set(names)
    if wrong or not set(found) & {"value", "typed_value"}:
        _refuse(
            rule, f"{', '.join(names)}, each once, at least value or typed_value", column.type, column.name
        )
    check_children(column, found.values(), column.name)
    return found


def check_children(column: Column, children: Iterable[Column], where: str) -> None:
    """Check that children of a struct are as long as it is."""
    if any(len(child) < len(column) for child in children):
        raise InvalidBody("a child of a struct is too short", expected=len(column), where=where)


def _group(
    column: Column, children: dict[str, Column], path: str, *, required: bool, rows: int | None = None
) -> Group:
    value, typed = children.get("value"), children.get("typed_value")
    if value is not None and (value.dictionary is not None or storage_type(value.type).id not in _BINARY):
        _refuse("type of value", "binary, large_binary or binary_view", value.type, path)
    rows = len(column) if rows is None else rows
    if typed is None:
        return Group(column, rows, value, None, required)
    return Group(column, rows, value, typed, required, *_inside(typed, path))


def _inside(column: Column, path: str) -> tuple[Group | None, dict[str, Group] | None]:
    """Check a typed column, and return its elements, or its fields."""
    type_ = column.type
    # A logical type of Parquet's, or an extension type, that the storage of a field does not show.
    metadata = column.field.metadata or {}
    extension = metadata.get(NAME_KEY, b"")
    meaning = metadata.get(_LOGICAL, b"") or (b"" if extension == _UUID_NAME else extension)
    if meaning:
        meant = f"{type_} that is {meaning.decode(errors='replace')}"
        _refuse("type of typed_value", "no other logical type", meant, path)
    if column.dictionary is None and type_.id == pa.lib.Type_STRUCT:
        return None, _fields(column, path)
    if column.dictionary is None and type_.id in _LISTS:
        [item] = column.children
        children = _by_name(item, ("value", "typed_value"), "element of an array")
        return _group(item, children, f"{path}[*]", required=True), None
    if column.dictionary is not None or not (is_leaf(type_) or type_.id in _UNSIGNED):
        _refuse(
            "type of typed_value",
            "bool, int8 to int64, uint8 to uint32 (but in files), float, double, a decimal of at most 38 digits, "
            "date32, time64[us], timestamps in us or ns, string, binary, 16 bytes, a list, or a struct",
            type_,
            path,
        )
    if Kind.DATA in column._node.buffer_kinds:
        needed, nbytes = len(column) * column._node.bits // 8, len(column._array(np.uint8, Kind.DATA))
        if nbytes < needed:
            raise InvalidBody("a buffer is too short", expected=needed, found=nbytes, where=column.name)
    return None, None


def _fields(column: Column, path: str) -> dict[str, Group]:
    names = [child.name for child in column.children]
    if len(set(names)) != len(names):
        _refuse("fields of an object", "each name once", names, path)
    check_children(column, column.children, path)
    groups = {}
    for child in sorted(column.children, key=lambda child: child.name.encode()):
        children = _by_name(child, ("value", "typed_value"), "field of an object")
        inside = f"{path}.{child.name}"
        groups[child.name] = _group(child, children, inside, required=False, rows=len(column))
    return groups


def is_leaf(type_: pa.DataType) -> bool:
    """Return whether the specification has a typed column of a type, other than of arrays and objects."""
    if type_ == pa.uuid():
        return True
    if type_.id in _DECIMALS:
        return bool(0 <= type_.scale <= type_.precision <= _MOST_DIGITS)
    if type_.id == pa.lib.Type_TIMESTAMP:
        return type_.unit in ("us", "ns")
    if type_.id == pa.lib.Type_TIME64:
        return bool(type_.unit == "us")
    if type_.id == pa.lib.Type_FIXED_SIZE_BINARY:
        return bool(type_.byte_width == _UUID)
    return type_.id in _PLAIN


def is_binary(type_: pa.DataType) -> bool:
    """Return whether values of a type are binary."""
    return type_.id in _BINARY


def is_text(type_: pa.DataType) -> bool:
    """Return whether values of a type are text."""
    return type_.id in _TEXT


def flags_of(device: Device, rows: int, *columns: Column | None) -> Any:
    """Return for each slot whether all of some columns have it, as an array of bool."""
    flags = None
    for column in columns:
        if column is None or column.type.id == pa.lib.Type_NA:
            return device.xp.zeros(rows, np.bool_)
        validity = column.validity
        if validity is not None and column.null_count:
            bits = bitmap.expanded(validity, 0, rows)
            flags = bits if flags is None else flags & bits
    return device.xp.full(rows, True, np.bool_) if flags is None else flags


def list_bounds(column: Column) -> tuple[Any, Any]:
    """Return where each list begins and ends in its child, as int64. Lists that could share elements are an
    error: the work on them would have no bound.
    """
    rows, device, offsets = len(column), column.device, column.offsets
    if column.type.id in _VIEWS:
        dtype = np.int64 if column.type.id == pa.lib.Type_LARGE_LIST_VIEW else np.int32
        sizes = column._array(dtype, Kind.SIZES32, Kind.SIZES64)
        if min(len(offsets), len(sizes)) < rows:
            raise InvalidBody("a buffer of a list view is too short", expected=rows, found=len(sizes))
        starts = offsets[:rows].astype(np.int64)
        stops = starts + sizes[:rows].astype(np.int64)
        # Null and empty lists may be anywhere.
        full = device.xp.flatnonzero(flags_of(device, rows, column) & (stops > starts))
        order = full[device.xp.argsort(starts[full])]
        before, after = stops[order][:-1], starts[order][1:]
    else:
        if not len(offsets):
            offsets = device.xp.zeros(1, np.int64)
        if len(offsets) <= rows:
            raise InvalidBody("a buffer of offsets is too short", expected=rows + 1, found=len(offsets))
        wide = offsets[: rows + 1].astype(np.int64)
        before, after = starts, stops = wide[:rows], wide[1:]
    if len(before) and int(device.to_host((after < before).sum(keepdims=True))[0]):
        raise InvalidBody("lists share their elements", expected="offsets that ascend", where=column.name)
    return starts, stops
