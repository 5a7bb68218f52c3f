"""Streams with other null counts in their metadata: none, whatever the bitmaps hold, or not known."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tests.ipc.flatbuffers import record_batch_of

__all__ = ["stream_without_nulls", "without_nulls"]


def without_nulls(metadata: bytes, count: int = 0) -> bytes:
    """Return the metadata of a message with null counts of 0, or another number."""
    batch = record_batch_of(metadata)
    if batch is None:
        return metadata
    start, length = batch.vector(1)
    changed = bytearray(metadata)
    nodes = np.frombuffer(changed, np.int64, 2 * length, start).reshape(-1, 2)
    nodes[:, 1] = count
    return bytes(changed)


def stream_without_nulls(stream: bytes, count: int = 0) -> bytes:
    """Return a stream with null counts of 0, or another number, in all its messages."""
    at = 0
    for message in pa.ipc.MessageReader.open_stream(stream):
        metadata = message.metadata.to_pybytes()
        at = stream.index(metadata, at)
        stream = stream[:at] + without_nulls(metadata, count) + stream[at + len(metadata) :]
        at += len(metadata)
    return stream
