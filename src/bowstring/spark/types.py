"""The table of types between Arrow and Spark, and schemas from one to the other, before any task runs."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from bowstring.columnar.marks import NAME_KEY, VARIANT_NAMES
from bowstring.columnar.nodes import storage_type
from bowstring.errors import Unsupported
from bowstring.variant.spark_casts import SHORT_ZONES

_ID: Final = pa.lib
# A type of Spark's, the Arrow type of its batches, and other Arrow types that become it (docs/spark/types.md).
_TABLE: Final[tuple[tuple[str, pa.DataType, tuple[int, ...]], ...]] = (
    ("NullType", pa.null(), ()),
    ("BooleanType", pa.bool_(), ()),
    ("ByteType", pa.int8(), ()),
    ("ShortType", pa.int16(), (_ID.Type_UINT8,)),
    ("IntegerType", pa.int32(), (_ID.Type_UINT16,)),
    ("LongType", pa.int64(), (_ID.Type_UINT32,)),
    ("FloatType", pa.float32(), (_ID.Type_HALF_FLOAT,)),
    ("DoubleType", pa.float64(), ()),
    ("StringType", pa.string(), (_ID.Type_LARGE_STRING, _ID.Type_STRING_VIEW)),
    ("BinaryType", pa.binary(), (_ID.Type_LARGE_BINARY, _ID.Type_BINARY_VIEW, _ID.Type_FIXED_SIZE_BINARY)),
    ("DateType", pa.date32(), (_ID.Type_DATE64,)),
    ("TimeType", pa.time64("ns"), (_ID.Type_TIME32,)),
    ("TimestampNTZType", pa.timestamp("us"), ()),
    ("DayTimeIntervalType", pa.duration("us"), ()),
)
TAKEN_AS: Final[dict[int, pa.DataType]] = {
    id_: arrow for _, arrow, others in _TABLE for id_ in (arrow.id, *others)
} | {_ID.Type_UINT64: pa.decimal128(20, 0)}
"""What Spark takes an Arrow type as, by the type's id, where its parameters do not matter."""
_OF_SPARK: Final = {spark: arrow for spark, arrow, _ in _TABLE} | {
    "CharType": pa.string(),
    "VarcharType": pa.string(),
    "CalendarIntervalType": pa.month_day_nano_interval(),
}
_OF_ARROW: Final = {arrow.id: spark for spark, arrow, _ in _TABLE}
LISTS: Final = (
    _ID.Type_LIST, _ID.Type_LARGE_LIST, _ID.Type_FIXED_SIZE_LIST, _ID.Type_LIST_VIEW, _ID.Type_LARGE_LIST_VIEW,
)  # fmt: skip
_CHILDREN: Final = {
    b"variant": ("metadata", "value"),
    b"geometry": ("wkb", "srid"),
    b"geography": ("wkb", "srid"),
}
NOTES: Final = b"SPARK::metadata::json"
"""Where Spark keeps the metadata of a column in an Arrow field."""


def extension_name(field: pa.Field) -> str | None:
    """Return the name of a field's extension type, from its type or from its metadata."""
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    name = (field.metadata or {}).get(NAME_KEY)
    return None if name is None else name.decode(errors="replace")


def is_variant(field: pa.Field) -> bool:
    """Whether a field is a Variant, marked by Arrow or by Spark."""
    storage = storage_type(field.type)
    marked_by_arrow = pa.types.is_struct(storage) and extension_name(field) in VARIANT_NAMES
    return marked_by_arrow or is_marked(storage, b"variant")


def is_marked(type_: pa.DataType, *marks: bytes) -> bool:
    """Whether a type is a struct that Spark marked, as ``variant``, ``geometry`` or ``geography``."""
    if not pa.types.is_struct(type_):
        return False
    fields = {field.name: field for field in type_}
    return any(
        len(fields) == type_.num_fields == 2
        and set(_CHILDREN[mark]) == set(fields)
        and (fields[_CHILDREN[mark][0]].metadata or {}).get(mark) == b"true"
        for mark in marks
    )


def variant_type(binary: pa.DataType) -> pa.DataType:
    """Return Spark's struct of a Variant, value first."""
    metadata = pa.field("metadata", binary, nullable=False, metadata={b"variant": b"true"})
    return pa.struct([pa.field("value", binary, nullable=False), metadata])


# ZoneOffset.of, with a digit less where Spark before 3.0 took one less.
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?|:(\d))?", re.ASCII)
_SHORT: Final = {**SHORT_ZONES, "EST": "-05:00", "HST": "-10:00", "MST": "-07:00", "UT": "UTC", "Z": "UTC"}


@functools.cache
def arrow_zone(zone: str) -> str:
    """Return a time zone of a session as Arrow has it: a name of the time zone database, or ``+hh:mm``.

    Arrow has no offsets with seconds; such a zone becomes UTC, as instants stay the same in any zone.
    """
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return _SHORT.get(zone, zone)
    sign, hours, minutes, seconds, minute = match.groups()
    hours, minutes = int(hours), int(minutes or minute or 0)
    if int(seconds or 0) or not (hours or minutes):
        return "UTC"
    return f"{sign}{hours:02}:{minutes:02}"


def check_columns(source: Any) -> None:
    """Refuse a data frame, or a ``StructType``, without columns: Spark tells tasks nothing of its rows."""
    if not (source.columns if hasattr(source, "columns") else source.names):
        raise Unsupported("rows without columns do not travel from Spark", hint="Give them a column.")


def task_schema(source: Any) -> pa.Schema:
    """Return the schema of the batches that ``mapInArrow`` hands to tasks, of a data frame or a ``StructType``.

    A data frame says the session's time zone, and whether strings and binary are large.
    """
    session = getattr(source, "sparkSession", None)
    if session is None:
        return pa.schema(_FromStruct("UTC", large=False).fields(source, ""))
    large = session.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"
    arrow = _FromStruct(session.conf.get("spark.sql.session.timeZone"), large=large)
    return pa.schema(arrow.fields(source.schema, ""))


class _FromStruct:
    """Arrow's types for Spark's."""

    def __init__(self, zone: str, *, large: bool) -> None:
        binary = pa.large_binary() if large else pa.binary()
        self._binary = binary
        self._types = _OF_SPARK | {
            "TimestampType": pa.timestamp("us", zone),
            "BinaryType": binary,
            "VariantType": variant_type(binary),
        }
        if large:
            self._types |= dict.fromkeys(("StringType", "CharType", "VarcharType"), pa.large_string())

    def fields(self, struct: Any, path: str) -> list[pa.Field]:
        return [
            self._field(
                field.name,
                self._type(field.dataType, f"{path}{field.name}"),
                field.nullable,
                {NOTES: json.dumps(field.metadata)} if field.metadata else None,
            )
            for field in struct.fields
        ]

    def _field(self, name: str, type_: pa.DataType, nullable: bool, metadata: Any = None) -> pa.Field:
        # Spark's array() has elements of type void that are never null; pyarrow has no such fields.
        return pa.field(name, type_, nullable or pa.types.is_null(type_), metadata)

    def _type(self, spark: Any, path: str) -> pa.DataType:
        name = type(spark).__name__
        if name in self._types:
            return self._types[name]
        if name == "DecimalType":
            return pa.decimal128(spark.precision, spark.scale)
        if name == "ArrayType":
            inner = self._type(spark.elementType, f"{path}.element")
            return pa.list_(self._field("element", inner, spark.containsNull))
        if name == "MapType":
            key = self._type(spark.keyType, f"{path}.key")
            if pa.types.is_null(key):  # map(): Arrow's keys are never null, and all values of this type are
                raise Unsupported(
                    "a map whose keys have no type",
                    found=spark.simpleString(),
                    where=path,
                    hint="Cast it: cast(map() as map<string, string>).",
                )
            value = self._type(spark.valueType, f"{path}.value")
            return pa.map_(key, self._field("value", value, spark.valueContainsNull))
        if name == "StructType":
            return pa.struct(self.fields(spark, f"{path}."))
        if name in ("GeometryType", "GeographyType"):
            marks = {name.removesuffix("Type").lower(): "true", "srid": str(spark.srid)}
            srid = pa.field("srid", pa.int32(), nullable=False)
            return pa.struct([srid, pa.field("wkb", self._binary, nullable=False, metadata=marks)])
        if hasattr(spark, "sqlType"):
            return self._type(spark.sqlType(), path)
        raise Unsupported("the type does not travel from Spark as Arrow", found=spark, where=path)


def struct_of(fields: Iterable[pa.Field], types: Any) -> Any:
    """Return the ``StructType`` of fields that are as Spark takes them, by the module ``pyspark.sql.types``."""
    return types.StructType(
        [
            types.StructField(field.name, _spark_type(field.type, types), field.nullable, _notes(field))
            for field in fields
        ]
    )


def _spark_type(type_: pa.DataType, types: Any) -> Any:
    if is_marked(type_, b"variant"):
        return types.VariantType()
    for mark, name in ((b"geometry", "GeometryType"), (b"geography", "GeographyType")):
        if is_marked(type_, mark):
            srid = int(type_.field("wkb").metadata.get(b"srid", b"-1"))
            return getattr(types, name)("ANY" if srid == -1 else srid)
    if pa.types.is_struct(type_):
        return struct_of(type_, types)
    if pa.types.is_list(type_):
        return types.ArrayType(_spark_type(type_.value_type, types), type_.value_field.nullable)
    if pa.types.is_map(type_):
        key, item = (_spark_type(each, types) for each in (type_.key_type, type_.item_type))
        return types.MapType(key, item, type_.item_field.nullable)
    if pa.types.is_decimal(type_):
        return types.DecimalType(type_.precision, type_.scale)
    zoned = pa.types.is_timestamp(type_) and type_.tz is not None
    return types.TimestampType() if zoned else getattr(types, _OF_ARROW[type_.id])()


def _notes(field: pa.Field) -> Any:
    kept = (field.metadata or {}).get(NOTES)
    try:
        notes = json.loads(kept) if kept else {}
    except (ValueError, RecursionError):
        return {}
    return notes if isinstance(notes, dict) else {}


_MOST_TOLD: Final = 8


def differences(known: pa.Schema, planned: pa.Schema) -> tuple[str, str] | None:
    """Return the columns in which a planned schema is another one, as they are known and as planned; None for none.

    What a plan of a data source cannot know is no difference: the session's time zone, and how large offsets are.
    """
    before, after = list(known), list(planned)
    if known.names == planned.names:
        pairs = zip(before, after, strict=True)
        other = [(one, two) for one, two in pairs if _as_planned(one.type) != _as_planned(two.type)]
        if not other:
            return None
        before, after = [one for one, _ in other], [two for _, two in other]
    return _listed(before), _listed(after)


def _listed(fields: list[pa.Field]) -> str:
    names = [f"{field.name} {field.type}" for field in fields[:_MOST_TOLD]]
    return ", ".join(names + ["…"] * (len(fields) > _MOST_TOLD))


def _as_planned(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp(type_.unit, "UTC")
    if pa.types.is_large_string(type_) or pa.types.is_large_binary(type_):
        return TAKEN_AS[type_.id]
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_as_planned(field.type)) for field in type_.fields])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_as_planned(type_.value_type)))
    if pa.types.is_map(type_):
        key, value = _as_planned(type_.key_type), _as_planned(type_.item_type)
        return pa.map_(type_.key_field.with_type(key), type_.item_field.with_type(value))
    if pa.types.is_dictionary(type_):
        return pa.dictionary(type_.index_type, _as_planned(type_.value_type))
    return type_
