"""Damaged tensors: cut anywhere, flipped anywhere, with lies in every number. Refused, or valid; never worse."""

from __future__ import annotations

import io
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bowstring import ipc
from bowstring.errors import BowstringError, EndOfStream, InvalidData, InvalidMetadata, Truncated
from tests.ipc.flatbuffers import Table

EXTREMES = [0, 1, -1, 7, 1 << 31, -(1 << 31), 1 << 40, 1 << 62, (1 << 63) - 1, -(1 << 63)]


def _coo() -> ipc.SparseTensor:
    return ipc.SparseTensor.from_coo([1.0, 2.0], [[0, 1, 2], [1, 0, 0]], (2, 2, 3), ["x", "y", "z"])


def _csr() -> ipc.SparseTensor:
    return ipc.SparseTensor.from_csr([1, 2, 3], [0, 2, 3], [0, 2, 1], (2, 3), ["row", "column"])


def _csc() -> ipc.SparseTensor:
    indices = np.array([0, 1, 1], np.uint16)
    return ipc.SparseTensor.from_csc(np.ones(3, "f2"), np.array([0, 1, 3], "i4"), indices, (2, 2))


def _csf() -> ipc.SparseTensor:
    indptr, indices = [[0, 1, 2], [0, 1, 3]], [[0, 1], [1, 0], [2, 0, 1]]
    return ipc.SparseTensor.from_csf([1.0, 2.0, 3.0], indptr, indices, (3, 2, 2), [1, 2, 0])


MADE: dict[str, Callable[[], Any]] = {
    "dense": lambda: ipc.Tensor(np.arange(6, dtype="i2").reshape(2, 3), ["row", "column"]),
    "fortran": lambda: np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
    "empty": lambda: np.zeros((3, 0, 2), "f4"),
    "scalar": lambda: np.array(5),
    "coo": _coo,
    "csr": _csr,
    "csc": _csc,
    "csf": _csf,
}


def message_of(kind: str) -> bytes:
    sink = io.BytesIO()
    tensor = MADE[kind]()
    write = ipc.write_sparse_tensor if isinstance(tensor, ipc.SparseTensor) else ipc.write_tensor
    write(tensor, sink)
    return sink.getvalue()


def taken(kind: str, message: bytes) -> bool:
    """Whether a message is read; what is read must then hold together, and show its elements."""
    try:
        if kind in ("coo", "csr", "csc", "csf"):
            _look_at_sparse(ipc.read_sparse_tensor(message))
        else:
            _look_at_dense(ipc.read_tensor(message))
    except EndOfStream:
        return False
    except InvalidData:
        return False
    except BowstringError:
        return False
    return True


def _look_at_dense(tensor: ipc.Tensor) -> None:
    array = tensor.to_numpy()
    assert not array.flags.writeable
    if array.size:
        corners = [
            array[(corner,) * array.ndim] for corner in (0, -1)
        ]  # outside, these would end the process
        assert all(corner.dtype == array.dtype for corner in corners)
    assert tensor.to_arrow().shape == array.shape


def _look_at_sparse(tensor: ipc.SparseTensor) -> None:
    assert tensor.non_zero_length == len(tensor.data)
    tensor.validate(full=True)
    coords = tensor.to_coo().index.indices
    for positions, extent in zip(coords, tensor.shape, strict=True):
        assert all(0 <= position < extent for position in positions.tolist())
    tensor.to_arrow()


def mutations(message: bytes) -> Iterator[bytes]:
    """Yield the message with each byte flipped in three ways, and each aligned number replaced by extremes."""
    for position in range(len(message)):
        for mask in (0x01, 0x80, 0xFF):
            damaged = bytearray(message)
            damaged[position] ^= mask
            yield bytes(damaged)
    for width, code in ((4, "<i"), (8, "<q")):
        for position in range(0, len(message) - width + 1, width):
            for value in EXTREMES:
                damaged = bytearray(message)
                low = value & ((1 << 8 * width) - 1)
                damaged[position : position + width] = low.to_bytes(width, "little")
                if struct.unpack(code, damaged[position : position + width])[0] == value:
                    yield bytes(damaged)


@pytest.mark.parametrize("kind", MADE)
def test_messages_cut_at_every_length_are_refused(kind: str) -> None:
    """A message without its end is truncated, and nothing at all is the end of the source."""
    message = message_of(kind)
    assert taken(kind, message)
    read = ipc.read_sparse_tensor if kind in ("coo", "csr", "csc", "csf") else ipc.read_tensor
    for length in range(len(message)):
        with pytest.raises(Truncated if length else EndOfStream):
            read(message[:length])
        with pytest.raises(Truncated if length else EndOfStream):
            read(io.BytesIO(message[:length]))


@pytest.mark.parametrize("kind", MADE)
def test_damaged_messages_are_refused_or_valid(kind: str) -> None:
    """Whatever is changed in a message, it is refused by an error of the tree, or a tensor that holds together."""
    message = message_of(kind)
    verdicts = [taken(kind, damaged) for damaged in mutations(message)]
    assert 0 < sum(verdicts) < len(verdicts)


@pytest.mark.parametrize("kind", MADE)
def test_damaged_messages_take_little_memory(kind: str) -> None:
    """Reading and checking a damaged message never takes memory that its bytes do not account for."""
    message = message_of(kind)
    taken(kind, message)  # what is imported on first use is not counted
    tracemalloc.start()
    try:
        for damaged in list(mutations(message))[::7]:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            taken(kind, damaged)
            assert tracemalloc.get_traced_memory()[1] - before < 10 * len(message) + (64 << 10)
    finally:
        tracemalloc.stop()


def test_strides_that_reach_outside_are_refused() -> None:
    """Every stride is held against the data, with extents that overflow 64 bits too."""
    message = message_of("fortran")
    strides, shape = struct.pack("<3q", 8, 16, 48), struct.pack("<q", 4)
    assert message.count(strides) == 1
    for lie in ((16, 16, 48), (8, 16, 56), (-8, 16, 48), (8, 16, 1 << 62), (0, 0, (1 << 63) - 1)):
        with pytest.raises(InvalidData, match=r"reaches beyond|negative"):
            ipc.read_tensor(message.replace(strides, struct.pack("<3q", *lie)))
    inside = ipc.read_tensor(message.replace(strides, struct.pack("<3q", 0, 8, 24))).to_numpy()
    assert inside[0].tolist() == inside[1].tolist()
    huge = message.replace(strides, bytes(24)).replace(shape, struct.pack("<q", 1 << 62))
    with pytest.raises(InvalidData, match="larger than any memory"):
        ipc.read_tensor(huge)


_PREFIX, _VTABLE_HEAD = 8, 4
_SPARSE = 5
# Slots of Tensor, and of SparseTensor, which has no strides.
_SHAPE, _STRIDES = 2, 3


def _place(message: bytes, slot: int) -> tuple[int, int]:
    """Return where a message's header says a slot, in its vtable, and where the slot itself is."""
    header = Table.root(message[_PREFIX:]).table(2)
    assert header is not None
    table = _PREFIX + header.at
    vtable = table - int.from_bytes(message[table : table + 4], "little", signed=True)
    said = vtable + _VTABLE_HEAD + 2 * slot
    return said, table + int.from_bytes(message[said : said + 2], "little")


@pytest.mark.parametrize("kind", MADE)
def test_a_tensor_without_a_shape_is_refused(kind: str) -> None:
    """A shape that is left out is no shape without dimensions: pyarrow refuses it, too."""
    message = bytearray(message_of(kind))
    said, _ = _place(bytes(message), _SHAPE)
    message[said : said + 2] = bytes(2)
    read: Callable[[bytes], Any] = ipc.read_tensor
    if Table.root(bytes(message[_PREFIX:])).number(1, "B") == _SPARSE:
        read = ipc.read_sparse_tensor
    with pytest.raises(InvalidMetadata, match="a tensor has no shape; expected one, even without dimensions"):
        read(bytes(message))
    if read is ipc.read_tensor:
        with pytest.raises(OSError, match="Invalid flatbuffers"):
            pa.ipc.read_tensor(pa.BufferReader(bytes(message)))


@pytest.mark.parametrize(
    ("strides", "words"),
    [
        ([8, 8, 8], "wrong number of strides; expected 2; found 3"),
        ([8], "wrong number of strides; expected 2; found 1"),
        ([-6, 2], "a stride is negative"),
        ([8, 2], "reaches beyond its data; expected at most 12 bytes; found 14"),
        ([1 << 62, 2], "reaches beyond its data"),
        ([(1 << 63) - 1, (1 << 63) - 1], "reaches beyond its data"),
    ],
)
def test_strides_that_do_not_fit_are_refused(strides: list[int], words: str) -> None:
    """Strides of another number than dimensions, or that lead beyond the data, are refused, with what is wrong."""
    message = bytearray(message_of("dense"))
    _, at = _place(bytes(message), _STRIDES)
    # The vector is written anew, behind the rest of the flatbuffer: `at` refers to it.
    (length,) = struct.unpack_from("<I", message, 4)
    end = _PREFIX + length
    struct.pack_into("<I", message, at, end + 4 - at)
    added = struct.pack(f"<4xI{len(strides)}q", len(strides), *strides)
    struct.pack_into("<I", message, 4, length + len(added))
    message[end:end] = added
    with pytest.raises(InvalidMetadata, match=words):
        ipc.read_tensor(bytes(message))
