"""Files and streams that the tests of ``bow.ipc`` write, by pyarrow and by Bowstring."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from bowstring import ipc
from bowstring.errors import BowstringError

__all__ = ["SAMPLE", "by_bowstring", "by_pyarrow", "growing", "messages", "verdict"]

SAMPLE = pa.table(
    {
        "number": pa.array([1, None, 3], pa.int64()),
        "text": ["x", None, "yz"],
        "tags": [["a"], None, ["b", "c"]],
        "word": pa.array(["p", "q", "p"]).dictionary_encode(),
        "view": pa.array(["x" * 20, "y", None], pa.string_view()),
        "union": pa.UnionArray.from_dense(
            pa.array([0, 1, 0], pa.int8()),
            pa.array([0, 0, 1], pa.int32()),
            [pa.array([1, 2]), pa.array(["z"])],
        ),
        "amount": pa.array([1, None, 3], pa.decimal128(20, 2)),
    }
)
"""One batch with a column of each kind of layout that options treat in their own way."""


def _written(new: Callable[..., Any], batches: Iterable[Any], schema: pa.Schema, **details: Any) -> bytes:
    sink = io.BytesIO()
    with new(sink, schema, **details) as writer:
        for batch in batches:
            writer.write(batch)
    return sink.getvalue()


def by_pyarrow(data: Any, *, kind: str = "file", metadata: Any = None, **options: Any) -> bytes:
    """Return a table, or a list of batches, as a file (or ``kind="stream"``) of pyarrow's."""
    new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    details = {"metadata": metadata} if metadata else {}
    return _whole(new, data, options=pa.ipc.IpcWriteOptions(**options), **details)


def by_bowstring(data: Any, *, kind: str = "file", metadata: Any = None, **options: Any) -> bytes:
    """Return a table, or a list of batches, as a file (or ``kind="stream"``) of ours."""
    new = ipc.new_file if kind == "file" else ipc.new_stream
    details = {"metadata": metadata} if metadata else {}
    return _whole(new, data, options=ipc.IpcWriteOptions(**options), **details)


def _whole(new: Callable[..., Any], data: Any, **details: Any) -> bytes:
    if isinstance(data, pa.Table):
        return _written(new, [data], data.schema, **details)
    return _written(new, data, data[0].schema, **details)


def growing(*words: list[str]) -> pa.Table:
    """Return a table of one dictionary-encoded column, one chunk and one dictionary for each list."""
    chunks = [pa.array(each, pa.string()).dictionary_encode() for each in words]
    return pa.table({"d": pa.chunked_array(chunks)})


def messages(stream: bytes) -> list[bytes]:
    """Return the messages of a stream, each with its framing and body."""
    reader = pa.ipc.MessageReader.open_stream(stream)
    return [message.serialize().to_pybytes() for message in reader]


def verdict(data: bytes, module: Any, kind: str = "stream") -> pa.Table | None:
    """Return what ``pyarrow.ipc`` or ours makes of bytes that may be anything; nothing where it refuses them."""
    try:
        table = (module.open_file if kind == "file" else module.open_stream)(data).read_all()
        table.validate(full=True)
    except (BowstringError, pa.ArrowException, OSError, ValueError) as error:
        if module is ipc and not isinstance(error, BowstringError | pa.ArrowInvalid):
            raise
        return None
    return table
