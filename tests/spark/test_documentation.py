"""The table of types in the documentation is true."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from bowstring import variant
from bowstring.errors import Unsupported
from bowstring.spark.batches import column_form
from bowstring.spark.types import is_marked
from tests.conformance.intervals import DAY_TIME, MONTHS

TEXT = (Path(__file__).parents[2] / "docs" / "spark" / "types.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| `((?:pa\.|variant\.|MONTHS|DAY_TIME)[^`]*)` \| (`[^`]+`|refused) \|", TEXT, re.MULTILINE
)
NAMES = {
    "null": "void", "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint",
    "float": "float", "double": "double", "string": "string", "binary": "binary", "date32[day]": "date",
    "time64[ns]": "time(6)", "timestamp[us]": "timestamp_ntz", "timestamp[us, tz=UTC]": "timestamp",
    "duration[us]": "interval day to second",
}  # fmt: skip


def named(type_: pa.DataType) -> str:
    """Return Spark's name of a type."""
    if is_marked(type_, b"variant"):
        return "variant"
    if pa.types.is_struct(type_):
        return f"struct<{','.join(f'{field.name}:{named(field.type)}' for field in type_)}>"
    if pa.types.is_list(type_):
        return f"array<{named(type_.value_type)}>"
    if pa.types.is_map(type_):
        return f"map<{named(type_.key_type)},{named(type_.item_type)}>"
    if pa.types.is_decimal128(type_):
        return f"decimal({type_.precision},{type_.scale})"
    return NAMES[str(type_)]


def made(text: str) -> pa.DataType:
    """Return the type that a row of the table names."""
    return eval(text, {"pa": pa, "variant": variant, "MONTHS": MONTHS, "DAY_TIME": DAY_TIME})


@pytest.mark.parametrize(("arrow", "spark"), ROWS)
def test_the_table_of_types(arrow: str, spark: str) -> None:
    """Each row says what becomes of a type."""
    field = pa.field("a", made(arrow))
    if spark == "refused":
        with pytest.raises(Unsupported):
            column_form(field)
    else:
        assert named(column_form(field).field.type) == spark.strip("`")


def test_the_table_has_all_types() -> None:
    """No type of Arrow's is left out."""
    known = {
        value for name, value in vars(pa.lib).items() if name.startswith("Type_") and isinstance(value, int)
    }
    rows = {made(arrow).id for arrow, _ in ROWS}
    extension = pa.uuid().id
    assert known - {extension} == rows - {extension}
