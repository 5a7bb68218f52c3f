"""A Vortex IPC stream, message by message, with the tree of encodings of each column; nothing is decoded."""

from __future__ import annotations

import contextlib

from bowstring.cli.inspection.facts import Facts, schema_facts
from bowstring.errors import BowstringError
from bowstring.vortex import EncodedBatch, Encoding, open_stream

__all__ = ["inspect_vortex_stream"]


def inspect_vortex_stream(path: str, most: int) -> tuple[Facts, BowstringError | None]:
    """Return what a stream holds, and the error that ended the look at it, if one did.

    Parameters
    ----------
    path
        The file.
    most
        How many batches are shown with their columns.
    """
    messages: list[Facts] = []
    rows = 0
    error = None
    with contextlib.closing(open_stream(path)) as stream:
        try:
            for batch in stream:
                messages.append(_message(batch, shown=len(messages) < most))
                rows += batch.num_rows
        except BowstringError as found:
            error = found
        facts: Facts = {
            "rows": rows,
            "batches": len(messages),
            "type": str(stream.dtype),
            "schema": schema_facts(stream.schema),
            "messages": messages,
        }
    return facts, error


def _message(batch: EncodedBatch, *, shown: bool) -> Facts:
    facts: Facts = {
        "kind": "array",
        "rows": batch.num_rows,
        "body_bytes": batch.buffer.nbytes,
        "buffer_bytes": batch.nbytes,
    }
    if shown:
        facts["columns"] = [
            {"name": field.name, "type": str(field.type), "children": [_tree(batch.encoding(position))]}
            for position, field in enumerate(batch.schema)
        ]
    return facts


def _tree(encoding: Encoding) -> Facts:
    facts: Facts = {"name": encoding.id, "bytes": encoding.nbytes}
    if encoding.children:
        facts["children"] = [_tree(child) for child in encoding.children]
    return facts
