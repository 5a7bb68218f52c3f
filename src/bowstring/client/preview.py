"""What notebooks show of endpoints and data sets: schema, first rows, size and path."""

from __future__ import annotations

import html
from typing import Final

from bowstring.client.names import info_of, list_datasets
from bowstring.client.opening import InsideOptions, connect
from bowstring.client.stream import shown_html, size_shown
from bowstring.columnar.display import SHOWN_ROWS
from bowstring.dissociated.endpoint import Dataset, Endpoint
from bowstring.errors import BowstringError, EndOfStream, ProtocolError, Unsupported
from bowstring.limits import DEFAULT_LIMITS

# A cell of a notebook does not wait long for a server that is gone.
_BRIEF: Final = DEFAULT_LIMITS.replace(connect_timeout=2.0, reply_timeout=2.0)


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
        info = info_of(source, list_datasets(str(source), limits=_BRIEF))
        if info is None:
            return html.escape(f"{source!r}: its server does not offer it any more")
        schema, rows, nbytes = info.schema, info.num_rows, info.nbytes
        first = source if rows else None
    title = f"{repr(source).strip('<>')}: {size_shown(rows, nbytes)}"
    if first is None:
        return shown_html(title, schema, None)
    # Of a large batch that comes as bytes, only the rows that are shown.
    parts = max((rows or 0) // SHOWN_ROWS, 1) if isinstance(source, Endpoint) else 1
    try:
        # What is shown is checked where it is shown.
        shard = (0, parts) if parts > 1 else None
        options = InsideOptions(validate="structure", looks=True)
        stream = connect(first, shard=shard, limits=_BRIEF, options=options)
    except (ProtocolError, Unsupported):
        return shown_html(title, schema, None)
    with stream:
        try:
            batch = stream.read_next_batch()
        except EndOfStream:
            batch = None
        return shown_html(f"{title}{stream.stats.path}", schema, batch, rows)
