"""Every public function of `variant` takes a column in every form that one has."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from bowstring import variant
from bowstring.columnar.batch import Batch
from bowstring.errors import UsageError
from bowstring.testing import fake_device

_OBJECTS = [{"a": 1, "b": [True, "x"]}, None, 2.5]
_TEXTS = ['{"a": 1}', None, "[2]"]


class _Exported:
    """An array of another library: nothing but its export."""

    def __init__(self, array: pa.Array, field: pa.Field) -> None:
        self._array, self._field = array, field

    def __arrow_c_schema__(self) -> Any:
        return self._field.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._field.__arrow_c_schema__(), self._array.__arrow_c_array__(requested_schema)[1]


class _Streamed:
    """A column of chunks of another library."""

    def __init__(self, chunks: pa.ChunkedArray) -> None:
        self._chunks = chunks

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._chunks.__arrow_c_stream__(requested_schema)


def _forms(batch: Batch) -> dict[str, Any]:
    """Return a batch of one column in every form."""
    arrow = batch.to_arrow()
    array, field = arrow.column(0), arrow.schema.field(0)
    return {
        "Column": batch[arrow.schema.names[0]],
        "Batch": batch,
        "RecordBatch": arrow,
        "Table": pa.Table.from_batches([arrow]),
        "Table of chunks": pa.Table.from_batches([arrow.slice(0, 1), arrow.slice(1)]),
        "reader": pa.RecordBatchReader.from_batches(arrow.schema, [arrow]),
        "mapping": {"v": array},
        "array": array,
        "chunks": pa.chunked_array([array]),
        "exported": _Exported(array, field),
        "streamed": _Streamed(pa.chunked_array([array])),
        "streamed batches": _Streamed(pa.Table.from_batches([arrow])),
    }


_BATCH = variant.from_python(_OBJECTS).as_batch()
_TEXT = Batch.from_arrow({"text": pa.array(_TEXTS)})
_CALLS: dict[str, Any] = {
    "get": lambda column, **how: variant.get(column, "$.a", pa.int64(), **how).to_arrow().to_pylist(),
    "get_many": lambda column, **how: (
        variant.get_many(column, {"a": ("$.a", pa.int64())}, **how).to_arrow().to_pylist()
    ),
    "to_python": variant.to_python,
    "to_json": lambda column, **how: variant.to_json(column, **how).to_arrow().to_pylist(),
    "type_of": lambda column, **how: variant.type_of(column, **how).to_arrow().to_pylist(),
    "keys": lambda column, **how: variant.keys(column, **how).to_arrow().to_pylist(),
    "schema_of": variant.schema_of,
    "explode": lambda column, **how: variant.explode(column, **how).to_arrow().to_pylist(),
    "equals": lambda column, **how: (
        variant.equals(column, _BATCH, plain=True, **{k: v for k, v in how.items() if k != "plain"})
        .to_arrow()
        .to_pylist()
    ),
    "validate": lambda column, **how: variant.validate(column, **how).to_arrow().to_pylist(),
}
_UNMARKED = {"array", "chunks", "mapping", "streamed"}
_NO_COLUMNS = {"streamed"}  # a struct's children, when streamed without a mark, are columns


@pytest.mark.parametrize("form", sorted(set(_forms(_BATCH)) - _NO_COLUMNS))
@pytest.mark.parametrize("call", _CALLS)
def test_a_variant_column_is_taken_in_every_form(call: str, form: str) -> None:
    """What a function gives does not depend on what holds the column."""
    how = {"plain": True} if form in _UNMARKED else {}
    assert _CALLS[call](_forms(_BATCH)[form], **how) == _CALLS[call](_BATCH["variant"])


@pytest.mark.parametrize("form", _forms(_TEXT))
def test_texts_are_taken_in_every_form(form: str) -> None:
    """JSON is read from all that holds one column of text."""
    assert variant.to_python(variant.from_json(_forms(_TEXT)[form])) == [{"a": 1}, None, [2]]


def test_a_batch_on_a_device_stays_there() -> None:
    """A batch of one column of text on a device becomes Variants there."""
    device = fake_device()
    read = variant.from_json(_TEXT.to_device(device))
    assert read.device is device
    assert variant.to_python(read.as_batch().to_device("cpu")[0]) == [{"a": 1}, None, [2]]


@pytest.mark.parametrize("read", [variant.from_json, lambda column: variant.get(column, "$", pa.int8())])
def test_two_columns_are_not_one(read: Any) -> None:
    """A batch of two columns is refused, with their names."""
    with pytest.raises(UsageError, match="one column") as refused:
        read(pa.record_batch({"left": pa.array(["1"]), "right": pa.array(["2"])}))
    assert "left" in str(refused.value)


class _Broken:
    """What says that it exports, and does not."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return requested_schema, requested_schema


@pytest.mark.parametrize("thing", [5, object(), {"a": object()}, _Broken()])
def test_what_holds_no_column_is_refused(thing: Any) -> None:
    """What is no Arrow data is refused as such."""
    with pytest.raises(UsageError):
        variant.from_json(thing)
