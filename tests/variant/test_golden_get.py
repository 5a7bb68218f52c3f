"""The 29 values of apache/parquet-testing, in every type."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from bowstring import variant
from bowstring.variant import Status, Value
from tests.variant.conftest import Move
from tests.variant.get_columns import Row, column_of
from tests.variant.get_oracle import TYPES, expected, held
from tests.variant.typed_values import GOLDEN

pytestmark = pytest.mark.filterwarnings("ignore:.* became null")  # that values are lost, is no matter here


def corpus(folder: Path) -> list[Row]:
    """Return metadata and value of each golden value, in the order of `GOLDEN`."""
    where = folder / "variant"
    return [
        ((where / f"{name}.metadata").read_bytes(), (where / f"{name}.value").read_bytes()) for name in GOLDEN
    ]


PATHS: list[list[str | int]] = [[], ["int_field"], ["species", "name"], [2, "names", 1], [3]]


def test_there_are_29(parquet_test_data: Path) -> None:
    """Every file has an expectation, and every expectation a file."""
    assert len(GOLDEN) == 29
    assert {path.stem for path in (parquet_test_data / "variant").glob("*.value")} == set(GOLDEN)


def test_golden_values_are_valid(parquet_test_data: Path, on_device: Move) -> None:
    """A full validation finds nothing wrong with what Spark and Iceberg wrote."""
    statuses = variant.validate(on_device(column_of(corpus(parquet_test_data))))
    assert statuses.to_arrow().to_pylist() == [Status.OK] * 29


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_golden_values_by_path_and_type(type_: pa.DataType, parquet_test_data: Path, on_device: Move) -> None:
    """Each value is what our typed expectations say, in its own types, and in others a status."""
    column = on_device(column_of(corpus(parquet_test_data), "binary"))
    wanted = {repr(path): (path, type_) for path in PATHS}
    batch = variant.get_many(column, wanted, with_status=True)
    for path in PATHS:
        results = [expected(value, path, type_) for value in GOLDEN.values()]
        assert batch[f"{path!r}.status"].to_arrow().to_pylist() == [status for status, _ in results]
        assert held(batch[repr(path)], type_) == [found for _, found in results]


def test_golden_types(parquet_test_data: Path, on_device: Move) -> None:
    """`type_of` names what each value is."""
    column = on_device(column_of(corpus(parquet_test_data)))
    named: list[Value] = list(GOLDEN.values())
    assert variant.type_of(column).to_arrow().to_pylist() == [value.type for value in named]
