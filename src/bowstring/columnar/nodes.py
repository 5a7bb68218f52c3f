"""Nodes, and what the buffers of each Arrow type hold, in the order in which Arrow IPC lists them."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from bowstring.errors import InvalidMetadata, LimitExceeded, Unsupported
from bowstring.limits import Limits


class Kind(enum.IntEnum):
    """What one buffer of a node holds."""

    VALIDITY = 0  # one bit per slot, set where the slot is valid; may be absent when nothing is null
    DATA = 1  # values of a fixed width, `Node.bits` each
    BITS = 2  # Boolean values, one bit each
    BYTES = 3  # the bytes that the offsets before it delimit
    OFFSETS32 = 4  # ``length + 1`` ends into bytes or into a child, 32 bits each
    OFFSETS64 = 5
    STARTS32 = 6  # one position per slot, 32 bits each: list views and dense unions
    STARTS64 = 7  # those of large list views
    SIZES32 = 8  # one size per slot, 32 bits each: list views
    SIZES64 = 9
    TYPE_IDS = 10  # one type id per slot of a union, 8 bits each
    VIEWS = 11  # 16-byte views of binary or text, which name variadic buffers
    VARIADIC = 12  # one of the buffers that views point into

    @property
    def bits(self) -> int:
        """Bits per slot; 0 where the slots do not fix the size, and for DATA, whose node has it."""
        return _BITS[self]

    @property
    def has_end(self) -> bool:
        """Whether the buffer holds one element more than there are slots."""
        return self in (Kind.OFFSETS32, Kind.OFFSETS64)


_BITS = (1, 0, 1, 0, 32, 64, 32, 64, 32, 64, 8, 128, 0)  # by kind

# The same, and what a buffer holds beyond its slots.
BITS = np.array(_BITS)
END_BITS = np.array([kind.bits if kind.has_end else 0 for kind in Kind])

_VIEWS = Kind.VIEWS  # looked up once: enumerations are slow at it
_FIXED_WIDTH = (Kind.VALIDITY, Kind.DATA)
_FIXED_SIZE_LIST = (Kind.VALIDITY,)
_KINDS: dict[str, tuple[Kind, ...]] = {
    "NA RUN_END_ENCODED": (),
    "BOOL": (Kind.VALIDITY, Kind.BITS),
    "STRING BINARY": (Kind.VALIDITY, Kind.OFFSETS32, Kind.BYTES),
    "LARGE_STRING LARGE_BINARY": (Kind.VALIDITY, Kind.OFFSETS64, Kind.BYTES),
    "STRING_VIEW BINARY_VIEW": (Kind.VALIDITY, Kind.VIEWS),
    "LIST MAP": (Kind.VALIDITY, Kind.OFFSETS32),
    "LARGE_LIST": (Kind.VALIDITY, Kind.OFFSETS64),
    "LIST_VIEW": (Kind.VALIDITY, Kind.STARTS32, Kind.SIZES32),
    "LARGE_LIST_VIEW": (Kind.VALIDITY, Kind.STARTS64, Kind.SIZES64),
    "STRUCT": (Kind.VALIDITY,),
    "SPARSE_UNION": (Kind.TYPE_IDS,),
    "DENSE_UNION": (Kind.TYPE_IDS, Kind.STARTS32),
}
_WIDTHS: dict[int, str] = {
    8: "UINT8 INT8",
    16: "UINT16 INT16 HALF_FLOAT",
    32: "UINT32 INT32 FLOAT DATE32 TIME32 DECIMAL32",
    64: "UINT64 INT64 DOUBLE DATE64 TIME64 TIMESTAMP DURATION DECIMAL64",
    128: "DECIMAL128 INTERVAL_MONTH_DAY_NANO",
    256: "DECIMAL256",
}


def _ids(names: str) -> list[int]:
    return [getattr(pa.lib, f"Type_{name}") for name in names.split()]


_PHYSICAL: dict[int, tuple[tuple[Kind, ...], int]] = {
    **{id_: (kinds, 0) for names, kinds in _KINDS.items() for id_ in _ids(names)},
    **{id_: (_FIXED_WIDTH, width) for width, names in _WIDTHS.items() for id_ in _ids(names)},
    # pyarrow 19 has no names for intervals of months, and of days.
    21: (_FIXED_WIDTH, 32),
    22: (_FIXED_WIDTH, 64),
}
_VIEWED = frozenset(_ids("STRING_VIEW BINARY_VIEW"))
DICTIONARY = pa.lib.Type_DICTIONARY
_NESTED = frozenset(
    _ids("LIST LARGE_LIST MAP LIST_VIEW LARGE_LIST_VIEW FIXED_SIZE_LIST STRUCT SPARSE_UNION DENSE_UNION")
    + _ids("RUN_END_ENCODED")
)


class Node(NamedTuple):
    """One entry of ``RecordBatch.nodes``: a column, or a child at any depth.

    `first_buffer` counts without variadic buffers; see :meth:`Layout.first_buffers` for a batch that has some.
    """

    path: tuple[str, ...]
    type: pa.DataType
    parent: int  # index of the parent node, -1 for a column
    column: int  # index of the column whose subtree this node is in
    first_buffer: int
    buffer_kinds: tuple[Kind, ...]
    bits: int  # per value of the DATA buffer; 0 where there is none
    nullable: bool
    children: tuple[int, ...]
    end: int  # one past the last node of the subtree
    dictionary_id: int | None
    dictionary_type: pa.DataType | None  # of the dictionary's values

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
    buffer: int  # index without variadic buffers
    width: int  # bytes per offset, 4 or 8
    child: (
        int  # the node that the offsets count slots of, or -1 where they delimit the bytes of the next buffer
    )


def storage_type(type_: pa.DataType) -> pa.DataType:
    """Return what an extension type is stored as, and any other type unchanged."""
    while isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    return type_


def _physical(type_: pa.DataType, path: tuple[str, ...]) -> tuple[tuple[Kind, ...], int]:
    """Return the buffers of a type with a size of its own, and the bits per value of its DATA buffer (else 0)."""
    where = ".".join(path)
    if type_.id == pa.lib.Type_FIXED_SIZE_LIST:
        what, size = "a list", type_.list_size
    elif type_.id == pa.lib.Type_FIXED_SIZE_BINARY:
        what, size = "a binary value", type_.byte_width
    else:
        raise Unsupported(f"columns of type {type_}", where=where)
    if size < 0:
        what = f"{what} of fixed size has a negative one"
        raise InvalidMetadata(what, expected="0 or more", found=size, where=where)
    return (_FIXED_SIZE_LIST, 0) if type_.id == pa.lib.Type_FIXED_SIZE_LIST else (_FIXED_WIDTH, 8 * size)


class Walk:
    """One pass over a schema that collects its nodes."""

    def __init__(
        self,
        schema: pa.Schema,
        ids: Iterator[int],
        limits: Limits,
        depth: int,
        above: tuple[str, ...] = (),
    ) -> None:
        self.schema = schema
        self.nodes: list[Node] = []
        self.columns: list[int] = []
        self.depth = depth
        self.dictionary_ids: list[int] = []
        self.dictionaries: dict[int, Walk] = {}
        self.column_ids: list[tuple[int, ...]] = []
        self.run_ends: list[int] = []
        self.variadic_nodes: list[int] = []
        self.has_vague_types = False
        self._buffers = 0
        self._ids = ids
        self._limits = limits
        self._above = above  # where the dictionary is that this is the schema of
        for column, field in enumerate(schema):
            self.columns.append(len(self.nodes))
            known = len(self.dictionary_ids)
            self._visit(field, (), -1, column, depth + 1)
            self.column_ids.append(tuple(self.dictionary_ids[known:]))

    def _visit(self, field: pa.Field, parents: tuple[str, ...], parent: int, column: int, depth: int) -> None:
        index = len(self.nodes)
        path = (*parents, field.name)
        if depth > self.depth or index >= self._limits.columns:
            if depth > self._limits.depth:
                raise LimitExceeded(
                    "the schema is nested too deeply",
                    expected=f"at most {self._limits.depth} levels",
                    where=f"column {(*self._above, *path)[0]!r}",
                )
            if index >= self._limits.columns:
                raise LimitExceeded(
                    "the schema has too many fields",
                    expected=f"at most {self._limits.columns}",
                    where=".".join((*self._above, *path)),
                )
            self.depth = max(self.depth, depth)
        type_ = field.type
        if isinstance(type_, pa.BaseExtensionType):
            type_ = storage_type(type_)
            # Around an extension type, pyarrow takes lists of other sizes and dictionaries of other indices for
            # equal; and those that are defined in Python, whatever their parameters are.
            self.has_vague_types |= parent >= 0 or isinstance(field.type, pa.ExtensionType)
        dictionary_id = dictionary_type = None
        if type_.id == DICTIONARY:
            dictionary_id, dictionary_type = self._dictionary(type_, path, depth)
            type_ = type_.index_type
        id_ = type_.id
        kinds, width = _PHYSICAL.get(id_) or _physical(type_, path)
        node = Node(
            path, type_, parent, column, self._buffers, kinds, width, field.nullable, (), index + 1,
            dictionary_id, dictionary_type,
        )  # fmt: skip
        self.nodes.append(node)
        self._buffers += len(kinds)
        if id_ in _VIEWED:
            self.variadic_nodes.append(index)
        elif id_ in _NESTED:
            children = []
            for position in range(type_.num_fields):
                children.append(len(self.nodes))
                self._visit(type_.field(position), path, index, column, depth + 1)
            if id_ == pa.lib.Type_RUN_END_ENCODED:
                self.run_ends.append(index)
            self.nodes[index] = node._replace(children=tuple(children), end=len(self.nodes))

    def _dictionary(
        self, type_: pa.DictionaryType, path: tuple[str, ...], depth: int
    ) -> tuple[int, pa.DataType]:
        id_ = next(self._ids, None)
        if id_ is None:
            raise InvalidMetadata("a dictionary-encoded field has no dictionary id", where=".".join(path))
        value_type = type_.value_type
        if storage_type(value_type).id == DICTIONARY:
            raise Unsupported("a dictionary whose values are dictionary-encoded", where=".".join(path))
        schema = pa.schema([pa.field("values", value_type)])
        values = Walk(schema, self._ids, self._limits, depth, (*self._above, *path))
        if values.has_vague_types or isinstance(value_type, pa.BaseExtensionType):
            self.has_vague_types = True
        known = self.dictionaries.get(id_)
        if known is not None and not known.schema.field(0).type.equals(value_type):
            raise InvalidMetadata(
                f"fields that share dictionary {id_} differ in the type of its values",
                expected=known.schema.field(0).type,
                found=value_type,
                where=".".join(path),
            )
        self.depth = max(self.depth, values.depth)
        self.dictionary_ids.append(id_)
        self.dictionary_ids.extend(values.dictionary_ids)
        self.dictionaries.update(values.dictionaries)
        self.dictionaries[id_] = values
        return id_, value_type
