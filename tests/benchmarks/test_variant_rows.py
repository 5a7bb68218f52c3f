"""The Variant columns of the cases: they hold what the cases take them to hold."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from bowstring import variant
from bowstring.benchmarks.data.variant_rows import documents, objects


@pytest.mark.parametrize("fields", [1, 10, 100])
def test_objects_hold_their_values(fields: int) -> None:
    """Both forms of the column are right by the format, and give the numbers that stand beside them."""
    rows = objects(500, fields)
    for column in (rows.shared, rows.plain):
        assert set(variant.validate(column).values.tolist()) == {variant.Status.OK}
        for name, values in list(rows.values.items())[:: max(1, fields // 3)]:
            assert variant.get(column, f"$.{name}", pa.int32()).values.tolist() == values.tolist()
    kinds = variant.type_of(rows.shared, "$.field_0").to_arrow().to_pylist()
    assert set(kinds) == {"int8", "int16", "int32"}


def test_a_number_among_flags() -> None:
    """Objects of 10 and of 100 fields have the bytes that the targets were found with, and the number is there."""
    for fields, size in ((10, 37), (100, 307)):
        rows = objects(500, fields, (32,), among_flags=True)
        assert len(rows.shared.to_arrow().field("value").buffers()[2]) == 500 * size
        (name,) = rows.values
        assert variant.get(rows.shared, f"$.{name}", pa.int32()).values.tolist() == rows.values[name].tolist()
        kinds = variant.type_of(rows.shared, "$.field_1").to_arrow().to_pylist()
        assert set(kinds) == {"boolean"}


def test_documents_are_json() -> None:
    """About as many bytes as asked for, every document another one, and the same ones every time."""
    made = documents(100_000)
    assert abs(made.nbytes / 100_000 - 1) < 0.1
    assert [json.loads(text)["id"] for text in made.texts] == list(range(len(made.texts)))
    assert made.array.to_pylist() == made.texts == documents(100_000).texts
