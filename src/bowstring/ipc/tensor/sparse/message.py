"""The message of a sparse tensor: metadata, and a body of index and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.ipc.tensor.array import as_type, body_of, readable
from bowstring.ipc.tensor.sparse.index import CooIndex, CsfIndex, CsxIndex, SparseIndex, columns_of
from bowstring.ipc.tensor.sparse.metadata import Part, SparseHeader, decode_sparse, encode_sparse
from bowstring.ipc.tensor.sparse.tensor import SparseTensor
from bowstring.ipc.tensor.tensor import read_message, write_message
from bowstring.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from bowstring.memory import Device

__all__ = ["read_sparse_tensor", "write_sparse_tensor"]


def read_sparse_tensor(
    source: Any, *, device: Device | None = None, limits: Limits = DEFAULT_LIMITS
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
    arrays = [*map(_portable, tensor.index.parts), tensor.data]
    starts, length, pieces = body_of(arrays)
    *parts, data = [
        Part(np.dtype(array.dtype), start, array.size) for array, start in zip(arrays, starts, strict=True)
    ]
    header = _described(tensor, data, tuple(parts))
    return write_message(dest, encode_sparse(header, length), pieces)


def _described(tensor: SparseTensor, data: Part, parts: tuple[Part, ...]) -> SparseHeader:
    header = SparseHeader(tensor.format, tensor.shape, tensor.dim_names, data, parts)
    index = tensor.index
    if isinstance(index, CooIndex):
        return header._replace(is_canonical=index.is_canonical)
    return header._replace(axis_order=index.axis_order) if isinstance(index, CsfIndex) else header


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


def _portable(indices: Any) -> Any:
    """Indices in a type that Arrow C++ reads: at uint64 it ends the process (tried with 26.0.1)."""
    return as_type(indices, np.int64) if indices.dtype == np.uint64 else indices


def _part(raw: Any, part: Part) -> Any:
    return readable(raw[part.offset : part.offset + part.nbytes], part.dtype).view(part.dtype)
