"""One peer reads what we wrote, in a process of its own: it may fail by ending that.

``python -m tests.conformance.peer PEER`` takes pairs of paths (ours, the golden stream) from its input, one a
line and separated by a tab, and answers each with a line of JSON: null where the peer reads ours as pyarrow
reads the golden one, else what went wrong.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

__all__ = ["PEERS"]


def _pyarrow(data: bytes, *, is_file: bool) -> Any:
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(data).read_all()


def _nanoarrow(data: bytes, *, is_file: bool) -> Any:
    import nanoarrow
    from nanoarrow.ipc import InputStream

    if is_file:
        raise NotImplementedError("nanoarrow has no reader of files")
    return nanoarrow.ArrayStream(InputStream.from_readable(data))


def _arro3(data: bytes, *, is_file: bool) -> Any:
    import arro3.io

    return (arro3.io.read_ipc if is_file else arro3.io.read_ipc_stream)(io.BytesIO(data))


PEERS: Final[dict[str, Callable[..., Any]]] = {"pyarrow": _pyarrow, "nanoarrow": _nanoarrow, "arro3": _arro3}


def _problem(peer: str, ours: str, golden: str) -> str | None:
    with open(ours, "rb") as file:
        data = file.read()
    expected = pa.ipc.open_stream(golden).read_all()
    try:
        found = pa.RecordBatchReader.from_stream(
            PEERS[peer](data, is_file=ours.endswith(".arrow"))
        ).read_all()
    # A panic of Rust is a BaseException.
    except BaseException as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    if not found.schema.equals(expected.schema):
        return f"another schema: {found.schema}"
    if not found.schema.equals(expected.schema, check_metadata=True):
        return f"other metadata: {found.schema}"
    return None if found.equals(expected) or _decoded(found).equals(_decoded(expected)) else "other values"


def _decoded(table: pa.Table) -> pa.Table:
    """Return a table without dictionaries: a file gives each batch the whole one, also what came after it."""
    columns = [
        pa.chunked_array([chunk.dictionary_decode() for chunk in column.chunks], column.type.value_type)
        if pa.types.is_dictionary(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _main() -> None:
    for line in sys.stdin:
        print(json.dumps(_problem(sys.argv[1], *line.rstrip("\n").split("\t"))), flush=True)


if __name__ == "__main__":
    _main()
