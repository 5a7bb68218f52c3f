"""Nodes, and what the buffers of each Arrow type hold, in the order in which Arrow IPC lists them."""

from __future__ import annotations

import enum
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.errors import InvalidMetadata, Unsupported

__all__ = [
    "BITS",
    "DICTIONARY",
    "END_BITS",
    "NESTED",
    "Kind",
    "Node",
    "Offsets",
    "PlainRows",
    "evenly",
    "physical",
    "storage_type",
]


class Kind(enum.IntEnum):
    """What one buffer of a node holds.

    Examples
    --------
    >>> Kind.OFFSETS32.bits, Kind.OFFSETS32.has_end
    (32, True)
    """

    VALIDITY = 0
    """One bit per slot, set where the slot is valid; may be absent when nothing is null."""
    DATA = 1
    """Values of a fixed width, :attr:`Node.bits` each."""
    BITS = 2
    """Boolean values, one bit each."""
    BYTES = 3
    """The bytes that the offsets before it delimit."""
    OFFSETS32 = 4
    """``length + 1`` ends into bytes or into a child, 32 bits each."""
    OFFSETS64 = 5
    """``length + 1`` ends into bytes or into a child, 64 bits each."""
    STARTS32 = 6
    """One position per slot, 32 bits each: list views and dense unions."""
    STARTS64 = 7
    """One position per slot, 64 bits each: large list views."""
    SIZES32 = 8
    """One size per slot, 32 bits each: list views."""
    SIZES64 = 9
    """One size per slot, 64 bits each: large list views."""
    TYPE_IDS = 10
    """One type id per slot of a union, 8 bits each."""
    VIEWS = 11
    """16-byte views of binary or text, which name variadic buffers."""
    VARIADIC = 12
    """One of the buffers that views point into."""

    @property
    def bits(self) -> int:
        """Bits per slot; 0 where the slots do not fix the size, and for DATA, whose node says it."""
        return _BITS[self]

    @property
    def has_end(self) -> bool:
        """Whether the buffer holds one element more than there are slots."""
        return self in (Kind.OFFSETS32, Kind.OFFSETS64)


_BITS = {
    Kind.VALIDITY: 1,
    Kind.DATA: 0,
    Kind.BITS: 1,
    Kind.BYTES: 0,
    Kind.OFFSETS32: 32,
    Kind.OFFSETS64: 64,
    Kind.STARTS32: 32,
    Kind.STARTS64: 64,
    Kind.SIZES32: 32,
    Kind.SIZES64: 64,
    Kind.TYPE_IDS: 8,
    Kind.VIEWS: 128,
    Kind.VARIADIC: 0,
}

# The same by kind, and what a buffer holds beyond its slots.
BITS = np.array([_BITS[kind] for kind in Kind])
END_BITS = np.array([kind.bits if kind.has_end else 0 for kind in Kind])

_VIEWS = Kind.VIEWS  # looked up once: enumerations are slow at it
_EMPTY: tuple[Kind, ...] = ()
_FIXED_WIDTH = (Kind.VALIDITY, Kind.DATA)
_FIXED_SIZE_LIST = (Kind.VALIDITY,)
_VARIABLE32 = (Kind.VALIDITY, Kind.OFFSETS32, Kind.BYTES)
_VARIABLE64 = (Kind.VALIDITY, Kind.OFFSETS64, Kind.BYTES)
_VIEW = (Kind.VALIDITY, Kind.VIEWS)
_LIST32 = (Kind.VALIDITY, Kind.OFFSETS32)
_LIST64 = (Kind.VALIDITY, Kind.OFFSETS64)
_LIST_VIEW32 = (Kind.VALIDITY, Kind.STARTS32, Kind.SIZES32)
_LIST_VIEW64 = (Kind.VALIDITY, Kind.STARTS64, Kind.SIZES64)

_KINDS: dict[int, tuple[Kind, ...]] = {
    pa.lib.Type_NA: _EMPTY,
    pa.lib.Type_BOOL: (Kind.VALIDITY, Kind.BITS),
    pa.lib.Type_STRING: _VARIABLE32,
    pa.lib.Type_BINARY: _VARIABLE32,
    pa.lib.Type_LARGE_STRING: _VARIABLE64,
    pa.lib.Type_LARGE_BINARY: _VARIABLE64,
    pa.lib.Type_STRING_VIEW: _VIEW,
    pa.lib.Type_BINARY_VIEW: _VIEW,
    pa.lib.Type_LIST: _LIST32,
    pa.lib.Type_MAP: _LIST32,
    pa.lib.Type_LARGE_LIST: _LIST64,
    pa.lib.Type_LIST_VIEW: _LIST_VIEW32,
    pa.lib.Type_LARGE_LIST_VIEW: _LIST_VIEW64,
    pa.lib.Type_STRUCT: (Kind.VALIDITY,),
    pa.lib.Type_SPARSE_UNION: (Kind.TYPE_IDS,),
    pa.lib.Type_DENSE_UNION: (Kind.TYPE_IDS, Kind.STARTS32),
    pa.lib.Type_RUN_END_ENCODED: _EMPTY,
}
# pyarrow 19 has no names for these two.
_INTERVAL_MONTHS, _INTERVAL_DAY_TIME = 21, 22
_WIDTHS: dict[int, int] = {
    pa.lib.Type_UINT8: 8,
    pa.lib.Type_INT8: 8,
    pa.lib.Type_UINT16: 16,
    pa.lib.Type_INT16: 16,
    pa.lib.Type_HALF_FLOAT: 16,
    pa.lib.Type_UINT32: 32,
    pa.lib.Type_INT32: 32,
    pa.lib.Type_FLOAT: 32,
    pa.lib.Type_DATE32: 32,
    pa.lib.Type_TIME32: 32,
    pa.lib.Type_DECIMAL32: 32,
    _INTERVAL_MONTHS: 32,
    pa.lib.Type_UINT64: 64,
    pa.lib.Type_INT64: 64,
    pa.lib.Type_DOUBLE: 64,
    pa.lib.Type_DATE64: 64,
    pa.lib.Type_TIME64: 64,
    pa.lib.Type_TIMESTAMP: 64,
    pa.lib.Type_DURATION: 64,
    pa.lib.Type_DECIMAL64: 64,
    _INTERVAL_DAY_TIME: 64,
    pa.lib.Type_DECIMAL128: 128,
    pa.lib.Type_INTERVAL_MONTH_DAY_NANO: 128,
    pa.lib.Type_DECIMAL256: 256,
}
_PHYSICAL: dict[int, tuple[tuple[Kind, ...], int]] = {
    **{id_: (kinds, 0) for id_, kinds in _KINDS.items()},
    **{id_: (_FIXED_WIDTH, width) for id_, width in _WIDTHS.items()},
}
DICTIONARY = pa.lib.Type_DICTIONARY
NESTED = frozenset(
    (
        pa.lib.Type_LIST,
        pa.lib.Type_LARGE_LIST,
        pa.lib.Type_MAP,
        pa.lib.Type_LIST_VIEW,
        pa.lib.Type_LARGE_LIST_VIEW,
        pa.lib.Type_FIXED_SIZE_LIST,
        pa.lib.Type_STRUCT,
        pa.lib.Type_SPARSE_UNION,
        pa.lib.Type_DENSE_UNION,
        pa.lib.Type_RUN_END_ENCODED,
    )
)


class Node(NamedTuple):
    """One entry of ``RecordBatch.nodes``: a column, or a child at any depth.

    ``type`` is the storage type (the index type where the field is dictionary-encoded). ``first_buffer``
    counts without variadic buffers; see :meth:`Layout.first_buffers` for a batch that has some.
    """

    path: tuple[str, ...]
    type: pa.DataType
    parent: int
    """Index of the parent node, -1 for a column."""
    column: int
    """Index of the column whose subtree this node is in."""
    first_buffer: int
    buffer_kinds: tuple[Kind, ...]
    bits: int
    """Bits per value of the DATA buffer; 0 where there is none."""
    nullable: bool
    children: tuple[int, ...]
    end: int
    """One past the last node of the subtree."""
    dictionary_id: int | None
    dictionary_type: pa.DataType | None
    """The type of the dictionary's values."""

    @property
    def variadic(self) -> bool:
        """Whether variadic buffers follow the fixed ones."""
        return _VIEWS in self.buffer_kinds

    @property
    def width(self) -> int:
        """Bytes per value of the DATA buffer; 0 where there is none."""
        return self.bits >> 3


class Offsets(NamedTuple):
    """An offsets buffer and what it points into."""

    node: int
    buffer: int
    """Index without variadic buffers."""
    width: int
    """Bytes per offset, 4 or 8."""
    child: int
    """The node that the offsets count slots of, or -1 where they delimit the bytes of the next buffer."""


class PlainRows(NamedTuple):
    """What batches of one length have in common, in a layout without children.

    ``minimum`` is that of :meth:`Layout.minimum_lengths`. ``nodes`` and ``lengths`` are the bytes of the node
    table and of its first column where nothing is null; ``nodes`` is empty where the length is over
    :attr:`Layout.longest`, and then ``minimum`` means nothing. ``bound`` is the length once more. ``values`` is
    what buffers need that are no bitmaps, and ``bitmap`` what each bitmap needs.
    """

    num_rows: int
    minimum: npt.NDArray[np.int64]
    nodes: bytes
    lengths: bytes
    bound: npt.NDArray[np.uint64]
    values: npt.NDArray[np.int64]
    bitmap: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls,
        num_rows: int,
        num_nodes: int,
        minimum: npt.NDArray[np.int64],
        values: npt.NDArray[np.int64],
        *,
        known: bool,
    ) -> Self:
        """Return what batches of `num_rows` rows have in common; `known` is whether `minimum` means something."""
        table = np.zeros((num_nodes, 2), dtype=np.int64)
        table[:, 0] = num_rows
        nodes = table.tobytes() if known else b""
        bitmap = np.array((num_rows + 7) >> 3)
        lengths = table[:, 0].tobytes()
        return cls(num_rows, minimum, nodes, lengths, np.array(num_rows, np.uint64), values, bitmap)


def storage_type(type_: pa.DataType) -> pa.DataType:
    """Return what an extension type is stored as, and any other type unchanged.

    Examples
    --------
    >>> import pyarrow as pa
    >>> storage_type(pa.uuid())
    FixedSizeBinaryType(fixed_size_binary[16])
    """
    while isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    return type_


def physical(type_: pa.DataType, path: tuple[str, ...]) -> tuple[tuple[Kind, ...], int]:
    """Return the buffers of a storage type, and the bits per value of its DATA buffer (else 0).

    Raises
    ------
    Unsupported
        A type that Bowstring does not know.
    InvalidMetadata
        A size that is part of the type is negative: pyarrow takes it.

    Examples
    --------
    >>> import pyarrow as pa
    >>> physical(pa.int16(), ("a",))[1]
    16
    """
    known = _PHYSICAL.get(type_.id)
    if known is not None:
        return known
    if type_.id == pa.lib.Type_FIXED_SIZE_LIST:
        _check_size("a list", type_.list_size, path)
        return _FIXED_SIZE_LIST, 0
    if type_.id == pa.lib.Type_FIXED_SIZE_BINARY:
        _check_size("a binary value", type_.byte_width, path)
        return _FIXED_WIDTH, 8 * type_.byte_width
    raise Unsupported(f"columns of type {type_}", where=".".join(path))


def _check_size(what: str, size: int, path: tuple[str, ...]) -> None:
    if size < 0:
        raise InvalidMetadata(
            f"{what} of fixed size has a negative one", expected="0 or more", found=size, where=".".join(path)
        )


def evenly(positions: npt.NDArray[np.int64]) -> slice | npt.NDArray[np.int64]:
    """Return evenly spaced positions as a slice, others as they are."""
    if len(positions) > 1:
        first, step = int(positions[0]), int(positions[1] - positions[0])
        if (positions[1:] - positions[:-1] == step).all():
            return slice(first, int(positions[-1]) + 1, step)
    return positions
