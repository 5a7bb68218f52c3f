"""Parquet's Variant: columns of semi-structured values, read by path, cast, validated, and built."""

from bowstring.variant.builder import VariantBuilder, from_python
from bowstring.variant.codec.primitives import Value
from bowstring.variant.column import VariantColumn, VariantType, type  # noqa: A004  variant.type() is its name
from bowstring.variant.equals import equals
from bowstring.variant.explode import explode, keys
from bowstring.variant.get import KINDS, get, get_many, type_of
from bowstring.variant.json.read import from_json
from bowstring.variant.json.writer import to_json
from bowstring.variant.path import parse_path
from bowstring.variant.predicates import array_length, concat, exists, is_null
from bowstring.variant.python_objects import to_python
from bowstring.variant.reference import path
from bowstring.variant.schema import schema_of
from bowstring.variant.shredded.arrow import from_arrow
from bowstring.variant.shredded.shred import shred
from bowstring.variant.shredded.unshred import open_column, unshred
from bowstring.variant.status import Status
from bowstring.variant.validate import validate

__all__ = [
    "KINDS",
    "Status",
    "Value",
    "VariantBuilder",
    "VariantColumn",
    "VariantType",
    "array_length",
    "concat",
    "equals",
    "exists",
    "explode",
    "from_arrow",
    "from_json",
    "from_python",
    "get",
    "get_many",
    "is_null",
    "keys",
    "open_column",
    "parse_path",
    "path",
    "schema_of",
    "shred",
    "to_json",
    "to_python",
    "type",
    "type_of",
    "unshred",
    "validate",
]


def __dir__() -> list[str]:
    return __all__
