"""Logical types of Parquet columns, as the footer spells them: by the old enumeration and by the union."""

from __future__ import annotations

import dataclasses
import functools
from typing import Final

from bowstring.errors import InvalidMetadata
from bowstring.parquet.thrift import I8, STRUCT, Field, Reader, encode_struct

PHYSICAL: Final = (
    "BOOLEAN",
    "INT32",
    "INT64",
    "INT96",
    "FLOAT",
    "DOUBLE",
    "BYTE_ARRAY",
    "FIXED_LEN_BYTE_ARRAY",
)
"""Names of physical types, by their numbers."""
WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
"""Bytes of their values, where these are always as many."""

CONVERTED: Final = (
    "UTF8",
    "MAP",
    "MAP_KEY_VALUE",
    "LIST",
    "ENUM",
    "DECIMAL",
    "DATE",
    "TIME_MILLIS",
    "TIME_MICROS",
    "TIMESTAMP_MILLIS",
    "TIMESTAMP_MICROS",
    "UINT_8",
    "UINT_16",
    "UINT_32",
    "UINT_64",
    "INT_8",
    "INT_16",
    "INT_32",
    "INT_64",
    "JSON",
    "BSON",
    "INTERVAL",
)
"""Names of converted types, the old spelling of logical types, by their numbers."""

_NAMES: Final = {
    1: "STRING",
    2: "MAP",
    3: "LIST",
    4: "ENUM",
    5: "DECIMAL",
    6: "DATE",
    7: "TIME",
    8: "TIMESTAMP",
    10: "INT",
    11: "UNKNOWN",
    12: "JSON",
    13: "BSON",
    14: "UUID",
    15: "FLOAT16",
    16: "VARIANT",
    17: "GEOMETRY",
    18: "GEOGRAPHY",
}
_UNITS: Final = {1: "MILLIS", 2: "MICROS", 3: "NANOS"}
_EDGES: Final = ("SPHERICAL", "VINCENTY", "THOMAS", "ANDOYER", "KARNEY")
_TIMES: Final = (7, 8)
_DEPTH: Final = 8


@dataclasses.dataclass(frozen=True, slots=True)
class LogicalType:
    """A member of the union ``LogicalType``."""

    id: int
    # Its parameters, by number; a unit of time is the bytes of a union of its own.
    fields: tuple[Field, ...] = ()

    @staticmethod
    @functools.lru_cache(256)
    def decode(data: bytes) -> LogicalType:
        members = Reader(data, _DEPTH).struct()
        if len(members) != 1 or members[0].kind != STRUCT:
            raise InvalidMetadata(
                "a logical type is a union of structs", expected="one member", found=f"{len(members)} members"
            )
        [(number, _, value)] = members
        assert isinstance(value, bytes)
        return LogicalType(number, tuple(Reader(value, _DEPTH).struct()))

    def encode(self) -> bytes:
        return encode_struct([Field(self.id, STRUCT, encode_struct(self.fields))])

    @property
    def name(self) -> str:
        """What the specification calls it; a member that is not known has its number."""
        return _NAMES.get(self.id, f"unknown logical type {self.id}")

    def parameter(self, number: int) -> int | bool | bytes | None:
        return next((value for id_, _, value in self.fields if id_ == number), None)

    @property
    def unit(self) -> str | None:
        """The unit of a time or a timestamp; one that is not known has its number."""
        found = self.parameter(2) if self.id in _TIMES else None
        if not isinstance(found, bytes):
            return None
        units = Reader(found, _DEPTH).struct()
        return ", ".join(_UNITS.get(each.id, f"unknown unit {each.id}") for each in units)

    def __str__(self) -> str:
        first, second = (None if isinstance(value, bytes) else value for value in map(self.parameter, (1, 2)))
        match self.name:
            case "DECIMAL":
                inside = f"precision={second}, scale={first}"
            case "TIME" | "TIMESTAMP":
                inside = f"{self.unit}, {'UTC' if first else 'local'}"
            case "INT":
                inside = f"{first}, {'signed' if second else 'unsigned'}"
            case "VARIANT":
                inside = str(1 if first is None else first)
            case "GEOMETRY":
                inside = _crs(self.parameter(1))
            case "GEOGRAPHY":
                number = second or 0
                edges = _EDGES[number] if 0 <= number < len(_EDGES) else f"unknown edges {number}"
                inside = f"{_crs(self.parameter(1))}, {edges}"
            case _:
                return self.name
        return f"{self.name}({inside})"


def _crs(value: int | bool | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else "OGC:CRS84"


VARIANT: Final = LogicalType(16, (Field(1, I8, 1),))
"""The annotation of a group as a Variant, of version 1 of its specification."""
