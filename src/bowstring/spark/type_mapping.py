"""What Spark takes each Arrow type as, and how an array becomes that: the table of ``docs/spark/types.md``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from bowstring.columnar.marks import NAME_KEY, VARIANT_NAMES
from bowstring.columnar.nodes import storage_type
from bowstring.errors import Unsupported
from bowstring.spark import conversions

__all__ = ["EXTENSION_NAME", "Form", "column_form", "extension_name", "is_marked", "is_variant", "marked"]

EXTENSION_NAME: Final = VARIANT_NAMES[0]
_CHILDREN: Final = {
    b"variant": ("metadata", "value"),
    b"geometry": ("wkb", "srid"),
    b"geography": ("wkb", "srid"),
}


def extension_name(field: pa.Field) -> str | None:
    """Return the name of a field's extension type, from its type or from its metadata.

    Examples
    --------
    >>> extension_name(pa.field("id", pa.uuid()))
    'arrow.uuid'
    """
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    name = (field.metadata or {}).get(NAME_KEY)
    return None if name is None else name.decode(errors="replace")


def is_variant(field: pa.Field) -> bool:
    """Whether a field is a Variant, marked in either way.

    Examples
    --------
    >>> is_variant(pa.field("v", marked(b"variant")))
    True
    """
    storage = storage_type(field.type)
    if not pa.types.is_struct(storage):
        return False
    return extension_name(field) in VARIANT_NAMES or is_marked(storage, b"variant")


def is_marked(type_: pa.DataType, mark: bytes) -> bool:
    """Whether a type is a struct that Spark marked as ``variant``, ``geometry`` or ``geography``.

    Examples
    --------
    >>> is_marked(pa.struct([("value", pa.binary()), ("metadata", pa.binary())]), b"variant")
    False
    """
    if not pa.types.is_struct(type_):
        return False
    bearer, other = _CHILDREN[mark]
    fields = {field.name: field for field in type_}
    return (
        len(fields) == type_.num_fields == 2
        and {bearer, other} == set(fields)
        and (fields[bearer].metadata or {}).get(mark) == b"true"
    )


def marked(mark: bytes) -> pa.DataType:
    """Return Spark's struct of a Variant (``b"variant"``), value first.

    Examples
    --------
    >>> marked(b"variant").names
    ['value', 'metadata']
    """
    bearer, other = _CHILDREN[mark]
    return pa.struct(
        [
            pa.field(other, pa.binary(), nullable=False),
            pa.field(bearer, pa.binary(), nullable=False, metadata={mark: b"true"}),
        ]
    )


Convert = Callable[[Any], Any]
_MOST_DIGITS: Final = 38
_DEEPEST: Final = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """What a field becomes.

    Attributes
    ----------
    field
        As Spark checks it: name, type and nullability.
    convert
        Makes an array of that type; None where arrays are that already.
    """

    field: pa.Field
    convert: Convert | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """Where in a schema we are, for errors, and whether losses are allowed."""

    path: str
    truncate: bool
    depth: int = 0

    def inside(self, name: str) -> _Place:
        if self.depth == _DEEPEST:
            raise Unsupported(
                "a type is nested too deep", expected=f"at most {_DEEPEST} levels", where=self.path
            )
        return _Place(f"{self.path}.{name}", self.truncate, self.depth + 1)


def column_form(field: pa.Field, *, truncate: bool = False) -> Form:
    """Return what a column becomes.

    Parameters
    ----------
    field
        The column's field, with the extension names of types in its metadata or in pyarrow's types.
    truncate
        Whether nanoseconds may be cut to microseconds.

    Raises
    ------
    Unsupported
        Spark has nothing for the type; the message names it, and the place.

    Examples
    --------
    >>> column_form(pa.field("a", pa.large_list(pa.uint32()))).field.type
    ListType(list<element: int64>)
    """
    return _form(field, field.name, _Place(field.name, truncate))


def _form(field: pa.Field, name: str, place: _Place) -> Form:
    """Return what a field becomes under another name."""
    target, convert = _of_type(field, place)
    convert = None if target.equals(field.type, check_metadata=True) and convert is None else convert
    kept = (field.metadata or {}).get(b"SPARK::metadata::json")
    metadata = None if kept is None else {b"SPARK::metadata::json": kept}
    return Form(pa.field(name, target, field.nullable, metadata), convert)


def _of_type(field: pa.Field, place: _Place) -> tuple[pa.DataType, Convert | None]:
    storage = storage_type(field.type)
    name = extension_name(field)
    if is_variant(field):
        return _variant(storage, place)
    if is_marked(storage, b"geometry") or is_marked(storage, b"geography"):
        return _marked_geometry(storage, place)
    target, convert = _of_storage(storage, place)
    if name == "arrow.bool8" and storage == pa.int8():
        target, convert = pa.bool_(), conversions.cast_to(pa.bool_(), place.path)
    if isinstance(field.type, pa.BaseExtensionType):
        inner = convert
        return target, (lambda array: array.storage) if inner is None else lambda array: inner(array.storage)
    return target, convert


def _of_storage(type_: pa.DataType, place: _Place) -> tuple[pa.DataType, Convert | None]:
    if type_.id in _SAME:
        return type_, None
    if type_.id in _CAST:
        target = _CAST[type_.id]
        return target, conversions.cast_to(target, place.path)
    make = _MADE.get(type_.id)
    if make is None:
        raise Unsupported(
            "Spark has no such type", found=str(type_), where=place.path, hint=_HINTS.get(type_.id)
        )
    return make(type_, place)


def _decimal(type_: pa.DataType, place: _Place) -> tuple[pa.DataType, Convert | None]:
    digits, scale = type_.precision, type_.scale
    if scale < 0:
        digits, scale = digits - scale, 0
    digits = max(digits, scale)
    if scale > _MOST_DIGITS or (digits > _MOST_DIGITS and type_.scale < 0):
        raise Unsupported(
            "Spark's decimals are smaller", expected="at most 38 digits", found=str(type_), where=place.path
        )
    target = pa.decimal128(min(digits, _MOST_DIGITS), scale)
    return target, None if target == type_ else conversions.cast_to(target, place.path)


def _timestamp(type_: pa.DataType, place: _Place) -> tuple[pa.DataType, Convert | None]:
    target = pa.timestamp("us", None if type_.tz is None else "UTC")
    return target, None if type_ == target else conversions.to_micros(
        target, place.path, truncate=place.truncate
    )


def _duration(type_: pa.DataType, place: _Place) -> tuple[pa.DataType, Convert | None]:
    target = pa.duration("us")
    return target, None if type_ == target else conversions.to_micros(
        target, place.path, truncate=place.truncate
    )


def _time(_type: pa.DataType, place: _Place) -> tuple[pa.DataType, Convert | None]:
    return pa.time64("ns"), conversions.to_time(place.path, truncate=place.truncate)


def _encoded(type_: pa.DataType, place: _Place) -> tuple[pa.DataType, Convert | None]:
    values = _form(pa.field("values", type_.value_type), "values", place)
    decode = conversions.decode if pa.types.is_dictionary(type_) else conversions.decode_runs
    return values.field.type, lambda array: decode(array, values.convert)


def _list(type_: pa.DataType, place: _Place) -> tuple[pa.DataType, Convert | None]:
    items = _form(type_.value_field, "element", place.inside("element"))
    target = pa.list_(items.field)
    as_list = conversions.AS_LIST.get(type_.id)
    if (
        as_list is None
        and items.convert is None
        and target.equals(type_, check_metadata=True)
        and items.field.nullable
    ):
        return target, None
    return target, lambda array: conversions.to_list(array, target, as_list, items.convert, place.path)


def _map(type_: pa.DataType, place: _Place) -> tuple[pa.DataType, Convert | None]:
    keys = _form(type_.key_field, "key", place.inside("key"))
    items = _form(type_.item_field, "value", place.inside("value"))
    if _holds_map(keys.field.type) or is_marked(keys.field.type, b"variant"):
        raise Unsupported(
            "Spark has no such keys of maps", found=str(type_.key_type), where=place.inside("key").path
        )
    target = pa.map_(keys.field.with_nullable(False), items.field)
    return target, lambda array: conversions.to_map(array, target, keys.convert, items.convert, place.path)


def _struct(type_: pa.DataType, place: _Place) -> tuple[pa.DataType, Convert | None]:
    parts = [_form(field, field.name, place.inside(field.name)) for field in type_]
    target = pa.struct([part.field for part in parts])
    plain = all(part.convert is None and part.field.nullable for part in parts)
    if plain and target.equals(type_, check_metadata=True):
        return target, None
    converts = [part.convert for part in parts]
    return target, lambda array: conversions.to_struct(array, target, converts, place.path)


def _variant(type_: pa.DataType, place: _Place) -> tuple[pa.DataType, Convert | None]:
    names = [field.name for field in type_]
    if sorted(names) != ["metadata", "value"]:
        raise Unsupported(
            "only Variants of metadata and value go to Spark", found=", ".join(names), where=place.path
        )
    value, metadata = (_form(type_.field(name), name, place) for name in ("value", "metadata"))
    if not value.field.type.equals(pa.binary()) or not metadata.field.type.equals(pa.binary()):
        raise Unsupported("a Variant's children are binary", found=str(type_), where=place.path)
    return marked(b"variant"), lambda array: conversions.to_variant(
        array, marked(b"variant"), value.convert, metadata.convert, place.path
    )


def _marked_geometry(type_: pa.DataType, place: _Place) -> tuple[pa.DataType, Convert | None]:
    # The mark is on a child, so children keep their metadata.
    parts = [_form(type_.field(name), name, place) for name in ("srid", "wkb")]
    fields = [
        part.field.with_nullable(False).with_metadata(type_.field(part.field.name).metadata) for part in parts
    ]
    target = pa.struct(fields)
    picked = [part.convert for part in parts]
    return target, lambda array: conversions.to_struct(
        array, target, picked, place.path, [type_.get_field_index(field.name) for field in fields]
    )


def _holds_map(type_: pa.DataType) -> bool:
    return pa.types.is_map(type_) or any(
        _holds_map(type_.field(index).type) for index in range(type_.num_fields)
    )


_Type = pa.lib
_SAME: Final = frozenset(
    (
        _Type.Type_NA,
        _Type.Type_BOOL,
        _Type.Type_INT8,
        _Type.Type_INT16,
        _Type.Type_INT32,
        _Type.Type_INT64,
        _Type.Type_FLOAT,
        _Type.Type_DOUBLE,
        _Type.Type_STRING,
        _Type.Type_BINARY,
        _Type.Type_DATE32,
    )
)
_CAST: Final[dict[int, pa.DataType]] = {
    _Type.Type_UINT8: pa.int16(),
    _Type.Type_UINT16: pa.int32(),
    _Type.Type_UINT32: pa.int64(),
    _Type.Type_UINT64: pa.decimal128(20, 0),
    _Type.Type_HALF_FLOAT: pa.float32(),
    _Type.Type_LARGE_STRING: pa.string(),
    _Type.Type_STRING_VIEW: pa.string(),
    _Type.Type_LARGE_BINARY: pa.binary(),
    _Type.Type_BINARY_VIEW: pa.binary(),
    _Type.Type_FIXED_SIZE_BINARY: pa.binary(),
    _Type.Type_DATE64: pa.date32(),
}
_MADE: Final[dict[int, Callable[[pa.DataType, _Place], tuple[pa.DataType, Convert | None]]]] = {
    _Type.Type_DECIMAL32: _decimal,
    _Type.Type_DECIMAL64: _decimal,
    _Type.Type_DECIMAL128: _decimal,
    _Type.Type_DECIMAL256: _decimal,
    _Type.Type_TIMESTAMP: _timestamp,
    _Type.Type_DURATION: _duration,
    _Type.Type_TIME32: _time,
    _Type.Type_TIME64: _time,
    _Type.Type_DICTIONARY: _encoded,
    _Type.Type_RUN_END_ENCODED: _encoded,
    _Type.Type_LIST: _list,
    _Type.Type_LARGE_LIST: _list,
    _Type.Type_LIST_VIEW: _list,
    _Type.Type_LARGE_LIST_VIEW: _list,
    _Type.Type_FIXED_SIZE_LIST: _list,
    _Type.Type_MAP: _map,
    _Type.Type_STRUCT: _struct,
}
_UNION: Final = "Choose other columns, or give each member of the union a column of its own."
_HINTS: Final[dict[int, str]] = {
    _Type.Type_SPARSE_UNION: _UNION,
    _Type.Type_DENSE_UNION: _UNION,
    _Type.Type_INTERVAL_MONTH_DAY_NANO: "Spark's calendar intervals do not travel as Arrow.",
    21: "Spark's year-month intervals do not travel to Spark as Arrow: send int32 months.",
    22: "Send a duration.",
}
