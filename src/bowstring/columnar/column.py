"""A column of a batch, or a child of one."""

from __future__ import annotations

from typing import Any, Final, Generic, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.nodes import Kind, Node
from bowstring.columnar.parts import AnyBatch, Parts, batch_parts, derived, nodes_of
from bowstring.errors import UnknownColumn, Unsupported
from bowstring.kernels import bitmap
from bowstring.memory import Buffer

_UNSIGNED: Final = frozenset((pa.lib.Type_UINT8, pa.lib.Type_UINT16, pa.lib.Type_UINT32, pa.lib.Type_UINT64))
_FLOATING: Final = frozenset((pa.lib.Type_HALF_FLOAT, pa.lib.Type_FLOAT, pa.lib.Type_DOUBLE))
_BYTEWISE: Final = frozenset((pa.lib.Type_FIXED_SIZE_BINARY, pa.lib.Type_INTERVAL_DAY_TIME))
_WIDEST_NUMBER: Final = 8


class ColumnData(Generic[AnyBatch]):
    """What a column of a batch, or a child of one, holds where it lies: see :class:`bowstring.Column`."""

    __slots__ = ("_index", "_lent", "_node", "batch", "device", "field")
    batch: AnyBatch
    field: pa.Field

    def __init__(self, batch: AnyBatch, column: int) -> None:
        self._bind(batch, batch.layout.columns[column], batch.schema.field(column))

    def _bind(self, batch: AnyBatch, index: int, field: pa.Field) -> None:
        self.batch = batch
        self.device = batch.device
        self.field = field
        self._index = index
        self._node: Node = batch.layout.nodes[index]

    @property
    def name(self) -> str:
        """Name of the field."""
        return str(self.field.name)

    @property
    def type(self) -> pa.DataType:
        """Type of the field."""
        return self.field.type

    def __len__(self) -> int:
        return int(nodes_of(self.batch)[self._index, 0])

    @property
    def null_count(self) -> int:
        """Number of nulls; counted on first use where it is unknown (one read by the host)."""
        nodes = nodes_of(self.batch)
        if nodes[self._index, 1] < 0:
            validity = self.validity
            length = len(self)
            valid = length
            if validity is not None:
                valid = int(self.device.to_host(bitmap.count_set(validity, 0, length))[0])
            nodes[self._index, 1] = length - valid
        return int(nodes[self._index, 1])

    # What it holds

    def _buffer(self, *kinds: Kind) -> Buffer | None:
        """Return the buffer of one of these kinds, or ``None`` where it is empty."""
        counts = batch_parts(self.batch).variadic_counts
        first = int(self.batch.layout.first_buffers(counts)[self._index])
        for position, kind in enumerate(self._node.buffer_kinds, first):
            if kind in kinds:
                return batch_parts(self.batch).spans[position]
        wanted = " or ".join(kind.name for kind in kinds)
        raise Unsupported(
            f"a column of type {self.type} has no {wanted} buffer",
            where=self.name,
            hint="Use to_arrow(), or the children of a nested column.",
        )

    def _array(self, dtype: npt.DTypeLike, *kinds: Kind) -> Any:
        buffer = self._buffer(*kinds)
        if buffer is not None:
            return buffer.array(dtype)
        with self.device.use():
            return self.device.xp.empty(0, dtype)

    @property
    def raw_values(self) -> Any:
        """What the column's memory holds, as an array of ``device.xp``: a read-only view, null slots included.

        What a null slot holds is not defined; :attr:`validity` says which slots are null.

        Returns
        -------
        array
            Numbers have their own dtype; dates, times, timestamps, durations and narrow decimals are integers
            of their width; dictionary-encoded columns give their indices; text and binary give all bytes as
            uint8, to be used with :attr:`offsets`; anything else of a fixed width has shape (rows, width),
            uint8. Booleans are unpacked, the one case that copies.

        Raises
        ------
        Unsupported
            Nested columns, views and nulls have no memory of their own that is one array.
        """
        length = len(self)
        kinds = self._node.buffer_kinds
        if Kind.BITS in kinds:
            bits = self._array(np.uint8, Kind.BITS)
            return bitmap.expanded(bits, 0, length)
        if Kind.BYTES in kinds:
            return self._array(np.uint8, Kind.BYTES)
        dtype = self._dtype()
        if dtype is not None:
            return self._array(dtype, Kind.DATA)[:length]
        width = self._node.width
        raw = self._array(np.uint8, Kind.DATA)
        return raw[: length * width].reshape(length, width)

    def _dtype(self) -> np.dtype[Any] | None:
        type_id, width = self._node.type.id, self._node.width
        if type_id in _BYTEWISE or not 0 < width <= _WIDEST_NUMBER:
            return None
        letter = "u" if type_id in _UNSIGNED else "f" if type_id in _FLOATING else "i"
        return np.dtype(f"<{letter}{width}")

    @property
    def offsets(self) -> Any:
        """Where each value of text, binary, lists or maps begins, and where the last ends: ``rows + 1`` integers.

        For list views and dense unions: where each slot begins in its child, ``rows`` integers.

        Raises
        ------
        Unsupported
            The column has none.
        """
        narrow = Kind.OFFSETS32 in self._node.buffer_kinds or Kind.STARTS32 in self._node.buffer_kinds
        dtype = np.int32 if narrow else np.int64
        return self._array(dtype, Kind.OFFSETS32, Kind.OFFSETS64, Kind.STARTS32, Kind.STARTS64)

    @property
    def validity(self) -> Any | None:
        """The bitmap as an array of uint8, least significant bit first, or ``None`` where nothing is null."""
        if Kind.VALIDITY not in self._node.buffer_kinds:
            return None
        buffer = self._buffer(Kind.VALIDITY)
        return None if buffer is None else buffer.array()

    @property
    def children(self) -> tuple[Self, ...]:
        """The columns inside a nested one.

        Examples
        --------
        >>> from bowstring.columnar.batch import Batch
        >>> column = Batch.from_arrow({"a": pa.array([[1, 2], [3]])})["a"]
        >>> column.offsets.tolist(), column.children[0].values.tolist()
        ([0, 2, 3], [1, 2, 3])
        """
        type_ = self._node.type
        return tuple(
            self._at(self.batch, index, type_.field(position))
            for position, index in enumerate(self._node.children)
        )

    @classmethod
    def _at(cls, batch: Any, index: int, field: pa.Field) -> Self:
        column = cls.__new__(cls)
        column._bind(batch, index, field)
        return column

    def child(self, key: int | str) -> Self:
        """Return one of :attr:`children`, by position or name.

        Raises
        ------
        UnknownColumn
            There is none, or several have the name.
        """
        children = self.children
        if isinstance(key, str):
            matches = [child for child in children if child.name == key]
        else:
            matches = list(children[key : key + 1]) if key >= 0 else []
        if len(matches) != 1:
            raise UnknownColumn(
                "no such child" if not matches else "several children have this name",
                expected=f"one of {[child.name for child in children]}",
                found=repr(key),
                where=self.name,
            )
        return matches[0]

    @property
    def dictionary(self) -> Self | None:
        """The values of a dictionary-encoded column, else ``None``."""
        if self._node.dictionary_id is None:
            return None
        values = self.batch.dictionaries[self._node.dictionary_id].values
        return self._at(values, values.layout.columns[0], values.schema.field(0))

    def as_batch(self) -> AnyBatch:
        """Return a batch of this column alone, over the same memory."""
        layout, nodes, spans, counts = batch_parts(self.batch)
        first = layout.first_buffers(counts)
        end = self._node.end
        counted = zip(layout.variadic_nodes, counts, strict=True)
        parts = Parts(
            layout.alone(self._index, self.field),
            nodes[self._index : end],
            spans.take(slice(int(first[self._index]), int(first[end]))),
            tuple(count for node, count in counted if self._index <= node < end),
        )
        return derived(self.batch, parts, len(self))
