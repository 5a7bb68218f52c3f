"""Functions over whole Variant columns, beside what Python, pyarrow and orjson do with the same documents."""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from bowstring import variant
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.data.payload import read_every_byte
from bowstring.benchmarks.data.variant_rows import Documents, documents, json_lines
from bowstring.benchmarks.processes import cores
from bowstring.columnar.batch import Column

_FULL: Final = 8 << 20
_QUICK: Final = 1 << 20
_SEED: Final = 31
_ELEMENTS: Final = 10
_SUBJECT: Final = "bowstring, one core"
_FLOOR: Final = "every byte of the values read"


class Function(NamedTuple):
    """One function over a column."""

    name: str
    column: Column
    work: Callable[[], Any]
    others: Mapping[str, Callable[[], Any]]  # what else does it, by name; the first is the baseline
    shown: Callable[[Any], str]  # returns what came of any of them, in few words
    times: float  # as fast as the baseline, at least


def _loads() -> dict[str, Callable[[str], Any]]:
    """Return the readers of JSON that are here; the first is Python's own."""
    return {"json.loads": json.loads} | (
        {"orjson.loads": import_module("orjson").loads} if find_spec("orjson") else {}
    )


def _by_each(work: Callable[[Callable[[str], Any]], Any]) -> dict[str, Callable[[], Any]]:
    return {name: (lambda loads=loads: work(loads)) for name, loads in _loads().items()}  # type: ignore[misc]  # a lambda with a default


def _values_of(column: Column) -> np.ndarray[Any, Any]:
    array = column.child("value").to_arrow()
    return np.frombuffer(array.buffers()[2], np.uint8)[: int(pc.sum(pc.binary_length(array)).as_py())]


def _validate(docs: Documents, column: Column) -> Function:
    """Every value looked at; and in each sample, a wrong byte in the last row has to be found."""
    metadata, value = (column.child(name).to_arrow() for name in ("metadata", "value"))
    _, offsets, encoded = value.buffers()
    data = bytearray(encoded)
    data[np.frombuffer(offsets, np.int32)[len(value) - 1]] = 0xFF
    wrong = pa.Array.from_buffers(value.type, len(value), [None, offsets, pa.py_buffer(bytes(data))])
    spoiled = pa.StructArray.from_arrays([metadata, wrong], ["metadata", "value"])

    def shown(found: Any) -> str:
        if not isinstance(found, Column):
            return f"{len(docs.texts)} right; a wrong byte is found: True"
        right = int((found.values == 0).sum())
        last = int(variant.validate(spoiled, plain=True).values[-1])
        return f"{right} right; a wrong byte is found: {last not in (0, 1, 2)}"

    # Objects are dropped at once: to keep them costs as much again, in the garbage collector.
    others = _by_each(lambda loads: [loads(text) is None for text in docs.texts])
    return Function("validate", column, lambda: variant.validate(column), others, shown, 5)


def _schema_of(docs: Documents, column: Column) -> Function:
    objects = [json.loads(text) for text in docs.texts]

    def shown(found: pa.DataType) -> str:
        user = found.field("user").type  # numbers differ: Variants of JSON text have decimals
        return f"{sorted(found.names)}, {sorted(user.names)}, {user.field('tags').type}, {found.field('ok').type}"

    others = {
        f"{name}, pyarrow.infer_type": call
        for name, call in _by_each(lambda loads: pa.infer_type([loads(text) for text in docs.texts])).items()
    }
    others["pyarrow.infer_type of objects"] = lambda: pa.infer_type(objects)
    lines = pa.py_buffer("\n".join(docs.texts).encode())
    alone = pa.json.ReadOptions(use_threads=False)
    others["pyarrow.json.read_json"] = lambda: pa.struct(
        list(pa.json.read_json(pa.BufferReader(lines), alone).schema)
    )
    return Function("schema_of", column, lambda: variant.schema_of(column), others, shown, 2)


def _keys(docs: Documents, column: Column) -> Function:
    def shown(found: Any) -> str:
        rows = found.to_pylist() if isinstance(found, Column) else found
        return f"{len(rows)} rows, {sum(map(len, rows))} keys, {rows[0]}, {rows[-1]}"

    others = _by_each(lambda loads: [sorted(loads(text)) for text in docs.texts])
    return Function("keys", column, lambda: variant.keys(column), others, shown, 5)


def _explode(size: int) -> Function:
    drawn = random.Random(_SEED)
    lists = [[drawn.getrandbits(31) for _ in range(_ELEMENTS)] for _ in range(size // (5 * _ELEMENTS))]
    texts = [json.dumps(each) for each in lists]
    column = variant.from_python(lists)

    def shown(found: Any) -> str:
        if isinstance(found, list):
            rows, children = [row for row, _ in found], [child for _, child in found]
        else:
            rows = found["row"].to_pylist()
            children = variant.get(found["value"], "$", pa.int64()).to_pylist()
        return f"{len(rows)} children of {len(set(rows))} rows, sum {sum(children)}"

    others = _by_each(lambda loads: [(row, child) for row, text in enumerate(texts) for child in loads(text)])
    return Function("explode", column, lambda: variant.explode(column), others, shown, 1.5)


def _small(size: int) -> list[dict[str, Any]]:
    """Return documents of four fields."""
    drawn = random.Random(_SEED)
    return [
        {
            "id": row,
            "name": f"user {drawn.randrange(5000)}",
            "score": drawn.random(),
            "ok": drawn.random() < 1 / 2,
        }
        for row in range(size // 60)
    ]


def _from_python(size: int) -> Function:
    objects = _small(size)
    column = variant.from_python(objects)

    def shown(found: Any) -> str:
        if isinstance(found, Column):
            found = variant.to_python(found)
        elif isinstance(found, pa.Array):
            found = found.to_pylist()
        else:
            found = [json.loads(text) for text in found.getvalue()[: found.tell()].splitlines()]
        return f"equal: {found == objects}"

    sink = io.BytesIO()
    others: dict[str, Callable[[], Any]] = {
        "json.dumps": lambda: json_lines(objects, lambda each: json.dumps(each).encode(), sink)
    }
    if find_spec("orjson"):
        dumps = import_module("orjson").dumps
        others["orjson.dumps"] = lambda: json_lines(objects, dumps, sink)
    others["pyarrow.array"] = lambda: pa.array(objects)
    return Function("from_python", column, lambda: variant.from_python(objects), others, shown, 0.8)


def _to_python(size: int) -> Function:
    objects = _small(size)
    column, texts, structs = (
        variant.from_python(objects),
        [json.dumps(each) for each in objects],
        pa.array(objects),
    )
    others = _by_each(lambda loads: [loads(text) for text in texts])
    others["to_pylist of pyarrow"] = structs.to_pylist
    return Function(
        "to_python",
        column,
        lambda: variant.to_python(column),
        others,
        lambda found: f"equal: {found == objects}",
        0.4,
    )


def _equals(docs: Documents, column: Column) -> Function:
    """The same documents with their fields in another order, and one that differs."""
    turned = [dict(reversed(json.loads(text).items())) for text in docs.texts]
    turned[-1]["count"] = -1
    texts = [json.dumps(each) for each in turned]
    other = variant.from_json(pa.array(texts))

    def shown(found: Any) -> str:
        rows = found.to_pylist() if isinstance(found, Column) else found
        return f"{rows.count(True)} equal, the last: {rows[-1]}"

    others = _by_each(
        lambda loads: [loads(one) == loads(two) for one, two in zip(docs.texts, texts, strict=True)]
    )
    return Function("equals", column, lambda: variant.equals(column, other), others, shown, 3)


def _timed(work: Callable[[], Any], shown: Callable[[Any], str], expected: str) -> Measured:
    with cores.threads(1):
        begin = time.perf_counter()
        found = work()
        seconds = time.perf_counter() - begin
    return Measured(seconds, expected, shown(found))


def _floor(values: np.ndarray[Any, Any]) -> Measured:
    begin = time.perf_counter()
    read_every_byte([values])
    return Measured(time.perf_counter() - begin, "", "")


def _line_up(scale: Scale, each: Function) -> LineUp:
    values = _values_of(each.column)
    baseline = next(iter(each.others))
    expected = each.shown(each.others[baseline]())
    ways = [
        Way(
            _SUBJECT,
            "subject",
            lambda: _timed(each.work, each.shown, expected),
            values.nbytes,
            baseline,
            _FLOOR,
        ),
        *(
            Way(
                name,
                "baseline" if name == baseline else "beside",
                lambda work=work: _timed(work, each.shown, expected),  # type: ignore[misc]  # a lambda with a default
                values.nbytes,
            )
            for name, work in each.others.items()
        ),
        Way(_FLOOR, "floor", lambda: _floor(values), values.nbytes),
    ]
    return LineUp(
        f"{each.name}, {len(each.column):,} rows, {values.nbytes / 1e6:.0f} MB of values",
        tuple(ways),
        scale.rounds(9, 3),
        (Target(_SUBJECT, "at least", each.times, baseline),),
    )


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    if not find_spec("orjson"):
        yield Skipped("beside orjson", "not installed: orjson")
    size = _QUICK if scale.quick else _FULL
    docs = documents(size)
    column = variant.from_json(docs.array)
    for of_documents in (_validate, _schema_of, _keys, _equals):
        yield _line_up(scale, of_documents(docs, column))
    for of_size in (_explode, _from_python, _to_python):
        yield _line_up(scale, of_size(size))


CASE: Final = Case(
    "variant_functions",
    "Variants validated, described, exploded, compared, from Python and back",
    _line_ups,
    Explanation(
        measured=(
            "One call each of validate, schema_of, keys and equals on a column of documents, explode on "
            "arrays of ten numbers, and from_python and to_python of documents of four fields, on one core."
        ),
        baseline=(
            "The same on JSON text by Python's json, document by document; for schema_of, with pyarrow's "
            "type of the objects. For from_python, JSON Lines written to memory. Beside it: orjson where it "
            "is installed; pyarrow.json, infer_type of objects that are there, array and to_pylist, which need "
            "the same type in all documents."
        ),
        floor="Every byte of the values read.",
        reading=(
            "JSON is parsed before anything is known of it, Variants are not. Making Python objects, or reading "
            "them, is all that from_python and to_python do: orjson and pyarrow are faster there. The rate is "
            "that of the encoded values, in each way. variant_shredded measures shred and unshred."
        ),
    ),
)
