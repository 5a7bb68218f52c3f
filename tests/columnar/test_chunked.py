"""Chunks that others gave are looked at before pyarrow joins or unifies them, which would follow them anywhere."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring import ipc
from bowstring.columnar import chunked
from bowstring.columnar.batch import Batch, batches
from bowstring.columnar.chunked import combine_chunks, combine_column, unify_dictionaries
from bowstring.errors import InvalidBody

pytestmark = pytest.mark.usefixtures("forked")

FAR: Final = 1 << 30


def _of(type_: pa.DataType, rows: int, *buffers: Any, children: Any = None) -> pa.Array:
    found = [None if each is None else pa.py_buffer(each) for each in (None, *buffers)]
    return pa.Array.from_buffers(type_, rows, found, children=children)


def text() -> pa.Array:
    """Return text of which one lies far outside: the ends are right."""
    return _of(pa.string(), 3, np.array([0, FAR, 3, 3], np.int32), b"abc")


def views() -> pa.Array:
    """Return views of text that name a buffer that there is not."""
    return _of(pa.string_view(), 1, np.array([FAR, 0, 1000, 1000], np.int32), b"abc")


def lists() -> pa.Array:
    """Return views of lists that lie outside their child."""
    starts = np.array([0, FAR], np.int32)
    return _of(pa.list_view(pa.int64()), 2, starts, np.array([1, 8], np.int32), children=[pa.array([1, 2])])


def values() -> pa.Array:
    """Return a dictionary of malformed text."""
    return pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), text())


def indices() -> pa.Array:
    """Return indices that lie outside their dictionary."""
    return pa.DictionaryArray.from_arrays(pa.array([0, FAR], pa.int32()), pa.array(["x", "y"]), safe=False)


def inside() -> pa.Array:
    """Return lists of a malformed dictionary."""
    return pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), values())


def strays() -> pa.Array:
    """Return an index that is null, and lies outside its dictionary."""
    bitmap, found = pa.py_buffer(b"\x01"), pa.py_buffer(np.array([0, FAR], np.int32))
    words = pa.array(["x"] * next(LENGTHS))
    return pa.DictionaryArray.from_buffers(pa.dictionary(pa.int32(), pa.string()), 2, [bitmap, found], words)


def meaningless() -> dict[str, pa.Array]:
    """Return what pyarrow's full validation refuses though it leads nowhere: no UTF-8, and numbers out of range."""
    text = pa.array([b"\xff", b"x"])
    days = pa.array([86_400_001, 5]).view(pa.date64())
    digits = pa.array([(99_999).to_bytes(16, "little"), bytes(16)], pa.binary(16)).view(pa.decimal128(3, 0))
    return {
        "text": text.view(pa.string()),
        "days": days,
        "times": pa.array([86_400, -5], pa.int32()).view(pa.time32("s")),
        "digits": digits,
        "lists": pa.ListArray.from_arrays([0, 1, 2], text.view(pa.string())),
        "maps": pa.array([[("a", b"\xff")], None], pa.map_(pa.string(), pa.binary())),
        "structs": pa.StructArray.from_arrays([days], ["a"]),
        "words": pa.DictionaryArray.from_arrays(pa.array([0, 1]), text.view(pa.string())),
    }


LENGTHS: Final = itertools.count(1)
ALL: Final = {each.__name__: each for each in (text, views, lists, values, indices, inside)}
ENCODED: Final = ("values", "indices", "inside")


def hostile(kind: str) -> pa.Table:
    """Return a table of a good column, and one of two malformed chunks."""
    bad = pa.chunked_array([ALL[kind](), ALL[kind]()])
    return pa.table({"good": pa.nulls(len(bad), pa.int8()), "bad": bad})


def write_unified(table: pa.Table) -> None:
    """Write a file of a table whose dictionaries become one."""
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, table.schema, options=ipc.IpcWriteOptions(unify_dictionaries=True)) as writer:
        writer.write_table(table)


JOINING: Final = {
    "combine_chunks": combine_chunks,
    "combine_column": lambda table: combine_column(table.column("bad"), "bad"),
    "from_arrow": Batch.from_arrow,
    "mapping": lambda table: Batch.from_arrow({"bad": table.column("bad")}),
}
UNIFYING: Final = {"unify_dictionaries": unify_dictionaries, "write_table": write_unified}


def _take_strays() -> None:
    """Take in indices that stray where they are null, and print what comes of them."""
    table = pa.table({"a": pa.chunked_array([strays(), strays()])})
    print([batch.to_arrow().to_pydict()["a"] for batch in batches(table)[1]])
    print(Batch.from_arrow(table).to_arrow().to_pydict()["a"])
    lists = [pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), strays()) for _ in range(2)]
    table = pa.table({"a": pa.chunked_array(lists)})
    print([batch.to_arrow().to_pydict()["a"] for batch in batches(table)[1]])


def _try(road: str, kinds: str) -> None:
    """Print what comes of a road for some kinds of malformed chunks."""
    roads: dict[str, Callable[[pa.Table], object]] = {
        **JOINING,
        **UNIFYING,
        "taken": lambda table: list(batches(table)[1]),
    }
    for kind in kinds.split():
        try:
            roads[road](hostile(kind))
        except InvalidBody as error:
            print(kind, error)
        else:
            print(kind, "taken")


def in_child(road: str, kinds: Iterable[str]) -> list[str]:
    """Return what comes of a road in a process of its own, which pyarrow may end."""
    return _said("_try", road, " ".join(kinds))


def _said(function: str, *arguments: str) -> list[str]:
    code = f"import sys; from tests.columnar.test_chunked import {function} as f; f(*sys.argv[1:])"
    command = [sys.executable, "-c", code, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, (ended.returncode, ended.stdout, ended.stderr[-500:])
    return ended.stdout.splitlines()


@pytest.mark.parametrize("road", JOINING)
def test_malformed_chunks_are_not_joined(road: str) -> None:
    """What pyarrow would follow is refused, with the column's name, whatever type it is of."""
    found = in_child(road, ALL)
    for kind, said in zip(ALL, found, strict=True):
        assert said.startswith(f"{kind} chunks that are to be joined are malformed; found "), said
        assert said.endswith("at bad"), said


@pytest.mark.parametrize("road", UNIFYING)
def test_malformed_dictionaries_are_not_unified(road: str) -> None:
    """So it is where pyarrow would look up the values of one dictionary in another."""
    found = in_child(road, ENCODED)
    for kind, said in zip(ENCODED, found, strict=True):
        assert said.startswith(f"{kind} chunks that are to be joined are malformed; found "), said


def test_a_table_of_malformed_dictionaries_is_taken_as_it_is() -> None:
    """Batch by batch nothing must be joined: what is malformed is found by whoever looks at it."""
    assert in_child("taken", ENCODED) == [f"{kind} taken" for kind in ENCODED]
    for batch in batches(hostile("values"))[1]:
        with pytest.raises(InvalidBody):
            batch.validate(full=True)


def test_good_chunks_are_joined_and_unified() -> None:
    """Chunks of text, lists and dictionaries become one batch, and batches of common dictionaries."""
    words = [pa.array(part).dictionary_encode() for part in (["x", "y"], ["z", None, "x"])]
    table = pa.table(
        {
            "word": pa.chunked_array(words),
            "text": pa.chunked_array([["a", None], ["b", "c", ""]]),
            "list": pa.chunked_array([[[1], None], [[], [2, 3], [4]]]),
        }
    )
    whole = Batch.from_arrow(table)
    assert whole.to_arrow().to_pydict() == table.to_pydict()
    taken = list(batches(table)[1])
    assert [batch.num_rows for batch in taken] == [2, 3]
    assert taken[0].dictionaries[0] is taken[1].dictionaries[0]
    with bow.Server() as server, bow.connect(server.publish("chunks", table, readers=1)) as stream:
        assert stream.read_all().to_pydict() == table.to_pydict()


def test_dictionaries_that_are_shared_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks over one dictionary are neither looked at nor unified; nor is what has no dictionary."""
    shared = pa.array(["x", "y"])
    chunks = [pa.DictionaryArray.from_arrays(pa.array(part, pa.int8()), shared) for part in ([0], [1, 0])]
    monkeypatch.setattr(
        "bowstring.columnar.chunked._check_columns", lambda *_: pytest.fail("it was looked at")
    )
    for column in (pa.chunked_array(chunks), pa.chunked_array([["x"], ["y"]])):
        table = pa.table({"a": column})
        assert unify_dictionaries(table) is table


def test_indices_that_stray_where_they_are_null_are_taken() -> None:
    """Nobody reads them but pyarrow, which unifies what is null too: they become zeros, or stay as they are."""
    apart = str([["x", None]] * 2)
    assert _said("_take_strays") == [apart, str(["x", None] * 2), str([[["x", None]]] * 2)]


@pytest.mark.parametrize("kind", meaningless())
def test_values_that_mean_nothing_are_joined(kind: str) -> None:
    """What leads nowhere is taken in several chunks as it is in one."""
    chunk = meaningless()[kind]
    table = pa.table({"a": pa.chunked_array([chunk, chunk.slice(1)])})
    whole = Batch.from_arrow(table).to_arrow().column(0)
    assert whole.equals(pa.concat_arrays([chunk, chunk.slice(1)]))


def test_a_dictionary_that_slices_share_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a large array cost what they hold, and not each what all hold."""
    words = pa.array(["x", "y"] * 50)
    whole = pa.DictionaryArray.from_arrays(pa.array(range(100)), words)
    looked: list[pa.Array] = []
    check = chunked.check_array

    def look(array: pa.Array, known: set[Any]) -> None:
        looked.append(array)
        check(array, known)

    monkeypatch.setattr(chunked, "check_array", look)
    lists = pa.ListArray.from_arrays(list(range(0, 101, 10)), words)
    for column in (whole, lists):
        looked.clear()
        combine_chunks(pa.table({"a": pa.chunked_array([column.slice(at, 1) for at in range(len(column))])}))
        assert sum(len(array) for array in looked if array.type == pa.string()) == 100


def test_dictionaries_that_are_slices_of_one_array_are_unified() -> None:
    """They lie in the same buffers, and are others nevertheless; inside lists too."""
    words, codes = pa.array(["a", "b", "c", "d"]), pa.array([0, 1], pa.int8())
    plain = [pa.DictionaryArray.from_arrays(codes, words.slice(at, 2)) for at in (0, 2)]
    lists = [pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), each) for each in plain]
    for chunks in (plain, lists):
        table = pa.table({"a": pa.chunked_array(chunks)})
        sink = pa.BufferOutputStream()
        with ipc.new_file(sink, table.schema, options=ipc.IpcWriteOptions(unify_dictionaries=True)) as writer:
            writer.write_table(table)
        assert pa.ipc.open_file(sink.getvalue()).read_all().to_pydict() == table.to_pydict()


def test_lists_of_one_dictionary_are_left_alone() -> None:
    """Slices of lists have one dictionary, which needs no look at what they are slices of."""
    lists = pa.ListArray.from_arrays([0, 1, 2], pa.array(["x", "y"]).dictionary_encode())
    table = pa.table({"a": pa.chunked_array([lists.slice(0, 1), lists.slice(1)])})
    assert unify_dictionaries(table) is table
