"""Dense tensors: one NumPy array, or one of a device, as one message. Tensor.fbs, "Tensor messages"."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from bowstring.errors import EndOfStream, InvalidMetadata, LimitExceeded, UsageError
from bowstring.files import Target
from bowstring.ipc.flatbuf.builder import Builder, Reference, Struct
from bowstring.ipc.flatbuf.message import Message, MessageKind, decode_message
from bowstring.ipc.framing import frame, read_metadata, write_all
from bowstring.ipc.source import open_source
from bowstring.ipc.tensor import metadata as wire
from bowstring.ipc.tensor.array import any_is_true, as_array, device_of, host_array, on_host, readable
from bowstring.ipc.tensor.metadata import DType, TensorTables, element_type, row_major
from bowstring.limits import Limits, limits_or_default
from bowstring.memory import Buffer, Device

_MOST_BYTES = 2**63 - 1
_READERS = {MessageKind.TENSOR: "read_tensor", MessageKind.SPARSE_TENSOR: "read_sparse_tensor"}


class Tensor:
    """An array with names for its dimensions, as a tensor message carries it.

    Parameters
    ----------
    values
        A NumPy array, an array of a device, or a ``pyarrow.Tensor``; it is not copied.
    dim_names
        One name per dimension, or none at all.

    Attributes
    ----------
    values
        The array, on its device. What was read cannot be written to.
    dim_names : tuple of str

    Raises
    ------
    UsageError
        There are more or fewer names than dimensions.

    Examples
    --------
    >>> tensor = Tensor(np.arange(6.0).reshape(2, 3), dim_names=["row", "column"])
    >>> tensor.shape, tensor.strides, tensor.type
    ((2, 3), (24, 8), DataType(double))
    """

    def __init__(self, values: Any, dim_names: Sequence[str] | None = None) -> None:
        if isinstance(values, pa.Tensor):
            dim_names = values.dim_names if dim_names is None else dim_names
            values = values.to_numpy()
        self.values = as_array(values)
        self.dim_names = tuple(dim_names or ())
        if self.dim_names and len(self.dim_names) != self.values.ndim:
            raise UsageError(
                "a tensor has one name per dimension, or none",
                expected=self.values.ndim,
                found=len(self.dim_names),
            )

    @classmethod
    def from_numpy(cls, obj: np.ndarray[Any, Any], dim_names: Sequence[str] | None = None) -> Tensor:
        """Return the tensor of an array, as pyarrow's does; ``Tensor(obj, dim_names)`` is the same."""
        return cls(obj, dim_names)

    @property
    def device(self) -> Device:
        """Where the elements are."""
        return device_of(self.values)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements, NumPy's."""
        dtype: np.dtype[Any] = np.dtype(self.values.dtype)
        return dtype

    @property
    def type(self) -> pa.DataType:
        """Type of the elements, Arrow's.

        Raises
        ------
        UsageError
            Arrow has no tensors of such elements.
        """
        return pa.from_numpy_dtype(element_type(self.dtype))

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each dimension, in elements."""
        return tuple(self.values.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Step along each dimension, in bytes; row by row where the array does not say."""
        strides = getattr(self.values, "strides", None)
        return row_major(self.shape, self.dtype.itemsize) if strides is None else tuple(strides)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.values.size)

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie one behind the other, row by row or column by column."""
        strides = self.strides
        by_column = row_major(self.shape[::-1], self.dtype.itemsize)[::-1]
        return self.size == 0 or strides in (row_major(self.shape, self.dtype.itemsize), by_column)

    @property
    def is_mutable(self) -> bool:
        """Whether the elements can be written to through the tensor; of what was read they cannot."""
        # CuPy's arrays do not say: they all can.
        of = self.values.flags if isinstance(self.values, np.ndarray) else self.values
        return bool(getattr(of, "writeable", True))

    def dim_name(self, i: int) -> str:
        """Return the name of a dimension, empty where it has none.

        Raises
        ------
        UsageError
            There is no such dimension.

        Examples
        --------
        >>> Tensor(np.zeros((2, 3)), ["row", "column"]).dim_name(1)
        'column'
        """
        if not 0 <= i < self.ndim:
            raise UsageError("a tensor has no such dimension", expected=f"0 to {self.ndim - 1}", found=i)
        return self.dim_names[i] if self.dim_names else ""

    def equals(self, other: Tensor) -> bool:
        """Return whether two tensors have the same type, shape and elements; names do not matter, NaN is no number.

        Examples
        --------
        >>> Tensor([[1, 2]]).equals(Tensor([[1, 2]], ["row", "column"]))
        True
        """
        if not isinstance(other, Tensor):
            raise UsageError("no tensor to compare with", found=type(other).__name__)
        if self.dtype != other.dtype or self.shape != other.shape or self.device is not other.device:
            return False
        with self.device.use():
            return not any_is_true(self.values != other.values)

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """Return the array, a view that keeps the memory alive.

        Raises
        ------
        NotOnDevice
            The elements are not on the host; ``tensor.to_device(cpu())`` copies them.

        Examples
        --------
        >>> Tensor([[1, 2]]).to_numpy()
        array([[1, 2]])
        """
        return host_array(self.values)

    def to_arrow(self) -> pa.Tensor:
        """Return a ``pyarrow.Tensor`` over the same memory, which must be the host's.

        Examples
        --------
        >>> Tensor(np.arange(3, dtype=np.int16)).to_arrow().type
        DataType(int16)
        """
        return pa.Tensor.from_numpy(self.to_numpy(), list(self.dim_names) or None)

    def to_device(self, device: Device) -> Tensor:
        """Return the tensor on a device: itself where it is there, otherwise a copy.

        Raises
        ------
        LimitExceeded
            Its elements overlap, and a copy would take more memory than they do.

        Examples
        --------
        >>> from bowstring.testing import fake_device
        >>> Tensor([[1, 2]]).to_device(fake_device())
        <Tensor int64 (1, 2) on fake:0>
        """
        if device is self.device:
            return self
        host = on_host(self.values)
        steps = zip(host.shape, host.strides, strict=True)
        if host.size and host.nbytes > host.itemsize + sum((size - 1) * abs(step) for size, step in steps):
            raise LimitExceeded(
                "a copy of a tensor whose elements overlap would be larger than it is",
                found=f"shape {host.shape}, strides {host.strides}",
                hint="Copy it with numpy.ascontiguousarray first, if it is yours.",
            )
        return Tensor(device.from_host(host), self.dim_names)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.to_numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The array's own, where it has one."""
        interface: dict[str, Any] = self.values.__cuda_array_interface__
        return interface

    def __repr__(self) -> str:
        names = f" {self.dim_names}" if self.dim_names else ""
        return f"<Tensor {self.dtype} {self.shape}{names} on {self.device.name}>"


def read_tensor(source: Any, *, device: Device | None = None, limits: Limits | None = None) -> Tensor:
    """Read a tensor message. Mirrors ``pyarrow.ipc.read_tensor``.

    Parameters
    ----------
    source
        A path (memory-mapped: the elements stay in the file), bytes or anything with the buffer protocol (the
        elements stay where they are), or a binary file, which is left behind the message.
    device
        Where the elements shall be; on the host by default.
    limits
        ``metadata_bytes`` and ``message_bytes`` apply.

    Raises
    ------
    EndOfStream
        The source has no more messages.
    InvalidData
        The bytes are not a tensor message, contradict themselves, or end too early (`Truncated`).
    Unsupported
        The elements are neither integers nor floats, or there are more than 64 dimensions.

    Examples
    --------
    >>> import io
    >>> sink = io.BytesIO()
    >>> for numbers in ([1, 2], [[3.5]]):
    ...     _ = write_tensor(np.array(numbers), sink)
    >>> _ = sink.seek(0)
    >>> read_tensor(sink).to_numpy(), read_tensor(sink).to_numpy()
    (array([1, 2]), array([[3.5]]))
    """
    message, body = read_message(source, limits_or_default(limits), MessageKind.TENSOR)
    tables, table, where = TensorTables(message), message.header, "Tensor"
    slots = tables.slots(table, "TENSOR")
    dtype, shape, names = tables.head(table, slots, where)
    strides = tables.strides(table, slots[3], shape, dtype.itemsize)
    offset, nbytes = tables.buffer(table, slots[4], "Tensor.data")
    if any(stride < 0 for stride in strides):
        raise InvalidMetadata("a stride is negative", found=strides, where=where)
    # NumPy multiplies what is not 0, whatever else is.
    if math.prod(size for size in shape if size) * dtype.itemsize > _MOST_BYTES:
        raise InvalidMetadata("a tensor is larger than any memory", found=shape, where=where)
    needed = wire.reach(shape, strides, dtype.itemsize)
    if needed > nbytes:
        raise InvalidMetadata(
            "a tensor reaches beyond its data", expected=f"at most {nbytes} bytes", found=needed, where=where
        )
    raw = readable(body.slice(offset, nbytes).array(), dtype)
    view: np.ndarray[Any, Any] = np.ndarray(shape, dtype, buffer=raw, strides=strides)
    view.flags.writeable = False
    tensor = Tensor(view, names)
    return tensor if device is None else tensor.to_device(device)


def write_tensor(tensor: Any, dest: Any) -> int:
    """Write a tensor message and return how many bytes it took. Mirrors ``pyarrow.ipc.write_tensor``.

    The elements go from the tensor's own memory to the sink, from a device by one copy to the host. The body
    begins at a multiple of 64 bytes of the sink.

    Parameters
    ----------
    tensor
        A Tensor, a NumPy array, an array of a device, or a ``pyarrow.Tensor``: integers, floats of 16 to 64 bits,
        or booleans, which become ``uint8``. What is contiguous neither in C's order nor in Fortran's is written
        in C's.
    dest
        A path, a binary file opened for writing, or a ``pyarrow.NativeFile``.

    Raises
    ------
    UsageError
        Arrow has no tensors of such elements.

    Examples
    --------
    >>> sink = pa.BufferOutputStream()
    >>> write_tensor(np.eye(2), sink)
    288
    >>> pa.ipc.read_tensor(sink.getvalue()).to_numpy()
    array([[1., 0.],
           [0., 1.]])
    """
    tensor = tensor if isinstance(tensor, Tensor) else Tensor(tensor)
    metadata, dtype, order = _encoded(tensor)
    elements = on_host(tensor.values)
    if elements.dtype.kind == "b":
        elements = elements.view(dtype)
    elements = elements.astype(dtype, order=order, copy=False)
    return write_message(dest, metadata, [elements.reshape(-1, order=order).view(np.uint8)])


def get_tensor_size(tensor: Any) -> int:
    """Return how many bytes a tensor takes in a sink of its own. Mirrors ``pyarrow.ipc.get_tensor_size``.

    Examples
    --------
    >>> get_tensor_size(np.eye(2))
    288
    """
    tensor = tensor if isinstance(tensor, Tensor) else Tensor(tensor)
    metadata, dtype, _ = _encoded(tensor)
    nbytes: int = len(frame(metadata)) + tensor.size * dtype.itemsize
    return nbytes


def _encoded(tensor: Tensor) -> tuple[bytes, DType, Literal["C", "F"]]:
    """Return the metadata of a tensor, the type that its elements are written in, and their order."""
    dtype, shape = element_type(tensor.dtype), tensor.shape
    rows = row_major(shape, dtype.itemsize)
    columns = row_major(shape[::-1], dtype.itemsize)[::-1]
    by_columns = tensor.strides == columns != rows
    builder, nbytes = Builder(), tensor.size * dtype.itemsize
    head = wire.encode_head(builder, dtype, shape, tensor.dim_names)
    strides = Reference(builder.vector("q", columns if by_columns else rows))
    table = builder.table([*head, strides, Struct("qq", (0, nbytes))])
    return wire.encode_message(builder, MessageKind.TENSOR, table, nbytes), dtype, "F" if by_columns else "C"


def read_message(source: Any, limits: Limits, kind: MessageKind) -> tuple[Message, Buffer]:
    """Read one message of a kind, and its body without a copy where that can be.

    A file is read up to the end of the message and not further; memory is read from its start.
    """
    with contextlib.closing(open_source(source)) as opened:
        metadata = read_metadata(opened, limits)
        if metadata is None:
            raise EndOfStream("the source has no more messages")
        message = decode_message(metadata, limits)
        if message.kind is not kind:
            hint = f"Use {_READERS.get(message.kind, 'open_stream')}."
            raise InvalidMetadata(
                "a message of another kind", expected=kind.name, found=message.kind.name, hint=hint
            )
        return message, opened.body(message.body_length)


def write_message(dest: Any, metadata: bytes, pieces: Iterable[Any]) -> int:
    """Write a message whose body begins at a multiple of 64 bytes of the sink; return how many bytes it took.

    A sink that cannot tell its position counts from here.
    """
    with Target(dest) as file:
        try:
            position = int(file.tell())
        except (AttributeError, OSError):
            position = 0
        return write_all(file, frame(metadata, position), *pieces)
