"""A server or a reader in a process of its own, of this build or of an earlier one.

``program.py serve ADDRESS`` publishes every data set of :func:`datasets`; ``program.py read`` reads what it is
asked for. Both take one JSON object on each line of their input and answer with one. Everything here goes by
the public interface of Bowstring as it was at commit 6da4e3a.
"""

from __future__ import annotations

import functools
import inspect
import io
import json
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

import bowstring as bow

__all__ = ["FAILURE", "TABLES", "TOKEN", "datasets"]

FAILURE: Final = "the third batch cannot be made"
TOKEN: Final = "a-token-of-more-than-32-characters-for-tests"
_WORDS: Final = ["one", "two", None, "four", "five", "six"]
_ROWS: Final = 5000
_SECONDS: Final = 30.0


def _dictionaries(*values: list[str | None]) -> pa.ChunkedArray:
    """Return one chunk for each list of dictionary values, which uses all of them."""
    made = [
        pa.DictionaryArray.from_arrays(
            pa.array([*range(len(each)), None], pa.int8()), pa.array(each, pa.string())
        )
        for each in values
    ]
    return pa.chunked_array(made)


def _leaves() -> dict[str, pa.Array]:
    numbers = [0, None, 100]
    found = {str(type_): pa.array(numbers, type_) for type_ in _numbers()}
    # Whole microseconds, as Python's own types have no less.
    found |= {str(type_): pa.array([0, None, 1000], type_) for type_ in _times()}
    found |= {str(type_): pa.array([b"", None, b"twelve bytes and more"], type_) for type_ in _bytes()}
    found |= {str(type_): pa.array(["", None, "zwölf Bytes und mehr"], type_) for type_ in _texts()}
    found["bool"] = pa.array([True, None, False])
    found["null"] = pa.nulls(3)
    found["fixed_size_binary"] = pa.array([b"12345", None, b"54321"], pa.binary(5))
    found["interval"] = pa.array([(1, 2, 3), None, (-1, 0, 5)], pa.month_day_nano_interval())
    found["uuid"] = pa.array([uuid.UUID(int=7).bytes, None, uuid.UUID(int=8).bytes], pa.uuid())
    return found


def _numbers() -> list[pa.DataType]:
    plain = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
    decimals = [pa.decimal32(7, 2), pa.decimal64(15, 3), pa.decimal128(30, 4), pa.decimal256(60, 5)]
    return [*plain, pa.float16(), pa.float32(), pa.float64(), *decimals]


def _times() -> list[pa.DataType]:
    found = [
        pa.date32(),
        pa.time32("s"),
        pa.time64("ns"),
        pa.timestamp("us", "Europe/Zurich"),
        pa.timestamp("ns"),
    ]
    return [*found, pa.duration("ms")]


def _bytes() -> list[pa.DataType]:
    return [pa.binary(), pa.large_binary(), pa.binary_view()]


def _texts() -> list[pa.DataType]:
    return [pa.string(), pa.large_string(), pa.string_view()]


def _nested() -> dict[str, pa.Array]:
    lists = [[1, None], None, []]
    ids = pa.array([0, 1, 0], pa.int8())
    children = [pa.array([1, 2, None]), pa.array(["a", None, "c"])]
    return {
        **{
            make.__name__: pa.array(lists, make(pa.int32()))
            for make in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)
        },
        "fixed_size_list": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int64(), 2)),
        "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
        "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int16())),
        "sparse_union": pa.UnionArray.from_sparse(ids, children),
        "dense_union": pa.UnionArray.from_dense(ids, pa.array([0, 0, 1], pa.int32()), children),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["x", None])),
        "dictionary": pa.array(["x", None, "x"]).dictionary_encode(),
        "list_of_dictionaries": pa.ListArray.from_arrays(
            pa.array([0, 2, 2, 3], pa.int32()), pa.array(["x", "y", "x"]).dictionary_encode()
        ),
    }


def _tables() -> dict[str, pa.Table]:
    types = pa.record_batch({**_leaves(), **_nested()})
    numbers = [
        pa.record_batch({"n": pa.array(range(start, start + _ROWS))}) for start in range(0, 8 * _ROWS, _ROWS)
    ]
    growing = pa.table({"d": _dictionaries(_WORDS[:1], _WORDS[:3], _WORDS)})
    changing = pa.table({"d": _dictionaries(["a", "b"], ["c"], ["b", "a", "d"])})
    metadata = pa.schema([pa.field("s", pa.string(), metadata={"of": "the field"})], {"of": "the schema"})
    return {
        "types": pa.Table.from_batches([types, types.slice(1, 2), types.slice(0, 0)]),
        "numbers": pa.Table.from_batches(numbers),
        "growing dictionary": growing,
        "changing dictionary": changing,
        "no rows": pa.Table.from_batches([], types.schema),
        "no columns": pa.table({}),
        "Zürich / ?&=#%20": pa.table({"s": ["x", None]}, schema=metadata),
    }


TABLES: Final = _tables()


def datasets() -> dict[str, Callable[[], Any]]:
    """Return what makes each data set that a server publishes."""
    made: dict[str, Callable[[], Any]] = {name: functools.partial(_table, name) for name in TABLES}
    made |= {f"lazy {name}": functools.partial(_reader, table) for name, table in TABLES.items()}
    made |= {f"{codec} file": functools.partial(_file, codec) for codec in ("lz4", "zstd")}
    made["once"] = made["numbers"]
    made["failing"] = lambda: pa.RecordBatchReader.from_batches(TABLES["numbers"].schema, _failing())
    return made


def _table(name: str) -> pa.Table:
    return TABLES[name]


def _reader(table: pa.Table) -> Callable[[], pa.RecordBatchReader]:
    return lambda: pa.RecordBatchReader.from_batches(table.schema, table.to_batches())


def _file(codec: str) -> Any:
    sink = io.BytesIO()
    table = TABLES["numbers"]
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)
    return bow.ipc.open_file(sink.getvalue())


def _failing() -> Iterator[pa.RecordBatch]:
    yield from TABLES["numbers"].to_batches()[:2]
    raise ArithmeticError(FAILURE)


def _serve(address: str) -> None:
    scheme, separate = address.removesuffix("+separate"), address.endswith("+separate")
    token = TOKEN if scheme.startswith("tcp") else None
    with bow.Server(scheme, token=token) as server:
        endpoints = {}
        for name, make in datasets().items():
            # What is produced lazily goes over one connection.
            two = separate and name in (*TABLES, "once")
            endpoints[name] = str(
                server.publish(name, make(), separate=two, readers=1 if name == "once" else None)
            )
        print(json.dumps(endpoints), flush=True)
        for line in sys.stdin:
            server.wait_released(json.loads(line)["released"], timeout=_SECONDS)
            print(json.dumps({"released": True}), flush=True)


def _write(batches: list[Any], schema: pa.Schema, path: str) -> None:
    """Write what was read, batch by batch, so that each keeps its own dictionaries."""
    with pa.ipc.new_stream(path, schema) as writer:
        for batch in batches:
            batch.validate(full=True)
            writer.write_batch(batch.to_arrow())


def _source(asked: dict[str, Any]) -> Any:
    """Return an endpoint, or the data set of several."""
    if "uris" not in asked:
        return asked["uri"]
    endpoints = tuple(map(bow.Endpoint.parse, asked["uris"]))
    with bow.connect(endpoints[0]) as stream:
        return bow.Dataset(endpoints, stream.schema)


def _read() -> None:
    limits = bow.Limits(connect_timeout=_SECONDS, reply_timeout=_SECONDS, stall_timeout=_SECONDS)
    kept: dict[str, tuple[list[Any], pa.Schema]] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        said: dict[str, Any] = {}
        options = asked.get("options", {})
        if "name" in options and "name" not in inspect.signature(bow.connect).parameters:
            options["ticket"] = options.pop("name")  # as the earlier build has it
        try:
            if "kept" in asked:
                _write(*kept.pop(asked["kept"]), asked["to"])
            else:
                with bow.connect(_source(asked), limits=limits, **options) as stream:
                    said["path"] = stream.stats.path
                    batches = [stream.read_next_batch()] if asked.get("first") else list(stream)
                    schema = stream.schema
                if "keep" in asked:
                    kept[asked["keep"]] = batches, schema
                else:
                    _write(batches, schema, asked["to"])
                del batches
        except bow.BowstringError as error:
            said |= {"error": type(error).__name__, "what": str(error)}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    print(json.dumps({"build": bow.__file__}), flush=True)
    if sys.argv[1] == "serve":
        _serve(sys.argv[2])
    else:
        _read()
