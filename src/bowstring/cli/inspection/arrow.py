"""Show Arrow files and Arrow streams: messages, buffers and their sizes."""

from __future__ import annotations

from bowstring import ipc
from bowstring.cli.inspection.facts import Facts, batch_facts, metadata_facts, node_facts, schema_facts
from bowstring.columnar import Layout
from bowstring.errors import BowstringError, InvalidMetadata
from bowstring.ipc.body.check_scalar import check
from bowstring.ipc.flatbuf.message import (
    Message,
    MessageKind,
    MetadataVersion,
    RecordBatchHeader,
    decode_dictionary,
    decode_message,
    decode_record_batch,
)
from bowstring.ipc.flatbuf.schema import decode_schema
from bowstring.ipc.framing import read_metadata
from bowstring.ipc.source import Source, open_source
from bowstring.limits import DEFAULT_LIMITS

__all__ = ["inspect_arrow_file", "inspect_arrow_stream"]


def inspect_arrow_stream(path: str, most: int) -> tuple[Facts, BowstringError | None]:
    """Return what a stream holds, and the error that ended the look at it, if one did.

    Parameters
    ----------
    path
        The file.
    most
        How many record batches are shown with their columns and buffers.
    """
    walk = _Walk(most)
    source = open_source(path)
    error = None
    try:
        while walk.step(source):
            pass
    except BowstringError as found:
        error = found
    facts = walk.facts()
    if error is None:
        facts["bytes_read"] = source.position
    source.close()
    return facts, error


class _Walk:
    """What was seen so far."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._layout: Layout | None = None
        self._schema: list[Facts] = []
        self._metadata: dict[str, str] = {}
        self._messages: list[Facts] = []
        self._batches = self._dictionaries = self._rows = 0

    def facts(self) -> Facts:
        """Return it all."""
        found: Facts = {
            "rows": self._rows,
            "batches": self._batches,
            "dictionary_batches": self._dictionaries,
            "schema": self._schema,
        }
        if self._metadata:
            found["schema_metadata"] = self._metadata
        return found | {"messages": self._messages}

    def step(self, source: Source) -> bool:
        """Look at the next message; say whether there was one."""
        at = source.position
        metadata = read_metadata(source, DEFAULT_LIMITS)
        if metadata is None:
            return False
        message = decode_message(metadata, DEFAULT_LIMITS)
        facts: Facts = {
            "kind": message.kind.name.lower().replace("_", " "),
            "at_byte": at,
            "metadata_bytes": len(metadata),
            "body_bytes": message.body_length,
        }
        if message.custom_metadata:
            facts["custom_metadata"] = metadata_facts(message.custom_metadata)
        self._messages.append(facts)
        self._look(message, facts)
        source.body(message.body_length)
        return True

    def _look(self, message: Message, facts: Facts) -> None:
        if message.kind is MessageKind.SCHEMA:
            self._take_schema(message, facts)
        elif self._layout is None:
            raise InvalidMetadata("a stream begins with its schema", found=message.kind.name)
        elif message.kind is MessageKind.DICTIONARY_BATCH:
            dictionary = decode_dictionary(message)
            layout = self._layout.dictionaries.get(dictionary.id)
            if layout is None:
                raise InvalidMetadata("no field has a dictionary of this id", found=f"id {dictionary.id}")
            facts |= {"dictionary": dictionary.id, "is_delta": dictionary.is_delta}
            self._dictionaries += 1
            self._describe(message, dictionary.batch, layout, facts)
        else:
            header = decode_record_batch(message)
            self._batches += 1
            self._rows += header.length
            self._describe(message, header, self._layout, facts)

    def _take_schema(self, message: Message, facts: Facts) -> None:
        schema, ids, endianness = decode_schema(message, DEFAULT_LIMITS)
        self._layout = Layout.of(schema, ids)
        self._schema = schema_facts(schema)
        self._metadata = metadata_facts(schema.metadata or {})
        facts |= {"metadata_version": message.version.name, "endianness": endianness}

    def _describe(self, message: Message, header: RecordBatchHeader, layout: Layout, facts: Facts) -> None:
        facts["rows"] = header.length
        if header.compression is not None:
            facts["compression"] = header.compression
        # Bodies of V4, compressed ones and nodes without bitmaps follow rules that only their reader knows.
        if (
            message.version is MetadataVersion.V5
            and header.compression is None
            and not layout.bitmapless.size
        ):
            check(header, layout, message.body_length)
        if self._batches > self._most:
            return
        sizes = header.buffers[:, 1].tolist()
        fits = len(sizes) == layout.num_buffers + sum(header.variadic_counts)
        if fits and len(header.nodes) == layout.num_nodes:
            facts["columns"] = node_facts(layout, header.nodes, sizes, header.variadic_counts)
        else:
            facts["buffers"] = [{"kind": "unknown", "bytes": nbytes} for nbytes in sizes]


def inspect_arrow_file(path: str, most: int) -> tuple[Facts, BowstringError | None]:
    """Return what a file holds, and the error that ended the look at it, if one did.

    Parameters
    ----------
    path
        The file.
    most
        How many record batches are opened.
    """
    facts: Facts = {}
    try:
        with ipc.open_file(path) as reader:
            facts |= {"batches": reader.num_record_batches, "schema": schema_facts(reader.schema)}
            if reader.schema.metadata:
                facts["schema_metadata"] = metadata_facts(reader.schema.metadata)
            if reader.metadata:
                facts["file_metadata"] = metadata_facts(reader.metadata)
            opened: list[Facts] = []
            facts["opened_batches"] = opened
            for index in range(min(most, reader.num_record_batches)):
                batch = batch_facts(reader.get_batch(index))
                opened.append({"name": f"batch {index}", **batch})
            facts["dictionary_batches_read"] = reader.stats.num_dictionary_batches
    except BowstringError as error:
        return facts, error
    return facts, None
