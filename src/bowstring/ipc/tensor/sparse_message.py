"""Messages of sparse tensors (SparseTensor.fbs): metadata, and a body of index and values."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.errors import InvalidMetadata
from bowstring.ipc.flatbuf.builder import Builder, Reference, Scalar, Struct
from bowstring.ipc.flatbuf.message import Message, MessageKind
from bowstring.ipc.tensor import metadata as wire
from bowstring.ipc.tensor.array import as_type, body_of, readable
from bowstring.ipc.tensor.index import SparseIndex
from bowstring.ipc.tensor.metadata import DType, TensorTables, row_major
from bowstring.ipc.tensor.sparse import SparseTensor
from bowstring.ipc.tensor.tensor import read_message, write_message
from bowstring.limits import Limits, limits_or_default
from bowstring.memory import Device

_COO, _CSX, _CSF = 1, 2, 3
_WHERE = "SparseTensor"
_LEAST_LEVELS = 2
_Place = tuple[int, int]  # of an array in the body: offset and number of elements


class _Reader:
    """Reads the tensor of one message; all buffers that it names lie within the message's body."""

    def __init__(self, message: Message, raw: Any) -> None:
        self._tables = tables = TensorTables(message)
        self._raw = raw
        table = message.header
        slots = tables.slots(table, _WHERE)
        dtype, self.shape, self.names = tables.head(table, slots, _WHERE)
        self._count = tables.scalar(table, slots[3], "q", 0, _WHERE)
        if self._count < 0 or not self.shape:
            raise InvalidMetadata(
                "a sparse tensor without dimensions, or with a negative length", where=_WHERE
            )
        kind = tables.scalar(table, slots[4], "B", 0, _WHERE)
        at = tables.reference(table, slots[5], "SparseTensor.sparseIndex")
        kinds: dict[int, Callable[[int], SparseIndex]]
        kinds = {_COO: self._coordinates, _CSX: self._compressed, _CSF: self._fibers}
        if kind not in kinds or at < 0:
            raise InvalidMetadata(
                "not a kind of sparse index", expected="1, 2 or 3", found=kind, where=_WHERE
            )
        self.data = self._buffer(table, slots[6], dtype, self._count, "SparseTensor.data")
        self.index = kinds[kind](at)

    def _buffer(self, table: int, slot: int, dtype: DType, count: int, where: str) -> Any:
        offset, nbytes = self._tables.buffer(table, slot, where)
        if nbytes < count * dtype.itemsize:
            raise InvalidMetadata(
                "a buffer is too short",
                expected=f"{count} elements of {dtype.itemsize} bytes",
                found=f"{nbytes} bytes",
                where=where,
            )
        return readable(self._raw[offset : offset + count * dtype.itemsize], dtype).view(dtype)

    def _coordinates(self, at: int) -> SparseIndex:
        where, tables = "SparseTensorIndexCOO", self._tables
        type_, steps_at, buffer, canonical, *_ = tables.slots(at, where)
        dtype = tables.integer(at, type_, where)
        width = dtype.itemsize
        count, depth = matrix = self._count, len(self.shape)
        steps = tables.strides(at, steps_at, matrix, width)
        is_canonical = bool(tables.scalar(at, canonical, "B", 0, where))
        if 0 in matrix or all(
            a == b or size == 1 for a, b, size in zip(steps, row_major(matrix, width), matrix, strict=True)
        ):
            flat = self._buffer(at, buffer, dtype, count * depth, where)
            return SparseIndex.of_matrix(flat.reshape(matrix), is_canonical)
        # A dimension of one element leads nowhere, whatever its stride says.
        to_value, to_dimension = (
            step if size > 1 else width for step, size in zip(steps, matrix, strict=True)
        )
        if to_value <= 0 or to_dimension < 0 or to_value % width or to_dimension % width:
            raise InvalidMetadata(
                "strides of coordinates that lead to no elements",
                expected=f"multiples of {width}, from one value to the next more than 0",
                found=steps,
                where=where,
            )
        covered = wire.reach(matrix, (to_value, to_dimension), width) // width
        flat = self._buffer(at, buffer, dtype, covered, where)
        # Slices, because that is what arrays of every device have.
        step, to_next = to_value // width, to_dimension // width
        starts = (axis * to_next for axis in range(depth))
        coords = tuple(flat[start : start + (count - 1) * step + 1 : step] for start in starts)
        return SparseIndex.of_coordinates(coords, is_canonical)

    def _compressed(self, at: int) -> SparseIndex:
        where, tables = "SparseMatrixIndexCSX", self._tables
        axis_slot, indptr_type, indptr, indices_type, indices, *_ = tables.slots(at, where)
        axis = tables.scalar(at, axis_slot, "h", 0, where)
        if axis not in (0, 1) or len(self.shape) != 2:
            raise InvalidMetadata(
                "not a compressed axis of a matrix",
                expected="0 or 1 of 2",
                found=f"{axis} of {len(self.shape)}",
                where=where,
            )
        pointers, positions = tables.integer(at, indptr_type, where), tables.integer(at, indices_type, where)
        return SparseIndex(
            ("csr", "csc")[axis],
            (self._buffer(at, indptr, pointers, self.shape[axis] + 1, where),),
            (self._buffer(at, indices, positions, self._count, where),),
            (axis, 1 - axis),
        )

    def _fibers(self, at: int) -> SparseIndex:
        where, tables = "SparseTensorIndexCSF", self._tables
        indptr_type, indptr, indices_type, indices, order, *_ = tables.slots(at, where)
        depth = len(self.shape)
        types = [tables.integer(at, indptr_type, where)] * (depth - 1)
        types += [tables.integer(at, indices_type, where)] * depth
        places: list[_Place] = []
        for slot, levels in ((indptr, depth - 1), (indices, depth)):
            start, count = tables.vector(at, slot, 16, where)
            wire.same_count("levels of fibers", count, levels)
            places += struct.iter_unpack("<2q", tables.data[start : start + 16 * count])
        start, count = tables.vector(at, order, 4, where)
        wire.same_count("axes", count, depth)
        axes = struct.unpack_from(f"<{count}i", tables.data, start)
        if sorted(axes) != list(range(depth)):
            raise InvalidMetadata("the axes are not those of the tensor", found=axes, where=where)
        # Arrow C++ writes and reads numbers of elements, whatever Message.fbs says about the length of a Buffer.
        lengths = [length for _, length in places]
        in_bytes = [length // each.itemsize for length, each in zip(lengths, types, strict=True)]
        for counts in (lengths, in_bytes):
            nodes = counts[depth - 1 :]  # of each level; ranges come before them
            fits = counts[: depth - 1] == [size + 1 for size in nodes[:-1]] and nodes[-1] == self._count
            if fits and depth >= _LEAST_LEVELS and min(nodes) >= 0:
                break
        else:
            raise InvalidMetadata("the levels of the tree do not fit each other or the tensor", where=where)
        parts = []
        for dtype, (offset, _), elements in zip(types, places, counts, strict=True):
            tables.within(offset, elements * dtype.itemsize, where)
            raw = self._raw[offset : offset + elements * dtype.itemsize]
            parts.append(readable(raw, dtype).view(dtype))
        return SparseIndex("csf", tuple(parts[: depth - 1]), tuple(parts[depth - 1 :]), axes)


def _encode_index(builder: Builder, index: SparseIndex, parts: list[Any], places: list[_Place]) -> _Place:
    # Arrow C++ counts the padding in.
    buffers = [
        Struct("qq", (offset, -(-part.nbytes // 8) * 8))
        for part, (offset, _) in zip(parts, places, strict=True)
    ]
    pointers = wire.encode_integer(builder, parts[0].dtype)
    if index.format == "coo":
        strides = Reference(builder.vector("q", row_major(parts[0].shape, parts[0].dtype.itemsize)))
        return _COO, builder.table([pointers, strides, *buffers, Scalar("B", index.is_canonical)])
    positions = wire.encode_integer(builder, parts[-1].dtype)
    if index.format != "csf":
        return _CSX, builder.table([Scalar("h", index.axes[0]), pointers, buffers[0], positions, buffers[1]])
    indices = Reference(builder.structs("qq", places[len(index.indptr) :]))
    indptr = Reference(builder.structs("qq", places[: len(index.indptr)]))
    axes = Reference(builder.vector("i", index.axes))
    return _CSF, builder.table([pointers, indptr, positions, indices, axes])


def read_sparse_tensor(
    source: Any, *, device: Device | None = None, limits: Limits | None = None
) -> SparseTensor:
    """Read a sparse tensor message.

    Parameters
    ----------
    source
        A path (memory-mapped: the arrays stay in the file), bytes or anything with the buffer protocol (the
        arrays stay where they are), or a binary file, which is left behind the message.
    device
        Where the arrays shall be, by one copy of the whole body; on the host by default.
    limits
        ``metadata_bytes`` and ``message_bytes`` apply.

    Raises
    ------
    EndOfStream
        The source has no more messages.
    InvalidData
        The bytes are not a sparse tensor message, contradict themselves, or end too early (`Truncated`).
        Single indices are not looked at before they are used: see :meth:`SparseTensor.validate`.
    Unsupported
        The values are neither integers nor floats, or there are more than 64 dimensions.

    Examples
    --------
    >>> import io, scipy.sparse
    >>> sink = io.BytesIO()
    >>> matrix = scipy.sparse.csr_array([[0, 1], [2, 0]])
    >>> _ = write_sparse_tensor(matrix, sink)
    >>> read_sparse_tensor(sink.getvalue()).to_scipy().toarray()
    array([[0, 1],
           [2, 0]])
    """
    message, body = read_message(source, limits_or_default(limits), MessageKind.SPARSE_TENSOR)
    raw = body.array()
    if device is not None and device is not body.device:
        raw = device.from_host(raw)
    reader = _Reader(message, raw)
    return SparseTensor(reader.data, reader.index, reader.shape, reader.names)


def write_sparse_tensor(tensor: Any, dest: Any) -> int:
    """Write a sparse tensor message and return how many bytes it took.

    The metadata and the body are byte for byte those that Arrow C++ writes. The arrays go from their own memory to
    the sink, from a device by one copy of the whole body to the host. The body begins at a multiple of 64 bytes of
    the sink, the arrays in it at multiples of 8. Indices of type uint64 become int64: Arrow C++ reads no others.

    Parameters
    ----------
    tensor
        A SparseTensor, a ``scipy.sparse`` array or matrix in COO, CSR or CSC form, or pyarrow's
        ``SparseCOOTensor``, ``SparseCSRMatrix``, ``SparseCSCMatrix`` or ``SparseCSFTensor``.
    dest
        A path, a binary file opened for writing, or a ``pyarrow.NativeFile``.

    Raises
    ------
    UsageError
        It is none of these.

    Examples
    --------
    >>> import io
    >>> write_sparse_tensor(SparseTensor.from_coo([5], [[1, 1]], shape=(2, 2)), io.BytesIO())
    344
    """
    if not isinstance(tensor, SparseTensor):
        is_arrow = type(tensor).__module__.startswith("pyarrow")
        tensor = (SparseTensor.from_arrow if is_arrow else SparseTensor.from_scipy)(tensor)
    # Arrow C++ reads no others: at uint64 it ends the process (tried with 26.0.1).
    parts = [as_type(each, np.int64) if each.dtype == np.uint64 else each for each in tensor.index.parts]
    starts, length, pieces = body_of([*parts, tensor.data])
    builder, nbytes = Builder(), -(-tensor.data.nbytes // 8) * 8
    head = wire.encode_head(builder, tensor.dtype, tensor.shape, tensor.dim_names)
    places = [(start, part.size) for start, part in zip(starts, parts, strict=False)]
    number, index = _encode_index(builder, tensor.index, parts, places)
    values = Struct("qq", (starts[-1], nbytes))
    fields = (*head, Scalar("q", tensor.non_zero_length), Scalar("B", number), Reference(index), values)
    metadata = wire.encode_message(builder, MessageKind.SPARSE_TENSOR, builder.table(fields), length)
    return write_message(dest, metadata, pieces)
