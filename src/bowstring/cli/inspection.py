"""``bowstring inspect``: what a file or a published data set is made of, as a tree or as JSON."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import re
import sys
from typing import TYPE_CHECKING, Final

from bowstring import ipc
from bowstring.cli.arguments import endpoint_with_token, tls_config
from bowstring.cli.facts import Facts, batch_facts, metadata_facts, node_facts, schema_facts, tree_of
from bowstring.cli.files import Format, recognise, vortex
from bowstring.cli.terminal import FAILED, as_json, in_options, print_tree, shown
from bowstring.client import list_datasets
from bowstring.client.opening import InsideOptions, connect
from bowstring.columnar import Layout
from bowstring.columnar.parts import batch_parts
from bowstring.dissociated.endpoint import Dataset, Endpoint
from bowstring.errors import BowstringError, InvalidMetadata, ProtocolError, Unsupported, UsageError
from bowstring.ipc.body.check import check
from bowstring.ipc.flatbuf import message as flat
from bowstring.ipc.flatbuf.schema import decode_schema
from bowstring.ipc.framing import read_metadata
from bowstring.ipc.source import open_source
from bowstring.limits import DEFAULT_LIMITS
from bowstring.parquet.file import OpenFile
from bowstring.parquet.schema import ColumnType, described, read_as

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from bowstring.client.stream import Stream
    from bowstring.dissociated.location import Location
    from bowstring.memory import Region
    from bowstring.transport.certificates import TlsConfig
    from bowstring.vortex import EncodedBatch, Encoding

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+]*:")


def run(arguments: argparse.Namespace) -> int:
    """Look at one file or data set; what could be seen is printed, also where something is wrong further on."""
    source: str = arguments.source
    facts: Facts = {}
    inspect: Callable[[Facts, int], None]  # adds facts until all is seen, or an error is raised
    if _SCHEME.match(source) and not os.path.exists(source):
        tls, name = tls_config(arguments), arguments.name or arguments.ticket
        endpoint = endpoint_with_token(source, name, arguments.token_file, tls)
        inspect = functools.partial(_inspect_source, endpoint, tls)
    elif arguments.name is not None:
        raise UsageError("a file has no data sets with names", found=arguments.name, where=source)
    else:
        file = recognise(source)
        facts |= {"format": file.format.value, "bytes": os.path.getsize(file.path)}
        inspect = functools.partial(_INSPECTIONS[file.format], file.path)
    error = None
    try:
        inspect(facts, arguments.most)
    except BowstringError as found:
        error = found
    if arguments.json:
        print(json.dumps(facts if error is None else {**facts, "error": as_json(error, "inspect")}))
    else:
        print_tree(tree_of(source.partition("?")[0], facts))
    if error is not None:
        print(f"bowstring inspect: {in_options(shown(error), 'inspect')}", file=sys.stderr)
        return FAILED
    return 0


def _inspect_arrow_stream(path: str, facts: Facts, most: int) -> None:
    """Add what a stream holds; `most` record batches are shown with their columns and buffers."""
    messages: list[Facts] = []
    layout: Layout | None = None
    with contextlib.closing(open_source(path)) as source:
        facts |= {"rows": 0, "batches": 0, "dictionary_batches": 0, "schema": []}
        try:
            while True:
                at = source.position
                metadata = read_metadata(source, DEFAULT_LIMITS)
                if metadata is None:
                    break
                message = flat.decode_message(metadata, DEFAULT_LIMITS)
                seen: Facts = {
                    "kind": message.kind.name.lower().replace("_", " "),
                    "at_byte": at,
                    "metadata_bytes": len(metadata),
                    "body_bytes": message.body_length,
                }
                if message.custom_metadata:
                    seen["custom_metadata"] = metadata_facts(message.custom_metadata)
                messages.append(seen)
                layout = _look(message, layout, seen, facts, most)
                source.body(message.body_length)
        finally:
            facts["messages"] = messages
        facts["bytes_read"] = source.position


def _look(message: flat.Message, layout: Layout | None, seen: Facts, facts: Facts, most: int) -> Layout:
    """Add what a message of a stream holds to its facts and to those of the stream; return the stream's layout."""
    if message.kind is flat.MessageKind.SCHEMA:
        schema, _, endianness, layout = decode_schema(message, DEFAULT_LIMITS)
        facts["schema"] = schema_facts(schema)
        if schema.metadata:
            facts["schema_metadata"] = metadata_facts(schema.metadata)
        seen |= {"metadata_version": message.version.name, "endianness": endianness}
        return layout
    if layout is None:
        raise InvalidMetadata("a stream begins with its schema", found=message.kind.name)
    part = layout
    if message.kind is flat.MessageKind.DICTIONARY_BATCH:
        dictionary = flat.decode_dictionary(message)
        if dictionary.id not in layout.dictionaries:
            raise InvalidMetadata("no field has a dictionary of this id", found=f"id {dictionary.id}")
        header, part = dictionary.batch, layout.dictionaries[dictionary.id]
        seen |= {"dictionary": dictionary.id, "is_delta": dictionary.is_delta}
        facts["dictionary_batches"] += 1
    else:
        header = flat.decode_record_batch(message)
        facts["batches"] += 1
        facts["rows"] += header.length
    seen["rows"] = header.length
    if header.compression is not None:
        seen["compression"] = header.compression
    # Bodies of V4, compressed ones and nodes without bitmaps follow rules that only their reader knows.
    elif message.version is flat.MetadataVersion.V5 and not part.bitmapless.size:
        check(header, part, message.body_length)
    if facts["batches"] > most:
        return layout
    sizes = header.buffers[:, 1].tolist()
    fits = len(sizes) == part.num_buffers + sum(header.variadic_counts)
    if fits and len(header.nodes) == part.num_nodes:
        seen["columns"] = node_facts(part, header.nodes, sizes, header.variadic_counts)
    else:
        seen["buffers"] = [{"kind": "unknown", "bytes": nbytes} for nbytes in sizes]
    return layout


def _inspect_arrow_file(path: str, facts: Facts, most: int) -> None:
    """Add what a file holds; `most` record batches are opened."""
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


def _inspect_parquet(path: str, facts: Facts, most: int) -> None:
    """Add what the footer of a Parquet file says; `most` row groups are shown with their columns."""
    with contextlib.closing(OpenFile(path)) as file:
        footer = file.metadata
        if most:
            file.check_chunks(range(footer.num_columns))
        groups = [_row_group(file, index, most) for index in range(footer.num_row_groups)]
        facts |= {
            "rows": footer.num_rows,
            "footer_bytes": footer.serialized_size,
            "format_version": footer.format_version,
            "created_by": footer.created_by,
            "schema": schema_facts(file.schema),
            "stored_columns": [_stored(each) for each in described(file).columns],
            "row_groups": groups,
        }


def _stored(column: ColumnType) -> Facts:
    facts: Facts = {"name": ".".join(column.path), "type": column.physical or "group"}
    if column.logical is not None:
        facts["logical_type"] = column.logical
    return {**facts, "repetition": column.repetition, "read_as": read_as(column)}


def _row_group(file: OpenFile, index: int, most: int) -> Facts:
    group = file.metadata.row_group(index)
    facts: Facts = {
        "name": f"row group {index}",
        "rows": group.num_rows,
        "uncompressed_bytes": group.total_byte_size,
    }
    if index < most:
        facts["columns"] = columns = []
        for leaf in range(group.num_columns):
            chunk, statistics = file.column_chunk(index, leaf), file.statistics(index, leaf)
            column: Facts = {
                "name": chunk.path_in_schema,
                "type": chunk.physical_type,
                "compression": chunk.compression,
                "encodings": " ".join(dict.fromkeys(chunk.encodings)),
                "compressed_bytes": chunk.total_compressed_size,
                "uncompressed_bytes": chunk.total_uncompressed_size,
            }
            if statistics is not None and statistics.has_null_count:
                column["nulls"] = statistics.null_count
            columns.append(column)
    return facts


def _inspect_vortex_stream(path: str, facts: Facts, most: int) -> None:
    """Add each message and the tree of encodings of `most` batches; nothing is decoded."""
    messages: list[Facts] = []
    rows = 0
    with contextlib.closing(vortex().open_stream(path)) as stream:
        try:
            for batch in stream:
                messages.append(_array_message(batch, shown=len(messages) < most))
                rows += batch.num_rows
        finally:
            facts |= {
                "rows": rows,
                "batches": len(messages),
                "type": str(stream.dtype),
                "schema": schema_facts(stream.schema),
                "messages": messages,
            }


def _array_message(batch: EncodedBatch, *, shown: bool) -> Facts:
    facts: Facts = {
        "kind": "array",
        "rows": batch.num_rows,
        "body_bytes": batch.buffer.nbytes,
        "buffer_bytes": batch.nbytes,
    }
    if shown:
        facts["columns"] = [
            {
                "name": field.name,
                "type": str(field.type),
                "children": [_encoding_tree(batch.encoding(position))],
            }
            for position, field in enumerate(batch.schema)
        ]
    return facts


def _encoding_tree(encoding: Encoding) -> Facts:
    facts: Facts = {"name": encoding.id, "bytes": encoding.nbytes}
    if encoding.children:
        facts["children"] = [_encoding_tree(child) for child in encoding.children]
    return facts


def _inspect_source(source: Endpoint | Dataset, tls: TlsConfig | None, facts: Facts, most: int) -> None:
    """Add what an endpoint is, or what a data set says of itself and its first endpoint is."""
    if isinstance(source, Endpoint):
        _inspect_endpoint(source, tls, facts, most)
        return
    facts["endpoints"] = len(source)
    if source.endpoints:
        _inspect_endpoint(source.endpoints[0], tls, facts, most)
    facts |= {"rows": source.num_rows, "bytes": source.nbytes, "schema": schema_facts(source.schema)}


def _inspect_endpoint(endpoint: Endpoint, tls: TlsConfig | None, facts: Facts, most: int) -> None:
    """Add what an endpoint is, and `most` of its batches where its server shows them without counting a reader."""
    if any(each.by_flight for each in endpoint.offers):
        facts["offers"] = [each.address for each in endpoint.offers]
    else:
        facts["connections"] = [_location(location) for location in endpoint.locations]
    facts["ticket"] = endpoint.ticket.decode(errors="replace")
    facts["ticket_base64"] = base64.urlsafe_b64encode(endpoint.ticket).decode()
    try:
        stream = connect(endpoint, tls=tls, options=InsideOptions(looks=True))
    except (ProtocolError, Unsupported) as error:
        facts |= _listed(endpoint, tls)
        facts["not_read"] = error.what
        return
    with stream:
        _add_batches(stream, facts, most)


def _listed(endpoint: Endpoint, tls: TlsConfig | None) -> Facts:
    """Return what the list of a server says of an endpoint; nothing where it has no list."""
    with contextlib.suppress(ProtocolError, Unsupported):
        for info in list_datasets(str(endpoint), tls=tls):
            if endpoint.ticket in (info.ticket, info.name.encode()):
                return {"rows": info.num_rows, "bytes": info.nbytes, "schema": schema_facts(info.schema)}
    return {}


def _location(location: Location) -> Facts:
    return {
        "name": location.address,
        "want_data": location.want_data,
        "free_data": location.free_data,
        "hello": location.hello,
        "extensions": location.hello is not None,
        "token": location.token is not None,
        "remote_handle": location.remote_handle is not None,
    }


def _add_batches(stream: Stream, facts: Facts, most: int) -> None:
    fetched: list[Facts] = []
    regions: dict[bytes, Region] = {}
    for index in range(most):
        batch = next(stream, None)
        if batch is None:
            break
        fetched.append({"name": f"batch {index}", "device": batch.device.name, **batch_facts(batch)})
        regions |= {
            region.uuid: region for region in batch_parts(batch).spans.regions if region.slab is not None
        }
        del batch  # its memory goes home before the next one is asked for
    # Only now, since over two connections the server's answer may come after the schema.
    stats = stream.stats
    facts |= {
        "path": stats.path,
        "why": stats.why,
        "rows": getattr(stream, "num_rows", None),
        "batches": getattr(stream, "num_batches", None),
        "bytes": getattr(stream, "nbytes", None),
        "schema": schema_facts(stream.schema),
        "fetched_batches": fetched,
        "regions": [_region(region) for region in regions.values()],
    }


def _region(region: Region) -> Facts:
    # What this process made is where packed bodies landed; what it only reads is the producer's.
    own = region.slab is not None and region.slab.writable
    return {
        "name": region.uuid.hex(),
        "device": region.device.name,
        "bytes": region.nbytes,
        "memory_of": "this process" if own else "the producer",
    }


_INSPECTIONS: Final = {
    Format.ARROW_FILE: _inspect_arrow_file,
    Format.ARROW_STREAM: _inspect_arrow_stream,
    Format.PARQUET: _inspect_parquet,
    Format.VORTEX_STREAM: _inspect_vortex_stream,
}
