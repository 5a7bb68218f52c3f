"""What notebooks show of streams, endpoints and data sets: schema, first rows, size and path."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from bowstring.client.names import list_datasets
from bowstring.client.opening import InsideOptions, connect
from bowstring.columnar.batch import Batch
from bowstring.columnar.display import SHOWN_ROWS, table_of_batch
from bowstring.dissociated.endpoint import Dataset, Endpoint
from bowstring.errors import BowstringError, EndOfStream, ProtocolError, Unsupported
from bowstring.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from bowstring.client.stream import Stream

# Whoever looks at a cell of a notebook does not wait long for a server that is gone.
_BRIEF: Final = DEFAULT_LIMITS.replace(connect_timeout=2.0, reply_timeout=2.0)


def stream_html(stream: Stream, name: str) -> str:
    """Return what notebooks show of a stream; nothing of it is read."""
    stats = stream.stats
    size = _size(stream.num_rows, stream.nbytes)
    title = f"{name} of {size}{stats.path}, {stats.batches} batches read"
    return _table(title, stream.schema, stream._peek())


def source_html(source: Endpoint | Dataset) -> str:
    """Return what notebooks show of an endpoint or a data set, with its first rows where its server gives them."""
    try:
        return _shown(source)
    except BowstringError as error:
        return f"<p>{html.escape(repr(source))}</p><p>{html.escape(str(error))}</p>"


def _shown(source: Endpoint | Dataset) -> str:
    if isinstance(source, Dataset):
        schema, rows, nbytes = source.schema, source.num_rows, source.nbytes
        first = source.endpoints[0] if source.endpoints and rows else None
    else:
        found = [
            each for each in list_datasets(str(source), limits=_BRIEF) if source.ticket in _tickets(each)
        ]
        if not found:
            return html.escape(f"{source!r}: its server does not offer it any more")
        schema, rows, nbytes = found[0].schema, found[0].num_rows, found[0].nbytes
        first = source if rows else None
    title = f"{repr(source).strip('<>')}: {_size(rows, nbytes)}"
    if first is None:
        return _table(title, schema, None)
    # Of a large batch that comes as bytes, only the rows that are shown.
    parts = max((rows or 0) // SHOWN_ROWS, 1) if isinstance(source, Endpoint) else 1
    try:
        # What is shown is checked where it is shown.
        shard = (0, parts) if parts > 1 else None
        options = InsideOptions(validate="structure", looks=True)
        stream = connect(first, shard=shard, limits=_BRIEF, options=options)
    except (ProtocolError, Unsupported):
        return _table(title, schema, None)
    with stream:
        try:
            batch = stream.read_next_batch()
        except EndOfStream:
            batch = None
        return _table(f"{title}{stream.stats.path}", schema, batch, rows)


def _tickets(info: object) -> tuple[bytes, bytes]:
    name, ticket = getattr(info, "name", ""), getattr(info, "ticket", b"")
    return name.encode(), ticket


def _size(rows: int | None, nbytes: int | None) -> str:
    known = "" if rows is None else f"{rows:,} rows, "
    return known if nbytes is None else f"{known}{nbytes:,} bytes, "


def _table(title: str, schema: pa.Schema, batch: Batch | None, num_rows: int | None = None) -> str:
    title = title.removesuffix(", ")
    if batch is None:
        batch = Batch.from_arrow(pa.Table.from_batches([], schema=schema))
    return table_of_batch(title, batch, num_rows)
