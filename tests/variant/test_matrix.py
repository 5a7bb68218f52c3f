"""The generated matrix: whatever the widths and the dictionary are, every operation gives the same."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.variant import Status
from tests.variant.conftest import Move
from tests.variant.encoding import encode, metadata_bytes, object_bytes
from tests.variant.get_columns import column_of
from tests.variant.get_oracle import expected, held
from tests.variant.json_write import json_of
from tests.variant.matrix import DICTIONARIES, cells

pytestmark = pytest.mark.filterwarnings("ignore:.* became null")  # that values are lost, is no matter here

TYPES: list[pa.DataType] = [
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(38, 2), pa.date32(), pa.time64("us")),
    *(pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")),
    *(pa.binary(), pa.string(), pa.uuid()),
]
"""One for each class of values at least."""
EMOJI: list[str | int] = ["😀"]


@pytest.fixture(params=DICTIONARIES)
def dictionary(request: pytest.FixtureRequest) -> str:
    """Return the kind of dictionary."""
    return str(request.param)


@pytest.fixture
def column(dictionary: str, on_device: Move) -> Column:
    """Return the rows over one kind of dictionary, on the CPU and on the fake device."""
    return on_device(column_of(cells(dictionary).rows))


def test_validation(dictionary: str, column: Column) -> None:
    """All are right but for the flag that lies."""
    status = Status.MALFORMED if dictionary == "lying" else Status.OK
    assert set(variant.validate(column).to_arrow().to_pylist()) == {status}
    assert set(variant.validate(column, full=False).to_arrow().to_pylist()) == {Status.OK}


def test_values(dictionary: str, column: Column) -> None:
    """Every type gives the values and the statuses that plain Python gives, all in one walk, or one by one."""
    trees = cells(dictionary).trees
    batch = variant.get_many(column, {str(each): (EMOJI, each) for each in TYPES}, with_status=True)
    batch.validate(full=True)
    for type_ in TYPES:
        wanted = [expected(tree, EMOJI, type_) for tree in trees]
        assert batch[f"{type_}.status"].to_arrow().to_pylist() == [status for status, _ in wanted]
        assert held(batch[str(type_)], type_) == [value for _, value in wanted]
    for type_ in (pa.int64(), pa.string(), pa.decimal128(38, 2)):
        single = variant.get(column, EMOJI, type_)
        assert single.to_arrow().equals(batch[str(type_)].to_arrow())


def test_paths(dictionary: str, column: Column) -> None:
    """Elements and fields below are found, and their types named; what is absent is missing."""
    trees = cells(dictionary).trees
    paths: dict[str, list[str | int]] = {"$.a[0]": ["a", 0], "$.a[1]['é']": ["a", 1, "é"]}
    for written, path in paths.items():
        for type_ in (pa.int64(), pa.binary()):
            found = held(variant.get(column, written, type_), type_)
            assert found == [expected(tree, path, type_)[1] for tree in trees]
        kinds = [tree.value["😀"].type for tree in trees]
        assert variant.type_of(column, path).to_arrow().to_pylist() == kinds
    assert set(variant.get(column, "$['']", pa.int8()).to_arrow().to_pylist()) == {1}
    for absent in ("$.b", "$.a[2]", "$['😀'].x"):
        assert variant.get(column, absent, pa.int64()).null_count == len(trees)


def test_sub_values(dictionary: str, column: Column) -> None:
    """The Variant below a path is the part of the tree."""
    below = variant.get(column, "$.a", variant.type())
    wanted = [tree.value["a"] for tree in cells(dictionary).trees]
    assert variant.to_python(below.as_batch().to_device("cpu")[0], typed=True) == wanted


def test_trees(dictionary: str) -> None:
    """`to_python` gives the trees."""
    assert variant.to_python(column_of(cells(dictionary).rows), typed=True) == cells(dictionary).trees


@pytest.mark.parametrize("rules", ["plain", "spark"])
def test_json(dictionary: str, rules: Any, column: Column) -> None:
    """The JSON text is that of the tree."""
    wanted = [json_of(tree, rules) for tree in cells(dictionary).trees]
    assert variant.to_json(column, rules=rules).to_arrow().to_pylist() == wanted


def test_equality(dictionary: str, column: Column, on_device: Move) -> None:
    """All equal the same trees as we write them; against those of the next row they are as unequal as these."""
    _, trees, ours = cells(dictionary)
    assert variant.equals(column, on_device(column_of(ours))).to_arrow().to_pylist() == [True] * len(trees)
    moved = on_device(column_of([*ours[1:], ours[0]]))
    found = variant.equals(column, moved).to_arrow()
    assert found.equals(variant.equals(on_device(column_of(ours)), moved).to_arrow())
    assert set(found.to_pylist()) == {True, False}


def test_the_order_of_utf_16(on_device: Move) -> None:
    """Objects of legacy writers, ordered by UTF-16, read as any others, and are not right by the format."""
    names = ["a", "😀", "\uffe5"]  # by UTF-16; by UTF-8 the last two are the other way round
    tree = variant.Value("object", {name: variant.Value("int8", number) for number, name in enumerate(names)})
    metadata = metadata_bytes(sorted(names))
    fields = [(sorted(names).index(name), bytes([12, number])) for number, name in enumerate(names)]
    legacy = on_device(column_of([(metadata, object_bytes(fields))]))
    ours = on_device(column_of([encode(tree)]))
    assert variant.validate(legacy).to_arrow().to_pylist() == [Status.MALFORMED]
    wanted = {str(number): ([name], pa.int8()) for number, name in enumerate(names)}
    got = variant.get_many(legacy, wanted)
    assert [got[name].to_arrow().to_pylist() for name in wanted] == [[0], [1], [2]]
    assert variant.equals(legacy, ours).to_arrow().to_pylist() == [True]
    assert variant.equals(ours, legacy).to_arrow().to_pylist() == [True]
    assert variant.to_json(legacy).to_arrow().to_pylist() == ['{"a":0,"😀":1,"\uffe5":2}']
    assert variant.to_python(legacy.as_batch().to_device("cpu")[0], typed=True) == [tree]
