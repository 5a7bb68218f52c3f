"""The Arrow schema of the batches that Spark's tasks get of a data frame, known before any task runs."""

from __future__ import annotations

import json
import warnings
from typing import Any, Final

import pyarrow as pa

from bowstring.errors import Unsupported
from bowstring.spark.input_batches import FromSpark
from bowstring.spark.type_mapping import marked

__all__ = [
    "check_columns",
    "differences",
    "frame_of",
    "published_schema",
    "task_schema",
    "with_lists_of_vectors",
    "with_plain_names",
]

_PLAIN: Final = {
    "NullType": pa.null(),
    "BooleanType": pa.bool_(),
    "ByteType": pa.int8(),
    "ShortType": pa.int16(),
    "IntegerType": pa.int32(),
    "LongType": pa.int64(),
    "FloatType": pa.float32(),
    "DoubleType": pa.float64(),
    "DateType": pa.date32(),
    "TimeType": pa.time64("ns"),
    "TimestampNTZType": pa.timestamp("us"),
    "DayTimeIntervalType": pa.duration("us"),
    "CalendarIntervalType": pa.month_day_nano_interval(),
}
_MOST_TOLD: Final = 8
_TEXTS: Final = frozenset(("StringType", "CharType", "VarcharType"))


def published_schema(
    source: Any, zone: str | None = None, *, large: bool | None = None, dictionary: bool = True
) -> pa.Schema:
    """Return the schema that :class:`~bowstring.spark.input_batches.FromSpark` gives to a data frame's batches.

    Parameters
    ----------
    source
        A data frame, or a ``StructType``.
    zone
        The time zone of the session, which timestamps carry; a data frame knows its own.
    large
        Whether strings and binary are large (``spark.sql.execution.arrow.useLargeVarTypes``); likewise.
    dictionary
        As for :class:`~bowstring.spark.input_batches.FromSpark`.

    Raises
    ------
    Unsupported
        A type does not travel from Spark as Arrow, or there are no columns.
    """
    check_columns(source)
    return FromSpark(task_schema(source, zone, large=large), dictionary=dictionary).schema


def check_columns(source: Any) -> None:
    """Refuse a data frame, or a ``StructType``, without columns: Spark tells tasks nothing of its rows.

    Raises
    ------
    Unsupported
        There are none.
    """
    if not (source.columns if hasattr(source, "columns") else source.names):
        raise Unsupported("rows without columns do not travel from Spark", hint="Give them a column.")


def frame_of(source: Any) -> Any:
    """Return the data frame of Spark that a data frame or series of pandas-on-Spark is, without its index."""
    if not hasattr(source, "mapInArrow") and type(source).__module__.startswith("pyspark.pandas"):
        frame = source if hasattr(source, "to_spark") else source.to_frame()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the index is lost is what the documentation says
            return frame.to_spark()
    return source


def with_lists_of_vectors(df: Any) -> Any:
    """Return a data frame whose columns of ML vectors, dense and sparse, are ``array<double>``.

    Vectors within structs and lists stay what Spark stores them as: a struct of type, size, indices and values.
    """
    vectors = [type(field.dataType).__name__ == "VectorUDT" for field in df.schema.fields]
    if not any(vectors):
        return df
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql.functions import when

    plain, names = with_plain_names(df)
    columns = [
        # vector_to_array takes no null.
        when(plain[name].isNotNull(), vector_to_array(plain[name])).alias(name) if is_vector else plain[name]
        for name, is_vector in zip(plain.columns, vectors, strict=True)
    ]
    made = plain.select(*columns)
    return made if names is None else made.toDF(*names)


def with_plain_names(df: Any) -> tuple[Any, tuple[str, ...] | None]:
    """Return a data frame whose columns ``mapInArrow`` finds by their names, and the names that they had.

    Spark looks for ``a.b`` in a struct, and finds two columns where a name is repeated. There, columns are renamed
    by their position; ``None`` where nothing was renamed.
    """
    names = tuple(df.columns)
    found = {name.lower() for name in names}
    if len(found) == len(names) and not any("." in name or "`" in name for name in names):
        return df, None
    return df.toDF(*(f"c{index}" for index in range(len(names)))), names


def differences(known: pa.Schema, planned: pa.Schema) -> tuple[str, str] | None:
    """Return the columns in which a planned schema is another one, as they are known and as planned; None for none.

    What a plan of a data source cannot know is no difference: the session's time zone, and how large offsets are.

    Examples
    --------
    >>> differences(
    ...     pa.schema([("a", pa.int64()), ("b", pa.bool_())]),
    ...     pa.schema([("a", pa.int32()), ("b", pa.bool_())]),
    ... )
    ('a int64', 'a int32')
    >>> differences(
    ...     pa.schema([("t", pa.timestamp("us", "UTC"))]),
    ...     pa.schema([("t", pa.timestamp("us", "Asia/Tokyo"))]),
    ... )
    """
    before, after = list(known), list(planned)
    if known.names == planned.names:
        pairs = zip(before, after, strict=True)
        other = [(one, two) for one, two in pairs if _as_planned(one.type) != _as_planned(two.type)]
        if not other:
            return None
        before, after = [one for one, _ in other], [two for _, two in other]
    return _told(before), _told(after)


def _told(fields: list[pa.Field]) -> str:
    names = [f"{field.name} {field.type}" for field in fields[:_MOST_TOLD]]
    return ", ".join(names + ["…"] * (len(fields) > _MOST_TOLD))


def _as_planned(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp(type_.unit, "UTC")
    if pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_large_binary(type_):
        return pa.binary()
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


def task_schema(source: Any, zone: str | None = None, *, large: bool | None = None) -> pa.Schema:
    """Return the schema of the batches that ``mapInArrow`` hands to tasks; arguments as in `published_schema`."""
    session = getattr(source, "sparkSession", None)
    if session is not None:
        zone = session.conf.get("spark.sql.session.timeZone") if zone is None else zone
        if large is None:
            large = session.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"
        source = source.schema
    makes = _Types(zone or "UTC", large=bool(large))
    return pa.schema(makes.fields(source, ""))


class _Types:
    def __init__(self, zone: str, *, large: bool) -> None:
        self._zone = zone
        self._text = pa.large_string() if large else pa.string()
        self._binary = pa.large_binary() if large else pa.binary()

    def fields(self, struct: Any, path: str) -> list[pa.Field]:
        return [
            _field(
                field.name,
                self.type(field.dataType, f"{path}{field.name}"),
                field.nullable,
                {"SPARK::metadata::json": json.dumps(field.metadata)} if field.metadata else None,
            )
            for field in struct.fields
        ]

    def type(self, spark: Any, path: str) -> pa.DataType:
        name = type(spark).__name__
        if name in _PLAIN:
            return _PLAIN[name]
        if name in _TEXTS:
            return self._text
        if name == "BinaryType":
            return self._binary
        if name == "DecimalType":
            return pa.decimal128(spark.precision, spark.scale)
        if name == "TimestampType":
            return pa.timestamp("us", self._zone)
        if name == "ArrayType":
            inner = self.type(spark.elementType, f"{path}.element")
            return pa.list_(_field("element", inner, spark.containsNull))
        if name == "MapType":
            key = self.type(spark.keyType, f"{path}.key")
            if pa.types.is_null(key):  # map(): Arrow's keys are never null, and all values of this type are
                raise Unsupported(
                    "a map whose keys have no type",
                    found=spark.simpleString(),
                    where=path,
                    hint="Cast it: cast(map() as map<string, string>).",
                )
            value = self.type(spark.valueType, f"{path}.value")
            return pa.map_(key, _field("value", value, spark.valueContainsNull))
        if name == "StructType":
            return pa.struct(self.fields(spark, f"{path}."))
        if name == "VariantType":
            return self._variant()
        if name in ("GeometryType", "GeographyType"):
            return self._shape(name.removesuffix("Type").lower(), spark.srid)
        if hasattr(spark, "sqlType"):
            return self.type(spark.sqlType(), path)
        raise Unsupported("the type does not travel from Spark as Arrow", found=spark, where=path)

    def _variant(self) -> pa.DataType:
        return pa.struct([field.with_type(self._binary) for field in marked(b"variant")])

    def _shape(self, mark: str, srid: int) -> pa.DataType:
        marks = {mark: "true", "srid": str(srid)}
        return pa.struct(
            [
                pa.field("srid", pa.int32(), nullable=False),
                pa.field("wkb", self._binary, nullable=False, metadata=marks),
            ]
        )


def _field(name: str, type_: pa.DataType, nullable: bool, metadata: Any = None) -> pa.Field:
    # Spark's array() has elements of type void that are never null; pyarrow has no such fields.
    return pa.field(name, type_, nullable or pa.types.is_null(type_), metadata)
