"""Which columns are Variant columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bowstring import variant
from bowstring.columnar.batch import Batch
from bowstring.errors import InvalidBody, UsageError
from tests.variant.get_columns import MARK, METADATA_FORMS, Row, column_of

ROW = (b"\x01\x00\x00", b"\x0c\x2a")
PLAIN = pa.array([{"metadata": ROW[0], "value": ROW[1]}], variant.type().storage_type)


def marked(array: pa.Array, name: bytes = b"arrow.parquet.variant") -> pa.RecordBatch:
    field = pa.field("v", array.type, metadata={**MARK, b"ARROW:extension:name": name})
    return pa.RecordBatch.from_arrays([array], schema=pa.schema([field]))


@pytest.mark.parametrize("name", [b"arrow.parquet.variant", b"parquet.variant"])
def test_marked_structs(name: bytes) -> None:
    """Both names that writers use are known."""
    assert variant.get(marked(PLAIN, name), "$", pa.int8()).values.tolist() == [42]


def test_plain_structs_when_told_so() -> None:
    """A struct that is not marked, or is marked as something else, is a Variant only if the caller says so."""
    for source in (pa.record_batch({"v": PLAIN}), marked(PLAIN, b"other"), PLAIN, pa.chunked_array([PLAIN])):
        with pytest.raises(UsageError, match="plain=True"):
            variant.get(source, "$", pa.int8())
        assert variant.get(source, "$", pa.int8(), plain=True).values.tolist() == [42]


def test_extension_arrays() -> None:
    """An array of the unregistered type is a Variant by its type."""
    array = pa.ExtensionArray.from_storage(variant.type(), PLAIN)
    assert variant.get(array, "$", pa.int8()).values.tolist() == [42]


@pytest.mark.parametrize(
    "type_",
    [
        pa.int8(),
        pa.struct([("metadata", pa.binary())]),
        pa.struct([("metadata", pa.binary()), ("value", pa.string())]),
        pa.struct([("metadata", pa.int8()), ("value", pa.binary())]),
        pa.struct([("metadata", pa.dictionary(pa.int8(), pa.string())), ("value", pa.binary())]),
        pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("more", pa.int8())]),
        pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("value", pa.binary())]),
    ],
    ids=str,
)
def test_other_types_are_refused(type_: pa.DataType) -> None:
    """What has other children, or children of other types, is no Variant, marked or not."""
    with pytest.raises(UsageError):
        variant.get(marked(pa.array([], type_)), "$", pa.int8())


def test_several_columns() -> None:
    """A batch of several columns does not say which is meant."""
    batch = pa.record_batch({"a": PLAIN, "b": PLAIN})
    with pytest.raises(UsageError, match="one column"):
        variant.get(batch, "$", pa.int8(), plain=True)


def test_a_slice_is_what_its_rows_are() -> None:
    """Slices that begin inside bitmaps, runs and dictionaries hold the rows that they show."""
    rows: list[Row] = [None if k % 3 == 0 else (ROW[0], bytes([12, k])) for k in range(40)]
    for form in METADATA_FORMS:
        if form == "runs":
            continue  # pyarrow gives their null rows metadata of their own; they follow below
        part = column_of(rows, form).as_batch().slice(13, 20)[0]
        got = variant.get(part, "$", pa.int8()).to_arrow().to_pylist()
        assert got == [None if k % 3 == 0 else k for k in range(13, 33)]
    part = column_of([(ROW[0], bytes([12, k])) for k in range(40)], "runs").as_batch().slice(13, 20)[0]
    assert variant.get(part, "$", pa.int8()).values.tolist() == list(range(13, 33))


def test_offsets_that_decrease_are_refused() -> None:
    """Metadata whose offsets step back could ask for any amount of work; the column is refused."""
    offsets = pa.py_buffer(memoryview(b"".join(each.to_bytes(4, "little") for each in (0, 3, 0, 3))))
    metadata = pa.Array.from_buffers(pa.binary(), 3, [None, offsets, pa.py_buffer(ROW[0])])
    array = pa.StructArray.from_arrays(
        [metadata, pa.array([ROW[1]] * 3, pa.binary())], names=["metadata", "value"]
    )
    with pytest.raises(InvalidBody, match="decrease"):
        variant.get(marked(array), "$", pa.int8())


def test_null_children_of_a_row() -> None:
    """A row without a value holds a Variant null; a row without metadata is malformed."""
    array = pa.StructArray.from_arrays(
        [pa.array([ROW[0], None], pa.binary()), pa.array([None, ROW[1]], pa.binary())],
        names=["metadata", "value"],
    )
    batch = variant.get(marked(array), "$", variant.type(), with_status=True)
    assert batch["status"].values.tolist() == [variant.Status.OK, variant.Status.MALFORMED]
    assert batch["$"].child("value").to_arrow()[0].as_py() == b"\x00"
    assert variant.validate(marked(array)).values.tolist() == [
        variant.Status.VARIANT_NULL,
        variant.Status.MALFORMED,
    ]


def test_views_that_point_nowhere() -> None:
    """A view outside of its buffers is a malformed row, and harms no other."""
    values = [b"\x0c\x01", b"\x40\x14\x00\x00\x00" + b"x" * 20, b"\x0c\x03"]
    good = pa.array([each if each[0] == 12 else b"\x40" + each[1:] for each in values], pa.binary_view())
    views = bytearray(good.buffers()[1].to_pybytes())
    views[16 + 8 : 16 + 16] = b"\x07\x00\x00\x00\xff\xff\xff\x7f"
    broken = pa.Array.from_buffers(
        pa.binary_view(), 3, [None, pa.py_buffer(bytes(views)), *good.buffers()[2:]]
    )
    array = pa.StructArray.from_arrays(
        [pa.array([ROW[0]] * 3, pa.binary()), broken], names=["metadata", "value"]
    )
    batch = variant.get(Batch.from_arrow(marked(array)), "$", pa.int8(), with_status=True)
    assert batch["status"].values.tolist() == [0, variant.Status.MALFORMED, 0]


@pytest.mark.parametrize("type_", [pa.int64(), pa.uint64(), pa.uint32()], ids=str)
def test_indices_far_beyond_the_dictionary(type_: pa.DataType) -> None:
    """Indices that 32 bits do not hold lead nowhere, not to where their lower 32 bits would."""
    wide = {pa.int64(): (-(2**32), -(2**63), 2**32), pa.uint64(): (2**32, 2**64 - 2**32, 2**63)}
    indices = pa.array([0, *wide.get(type_, (2**31, 2**32 - 1, 2**32 - 2))], type_)
    metadata = pa.DictionaryArray.from_arrays(indices, pa.array([b"\x01\x00\x00"]), safe=False)
    rows = pa.StructArray.from_arrays([metadata, pa.array([b"\x0c\x01"] * 4)], ["metadata", "value"])
    assert variant.validate(rows, plain=True).values.tolist() == [0, 6, 6, 6]
