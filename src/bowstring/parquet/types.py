"""The logical types of Parquet: one table of them, and what each element of a schema means by it.

The specification, ``LogicalTypes.md``, says which physical types each may annotate, its old spelling (the
ConvertedType), and the order of its values. The table of ``docs/parquet.md`` is this one.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from bowstring.errors import InvalidMetadata
from bowstring.parquet.logical import CONVERTED, PHYSICAL, WIDTHS, LogicalType
from bowstring.parquet.thrift import FALSE, I8, I32, STRUCT, TRUE, Field, encode_struct

if TYPE_CHECKING:
    from bowstring.parquet.footer import SchemaElement

LOGICAL_KEY: Final = b"PARQUET:logical_type"
"""In the metadata of an Arrow field: a logical type for which Arrow has none, as ``str(LogicalType)`` spells it."""
PHYSICAL_KEY: Final = b"PARQUET:physical_type"
"""In the metadata of a decimal field: ``BYTE_ARRAY``, where the values shall be written so."""
DECIMAL_MOST: Final = 76
"""The most digits of a decimal of Arrow."""
_NARROW: Final = 38
INT96: Final = PHYSICAL.index("INT96")
INTERVAL: Final = CONVERTED.index("INTERVAL")
_GROUP: Final = "group"
_FIXED: Final = "FIXED_LEN_BYTE_ARRAY"
_BYTES: Final = "BYTE_ARRAY"


class LogicalRow(NamedTuple):
    """What the specification says about a logical type on a physical type, and what Arrow type it becomes."""

    logical: str  # the name with the parameters that decide; empty where there is none
    physical: str  # what it annotates: a physical type, a group, or any
    converted: str  # the old spelling, empty where there is none
    arrow: str
    # How values are compared for statistics: ``signed``, ``unsigned``, or empty where no order is defined.
    order: str


LOGICAL_TYPES: Final = (
    LogicalRow("STRING", _BYTES, "UTF8", "string", "unsigned"),
    LogicalRow("ENUM", _BYTES, "ENUM", "string, marked ENUM", "unsigned"),
    LogicalRow("JSON", _BYTES, "JSON", "arrow.json", "unsigned"),
    LogicalRow("BSON", _BYTES, "BSON", "binary, marked BSON", "unsigned"),
    LogicalRow("UUID", f"{_FIXED}(16)", "", "arrow.uuid", "unsigned"),
    LogicalRow("INT(8, signed)", "INT32", "INT_8", "int8", "signed"),
    LogicalRow("INT(16, signed)", "INT32", "INT_16", "int16", "signed"),
    LogicalRow("INT(32, signed)", "INT32", "INT_32", "int32", "signed"),
    LogicalRow("INT(64, signed)", "INT64", "INT_64", "int64", "signed"),
    LogicalRow("INT(8, unsigned)", "INT32", "UINT_8", "uint8", "unsigned"),
    LogicalRow("INT(16, unsigned)", "INT32", "UINT_16", "uint16", "unsigned"),
    LogicalRow("INT(32, unsigned)", "INT32", "UINT_32", "uint32", "unsigned"),
    LogicalRow("INT(64, unsigned)", "INT64", "UINT_64", "uint64", "unsigned"),
    LogicalRow("DECIMAL", "INT32", "DECIMAL", "decimal128(precision, scale)", "signed"),
    LogicalRow("DECIMAL", "INT64", "DECIMAL", "decimal128(precision, scale)", "signed"),
    LogicalRow("DECIMAL", f"{_FIXED}(n)", "DECIMAL", "decimal128, or decimal256 from 39 digits on", "signed"),
    LogicalRow("DECIMAL", _BYTES, "DECIMAL", "decimal128, or decimal256 from 39 digits on", "signed"),
    LogicalRow("FLOAT16", f"{_FIXED}(2)", "", "float16", "signed"),
    LogicalRow("DATE", "INT32", "DATE", "date32", "signed"),
    LogicalRow("TIME(MILLIS)", "INT32", "TIME_MILLIS", "time32[ms]; marked where it is UTC", "signed"),
    LogicalRow("TIME(MICROS)", "INT64", "TIME_MICROS", "time64[us]; marked where it is UTC", "signed"),
    LogicalRow("TIME(NANOS)", "INT64", "", "time64[ns]; marked where it is UTC", "signed"),
    LogicalRow(
        "TIMESTAMP(MILLIS)", "INT64", "TIMESTAMP_MILLIS", "timestamp[ms], with a zone if UTC", "signed"
    ),
    LogicalRow(
        "TIMESTAMP(MICROS)", "INT64", "TIMESTAMP_MICROS", "timestamp[us], with a zone if UTC", "signed"
    ),
    LogicalRow("TIMESTAMP(NANOS)", "INT64", "", "timestamp[ns], with a zone if UTC", "signed"),
    LogicalRow("INTERVAL", f"{_FIXED}(12)", "INTERVAL", "month_day_nano_interval", ""),
    LogicalRow("VARIANT", _GROUP, "", "arrow.parquet.variant", ""),
    LogicalRow("GEOMETRY", _BYTES, "", "geoarrow.wkb", ""),
    LogicalRow("GEOGRAPHY", _BYTES, "", "geoarrow.wkb with edges", ""),
    LogicalRow("LIST", _GROUP, "LIST", "list", ""),
    LogicalRow("MAP", _GROUP, "MAP", "map; a list of keys, marked MAP, where it has no values", ""),
    LogicalRow("UNKNOWN", "any", "", "null", ""),
    LogicalRow("", "INT96", "", 'timestamp[us], or [ns] with int96="ns"', ""),
)
"""Every logical type with every physical type that it may annotate, and INT96, which is a type by itself."""

_PHYSICALS: Final = {
    each.logical: [row.physical for row in LOGICAL_TYPES if row.logical == each.logical]
    for each in LOGICAL_TYPES
}
_BY_CONVERTED: Final = {row.converted: row for row in LOGICAL_TYPES if row.converted}
_IDS: Final = {LogicalType(number).name: number for number in range(1, 19) if number != 9}
_UNITS: Final = {"MILLIS": 1, "MICROS": 2, "NANOS": 3}


class Meaning(NamedTuple):
    """What is to be done about an element so that it keeps its meaning where pyarrow reads the file."""

    # What pyarrow is shown instead of it: fields of the element that differ.
    shown: tuple[tuple[str, Any], ...] = ()
    # The Arrow type that its values are made into, if any; of timestamps the unit is the reader's choice.
    arrow: pa.DataType | None = None
    mark: str = ""  # the logical type that its field is marked with: where Arrow has no type for it
    geospatial: LogicalType | None = None  # its logical type, where it is GEOMETRY or GEOGRAPHY
    unsupported: str = ""  # why it cannot be read, empty where it can: all other columns can
    warning: str = ""
    # Whether it is a decimal of which values may be longer than pyarrow takes: then its bytes are read.
    wide: bool = False


PLAIN: Final = (("logical", None), ("converted", None))
"""What an element is shown as that is nothing but its physical type."""


def simple_type(name: str) -> LogicalType:
    """Return a logical type without parameters."""
    return LogicalType(_IDS[name])


def decimal_type(precision: int, scale: int) -> LogicalType:
    """Return the type of decimals."""
    return LogicalType(_IDS["DECIMAL"], (Field(1, I32, scale), Field(2, I32, precision)))


def time_type(name: str, unit: str, *, utc: bool) -> LogicalType:
    """Return a TIME or TIMESTAMP."""
    inside = encode_struct([Field(_UNITS[unit], STRUCT, encode_struct([]))])
    return LogicalType(_IDS[name], (Field(1, TRUE if utc else FALSE, utc), Field(2, STRUCT, inside)))


def _name_in_table(logical: LogicalType) -> str:
    """Return the name that the table has, which is without what does not decide."""
    if logical.name == "INT":
        return str(logical)
    return f"{logical.name}({logical.unit})" if logical.name in ("TIME", "TIMESTAMP") else logical.name


def converted_of(logical: LogicalType) -> int | None:
    """Return the old spelling that writers must add to a logical type (*Forward compatibility*)."""
    name = _name_in_table(logical)
    converted = next((row.converted for row in LOGICAL_TYPES if row.logical == name), "")
    return CONVERTED.index(converted) if converted else None


def logical_of(element: SchemaElement) -> LogicalType | None:
    """Return the logical type of an element, if any; also of an old spelling (*Backward compatibility*)."""
    if element.declared is not None or element.converted is None:
        return element.declared
    name = CONVERTED[element.converted] if 0 <= element.converted < len(CONVERTED) else ""
    if name == "DECIMAL":
        return decimal_type(element.precision or 0, element.scale or 0)
    if name == "MAP_KEY_VALUE":
        name = "MAP"
    row = _BY_CONVERTED.get(name)
    if row is None or row.logical not in _IDS:
        return _with_parameters(row.logical) if row is not None and row.logical != "INTERVAL" else None
    return simple_type(row.logical)


def _with_parameters(text: str) -> LogicalType:
    name, _, inside = text.removesuffix(")").partition("(")
    if name != "INT":
        return time_type(name, inside, utc=True)  # the old spellings mean UTC
    width, _, sign = inside.partition(", ")
    signed = sign == "signed"
    return LogicalType(
        _IDS["INT"], (Field(1, I8, int(width)), Field(2, TRUE if signed else FALSE, value=signed))
    )


@functools.lru_cache(256)
def meaning_of(element: SchemaElement) -> Meaning | None:
    """Return what an element means beyond what pyarrow makes of it; ``None`` where that is all."""
    if element.logical is None and element.converted is None:
        return (
            Meaning(arrow=pa.timestamp("us"), shown=(("physical", 7), ("length", 12)))
            if element.physical == INT96
            else None
        )
    if element.declared is not element.logical:
        meaning = meaning_of(element._replace(logical=None)) or Meaning()
        return meaning._replace(shown=(("logical", None), *meaning.shown))
    logical, physical = logical_of(element), element.physical_type or _GROUP
    if logical is None:
        return _old_only(element, physical)
    name = logical.name
    if name not in _IDS:
        return Meaning(
            warning=f"has the {name}, and is read as {physical}",
            # A group may be a list by its old spelling.
            shown=PLAIN[:1] if element.physical is None else PLAIN,
        )
    if name in ("TIME", "TIMESTAMP") and not logical.unit:
        raise InvalidMetadata("a time has a unit", expected="MILLIS, MICROS or NANOS", found="none")
    if name in ("TIME", "TIMESTAMP") and "unknown" in str(logical.unit):
        return Meaning(unsupported=f"it is {logical}", shown=PLAIN)
    expected = _PHYSICALS.get(_name_in_table(logical), [])
    stored = f"{_FIXED}(n)" if physical.startswith(_FIXED) else physical
    if not {"any", physical, stored}.intersection(expected):
        raise InvalidMetadata(
            f"{logical} annotates what it may not" if expected else "there is no such logical type",
            expected=" or ".join(expected or ["a width of 8, 16, 32 or 64"]),
            found=physical if expected else str(logical),
        )
    match name:
        case "ENUM":
            text = simple_type("STRING")
            return Meaning(mark=name, shown=(("logical", text), ("converted", converted_of(text))))
        case "BSON":
            return Meaning(mark=name)
        case "TIME":
            return Meaning(mark=str(logical)) if logical.parameter(1) else None
        case "UNKNOWN":  # pyarrow does not look at the pages: values that are there after all would be lost
            return Meaning(arrow=pa.null(), shown=PLAIN)
        case "GEOGRAPHY" if "unknown" in str(logical):
            return Meaning(warning=f"is {logical}, and is read as {_BYTES}", shown=PLAIN)
        case "GEOMETRY" | "GEOGRAPHY":
            return Meaning(geospatial=logical)
        case "DECIMAL":
            return _decimal(logical, element)
    return None


def _old_only(element: SchemaElement, physical: str) -> Meaning | None:
    """Return the meaning of what has a converted type only, and one that has no other spelling."""
    if element.converted != INTERVAL:
        return Meaning(
            warning=f"has the unknown converted type {element.converted}, and is read as {physical}",
            shown=PLAIN,
        )
    if physical != f"{_FIXED}(12)":
        raise InvalidMetadata("INTERVAL annotates what it may not", expected=f"{_FIXED}(12)", found=physical)
    return Meaning(arrow=pa.month_day_nano_interval())


def _decimal(logical: LogicalType, element: SchemaElement) -> Meaning | None:
    scale, precision = (
        0 if value is None else value if isinstance(value, int) else -1
        for value in (logical.parameter(1), logical.parameter(2))
    )
    if precision < 1 or not 0 <= scale <= precision:
        raise InvalidMetadata(
            "there is no such decimal", expected="precision >= 1, 0 <= scale <= precision", found=str(logical)
        )
    stored = PHYSICAL[element.physical or 0]
    # 2 ** bits is never a power of ten, so the digits of the greatest value less one are all full.
    bits = 8 * (element.length or 0) if stored == _FIXED else 8 * WIDTHS.get(stored, 0)
    most = math.inf if stored == _BYTES else max(math.floor((bits - 1) * math.log10(2)), 0)
    if precision > most:
        raise InvalidMetadata(
            "a decimal has more digits than its physical type holds",
            expected=f"at most {most} in {element.physical_type}",
            found=str(logical),
        )
    if precision > DECIMAL_MOST:
        return Meaning(unsupported=f"it is {logical}, and Arrow has {DECIMAL_MOST} digits", shown=PLAIN)
    if stored == _FIXED and (element.length or 0) > decimal_of(logical).byte_width:
        return Meaning(arrow=decimal_of(logical), shown=PLAIN)
    if stored == _BYTES:
        return Meaning(wide=True)
    if stored == "INT64" and precision < 10:
        return Meaning(warning=f"is {logical} in INT64, for which INT32 is enough")
    return None


def decimal_of(logical: LogicalType) -> pa.DataType:
    """Return the Arrow type of a DECIMAL of at most 76 digits, as pyarrow has it."""
    scale, precision = logical.parameter(1) or 0, logical.parameter(2)
    return (
        pa.decimal128(precision, scale) if int(precision or 0) <= _NARROW else pa.decimal256(precision, scale)
    )
