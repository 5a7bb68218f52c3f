"""Types that say a negative size are refused with their schema, through every door."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, Final

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring import ipc
from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.errors import InvalidMetadata, UsageError
from tests.columnar.capsules import address_in

MARK: Final = 0x01020304
"""A size that occurs once in a schema's bytes."""
LIST, BINARY = pa.list_(pa.int8(), MARK), pa.binary(MARK)
PLACES: Final = {
    "column": lambda type_: type_,
    "list": pa.list_,
    "struct": lambda type_: pa.struct({"x": type_}),
    "dictionary": lambda type_: pa.dictionary(pa.int8(), type_),
    "inside a dictionary": lambda type_: pa.dictionary(pa.int8(), pa.list_(type_)),
}
# Children and dictionary of struct ArrowSchema, in words.
CHILDREN, DICTIONARY = 5, 6


def changed(data: bytes, size: int) -> bytes:
    """Return bytes with another size in the place of the mark."""
    mark = struct.pack("<i", MARK)
    assert mark in data
    return data.replace(mark, struct.pack("<i", size))


def stream_of(schema: pa.Schema) -> bytes:
    """Return a stream without batches."""
    return bytes(schema.serialize()) + bytes(4)


def file_of(schema: pa.Schema) -> bytes:
    """Return a file without batches."""
    sink = pa.BufferOutputStream()
    pa.ipc.new_file(sink, schema).close()
    return bytes(sink.getvalue())


class Said:
    """A producer that says another format of its one column than is true, or of the values of its dictionary."""

    def __init__(self, batch: pa.RecordBatch, said: bytes) -> None:
        self.batch, self.said = batch, said

    def __arrow_c_schema__(self) -> Any:
        capsule = self.batch.schema.__arrow_c_schema__()
        column = _word(_word(address_in(capsule, b"arrow_schema"), CHILDREN), 0)
        format_ = _word(_word(column, DICTIONARY) or column, 0)
        assert len(ctypes.string_at(format_)) == len(self.said)
        ctypes.memmove(format_, self.said, len(self.said))
        return capsule

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return self.__arrow_c_schema__(), self.batch.__arrow_c_array__(requested_schema)[1]


def _word(address: int, index: int) -> int:
    return ctypes.c_void_p.from_address(address + 8 * index).value or 0


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("size", [-1, -(2**31)])
@pytest.mark.parametrize("type_", [LIST, BINARY], ids=["list", "binary"])
def test_a_negative_size_in_ipc_is_refused(type_: pa.DataType, size: int, place: str) -> None:
    """A schema of a stream or in a footer is refused when it is opened, before anything is multiplied by it."""
    schema = pa.schema({"a": PLACES[place](type_)})
    for write, read in ((stream_of, ipc.open_stream), (file_of, ipc.open_file)):
        with pytest.raises(InvalidMetadata, match=r"(?i)negative"):
            read(changed(write(schema), size))


@pytest.mark.parametrize("place", PLACES)
def test_a_negative_list_size_that_pyarrow_takes_goes_nowhere(place: str) -> None:
    """What pyarrow read is not laid out, written or published; the message says what, how much and where."""
    schema = pa.ipc.open_stream(changed(stream_of(pa.schema({"a": PLACES[place](LIST)})), -2)).schema
    table = pa.Table.from_batches([], schema)
    words = r"list of fixed size has a negative one; expected 0 or more; found -2; at "
    for take in (Layout.of, lambda schema: ipc.new_stream(pa.BufferOutputStream(), schema)):
        with pytest.raises(InvalidMetadata, match=words):
            take(schema)
    with pytest.raises(InvalidMetadata, match=words):
        Batch.from_arrow(table)
    with bow.Server() as server, pytest.raises(InvalidMetadata, match=words):
        server.publish("negative", table)


def test_a_negative_width_that_pyarrow_makes_is_refused() -> None:
    """One type of bytes of a negative width can be made in Python."""
    with pytest.raises(InvalidMetadata, match="binary value of fixed size has a negative one"):
        Layout.of(pa.schema({"a": pa.binary(-(2**31))}))


@pytest.mark.parametrize("is_encoded", [False, True])
@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize(
    ("type_", "said"), [(pa.list_(pa.int8(), 12), b"+w:-2"), (pa.binary(12), b"w:-2")], ids=["list", "binary"]
)
def test_a_negative_size_by_the_c_interface_is_refused(
    type_: pa.DataType, said: bytes, rows: int, is_encoded: bool
) -> None:
    """A producer's schema with one is no record batch, with rows or without."""
    column: pa.Array = pa.nulls(rows, type_)
    if is_encoded:
        column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int8()), pa.nulls(1, type_))
    producer = Said(pa.record_batch([column], ["a"]), said)
    with pytest.raises(UsageError, match=f"record batch; found Said: .*{said.decode()[-4:]}"):
        Batch.from_arrow(producer)
    with bow.Server() as server, pytest.raises(UsageError, match=f"record batch; .*{said.decode()[-4:]}"):
        server.publish("negative", producer)


def test_a_size_of_zero_is_taken() -> None:
    """Lists and binaries of no elements are valid."""
    for type_ in (LIST, BINARY):
        schema = ipc.open_stream(changed(stream_of(pa.schema({"a": type_})), 0)).schema
        assert Batch.from_arrow(pa.record_batch([pa.nulls(2, schema.field(0).type)], schema)).num_rows == 2
