"""Messages of sparse tensors (SparseTensor.fbs): metadata, and a body of index and values."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bowstring.errors import InvalidMetadata
from bowstring.ipc.flatbuf.builder import Builder, Reference, Scalar, Struct
from bowstring.ipc.flatbuf.message import Message, MessageKind
from bowstring.ipc.flatbuf.reader import Tables
from bowstring.ipc.tensor.array import as_type, body_of, readable
from bowstring.ipc.tensor.metadata import (
    decode_buffer,
    decode_integer,
    decode_shape,
    decode_strides,
    decode_type,
    encode_integer,
    encode_message,
    encode_shape,
    encode_type,
    header_slots,
    reach,
    row_major,
    same_count,
    within,
)
from bowstring.ipc.tensor.sparse.index import CooIndex, CsfIndex, CsxIndex, SparseIndex, columns_of
from bowstring.ipc.tensor.sparse.tensor import SparseTensor
from bowstring.ipc.tensor.tensor import read_message, write_message
from bowstring.limits import Limits, limits_or_default

if TYPE_CHECKING:
    import numpy as np

    from bowstring.memory import Device

_COO, _CSX, _CSF = 1, 2, 3
_WHERE = "SparseTensor"
_LEAST_LEVELS = 2


class Part(NamedTuple):
    """One array of a body: its type, where it begins, and how many elements it has."""

    dtype: np.dtype[Any]
    offset: int
    length: int

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self.length * self.dtype.itemsize

    @property
    def buffer(self) -> Struct:
        """As a ``Buffer``: Arrow C++ counts the padding in."""
        return Struct("qq", (self.offset, -(-self.nbytes // 8) * 8))


class SparseHeader(NamedTuple):
    """``SparseTensor`` of SparseTensor.fbs."""

    format: str  # "coo", "csr", "csc" or "csf"
    shape: tuple[int, ...]
    dim_names: tuple[str, ...]  # one per dimension, or empty
    data: Part  # the values
    # coordinates; or indptr and indices; or indptr of each level, then indices of each level
    parts: tuple[Part, ...]
    # of coordinates, in bytes: to the next value, to the next dimension; None if row-major
    strides: tuple[int, int] | None = None
    is_canonical: bool = False  # of coordinates: sorted and unique
    axis_order: tuple[int, ...] = ()  # of CSF


def decode_sparse(message: Message) -> SparseHeader:
    """Decode the header of a sparse tensor message; all buffers that it names lie within the message's body."""
    slots = header_slots(message, MessageKind.SPARSE_TENSOR)
    index = _Index(message)
    tables, table = index.tables, message.header
    dtype = decode_type(tables, table, slots[0], slots[1], "SparseTensor.type")
    shape, names = decode_shape(tables, table, slots[2], "SparseTensor.shape")
    count = tables.scalar(table, slots[3], "q", 0, _WHERE)
    if count < 0 or not shape:
        raise InvalidMetadata("a sparse tensor without dimensions, or with a negative length", where=_WHERE)
    kind = tables.scalar(table, slots[4], "B", 0, _WHERE)
    at = tables.reference(table, slots[5], "SparseTensor.sparseIndex")
    decode = {_COO: index.coordinates, _CSX: index.compressed, _CSF: index.fibers}.get(kind)
    if decode is None or at < 0:
        raise InvalidMetadata("not a kind of sparse index", expected="1, 2 or 3", found=kind, where=_WHERE)
    data = index.part(table, slots[6], dtype, count, "SparseTensor.data")
    return decode(at, SparseHeader("", shape, names, data, ()))


def encode_sparse(header: SparseHeader, body_length: int) -> bytes:
    """Encode a sparse tensor message."""
    builder = Builder()
    kind, type_ = encode_type(builder, header.data.dtype)
    shape = encode_shape(builder, header.shape, header.dim_names)
    encode = {"coo": _coordinates, "csf": _fibers}.get(header.format, _compressed)
    number, index = encode(builder, header)
    fields = (
        *(kind, type_, shape, Scalar("q", header.data.length)),
        *(Scalar("B", number), Reference(index), header.data.buffer),
    )
    return encode_message(builder, MessageKind.SPARSE_TENSOR, builder.table(fields), body_length)


class _Index:
    """Reads the index of one message."""

    def __init__(self, message: Message) -> None:
        self.tables = Tables(message.data)
        self._body = message.body_length

    def part(self, table: int, slot: int, dtype: np.dtype[Any], count: int, where: str) -> Part:
        """An array of `count` elements, whose buffer may be longer."""
        offset, nbytes = decode_buffer(self.tables, table, slot, self._body, where)
        if nbytes < count * dtype.itemsize:
            raise InvalidMetadata(
                "a buffer is too short",
                expected=f"{count} elements of {dtype.itemsize} bytes",
                found=f"{nbytes} bytes",
                where=where,
            )
        return Part(dtype, offset, count)

    def coordinates(self, at: int, header: SparseHeader) -> SparseHeader:
        """``SparseTensorIndexCOO``."""
        where, tables = "SparseTensorIndexCOO", self.tables
        type_, steps_at, buffer, canonical, *_ = tables.slots(at, where)
        dtype = decode_integer(tables, at, type_, where)
        matrix = (header.data.length, len(header.shape))
        steps = decode_strides(tables, at, steps_at, matrix, dtype.itemsize)
        strides = None
        if not _same(steps, row_major(matrix, dtype.itemsize), matrix):
            strides = _useful(steps, matrix, dtype.itemsize, where)
            part = self.part(
                at, buffer, dtype, reach(matrix, strides, dtype.itemsize) // dtype.itemsize, where
            )
        else:
            part = self.part(at, buffer, dtype, matrix[0] * matrix[1], where)
        is_canonical = bool(tables.scalar(at, canonical, "B", 0, where))
        return header._replace(format="coo", parts=(part,), strides=strides, is_canonical=is_canonical)

    def compressed(self, at: int, header: SparseHeader) -> SparseHeader:
        """``SparseMatrixIndexCSX``."""
        where, tables = "SparseMatrixIndexCSX", self.tables
        axis_slot, indptr_type, indptr, indices_type, indices, *_ = tables.slots(at, where)
        axis = tables.scalar(at, axis_slot, "h", 0, where)
        if axis not in (0, 1) or len(header.shape) != 2:
            raise InvalidMetadata(
                "not a compressed axis of a matrix",
                expected="0 or 1 of 2",
                found=f"{axis} of {len(header.shape)}",
                where=where,
            )
        pointers = decode_integer(tables, at, indptr_type, where)
        positions = decode_integer(tables, at, indices_type, where)
        parts = (
            self.part(at, indptr, pointers, header.shape[axis] + 1, where),
            self.part(at, indices, positions, header.data.length, where),
        )
        return header._replace(format=("csr", "csc")[axis], parts=parts)

    def fibers(self, at: int, header: SparseHeader) -> SparseHeader:
        """``SparseTensorIndexCSF``."""
        where, tables = "SparseTensorIndexCSF", self.tables
        indptr_type, indptr, indices_type, indices, order, *_ = tables.slots(at, where)
        depth = len(header.shape)
        pointers = self._buffers(at, indptr, decode_integer(tables, at, indptr_type, where), depth - 1)
        positions = self._buffers(at, indices, decode_integer(tables, at, indices_type, where), depth)
        start, count = tables.vector(at, order, 4, where)
        same_count("axes", count, depth)
        axes = struct.unpack_from(f"<{count}i", tables.data, start)
        if sorted(axes) != list(range(depth)):
            raise InvalidMetadata("the axes are not those of the tensor", found=axes, where=where)
        # Arrow C++ writes and reads numbers of elements, whatever Message.fbs says about the length of a Buffer.
        for in_bytes in (False, True):
            parts = [
                part._replace(length=part.length // part.dtype.itemsize) if in_bytes else part
                for part in (*pointers, *positions)
            ]
            if _is_tree(parts[: depth - 1], parts[depth - 1 :], header):
                for part in parts:
                    within(part.offset, part.nbytes, self._body, where)
                return header._replace(format="csf", parts=tuple(parts), axis_order=axes)
        raise InvalidMetadata("the levels of the tree do not fit each other or the tensor", where=where)

    def _buffers(self, at: int, slot: int, dtype: np.dtype[Any], levels: int) -> list[Part]:
        start, count = self.tables.vector(at, slot, 16, "SparseTensorIndexCSF")
        same_count("levels of fibers", count, levels)
        pairs = struct.iter_unpack("<2q", self.tables.data[start : start + 16 * count])
        return [Part(dtype, offset, length) for offset, length in pairs]


def _is_tree(pointers: list[Part], positions: list[Part], header: SparseHeader) -> bool:
    return (
        len(positions) >= _LEAST_LEVELS
        and all(part.length >= 0 for part in positions)
        and all(indptr.length == nodes.length + 1 for indptr, nodes in zip(pointers, positions, strict=False))
        and positions[-1].length == header.data.length
    )


def _same(steps: tuple[int, ...], expected: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether strides lead to the same elements: those of a dimension of one element lead nowhere."""
    if 0 in shape:
        return True
    return all(a == b or size == 1 for a, b, size in zip(steps, expected, shape, strict=True))


def _useful(steps: tuple[int, ...], shape: tuple[int, int], width: int, where: str) -> tuple[int, int]:
    """Return strides that lead from one element of a buffer to another, or raise `InvalidMetadata`.

    Along a dimension of one element the stride is 0.
    """
    to_value, to_dimension = (step if size > 1 else width for step, size in zip(steps, shape, strict=True))
    if to_value <= 0 or to_dimension < 0 or to_value % width or to_dimension % width:
        raise InvalidMetadata(
            "strides of coordinates that lead to no elements",
            expected=f"multiples of {width}, from one value to the next more than 0",
            found=steps,
            where=where,
        )
    return to_value, to_dimension


def _coordinates(builder: Builder, header: SparseHeader) -> tuple[int, int]:
    (part,) = header.parts
    type_ = encode_integer(builder, part.dtype)
    matrix = (header.data.length, len(header.shape))
    steps = header.strides or row_major(matrix, part.dtype.itemsize)
    strides = Reference(builder.vector("q", steps))
    return _COO, builder.table([type_, strides, part.buffer, Scalar("B", header.is_canonical)])


def _compressed(builder: Builder, header: SparseHeader) -> tuple[int, int]:
    indptr, indices = header.parts
    pointers = encode_integer(builder, indptr.dtype)
    positions = encode_integer(builder, indices.dtype)
    axis = Scalar("h", header.format == "csc")
    return _CSX, builder.table([axis, pointers, indptr.buffer, positions, indices.buffer])


def _fibers(builder: Builder, header: SparseHeader) -> tuple[int, int]:
    depth = len(header.shape)
    pointers = encode_integer(builder, header.parts[0].dtype)
    positions = encode_integer(builder, header.parts[-1].dtype)
    levels = [(part.offset, part.length) for part in header.parts]
    indices = Reference(builder.structs("qq", levels[depth - 1 :]))
    indptr = Reference(builder.structs("qq", levels[: depth - 1]))
    axes = Reference(builder.vector("i", header.axis_order))
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
    limits = limits_or_default(limits)
    header, body = read_message(source, limits, decode_sparse)
    raw = body.array()
    if device is not None and device is not body.device:
        raw = device.from_host(raw)
    parts = [_part(raw, part) for part in header.parts]
    data = _part(raw, header.data)
    return SparseTensor(data, _index(header, parts), header.shape, header.dim_names)


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
    index = tensor.index
    # Arrow C++ reads no others: at uint64 it ends the process (tried with 26.0.1).
    parts = [as_type(each, np.int64) if each.dtype == np.uint64 else each for each in index.parts]
    arrays = [*parts, tensor.data]
    starts, length, pieces = body_of(arrays)
    *parts, data = [
        Part(np.dtype(array.dtype), start, array.size) for array, start in zip(arrays, starts, strict=True)
    ]
    header = SparseHeader(
        *(tensor.format, tensor.shape, tensor.dim_names, data, tuple(parts)),
        is_canonical=isinstance(index, CooIndex) and index.is_canonical,
        axis_order=index.axis_order if isinstance(index, CsfIndex) else (),
    )
    return write_message(dest, encode_sparse(header, length), pieces)


def _index(header: SparseHeader, parts: list[Any]) -> SparseIndex:
    count, depth = header.data.length, len(header.shape)
    if header.format == "csf":
        return CsfIndex(header.axis_order, tuple(parts[: depth - 1]), tuple(parts[depth - 1 :]))
    if header.format != "coo":
        return CsxIndex(int(header.format == "csc"), *parts)
    (flat,) = parts
    if header.strides is not None:
        # Slices, because that is what arrays of every device have.
        step, to_next = (stride // flat.dtype.itemsize for stride in header.strides)
        starts = (axis * to_next for axis in range(depth))
        coords = tuple(flat[start : start + (count - 1) * step + 1 : step] for start in starts)
        return CooIndex(coords, header.is_canonical)
    matrix = flat.reshape(count, depth)
    return CooIndex(columns_of(matrix), header.is_canonical, matrix)


def _part(raw: Any, part: Part) -> Any:
    return readable(raw[part.offset : part.offset + part.nbytes], part.dtype).view(part.dtype)
