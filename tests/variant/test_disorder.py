"""Objects whose fields stand in no order: they break the format, and every reader finds all fields for all that."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bowstring import variant
from bowstring.variant import Status
from bowstring.variant.codec.primitives import Value
from tests.variant.conftest import Move
from tests.variant.encoding import Widths, metadata_bytes, object_bytes
from tests.variant.get_columns import Row, column_of

WIDTHS = (Widths(), Widths(2, 2), Widths(3, 1), Widths(4, 4, large=True))


def _row(
    names: list[str], order: list[str], dictionary: list[str], widths: Widths, drawn: random.Random
) -> tuple[bytes, bytes]:
    """Return an object of some names, in this order; each is the number of its place among them."""
    numbers = {name: k for k, name in enumerate(names)}
    ids = {name: [k for k, each in enumerate(dictionary) if each == name] for name in order}
    fields = [(drawn.choice(ids[name]), bytes([16, *numbers[name].to_bytes(2, "little")])) for name in order]
    return metadata_bytes(dictionary), object_bytes(fields, widths)


def _check(rows: list[Row], names: list[list[str]], absent: list[str], move: Move) -> None:
    """Check that every reader finds the fields of each row, and no other."""
    column = move(column_of(rows))
    trees = [{name: k for k, name in enumerate(each)} for each in names]
    asked = list(dict.fromkeys([*(name for each in names for name in each), *absent]))[:40]
    got = variant.get_many(column, {name: ([name], "int16") for name in asked}, with_status=True)
    typed = variant.get(column, [], pa.struct([pa.field(name, pa.int16()) for name in asked]))
    structs = typed.to_arrow().to_pylist()
    for name in asked:
        wanted = [tree.get(name) for tree in trees]
        statuses = [Status.MISSING if each is None else Status.OK for each in wanted]
        assert got[name].to_arrow().to_pylist() == wanted
        assert got[f"{name}.status"].to_arrow().to_pylist() == statuses
        assert [each[name] for each in structs] == wanted
    for name in asked[:3] + asked[-3:]:
        there = [name in tree for tree in trees]
        assert variant.exists(column, [name]).to_arrow().to_pylist() == there
        kinds = ["int16" if each else None for each in there]
        assert variant.type_of(column, [name]).to_arrow().to_pylist() == kinds
    assert variant.keys(column).to_arrow().to_pylist() == [sorted(each, key=str.encode) for each in trees]
    maps = variant.get(column, [], pa.map_(pa.string(), pa.int16())).to_arrow().to_pylist()
    assert [dict(each) for each in maps] == trees
    assert variant.to_python(column_of(rows)) == trees
    assert [json.loads(each) for each in variant.to_json(column).to_arrow().to_pylist()] == trees
    ordered = move(
        variant.from_python(
            [Value("object", {k: Value("int16", v) for k, v in each.items()}) for each in trees]
        )
    )
    assert variant.equals(column, ordered).to_arrow().to_pylist() == [True] * len(trees)
    for schema in (pa.struct([pa.field(name, pa.int16()) for name in asked[:3]]), "infer"):
        shredded: Any = variant.shred(column, schema)
        assert variant.equals(variant.unshred(shredded), ordered).to_arrow().to_pylist() == [True] * len(
            trees
        )


@st.composite
def _objects(draw: st.DrawFn) -> tuple[list[Row], list[list[str]], list[str]]:
    drawn = draw(st.randoms(use_true_random=False))
    letters = draw(st.sampled_from(["abcdefgh", "aé\uffe5😀"]))
    known = draw(st.lists(st.text(letters, min_size=1, max_size=3), min_size=2, max_size=14, unique=True))
    dictionary = draw(st.sampled_from([sorted(known, key=str.encode), known, [*known, *known[:3]]]))
    rows: list[Row] = []
    names = []
    for _ in range(draw(st.integers(1, 4))):
        held = draw(st.lists(st.sampled_from(known), unique=True, max_size=len(known)))
        names.append(held)
        order = draw(st.permutations(held))
        rows.append(_row(held, order, dictionary, draw(st.sampled_from(WIDTHS)), drawn))
    return rows, names, [*known, "absent"]


@given(_objects())
@settings(max_examples=30)
def test_fields_in_any_order(objects: tuple[list[Row], list[list[str]], list[str]]) -> None:
    """Whatever the order, the widths and the dictionary are, all readers find the same fields."""
    _check(*objects, lambda column: column)


@pytest.mark.parametrize("count", [5, 33, 255, 300])
@pytest.mark.parametrize("dictionary", ["ordered", "shuffled", "twice"])
def test_objects_of_any_size(count: int, dictionary: str, on_device: Move) -> None:
    """Small objects and large ones, beside others that are in order, with fields that some of them have not."""
    drawn = random.Random(count)
    known = [f"{k:03}" for k in range(count + 5)]
    listed = {"ordered": known, "shuffled": drawn.sample(known, len(known)), "twice": [*known, *known]}[
        dictionary
    ]
    rows: list[Row] = []
    names = []
    for k in range(6):
        held = sorted(drawn.sample(known, count - k % 2))
        names.append(held)
        order = held if k == 2 else held[::-1] if k == 3 else drawn.sample(held, len(held))
        rows.append(_row(held, order, listed, Widths(1 + k % 4, 2), drawn))
    _check(rows, names, [known[0], known[-1], "absent"], on_device)
    valid = variant.validate(on_device(column_of(rows))).to_arrow().to_pylist()
    assert valid[2] == Status.OK
    assert valid[3] == Status.MALFORMED
