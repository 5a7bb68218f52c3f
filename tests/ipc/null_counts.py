"""Streams with other null counts in their metadata: none, whatever the bitmaps hold, or not known."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from bowstring.ipc.flatbuf.message import MessageKind, decode_dictionary, decode_message, decode_record_batch

__all__ = ["stream_without_nulls", "without_nulls"]


def without_nulls(metadata: bytes, count: int = 0) -> bytes:
    """Return the metadata of a message with null counts of 0, or another number."""
    message = decode_message(metadata)
    if message.kind is MessageKind.RECORD_BATCH:
        header = decode_record_batch(message)
    elif message.kind is MessageKind.DICTIONARY_BATCH:
        header = decode_dictionary(message).batch
    else:
        return metadata
    start = header.nodes.__array_interface__["data"][0]
    start -= np.frombuffer(message.data, np.uint8).__array_interface__["data"][0]
    changed = bytearray(metadata)
    nodes = np.frombuffer(changed, np.int64, header.nodes.size, start).reshape(-1, 2)
    assert nodes.tolist() == header.nodes.tolist()
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
