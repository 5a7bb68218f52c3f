"""Dense tensors, in both directions against pyarrow."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import ipc
from bowstring.errors import (
    EndOfStream,
    InvalidData,
    InvalidMetadata,
    LimitExceeded,
    NotOnDevice,
    Truncated,
    Unsupported,
    UsageError,
)
from bowstring.limits import Limits
from bowstring.memory import cpu
from bowstring.testing import OnlyCurrent, fake_device

DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


@st.composite
def ndarrays(draw: st.DrawFn, *, backwards: bool = False) -> np.ndarray:
    """Draw an array of any layout: transposed, with steps, repeated, of no elements or no dimensions."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    array = rng.integers(0, 100, shape).astype(dtype)
    array = array.transpose(draw(st.permutations(range(len(shape)))))
    for axis in range(len(shape)):
        step = draw(st.sampled_from([1, 1, 2, -1] if backwards else [1, 1, 2]))
        array = array[(slice(None),) * axis + (slice(None, None, step),)]
    if draw(st.booleans()):
        array = np.broadcast_to(array, (2, *array.shape))
    return array


def names_for(draw: st.DrawFn, ndim: int) -> list[str] | None:
    """Draw names for the dimensions, or none."""
    name = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3)
    return draw(st.none() | st.lists(name, min_size=ndim, max_size=ndim))


@st.composite
def arrow_tensors(draw: st.DrawFn) -> pa.Tensor:
    """Draw a tensor of pyarrow's."""
    array = draw(ndarrays())
    return pa.Tensor.from_numpy(array, names_for(draw, array.ndim))


def written_by_arrow(tensor: pa.Tensor) -> bytes:
    sink = pa.BufferOutputStream()
    pa.ipc.write_tensor(tensor, sink)
    return sink.getvalue().to_pybytes()


def written(tensor: Any) -> bytes:
    sink = io.BytesIO()
    count = ipc.write_tensor(tensor, sink)
    assert count == len(sink.getvalue()) == ipc.get_tensor_size(tensor)
    return sink.getvalue()


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    return found.dtype == expected.dtype and np.array_equal(found, expected)


@given(arrow_tensors())
def test_tensors_of_arrow_are_read(tensor: pa.Tensor) -> None:
    """What pyarrow writes is read with its elements, shape, strides and names, and cannot be written to."""
    data = written_by_arrow(tensor)
    found, expected = ipc.read_tensor(data), pa.ipc.read_tensor(pa.py_buffer(data))
    assert same(found.to_numpy(), tensor.to_numpy())
    assert (found.strides, found.type) == (expected.strides, expected.type)
    assert list(found.dim_names) == (expected.dim_names if any(expected.dim_names) else [])
    assert not found.to_numpy().flags.writeable
    # Not by `equals`: that of pyarrow 26 ends the process where floats have no dimensions.
    arrow = found.to_arrow()
    assert (arrow.type, arrow.strides) == (expected.type, expected.strides)
    assert same(arrow.to_numpy(), expected.to_numpy())


@given(arrow_tensors())
def test_the_bytes_are_those_of_arrow(tensor: pa.Tensor) -> None:
    """A tensor is written byte for byte as pyarrow does, unless pyarrow loses the names when it makes a copy."""
    if tensor.is_contiguous or not any(tensor.dim_names):
        assert written(tensor) == written_by_arrow(tensor)
    else:
        assert ipc.read_tensor(written(tensor)).dim_names == tuple(tensor.dim_names)


@given(ndarrays(backwards=True), st.data())
def test_arrow_reads_what_is_written(array: np.ndarray, data: st.DataObject) -> None:
    """Arrays of any layout, also backwards, come back equal through pyarrow and through us."""
    names = data.draw(st.composite(names_for)(array.ndim))
    message = written(ipc.Tensor(array, names))
    assert same(pa.ipc.read_tensor(pa.py_buffer(message)).to_numpy(), array)
    assert same(ipc.read_tensor(message).to_numpy(), array)


@pytest.mark.parametrize("dtype", [">i2", ">f8", "?"])
def test_other_elements_are_converted(dtype: str) -> None:
    """The other byte order is turned round, and booleans become bytes, as pyarrow has it."""
    array = np.array([0, 1, 1]).astype(dtype)
    found = ipc.read_tensor(written(array)).to_numpy()
    assert found.tolist() == array.tolist()
    assert found.dtype == (np.uint8 if dtype == "?" else array.dtype.newbyteorder("<"))


@pytest.mark.parametrize("dtype", ["c8", "M8[s]", "S3", "O", "g"])
def test_elements_without_a_tensor_type_are_refused(dtype: str) -> None:
    """What Arrow has no tensors of is refused by name and writes nothing."""
    sink = io.BytesIO()
    with pytest.raises(UsageError, match="no tensors of this type"):
        ipc.write_tensor(np.zeros(2, dtype), sink)
    assert not sink.getvalue()


@given(st.lists(ndarrays(), max_size=4))
def test_several_messages_stand_one_behind_the_other(arrays: list[np.ndarray]) -> None:
    """A file is read message by message, by pyarrow too, every body 64-byte aligned, and ends as a stream ends."""
    sink = pa.BufferOutputStream()
    for array in arrays:
        ipc.write_tensor(array, sink)
    data = sink.getvalue()
    ours, theirs = pa.BufferReader(data), pa.BufferReader(data)
    python = io.BytesIO(data.to_pybytes())
    for array in arrays:
        found = ipc.read_tensor(ours)
        assert same(found.to_numpy(), array)
        assert same(pa.ipc.read_tensor(theirs).to_numpy(), array)
        assert same(ipc.read_tensor(python).to_numpy(), array)
        assert ours.tell() == theirs.tell() == python.tell()
        assert not array.size or (found.to_numpy().ctypes.data - data.address) % 64 == 0
    with pytest.raises(EndOfStream):
        ipc.read_tensor(ours)


def test_what_arrow_writes_in_a_row_is_read_in_a_row() -> None:
    """What follows a tensor of pyarrow's is not aligned, and is read all the same."""
    arrays = [np.arange(3, dtype="i1"), np.arange(5.0), np.eye(2)]
    sink = io.BytesIO()
    for array in arrays:
        pa.ipc.write_tensor(pa.Tensor.from_numpy(array), pa.PythonFile(sink, "w"))
    sink.seek(0)
    assert all(same(ipc.read_tensor(sink).to_numpy(), array) for array in arrays)


def test_elements_stay_where_they_are() -> None:
    """What is read from memory is a view of it, which keeps it alive."""
    data = written(np.arange(5.0))
    tensor = ipc.read_tensor(data)
    assert np.shares_memory(tensor.to_numpy(), np.frombuffer(data, np.uint8))
    del data
    assert tensor.to_numpy().tolist() == [0, 1, 2, 3, 4]
    assert tensor.to_arrow().to_numpy().ctypes.data == tensor.to_numpy().ctypes.data


def test_paths_are_mapped(tmp_path: Path, no_leaks: None) -> None:
    """A tensor in a file is a view of the file, and leaves no descriptor open."""
    path = tmp_path / "tensor"
    array = np.arange(1000.0)
    size = ipc.write_tensor(array, path)
    tensor = ipc.read_tensor(path)
    assert same(tensor.to_numpy(), array)
    with path.open("r+b") as file:
        file.seek(size - 8)
        file.write(np.array([-1.0]).tobytes())
    assert tensor.to_numpy()[-1] == -1
    with pa.memory_map(str(path)) as mapped:
        assert same(ipc.read_tensor(mapped).to_numpy(), tensor.to_numpy())


@pytest.mark.parametrize("shift", [1, 4, 8, 63])
@pytest.mark.parametrize("dtype", DTYPES)
def test_misaligned_sources_are_put_right_only_where_needed(dtype: str, shift: int) -> None:
    """Elements at an address that their type cannot be read at are copied, and no others."""
    array = np.arange(5).astype(dtype)
    message = np.frombuffer(written(array), np.uint8)
    room = np.empty(len(message) + 128, np.uint8)
    start = -room.ctypes.data % 64 + shift
    room[start : start + len(message)] = message
    found = ipc.read_tensor(room[start : start + len(message)]).to_numpy()
    assert same(found, array)
    assert found.flags.aligned
    assert not found.flags.writeable
    assert np.shares_memory(found, room) == (shift % array.itemsize == 0)


def test_sinks_that_take_a_part_get_the_rest() -> None:
    """A sink that takes less than it is given is given the rest, and one without tell() counts from 0."""

    class Slow:
        data = b""

        def write(self, piece: memoryview) -> int:
            self.data += piece[:10].tobytes()
            return min(10, len(piece))

    sink = Slow()
    assert ipc.write_tensor(np.arange(5.0), sink) == len(sink.data)
    assert sink.data == written(np.arange(5.0))


def test_tensors_speak_the_protocols_of_arrays() -> None:
    """A tensor is taken by NumPy as an array and over DLPack, without a copy."""
    tensor = ipc.read_tensor(written(np.arange(6.0).reshape(2, 3)))
    assert np.shares_memory(np.asarray(tensor), tensor.to_numpy())
    assert np.asarray(tensor, dtype="f4").dtype == np.float32
    assert not np.shares_memory(np.array(tensor), tensor.to_numpy())
    own = ipc.Tensor(np.arange(3.0))
    assert np.shares_memory(np.from_dlpack(own), own.to_numpy())
    assert not hasattr(tensor, "__cuda_array_interface__")
    assert (tensor.ndim, tensor.size) == (2, 6)


def test_names_are_one_per_dimension() -> None:
    """Too few names are refused, and those of a pyarrow tensor are kept."""
    with pytest.raises(UsageError, match="one name per dimension"):
        ipc.Tensor(np.eye(2), ["row"])
    assert ipc.Tensor(pa.Tensor.from_numpy(np.eye(2), ["a", "b"])).dim_names == ("a", "b")


def test_other_messages_are_named() -> None:
    """A message of another kind is refused with the name of its reader."""
    batch = pa.record_batch({"a": [1]})
    with pytest.raises(InvalidMetadata, match=r"RECORD_BATCH.*open_stream"):
        ipc.read_tensor(batch.serialize())
    sink = io.BytesIO()
    ipc.write_sparse_tensor(ipc.SparseTensor.from_coo([1], [[0]], (2,)), sink)
    with pytest.raises(InvalidMetadata, match="read_sparse_tensor"):
        ipc.read_tensor(sink.getvalue())
    with pytest.raises(InvalidMetadata, match="read_tensor"):
        ipc.read_sparse_tensor(written(np.eye(2)))


def test_limits_hold() -> None:
    """Metadata and bodies beyond the limits are refused before they are read."""
    message = written(np.arange(100.0))
    with pytest.raises(LimitExceeded, match="metadata"):
        ipc.read_tensor(message, limits=Limits(metadata_bytes=100))
    with pytest.raises(LimitExceeded, match="body"):
        ipc.read_tensor(message, limits=Limits(message_bytes=100))


def test_inputs_that_crashed_arrow_are_refused(arrow_test_data: Path) -> None:
    """Each input on which Arrow's readers of tensors once crashed is refused, as pyarrow does now."""
    paths = sorted((arrow_test_data / "arrow-ipc-tensor-stream").glob("clusterfuzz-*"))
    assert paths
    for path in paths:
        with pytest.raises((InvalidData, Unsupported)):
            ipc.read_tensor(path)
        with pytest.raises((InvalidData, Unsupported)):
            ipc.read_sparse_tensor(path)
        with pytest.raises((OSError, pa.ArrowException)):
            pa.ipc.read_tensor(pa.py_buffer(path.read_bytes()))


def test_an_empty_source_has_no_messages() -> None:
    """The end of a source, or a stream's marker, is its end; a part of a message is none."""
    for source in (b"", io.BytesIO(), b"\xff\xff\xff\xff\0\0\0\0"):
        with pytest.raises(EndOfStream):
            ipc.read_tensor(source)
    with pytest.raises(Truncated):
        ipc.read_tensor(b"\xff\xff")


@given(ndarrays())
def test_devices_are_read_and_written_by_one_copy(array: np.ndarray) -> None:
    """A tensor goes from a device to the sink by one copy to the host, and comes onto one by one copy."""
    device = fake_device()
    there = device.from_host(array)
    device.stats.reset()
    sink = io.BytesIO()
    ipc.write_tensor(there, sink)
    assert (device.stats.host_reads, device.stats.host_read_bytes) == (1, array.nbytes)
    assert same(ipc.read_tensor(sink.getvalue()).to_numpy(), array)
    device.stats.reset()
    found = ipc.read_tensor(sink.getvalue(), device=device)
    assert (device.stats.host_writes, device.stats.host_written_bytes) == (1, array.nbytes)
    assert device.stats.host_reads == 0
    assert found.device is device
    assert found.to_device(device) is found
    assert same(found.to_device(cpu()).to_numpy(), array)


def test_tensors_of_a_device_are_compared_while_it_is_the_current_one() -> None:
    """Two tensors of a device that is not the current one are written, copied and compared all the same."""
    device = fake_device(1)
    with OnlyCurrent():
        one, other = (ipc.Tensor(np.eye(2)).to_device(device) for _ in range(2))
        assert one.equals(other)
        assert not one.equals(ipc.Tensor(np.ones((2, 2))).to_device(device))
        assert written(one) == written(np.eye(2))


class Cuda:
    """An array as CuPy's look from outside."""

    __cuda_array_interface__: ClassVar[dict[str, Any]] = {}

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.dtype, self.shape, self.strides = array.dtype, array.shape, array.strides
        self.ndim, self.size = array.ndim, array.size

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("implicit conversion to a NumPy array is not allowed")

    def get(self) -> np.ndarray:
        return self._array.copy()


@given(ndarrays())
def test_arrays_of_cupy_are_fetched(array: np.ndarray) -> None:
    """An array of CuPy's is copied to the host by its own means, whatever its layout."""
    assert written(Cuda(array)) == written(array)
    tensor = ipc.Tensor(Cuda(array))
    assert tensor.__cuda_array_interface__ == {}
    with pytest.raises(NotOnDevice):
        tensor.to_numpy()


def test_device_tensors_are_not_read_as_host_memory() -> None:
    """What needs host memory says so, and how to get there."""
    tensor = ipc.Tensor(np.eye(2)).to_device(fake_device())
    for ask in (tensor.to_numpy, tensor.to_arrow, lambda: np.asarray(tensor)):
        with pytest.raises(NotOnDevice, match="to_device"):
            ask()
    assert tensor.strides == (16, 8)


def test_copies_of_overlapping_elements_are_refused() -> None:
    """Strides can claim any number of elements of a few bytes; a copy for a device would make them true."""
    huge = np.lib.stride_tricks.as_strided(np.zeros(2), (1 << 40,), (0,))
    with pytest.raises(LimitExceeded, match="overlap"):
        ipc.Tensor(huge).to_device(fake_device())


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3),
        np.arange(6).reshape(2, 3).T,
        np.arange(6).reshape(2, 3)[:, ::2],
        np.arange(12.0).reshape(4, 3)[:1],
        np.zeros((2, 2, 2), np.int8, order="F"),
    ],
)
def test_tensors_tell_what_those_of_arrow_tell(array: np.ndarray) -> None:
    """Contiguity, mutability and names of dimensions are what a pyarrow tensor of the same array says."""
    names = [f"d{i}" for i in range(array.ndim)]
    ours, theirs = ipc.Tensor.from_numpy(array, names), pa.Tensor.from_numpy(array, names)
    assert ours.is_contiguous == theirs.is_contiguous
    assert ours.is_mutable == theirs.is_mutable
    assert [ours.dim_name(i) for i in range(array.ndim)] == names == theirs.dim_names
    array.flags.writeable = False
    assert not ipc.Tensor(array).is_mutable
    with pytest.raises(UsageError, match="no such dimension"):
        ours.dim_name(array.ndim)


def test_tensors_are_equal_as_those_of_arrow() -> None:
    """Type, shape and elements count, not names, nor how the elements lie; NaN equals nothing."""
    arrays: list[Any] = [
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(6).reshape(3, 2),
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.array([1.0, np.nan]),
        np.array([1.0, 2.0]),
    ]
    for first in arrays:
        for second in arrays:
            ours = ipc.Tensor(first).equals(ipc.Tensor(second.copy(order="K")))
            assert ours == pa.Tensor.from_numpy(first).equals(pa.Tensor.from_numpy(second.copy(order="K")))
    with pytest.raises(UsageError, match="no tensor"):
        ipc.Tensor(arrays[0]).equals(arrays[0])
