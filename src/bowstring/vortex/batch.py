"""Batches that stay encoded until a column is asked for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, SupportsIndex

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.lookup import column_index
from bowstring.columnar.parts import make_batch
from bowstring.columnar.validation import check_once
from bowstring.errors import BowstringError, LimitExceeded
from bowstring.ipc.flatbuf.reader import Tables
from bowstring.memory.devices import device_named
from bowstring.vortex.dtype import DType, Kind
from bowstring.vortex.message import Body, exact_stats, read_body
from bowstring.vortex.program import Source, decode_columns
from bowstring.vortex.rules.canonical import struct_children
from bowstring.vortex.rules.structural import chunks
from bowstring.vortex.values import Values, concatenated, size_of, to_batch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bowstring.columnar.batch import Column
    from bowstring.columnar.parts import Validated
    from bowstring.limits import Limits
    from bowstring.memory import Buffer, Device
    from bowstring.vortex.decode import Decoder
    from bowstring.vortex.message import ArrayNode, Message

_BYTES = Layout.of(pa.schema([pa.field("body", pa.uint8(), nullable=False)]))


@dataclasses.dataclass(frozen=True, slots=True)
class Encoding:
    """How an array is encoded: a node of the tree of encodings.

    Attributes
    ----------
    id
        Of the encoding, such as ``"fastlanes.bitpacked"``.
    own_nbytes
        Bytes of the node's own buffers, as they are stored.
    children : tuple of Encoding
    stats : dict
        What the producer declares as exact: ``min``, ``max``, ``sum`` as encoded scalars, ``is_sorted``,
        ``is_strict_sorted``, ``is_constant``. Nothing is computed from them.
    """

    id: str
    own_nbytes: int
    children: tuple[Encoding, ...] = ()
    stats: dict[str, bytes | bool] = dataclasses.field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers of this node and of all below it."""
        return self.own_nbytes + sum(child.nbytes for child in self.children)

    def __str__(self) -> str:
        name = self.id.rpartition(".")[2] if self.id.count(".") == 1 else self.id
        return f"{name}({', '.join(map(str, self.children))})" if self.children else name


class EncodedBatch:
    """Rows of a Vortex stream, encoded as they were sent; a column is decoded each time that it is asked for.

    From :func:`bowstring.vortex.open_stream` or :func:`bowstring.vortex.from_messages`. Decoding runs where the
    batch is: on the host, or on a device.

    Attributes
    ----------
    num_rows : int
    schema : pyarrow.Schema
        Of the columns when they are decoded. Text and binary are views.
    device : Device
        Where the encoded bytes are.
    dtype
        The type that Vortex has for the whole.

    Examples
    --------
    >>> import bowstring as bow, io, pyarrow as pa
    >>> sink = io.BytesIO()
    >>> with bow.vortex.new_stream(sink, pa.schema({"a": pa.int64()})) as writer:
    ...     writer.write_batch(pa.record_batch({"a": [1, 2]}))
    >>> batch = bow.vortex.open_stream(sink.getvalue()).read_next_batch()
    >>> batch, str(batch.encoding("a")), batch["a"].values.tolist()
    (<EncodedBatch 2 rows × 1 columns, 16 bytes on cpu>, 'primitive', [1, 2])
    """

    __slots__ = (
        "__weakref__",
        "_limits",
        "_parsed",
        "_validate",
        "buffer",
        "dtype",
        "message",
        "num_rows",
        "schema",
    )

    def __init__(
        self,
        message: Message,
        buffer: Buffer,
        dtype: DType,
        schema: pa.Schema,
        limits: Limits,
        validate: Validated,
    ) -> None:
        self.message = message
        self.buffer = buffer
        self.dtype = dtype
        self.schema = schema
        self.num_rows = message.row_count
        self._limits = limits
        self._validate = validate
        self._parsed: Body | None = None

    @property
    def device(self) -> Device:
        """Where the encoded bytes are."""
        return self.buffer.device

    @property
    def num_columns(self) -> int:
        """Number of columns."""
        return len(self.schema)

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, as they are encoded."""
        return sum(stored.nbytes for stored in self._body().stored)

    def encoding(self, key: str | SupportsIndex | None = None) -> Encoding:
        """Return how a column is encoded.

        Parameters
        ----------
        key
            Name or position of a column; without it, how the whole batch is.

        Returns
        -------
        Encoding
            Of a batch in chunks, the column of the first: see ``encoding()`` for all.

        Raises
        ------
        UnknownColumn
            There is no such column.
        InvalidData
            The tree of encodings is malformed.
        """
        node, tables = self._body().root, Tables(self._body().flatbuffer)
        if key is None or not self._is_struct:
            if key is not None:
                column_index(self.schema, key)
            return self._described(node, tables)
        index = column_index(self.schema, key)
        while node.encoding == "vortex.chunked" and len(node.children) > 1:
            node = node.children[1]
        if node.encoding == "vortex.struct":
            node = node.children[struct_children(node, self.dtype) + index]
        return self._described(node, tables)

    def __getitem__(self, key: str | SupportsIndex) -> Column:
        index = column_index(self.schema, key)
        return self.decode([index])[0]

    def decode(self, columns: Iterable[str | int] | None = None, device: Device | str | None = None) -> Batch:
        """Decode columns.

        Parameters
        ----------
        columns
            Names or positions; all by default.
        device
            Where to decode, such as ``"cuda:0"``: encoded bytes are copied there first. By default where they are.

        Raises
        ------
        Unsupported
            A column has an encoding that is not known; the message names it.
        InvalidData
            A column is not encoded as its encoding says.
        LimitExceeded
            A column would take too much memory for the size of its message (``Limits.decompression_ratio``), or
            more than there is.
        UnknownColumn
            There is no such column.
        MissingDependency
            An encoding needs a package that is not installed.

        Examples
        --------
        >>> import bowstring as bow, io, pyarrow as pa
        >>> sink = io.BytesIO()
        >>> with bow.vortex.new_stream(sink, pa.schema({"a": pa.int64(), "b": pa.string()})) as writer:
        ...     writer.write_batch(pa.record_batch({"a": [1], "b": ["x"]}))
        >>> bow.vortex.open_stream(sink.getvalue()).read_next_batch().decode(["b"]).to_arrow().to_pydict()
        {'b': ['x']}
        """
        if device is not None:
            return self.to_device(device).decode(columns)
        indices = range(len(self.schema)) if columns is None else columns
        chosen = [column_index(self.schema, each) for each in indices]
        try:
            with self.device.use():
                source = Source(
                    *(self.message, self.buffer, self.dtype, self._is_struct),
                    *(self.schema, self._limits, self._body, self._column),
                )
                schema = pa.schema([self.schema.field(index) for index in chosen])
                parts, regions = decode_columns(source, chosen)
                batch = to_batch(parts, regions, schema, self.num_rows, self.device)
        except MemoryError as error:
            raise LimitExceeded(
                "a batch does not fit into memory when it is decoded",
                found=str(error),
                hint="Decode fewer columns, or lower Limits.decompression_floor and decompression_ratio.",
            ) from error
        return check_once(batch) if self._validate == "full" else batch

    def to_device(self, device: Device | str) -> EncodedBatch:
        """Return the batch on a device, still encoded: itself where it is there already, else a copy."""
        target = device_named(device)
        if target is self.device:
            return self
        # As a column, which can be moved between devices.
        nbytes = self.buffer.nbytes
        nodes, buffers = np.array([[nbytes, 0]], np.int64), [None, self.buffer]
        column = make_batch(Batch, _BYTES, nbytes, nodes, buffers, device=self.device)
        moved = column.to_device(target).buffers[1]
        assert moved is not None  # a body has 4 bytes at least
        return EncodedBatch(self.message, moved, self.dtype, self.schema, self._limits, self._validate)

    def to_arrow(self) -> pa.RecordBatch:
        """Decode all columns and return them as a ``pyarrow.RecordBatch``."""
        return self.decode().to_arrow()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Decode all columns and return them by the Arrow PyCapsule interface."""
        capsules: tuple[object, object] = self.to_arrow().__arrow_c_array__(requested_schema)
        return capsules

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __len__(self) -> int:
        return self.num_rows

    __iter__ = None  # as of a Batch: len() counts rows

    def __repr__(self) -> str:
        try:
            size = f"{self.nbytes} bytes"
        except BowstringError:
            size = "malformed,"
        return (
            f"<EncodedBatch {self.num_rows} rows × {self.num_columns} columns, {size} on {self.device.name}>"
        )

    @property
    def _is_struct(self) -> bool:
        return self.dtype.kind is Kind.STRUCT and not self.dtype.nullable

    def _body(self) -> Body:
        if self._parsed is None:
            self._parsed = read_body(self.message, self.buffer, self._limits)
        return self._parsed

    def _described(self, node: ArrayNode, tables: Tables) -> Encoding:
        stored = self._body().stored
        own = sum(stored[index].nbytes for index in node.buffers if index < len(stored))
        children = tuple(self._described(child, tables) for child in node.children)
        return Encoding(node.encoding, own, children, exact_stats(tables, node))

    def _column(self, decoder: Decoder, index: int) -> Values:
        """Return a decoded column, without decoding others where the batch is a struct, or chunks of structs."""
        root, where = decoder.body.root, self.schema.field(index).name
        if not self._is_struct:
            values = decoder.decode(root, self.dtype, decoder.rows)
        else:
            values = self._field(decoder, root, index, decoder.rows)
        decoder.finish(where)
        return values

    def _field(self, decoder: Decoder, node: ArrayNode, index: int, rows: int) -> Values:
        dtype = self.dtype.children[index]
        if node.encoding == "vortex.struct":
            return decoder.child(node, struct_children(node, self.dtype) + index, dtype, rows)
        if node.encoding == "vortex.chunked":
            parts = [
                self._field(decoder, child, index, length) for child, length in chunks(decoder, node, rows)
            ]
            if len(parts) > 1:
                decoder.allocate(sum(map(size_of, parts)))
            return concatenated(parts, dtype, decoder.device, decoder.faults)
        return decoder.decode(node, self.dtype, rows).children[index]
