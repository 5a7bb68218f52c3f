"""Numbers read on the way are those that the general walk and a cast of its own give, whatever the bytes are."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.limits import DEFAULT_LIMITS
from bowstring.variant import Status, Value, open_column
from bowstring.variant.cast import target_of
from bowstring.variant.column import batch_of, dictionary_of
from bowstring.variant.gather import gather
from bowstring.variant.nested import Source
from bowstring.variant.path import Path
from bowstring.variant.status import status_column
from bowstring.variant.walk import Located, Number, Read, Tree, extract, inline_number, locate
from tests.variant.conftest import Move
from tests.variant.encoding import Widths, encode, encode_with, metadata_bytes, object_bytes
from tests.variant.get_columns import Row, column_of
from tests.variant.hostile import flipped, prefixes
from tests.variant.typed_values import PRIMITIVE_VALUES, VALUES

pytestmark = pytest.mark.filterwarnings("ignore:.* became null")  # that values are lost, is no matter here

NUMBERS = [
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.date32(), pa.date64(), pa.time64("us"), pa.time32("ms")),
    *(pa.timestamp(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "UTC")),
]
TREE = Value("object", {"a": Value("object", {"b": Value("array", [Value("int8", 1), Value("int16", -2)])})})
PATHS: list[list[str | int]] = [["x"], ["a"], ["a", "b"], ["a", "b", 1], ["a", "x"], [0], []]


def by_cast(column: Column, path: list[str | int], type_: pa.DataType) -> Any:
    """Return what the general walk, which only finds places, gives."""
    opened, target = open_column(column), target_of(type_, "number")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tree, "has_root", True)  # no row is plain then
        [places] = locate(opened, dictionary_of(opened), [tuple(path)])
    found = gather(Source(opened, DEFAULT_LIMITS, "value"), places, type_, target)
    return batch_of([found, status_column("status", places.statuses)], opened.column)


def compare(column: Column, paths: list[list[str | int]], types: list[pa.DataType]) -> None:
    """Compare every path as every type, all at once and by casts, bit by bit."""
    wanted = {f"{path} {type_}": (path, type_) for path in paths for type_ in types}
    together = variant.get_many(column, wanted, with_status=True)
    together.validate(full=True)
    for name, (path, type_) in wanted.items():
        alone = by_cast(column, path, type_)
        assert together[f"{name}.status"].to_arrow().equals(alone["status"].to_arrow()), name
        assert same(together[name], alone["value"]), name


def same(one: Column, other: Column) -> bool:
    """Return whether two columns hold the same: NaN is NaN, and what stands under a null is the same too."""
    left, right = (column.as_batch().to_device("cpu")[0] for column in (one, other))
    return bool(
        left.to_arrow().is_null().equals(right.to_arrow().is_null())
        and left.raw_values.tobytes() == right.raw_values.tobytes()
    )


def rows_of(values: list[Value]) -> Iterator[Row]:
    """Yield each value as a field between others, in objects of several widths, and as a whole row."""
    names = ["a", "b", "c", "d", "x", "y"]
    ids = {name: index for index, name in enumerate(names)}
    blob = metadata_bytes(names)
    for index, value in enumerate(values):
        fields = {**TREE.value, "x": value, "y": Value("string", "z" * (index % 70))}
        if index % 3:
            del fields["a"]
        if index % 4 == 0:
            fields["c"] = Value("null", None)
        width = 1 + index % 4
        widths = Widths(width, max(2, 4 - width), large=index % 5 == 0) if index % 2 else Widths(1, 1)
        short = not isinstance(value.value, str | bytes) or len(value.value) < 99
        if short or index % 2:
            yield blob, encode_with(ids, Value("object", fields), widths)
        yield encode(value)


def test_every_primitive_as_every_number(on_device: Move) -> None:
    """Every value at its bounds, plain or not, becomes what a cast of its own makes of it."""
    column = on_device(column_of([None, *rows_of(PRIMITIVE_VALUES)]))
    compare(column, PATHS[::3], NUMBERS)
    compare(column, PATHS, NUMBERS[1:5:3])


@given(st.lists(st.none() | VALUES, min_size=1, max_size=6), st.booleans())
def test_random_documents(documents: list[Value | None], plain: bool) -> None:
    """Whatever the documents are, and whether their metadata repeat or not."""
    rows = [None if each is None else encode(each) for each in documents]
    column = column_of(rows, "binary" if plain else "dictionary")
    compare(column, [["a"], ["b"], ["a", "b"], [1]], [pa.bool_(), pa.int8(), pa.int64(), pa.float64()])


def test_hostile_bytes(on_device: Move) -> None:
    """Cut off and changed, rows come to the same end, and harm no row beside them."""
    pairs = [row for row in rows_of(PRIMITIVE_VALUES[::3]) if row and len(row[1]) < 150]
    broken = [*flipped(pairs, 1500, 3), *list(prefixes(pairs))[::9]]
    good = encode_with({"a": 0, "x": 1}, Value("object", {"x": Value("int16", 300)}), Widths())
    rows: list[Row] = [each for row in broken for each in (row, (metadata_bytes(["a", "x"]), good))]
    column = on_device(column_of(rows, "binary"))
    types = [pa.int8(), pa.int32(), pa.float64(), pa.bool_()]
    compare(column, PATHS[:5], types)
    beside = variant.get(column, ["x"], pa.int32(), with_status=True).to_device("cpu")
    assert set(beside.columns[0].raw_values[1::2].tolist()) == {300}


def test_plain_rows_have_no_bitmap(on_device: Move) -> None:
    """A column whose every row has its number is known to have no nulls; one missing row, and it has one."""
    rows = [{"a": k, "b": 1.5} for k in (1, 300, 70_000)]
    for extra, nulls in (({"a": -1}, 0), ({"b": 2}, 1), ({"a": None}, 1), ({"a": "x"}, 1), (None, 1)):
        got = variant.get(on_device(variant.from_python([*rows, extra])), "a", pa.int32())
        assert got.null_count == nulls
        assert (got.validity is None) == (nulls == 0)
        assert got.to_arrow().to_pylist()[:3] == [1, 300, 70_000]


def read(column: Column, wanted: list[tuple[Path, Number | None]]) -> list[Located | Read]:
    opened = open_column(column)
    return extract(opened, dictionary_of(opened), wanted)


def test_which_numbers_are_read_on_the_way(on_device: Move) -> None:
    """All are, in columns that can hold the places of those that need a cast; others are located and cast."""
    column = on_device(variant.from_python([{"a": 1, "b": 2}, {"a": 3, "b": 4.5}]))
    number, narrow = (inline_number(target_of(each, "number")) for each in (pa.int64(), pa.int8()))
    found = read(column, [(("a",), number), (("b",), number), (("b",), None)])
    assert [type(each) for each in found] == [Read, Read, Located]
    decimals = [
        Value("object", {"b": Value("decimal4", value)}) for value in map(decimal.Decimal, ("7", "7.5"))
    ]
    column = on_device(column_of([encode(Value("object", {"b": Value("int8", 1)})), *map(encode, decimals)]))
    found = read(column, [(("b",), number), (("c",), number), (("b",), narrow), (("c",), narrow)])
    assert [type(each) for each in found] == [Read, Read, Located, Read]
    batch = variant.get_many(column, {"b": ("b", pa.int64()), "c": ("c", pa.int64())}, with_status=True)
    assert batch["b"].to_arrow().to_pylist() == [1, 7, None]
    assert batch["b.status"].to_arrow().to_pylist() == [Status.OK, Status.OK, Status.OVERFLOW]


@pytest.mark.parametrize("way", ["compiled", "interpret"])
def test_the_last_row_of_a_buffer(way: str, on_device: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing behind the last value is needed to read it, nor looked at: interpreted, that is an error."""
    if way != "compiled":
        monkeypatch.setenv("BOWSTRING_KERNELS", way)
    for value in (Value("int8", -5), Value("int64", -(2**60)), Value("float", 1.5), Value("boolean", True)):
        row = encode(Value("object", {"x": value}))
        compare(on_device(column_of([row, row])), [["x"]], [pa.int64(), pa.float32(), pa.bool_()])


def test_a_child_ends_within_its_parent(on_device: Move) -> None:
    """A field that reaches behind the end of its object is malformed, though the row goes on."""
    blob = metadata_bytes(["a", "b"])
    text = bytes([2 << 2 | 1]) + b"hi"
    for inner in (object_bytes([(1, bytes([20, 1, 2, 3, 4]))]), object_bytes([(1, text)])):
        short = bytearray(inner)
        end = len(inner) - 1 - (short[0] >> 6 & 1)
        place = inner.index(inner[-5:] if inner[-5] == 20 else text) - 1
        assert short[place] == len(inner) - place - 1 <= end
        short[place] -= 1  # where the values of the inner object end
        value = object_bytes([(0, bytes(short))])
        column = on_device(column_of([(blob, value), (blob, object_bytes([(0, inner)]))]))
        for type_ in (pa.int32(), pa.string(), variant.type()):
            statuses = variant.get(column, "a.b", type_, with_status=True)["status"].to_arrow().to_pylist()
            assert statuses[0] == Status.MALFORMED
            assert statuses[1] in (Status.OK, Status.TYPE_MISMATCH)


def test_long_rows(on_device: Move) -> None:
    """Rows of some hundred bytes, of changing lengths, give what they hold to their very end."""
    rng = np.random.default_rng(5)
    names = [f"n{k:02d}" for k in range(60)]
    ids = {name: index for index, name in enumerate(names)}
    held = rng.integers(-(2**31), 2**31, (150, 60)) >> rng.choice([0, 16, 24], (150, 60))
    rows: list[Row] = [
        (metadata_bytes(names), encode_with(ids, Value("object", dict(zip(names, each, strict=True)))))
        for each in ([_integer(number) for number in row] for row in held.tolist())
    ]
    column = on_device(column_of(rows))
    for k in (0, 31, 59):
        got = variant.get(column, [names[k]], pa.int32())
        assert got.to_arrow().to_pylist() == held[:, k].tolist()


def _integer(number: int) -> Value:
    bits = next(bits for bits in (8, 16, 32) if -(1 << bits - 1) <= number < 1 << bits - 1)
    return Value(f"int{bits}", number)


@pytest.mark.parametrize("count", [1, 2, 7, 40, 255])
def test_objects_that_lack_names(count: int, on_device: Move) -> None:
    """Fields are found whichever of the dictionary's names an object has."""
    rng = np.random.default_rng(count)
    names = [f"n{k:03d}" for k in range(count)]
    ids = {name: index for index, name in enumerate(names)}
    sizes = rng.integers(0, count + 1, 60).tolist()
    kept = [sorted(rng.choice(count, size, replace=False).tolist()) for size in sizes]
    blob = metadata_bytes(names)
    rows: list[Row] = [
        (blob, encode_with(ids, Value("object", {names[k]: Value("int16", k) for k in each}), Widths()))
        for each in kept
    ]
    batch = variant.get_many(on_device(column_of(rows)), {name: ([name], pa.int16()) for name in names[:50]})
    for k, name in enumerate(names[:50]):
        assert batch[name].to_arrow().to_pylist() == [k if k in each else None for each in kept]
