"""Schemas of Arrow's integration JSON (``Integration.rst``, "JSON test data format")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tests.conformance.intervals import DAY_TIME, MONTHS

__all__ = ["read_field", "read_schema", "value_type"]

Json = dict[str, Any]

_UNITS = {"SECOND": "s", "MILLISECOND": "ms", "MICROSECOND": "us", "NANOSECOND": "ns"}
_FLOATS = {"HALF": pa.float16(), "SINGLE": pa.float32(), "DOUBLE": pa.float64()}
_INTERVALS = {"YEAR_MONTH": MONTHS, "DAY_TIME": DAY_TIME, "MONTH_DAY_NANO": pa.month_day_nano_interval()}
_INTERVAL_TWINS = {**_INTERVALS, "YEAR_MONTH": pa.int32(), "DAY_TIME": pa.int64()}
_DECIMALS = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}


def read_schema(document: Json, *, twin: bool = False) -> pa.Schema:
    """Return the schema of a document.

    Parameters
    ----------
    document
        The whole JSON.
    twin
        Say integer where it says interval of months or of days: pyarrow can build arrays of that.
    """
    schema = document["schema"]
    found = pa.schema([read_field(each, twin=twin) for each in schema["fields"]], _metadata(schema))
    # Through the C data interface, so that fields become extension types where pyarrow knows their name.
    return found if twin else pa.Schema._import_from_c_capsule(found.__arrow_c_schema__())


def read_field(field: Json, *, twin: bool = False) -> pa.Field:
    """Return a field, dictionary-encoded where the JSON says so."""
    type_ = value_type(field, twin=twin)
    encoding = field.get("dictionary")
    if encoding:
        index = _integer(encoding.get("indexType") or {"bitWidth": 32, "isSigned": True})
        type_ = pa.dictionary(index, type_, encoding.get("isOrdered", False))
    return pa.field(field["name"], type_, field.get("nullable", True), _metadata(field))


def value_type(field: Json, *, twin: bool = False) -> pa.DataType:
    """Return the type of a field's values, those of its dictionary where it has one."""
    said = field["type"]
    name = said["name"]
    if name == "interval":
        return (_INTERVAL_TWINS if twin else _INTERVALS)[said["unit"]]
    children = [read_field(child, twin=twin) for child in field.get("children", ())]
    return _NESTED[name](said, children) if children or name == "struct" else _TYPES[name](said)


def _metadata(holder: Json) -> dict[str, str] | None:
    return {pair["key"]: pair["value"] for pair in holder.get("metadata") or ()} or None


def _integer(said: Json) -> pa.DataType:
    return getattr(pa, f"{'' if said['isSigned'] else 'u'}int{said['bitWidth']}")()


def _decimal(said: Json) -> pa.DataType:
    # Before there were others, all had 128 bits and the JSON did not say so.
    return _DECIMALS[said.get("bitWidth", 128)](said["precision"], said["scale"])


def _time(said: Json) -> pa.DataType:
    return (pa.time32 if said["bitWidth"] == 32 else pa.time64)(_UNITS[said["unit"]])


def _map(said: Json, children: list[pa.Field]) -> pa.DataType:
    # The names of a map's children say nothing (Schema.fbs), and pyarrow's reader gives them its own.
    key, item = children[0].type
    return pa.map_(key.type, item.with_name("value"), keys_sorted=said["keysSorted"])


def _union(said: Json, children: list[pa.Field]) -> pa.DataType:
    return pa.union(children, mode=said["mode"].lower(), type_codes=said["typeIds"])


_TYPES: dict[str, Callable[[Json], pa.DataType]] = {
    "null": lambda said: pa.null(),
    "bool": lambda said: pa.bool_(),
    "int": _integer,
    "floatingpoint": lambda said: _FLOATS[said["precision"]],
    "decimal": _decimal,
    "date": lambda said: pa.date32() if said["unit"] == "DAY" else pa.date64(),
    "time": _time,
    "timestamp": lambda said: pa.timestamp(_UNITS[said["unit"]], said.get("timezone")),
    "duration": lambda said: pa.duration(_UNITS[said["unit"]]),
    "fixedsizebinary": lambda said: pa.binary(said["byteWidth"]),
    "binary": lambda said: pa.binary(),
    "largebinary": lambda said: pa.large_binary(),
    "binaryview": lambda said: pa.binary_view(),
    "utf8": lambda said: pa.string(),
    "largeutf8": lambda said: pa.large_string(),
    "utf8view": lambda said: pa.string_view(),
}
_NESTED: dict[str, Callable[[Json, list[pa.Field]], pa.DataType]] = {
    "list": lambda said, children: pa.list_(*children),
    "largelist": lambda said, children: pa.large_list(*children),
    "fixedsizelist": lambda said, children: pa.list_(*children, said["listSize"]),
    "listview": lambda said, children: pa.list_view(*children),
    "largelistview": lambda said, children: pa.large_list_view(*children),
    "map": _map,
    "struct": lambda said, children: pa.struct(children),
    "union": _union,
    "runendencoded": lambda said, children: pa.run_end_encoded(*(child.type for child in children)),
}
