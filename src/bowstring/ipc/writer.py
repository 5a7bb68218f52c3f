"""What writers of streams and of files have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
from pyarrow.ipc import WriteStats

from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import batch_parts
from bowstring.columnar.slice import compacted
from bowstring.errors import ClosedError, UsageError
from bowstring.files import FileWriter, Target
from bowstring.ipc.body.encode import SMALL_BODY, BatchEncoder, Encoded
from bowstring.ipc.body.pack import pack
from bowstring.ipc.dictionary.reader import Arrival
from bowstring.ipc.dictionary.writer import has_grown, same_values
from bowstring.ipc.flatbuf.footer import Block
from bowstring.ipc.flatbuf.message import MessageKind, MetadataVersion, with_bitmaps_of_4
from bowstring.ipc.flatbuf.schema import check_dictionaries, encode_schema
from bowstring.ipc.flatbuf.template import Template
from bowstring.ipc.framing import end_of_stream, frame, write_all
from bowstring.ipc.options import IpcWriteOptions

_LONGEST = (1 << 31) - 1


class RecordBatchWriter(FileWriter):
    """Writes batches of one schema.

    The bodies go from the batches' own buffers to the sink, each placed at a multiple of 64 bytes. What a path
    named before is replaced when the writer is closed, and stays where an error leaves the ``with`` block.

    Parameters
    ----------
    sink, schema, options
        As of `new_stream`.
    """

    _start: ClassVar[bytes] = b""  # what comes before the first message
    _blocks: dict[MessageKind, list[Block]] | None = None  # of a file: where its messages are

    def __init__(self, sink: Any, schema: pa.Schema, *, options: Any = None) -> None:
        if not isinstance(schema, pa.Schema):
            raise UsageError("not a schema", expected="pyarrow.Schema", found=type(schema).__name__)
        self._options = IpcWriteOptions.of(options)
        codec = self._options.compression
        self._codec = pa.Codec(codec) if isinstance(codec, str) else codec
        version = self._options.metadata_version
        self.schema = schema
        self.layout = Layout.of(schema)
        check_dictionaries(self.layout)
        self._schema_message = encode_schema(schema, version=version)
        self._template = Template(self.layout, version)
        self._encoder = None
        if version is MetadataVersion.V5 and not self._options.use_legacy_format:
            use_threads = self._options.use_threads
            self._encoder = BatchEncoder.of(self._template, self._codec, use_threads=use_threads)
        # Dictionaries are compared as ours; types that pyarrow takes for equal may lie differently.
        is_plain = not (self.layout.dictionaries or self.layout.has_vague_types)
        self._struct_encoder = self._encoder if is_plain else None
        self._written: dict[int, Batch] = {}  # the values of each dictionary as they were written last
        self._arrivals: list[Arrival] = []
        self._num_batches = 0
        self._position = 0
        self._target = Target(sink)
        self._sink = self._target.file
        self._closed = False
        is_legacy = self._options.use_legacy_format
        first = frame(self._schema_message, len(self._start), is_legacy=is_legacy)
        self._put(None, Encoded([self._start + first], 0, 0))

    @property
    def stats(self) -> WriteStats:
        """What was written so far, the schema and dictionaries included."""
        arrivals = self._arrivals
        return WriteStats(
            1 + len(arrivals) + self._num_batches,
            self._num_batches,
            len(arrivals),
            arrivals.count(Arrival.DELTA),
            arrivals.count(Arrival.REPLACEMENT),
        )

    def write(self, table_or_batch: Any) -> None:
        """Write a Batch, or a pyarrow record batch or table."""
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
        """
        for batch in table.to_batches(max_chunksize=max_chunksize):
            self.write_batch(batch)

    def write_batch(self, batch: Any, custom_metadata: Mapping[Any, Any] | None = None) -> None:
        """Write a batch, and before it those of its dictionaries that have changed.

        Parameters
        ----------
        batch
            A Batch, or anything that ``Batch.from_arrow`` takes.
        custom_metadata
            Key-value pairs for the message, text or bytes; without them, those of the batch.

        Raises
        ------
        UsageError
            The batch has another schema, more than 2³¹ - 1 rows without the option ``allow_64bit``, or in a file
            a dictionary that replaces an earlier one.
        ClosedError
            The writer was closed.
        """
        if self._closed:
            raise ClosedError("the writer was closed")
        if self.layout.dictionaries:
            batch = self._checked(batch)
            self._write_dictionaries(batch)
        self._put(MessageKind.RECORD_BATCH, self._encoded(batch, custom_metadata))
        self._num_batches += 1

    def _encoded(self, batch: Any, custom_metadata: Mapping[Any, Any] | None = None) -> Encoded:
        encoded = None
        if self._struct_encoder is not None and isinstance(batch, pa.RecordBatch) and not custom_metadata:
            encoded = self._struct_encoder.encode(batch) if batch.schema.equals(self.schema) else None
        if encoded is None:
            batch = self._checked(batch)
            custom_metadata = custom_metadata or batch.custom_metadata
            encoded = None if custom_metadata or self._encoder is None else self._encoder.encode(batch)
        return encoded or self._packed(batch, self._template, custom_metadata)

    def close(self) -> None:
        """Write what comes behind the last batch; then a path names what was written. Idempotent."""
        if self._closed:
            return
        try:
            self._put(None, Encoded([end_of_stream(is_legacy=self._options.use_legacy_format)], 0, 0))
            self._put_end()
            self._closed = True
            self._target.finish()
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Write nothing more, above all no end. What a path named before stays. Idempotent."""
        self._closed = True
        self._target.discard()

    def _put_end(self) -> None:
        """Write what comes behind the end marker."""

    def _checked(self, batch: Any) -> Batch:
        ours = batch if isinstance(batch, Batch) else Batch.from_arrow(batch)
        if ours.layout is not self.layout and not (
            ours.schema.equals(self.schema) and ours.layout.is_like(self.layout)
        ):
            raise UsageError(
                "the batch has another schema than what it is written to",
                expected=self.schema,
                found=ours.schema,
            )
        return ours

    def _write_dictionaries(self, batch: Batch) -> None:
        """Write those of a batch that changed, inner ones before those that use them."""
        names = dict(zip(self.layout.dictionary_ids, batch.layout.dictionary_ids, strict=True))
        replaced: set[int] = set()
        for id_, layout in self.layout.dictionaries.items():
            values = batch.dictionaries[names[id_]].values
            new, known, arrival = values, self._written.get(id_), Arrival.NEW
            if known is not None:
                # Positions in an inner dictionary mean something else once that is replaced.
                if replaced.isdisjoint(layout.dictionaries) and same_values(known, values):
                    continue
                if self._options.emit_dictionary_deltas and has_grown(known, values):
                    new, arrival = values.slice(known.num_rows), Arrival.DELTA
                elif self._blocks is None:
                    arrival = Arrival.REPLACEMENT
                    replaced.add(id_)
                else:
                    raise UsageError(
                        "a file cannot replace a dictionary that was written for an earlier batch",
                        found=f"dictionary {id_} of {values.schema.field(0).type}",
                        hint="Write the table at once with IpcWriteOptions(unify_dictionaries=True), let"
                        " dictionaries only grow (emit_dictionary_deltas=True), or write a stream.",
                    )
            template = Template(layout, self._options.metadata_version)
            message = self._packed(new, template, dictionary=(id_, arrival is Arrival.DELTA))
            self._put(MessageKind.DICTIONARY_BATCH, message)
            self._arrivals.append(arrival)
            self._written[id_] = values

    def _packed(
        self,
        batch: Batch,
        template: Template,
        custom_metadata: Mapping[Any, Any] | None = None,
        dictionary: tuple[int, bool] | None = None,
    ) -> Encoded:
        """Return the message of a batch, or of a dictionary's values, the general way."""
        parts = batch_parts(batch)
        longest = int(parts.nodes[:, 0].max()) if len(parts.nodes) else 0
        if longest > _LONGEST and not self._options.allow_64bit:
            raise UsageError(
                "a column has more slots than 32 bits can count",
                expected=f"at most {_LONGEST}",
                found=longest,
                hint="IpcWriteOptions(allow_64bit=True) writes it all the same.",
            )
        # A slice is written without the bytes and children that it left out.
        packed = pack(compacted(batch), self._codec, use_threads=self._options.use_threads)
        if self._options.metadata_version is MetadataVersion.V4:
            buffers = with_bitmaps_of_4(packed.buffers, batch.layout, parts.variadic_counts)
            packed = packed._replace(buffers=buffers)
        metadata = template.encode_batch(
            batch.num_rows,
            packed.nodes,
            packed.buffers,
            packed.body_length,
            parts.variadic_counts,
            custom_metadata,
            self._options.codec_name,
            dictionary,
        )
        first = frame(metadata, self._position, is_legacy=self._options.use_legacy_format)
        pieces = [first, *packed.pieces]
        if packed.body_length <= SMALL_BODY:
            pieces = [b"".join(pieces)]
        return Encoded(pieces, len(first), packed.body_length)

    def _put(self, kind: MessageKind | None, message: Encoded) -> None:
        """Write a message, or other bytes."""
        start = self._position
        try:
            self._position += write_all(self._sink, *message.pieces)
        except BaseException:
            self.abort()  # nothing can follow a part of a message
            raise
        if kind is not None and self._blocks is not None:
            self._blocks[kind].append(Block(start, message.head, message.body))
