"""Writing streams: every buffer at a multiple of 64 bytes, in encodings that any reader of Vortex has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch, Column
from bowstring.columnar.nodes import Kind as BufferKind
from bowstring.columnar.parts import batch_parts
from bowstring.columnar.slice import compacted
from bowstring.errors import ClosedError, InvalidBody, LimitExceeded, UsageError
from bowstring.files import FileWriter, Target
from bowstring.ipc.framing import write_all
from bowstring.kernels import bitmap
from bowstring.limits import DEFAULT_LIMITS
from bowstring.vortex.batch import EncodedBatch
from bowstring.vortex.compress.columns import compressed
from bowstring.vortex.dtype import (
    PTYPES,
    TIMESTAMP,
    DType,
    Kind,
    encode_dtype,
    of_schema,
    primitive,
    to_schema,
)
from bowstring.vortex.message import Message, MessageKind, Piece, array_message, encode_message, number_piece
from bowstring.vortex.protobuf import encode_numbers
from bowstring.vortex.stream import encoded_batches, is_messages, messages_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.columnar.nodes import Node
    from bowstring.memory import Buffer

_MOST_ROWS: Final = (1 << 32) - 1
_DECIMAL_WIDTHS: Final = {32: 2, 64: 3, 128: 4, 256: 5}
_NARROW: Final = (BufferKind.OFFSETS32, BufferKind.STARTS32, BufferKind.SIZES32)


def new_stream(sink: Any, schema: pa.Schema, *, compress: bool = False) -> VortexWriter:
    """Begin a Vortex IPC stream.

    Buffers begin at multiples of 64 bytes, in encodings that readers since Vortex 0.54 know. By default they are
    written as they are; dictionaries and runs stay encoded.

    Parameters
    ----------
    sink
        A path, or a binary file opened for writing. What a path names is replaced when the writer is closed, and
        stays if an error leaves the ``with`` block; readers of it go on.
    schema
        Of all batches to come. Metadata are not written, but for the name and the metadata of an extension type.
        That of :func:`to_messages` stands for the batches that are encoded in it: these are written as they are.
    compress
        Encode each column of each batch in the way that takes the fewest bytes, by what a sample of its rows and
        its bounds tell: in few bits, as dictionaries, runs, or constants, decimals in floats as integers, text by
        symbols. This takes time, and the reader's too; values stay the same in every bit.

    Raises
    ------
    Unsupported
        Vortex has no type for a column: maps, unions, durations, intervals, binary of a fixed size that is not a
        UUID.

    Examples
    --------
    >>> import bowstring as bow, io
    >>> sink = io.BytesIO()
    >>> with bow.vortex.new_stream(sink, pa.schema({"a": pa.int64()})) as writer:
    ...     writer.write_batch(pa.record_batch({"a": [1, 2]}))
    >>> bow.vortex.open_stream(sink.getvalue()).read_all().num_rows
    2
    """
    return VortexWriter(sink, schema, compress=compress)


class VortexWriter(FileWriter):
    """Writes batches to a stream; parameters are those of :func:`new_stream`.

    Attributes
    ----------
    schema : pyarrow.Schema
    """

    def __init__(self, sink: Any, schema: pa.Schema, *, compress: bool = False) -> None:
        if not isinstance(schema, pa.Schema):
            raise UsageError("not a schema", expected="pyarrow.Schema", found=type(schema).__name__)
        self._compresses = compress
        self.schema = schema
        self._forwards = is_messages(schema)
        self.dtype = messages_dtype(schema) if self._forwards else of_schema(schema)
        data = encode_dtype(self.dtype)
        self._target = Target(sink)
        self._closed = False
        self._put([encode_message(Message(MessageKind.DTYPE, len(data))), data])

    def write(self, table_or_batch: Any) -> None:
        """Write a batch, or a pyarrow table."""
        if isinstance(table_or_batch, pa.Table):
            self.write_table(table_or_batch)
        else:
            self.write_batch(table_or_batch)

    def write_table(self, table: pa.Table, max_chunksize: int | None = None) -> None:
        """Write a pyarrow table, one batch per chunk.

        Parameters
        ----------
        table
            Of the schema.
        max_chunksize
            Most rows per batch.

        Raises
        ------
        BowstringError
            As :meth:`write_batch`.

        Examples
        --------
        >>> import bowstring as bow, io
        >>> table = pa.table({"a": [1, 2, 3]})
        >>> sink = io.BytesIO()
        >>> with bow.vortex.new_stream(sink, table.schema) as writer:
        ...     writer.write_table(table, max_chunksize=2)
        >>> [batch.num_rows for batch in bow.vortex.open_stream(sink.getvalue())]
        [2, 1]
        """
        for batch in table.to_batches(max_chunksize=max_chunksize):
            self.write_batch(batch)

    def write_batch(self, batch: Any) -> None:
        """Write a batch.

        Parameters
        ----------
        batch
            A Batch, anything that ``Batch.from_arrow`` takes, or an :class:`EncodedBatch` of the same type, whose
            bytes are written as they are.

        Raises
        ------
        UsageError
            The batch has another schema.
        InvalidBody
            A column that is not nullable has nulls.
        LimitExceeded
            It has 2³² rows or more, a buffer of 4 GiB or more, or takes more memory than there is.
        ClosedError
            The writer was closed.
        """
        if self._closed:
            raise ClosedError("the writer was closed")
        if isinstance(batch, EncodedBatch):
            self._forward(batch)
            return
        if not isinstance(batch, Batch):
            batch = Batch.from_arrow(batch)
        if not batch.schema.equals(self.schema):
            raise UsageError(
                "the batch has another schema than the stream", expected=self.schema, found=batch.schema
            )
        if self._forwards:
            for each in encoded_batches(batch, self.dtype, to_schema(self.dtype), DEFAULT_LIMITS):
                self._forward(each)
            return
        if batch.num_rows > _MOST_ROWS:
            raise UsageError("a message holds fewer rows", expected=_MOST_ROWS, found=batch.num_rows)
        try:
            host = compacted(batch.to_device("cpu"))
            writer = _Columns(host, compresses=self._compresses)
            fields = zip(host.layout.columns, self.dtype.children, strict=True)
            columns = [writer.node(index, inner) for index, inner in fields]
            message = array_message(Piece("vortex.struct", children=tuple(columns)), batch.num_rows)
        except MemoryError as error:
            raise LimitExceeded(
                "a batch does not fit into memory when it is encoded",
                found=str(error),
                hint="Write it in slices of fewer rows.",
            ) from error
        self._put(message)

    def close(self) -> None:
        """Finish the stream; then a path names what was written. Idempotent."""
        if not self._closed:
            self._closed = True
            self._target.finish()

    def abort(self) -> None:
        """Write nothing more. What a path named before stays. Idempotent."""
        self._closed = True
        self._target.discard()

    def _forward(self, batch: EncodedBatch) -> None:
        if batch.dtype != self.dtype:
            raise UsageError(
                "the batch has another type than the stream", expected=str(self.dtype), found=str(batch.dtype)
            )
        self._put([encode_message(batch.message), batch.buffer.to_host()])

    def _put(self, parts: Sequence[Any]) -> None:
        try:
            for part in parts:
                if len(part):
                    write_all(self._target.file, part)
        except BaseException:
            self.abort()  # nothing can follow a part of a message
            raise


class _Columns:
    """Makes pieces of the nodes of a batch."""

    def __init__(self, batch: Batch, *, compresses: bool) -> None:
        self._batch = batch
        self._compresses = compresses
        self._first = batch.layout.first_buffers(batch_parts(batch).variadic_counts)

    def node(self, index: int, dtype: DType) -> Piece:
        node = self._batch.layout.nodes[index]
        rows = int(batch_parts(self._batch).nodes[index, 0])
        if dtype.kind is Kind.EXTENSION:
            if dtype.id == TIMESTAMP and pa.types.is_timestamp(node.type):
                numbers = self._array(index, 1, np.int64, rows)
                whole = number_piece(numbers, self._validity(index, dtype, rows))
                return self._encoded(Piece("vortex.ext", children=(whole,)), dtype, rows)
            return Piece("vortex.ext", children=(self.node(index, dtype.children[0]),))
        if node.dictionary_id is not None:
            return self._dictionary(index, node, dtype, rows)
        if pa.types.is_run_end_encoded(node.type):
            return self._runs(node, dtype, rows)
        return self._canonical(index, node, dtype, rows)

    def _encoded(self, piece: Piece, dtype: DType, rows: int) -> Piece:
        return compressed(piece, dtype, rows) if self._compresses else piece

    def _canonical(self, index: int, node: Node, dtype: DType, rows: int) -> Piece:
        kind = dtype.kind
        if kind is Kind.NULL:
            return Piece("vortex.null")
        tail = self._validity(index, dtype, rows)
        if kind is Kind.BOOL:
            bits = self._array(index, 1, np.uint8, bitmap.bytes_for(rows))
            return self._encoded(Piece("vortex.bool", buffers=((bits, 1),), children=tail), dtype, rows)
        if kind is Kind.PRIMITIVE:
            return self._encoded(number_piece(self._array(index, 1, dtype.numpy, rows), tail), dtype, rows)
        if kind is Kind.DECIMAL:
            metadata = encode_numbers(_DECIMAL_WIDTHS[node.bits])
            data = self._array(index, 1, np.uint8, rows * node.width)
            return self._encoded(Piece("vortex.decimal", metadata, ((data, node.width),), tail), dtype, rows)
        if kind in (Kind.UTF8, Kind.BINARY):
            return self._encoded(self._text(index, node, rows, tail), dtype, rows)
        children = list(zip(node.children, dtype.children, strict=bool(node.children)))
        if kind is Kind.STRUCT:
            fields = tuple(self.node(child, inner) for child, inner in children)
            return Piece("vortex.struct", children=(*tail, *fields))
        if children:
            elements = self.node(*children[0])
        else:  # UUIDs, which Arrow has as bytes of a fixed size
            data = self._array(index, 1, np.uint8, rows * dtype.size)
            elements = self._encoded(number_piece(data), dtype.children[0], rows * dtype.size)
        if kind is Kind.FIXED_SIZE_LIST:
            return Piece("vortex.fixed_size_list", children=(elements, *tail))
        return self._list(index, node, rows, elements, tail)

    def _list(self, index: int, node: Node, rows: int, elements: Piece, tail: tuple[Piece, ...]) -> Piece:
        num_elements = int(batch_parts(self._batch).nodes[node.children[0], 0])
        integer = np.dtype("<i4" if node.buffer_kinds[1] in _NARROW else "<i8")
        fields = [num_elements, PTYPES.index(integer)]
        if node.buffer_kinds[1] not in (BufferKind.STARTS32, BufferKind.STARTS64):
            offsets = self._integers(index, 1, integer, rows + 1)
            return Piece("vortex.list", encode_numbers(*fields), (), (elements, offsets, *tail))
        metadata = encode_numbers(*fields, PTYPES.index(integer))
        both = (self._integers(index, at, integer, rows) for at in (1, 2))
        return Piece("vortex.listview", metadata, (), (elements, *both, *tail))

    def _text(self, index: int, node: Node, rows: int, tail: tuple[Piece, ...]) -> Piece:
        if node.variadic:
            fixed = len(node.buffer_kinds)
            count = int(self._first[index + 1] - self._first[index]) - fixed
            data = tuple((self._array(index, fixed + at, np.uint8, None), 1) for at in range(count))
            views = self._array(index, 1, np.uint8, 16 * rows)
            return Piece("vortex.varbinview", b"", (*data, (views, 16)), tail)
        integer = np.dtype("<i4" if node.buffer_kinds[1] in _NARROW else "<i8")
        offsets = self._array(index, 1, integer, rows + 1)
        metadata = encode_numbers(PTYPES.index(integer))
        return Piece(
            "vortex.varbin",
            metadata,
            ((self._array(index, 2, np.uint8, None), 1),),
            (number_piece(offsets), *tail),
        )

    def _dictionary(self, index: int, node: Node, dtype: DType, rows: int) -> Piece:
        assert node.dictionary_id is not None
        values = self._batch.dictionaries[node.dictionary_id].values
        # Codes are unsigned: an index is never negative, but in null rows, where it may be anything.
        codes = self._array(index, 1, np.dtype(f"<u{node.width}"), rows)
        metadata = encode_numbers(values.num_rows, PTYPES.index(codes.dtype), dtype.nullable)
        children = (
            self._encoded(number_piece(codes, self._validity(index, dtype, rows)), dtype, rows),
            _Columns(values, compresses=self._compresses).node(values.layout.columns[0], dtype),
        )
        return Piece("vortex.dict", metadata, (), children)

    def _runs(self, node: Node, dtype: DType, rows: int) -> Piece:
        ends_at, values_at = node.children
        width = self._batch.layout.nodes[ends_at].width
        count = int(batch_parts(self._batch).nodes[ends_at, 0])
        ends = self._array(ends_at, 1, np.dtype(f"<u{width}"), count)
        if rows and count:  # the last run of a slice may end behind it
            count = int(np.searchsorted(ends, rows)) + 1
            ends = np.minimum(ends[:count], rows).astype(ends.dtype)
        metadata = encode_numbers(PTYPES.index(ends.dtype), count, 0)
        field = pa.field("values", self._batch.layout.nodes[values_at].type)
        values = compacted(Column._at(self._batch, values_at, field).as_batch().slice(0, count))
        inside = _Columns(values, compresses=self._compresses).node(values.layout.columns[0], dtype)
        children = self._encoded(number_piece(ends), primitive(ends.dtype.str[1:]), count), inside
        return Piece("vortex.runend", metadata, (), children)

    def _validity(self, index: int, dtype: DType, rows: int) -> tuple[Piece, ...]:
        """Return the validity as the last child of a node, or nothing."""
        buffer = self._buffer(index, 0)
        if buffer is None:
            return ()
        bits = buffer.to_host()
        if dtype.nullable:
            return (Piece("vortex.bool", buffers=((bits[: bitmap.bytes_for(rows)], 1),)),)
        if int(bitmap.count_set(bits, 0, rows)[0]) < rows:
            where = ".".join(self._batch.layout.nodes[index].path)
            raise InvalidBody("a column that is not nullable has nulls", where=where)
        return ()

    def _buffer(self, index: int, at: int) -> Buffer | None:
        return self._batch.buffers[int(self._first[index]) + at]

    def _integers(self, index: int, at: int, dtype: Any, count: int) -> Piece:
        return self._encoded(
            number_piece(self._array(index, at, dtype, count)), primitive(dtype.str[1:]), count
        )

    def _array(self, index: int, at: int, dtype: Any, count: int | None) -> Any:
        """Return a buffer as so many elements, or as all; one that is absent, as of no rows, has zeros."""
        buffer = self._buffer(index, at)
        return np.zeros(count or 0, dtype) if buffer is None else buffer.to_host(dtype)[:count]
