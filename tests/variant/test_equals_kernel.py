"""Equality by kernels: what comparing two decoded trees gives, whatever the bytes and wherever they are."""

from __future__ import annotations

import math
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.errors import BowstringError, NotOnDevice
from bowstring.testing import fake_device
from bowstring.variant.codec.decode import decode_names
from bowstring.variant.codec.primitives import Value
from bowstring.variant.codec.rows import in_row
from bowstring.variant.equals import same
from tests.variant.conftest import Move
from tests.variant.encoding import Widths, encode, metadata_bytes, object_bytes
from tests.variant.get_columns import METADATA_FORMS, VALUE_FORMS, Row, column_of
from tests.variant.hostile import GOOD, corpus_of, flipped
from tests.variant.text_oracle import trees_of
from tests.variant.typed_values import PRIMITIVE_VALUES, VALUES

NULL = b"\x00"


def answers(left: Column, right: Column) -> list[bool | None]:
    """Return the answers for two columns on one device."""
    found = variant.equals(left, right)
    assert found.device == left.device
    result: list[bool | None] = found.as_batch().to_device("cpu")[0].to_arrow().to_pylist()
    return result


def oracle(left: list[Row], right: list[Row]) -> list[bool | None]:
    """Return the answers of plain Python."""
    found: list[bool | None] = []
    for one, other in zip(trees_of(left), trees_of(right), strict=True):
        assert not isinstance(one, BowstringError)
        assert not isinstance(other, BowstringError)
        found.append(None if one is None or other is None else same(one, other))
    return found


def check(left: list[Row], right: list[Row]) -> None:
    """Check rows against rows, on the CPU and on a device."""
    columns = column_of(left), column_of(right, "binary")
    expected = oracle(left, right)
    assert answers(*columns) == expected
    one, other = (each.as_batch().to_device(fake_device())[0] for each in columns)
    assert answers(one, other) == expected


WIDTHS = st.builds(Widths, st.integers(1, 4), st.integers(1, 4))


def rearranged(value: Value, rng: np.random.Generator) -> Value:
    """Return a tree that means the same, or nearly: fields in another order, leaves of other types or changed."""
    if value.type == "object":
        fields = list(value.value.items())
        return Value(
            "object", {fields[k][0]: rearranged(fields[k][1], rng) for k in rng.permutation(len(fields))}
        )
    if value.type == "array":
        return Value("array", [rearranged(child, rng) for child in value.value])
    if rng.random() < 0.05:
        return Value("null", None)
    if value.type == "int8":
        return Value("int64", value.value)
    if value.type == "timestamp" and abs(value.value) < 1 << 50:
        return Value("timestamp_ns", value.value * 1000)
    return value


@given(values=st.lists(st.none() | VALUES, max_size=6), widths=WIDTHS, seed=st.integers(0, 1000))
def test_trees_that_mean_the_same(values: list[Value | None], widths: Widths, seed: int) -> None:
    """Trees in other widths, over other metadata, with some leaves of other types, are compared as decoded ones."""
    rng = np.random.default_rng(seed)
    left: list[Row] = [None if each is None else encode(each) for each in values]
    right: list[Row] = [None if each is None else encode(rearranged(each, rng), widths) for each in values]
    if rng.random() < 0.5:
        right = [None if rng.random() < 0.1 else row for row in right]
    check(left, right)


@given(left=st.lists(VALUES, min_size=4, max_size=4), right=st.lists(VALUES, min_size=4, max_size=4))
def test_trees_that_differ(left: list[Value], right: list[Value]) -> None:
    """Any trees are compared as decoded ones."""
    check([*map(encode, left)], [*map(encode, right)])


def test_every_pair_of_types() -> None:
    """Every type at its bounds against every other."""
    small = [each for each in PRIMITIVE_VALUES if len(str(each.value)) < 1000]
    small += [Value("double", math.nan), Value("float", math.nan)]
    rows = [encode(each) for each in small]
    pairs = [(one, other) for one in rows for other in rows]
    left, right = zip(*pairs, strict=True)
    columns = column_of(list(left)), column_of(list(right))
    trees = [(one, other) for one in small for other in small]
    assert answers(*columns) == [same(one, other) for one, other in trees]


@pytest.mark.parametrize("value", VALUE_FORMS)
@pytest.mark.parametrize("metadata", METADATA_FORMS)
def test_every_form_of_column(metadata: str, value: str, on_device: Move) -> None:
    """A column equals itself in another form, but where it is null."""
    tree = Value("object", {"b": Value("array", [Value("string", "x" * 70)]), "a": Value("int8", 1)})
    rows: list[Row] = [encode(tree), None, encode(Value("string", "y"))]
    columns = [on_device(column_of(rows, *form)) for form in ((metadata, value), ("dictionary", "binary"))]
    assert answers(columns[0], columns[1]) == [True, None, True]


def object_of(names: list[str], order: list[int], values: list[bytes] | None = None) -> tuple[bytes, bytes]:
    found = values or [bytes([3 << 2, number % 128]) for number in range(len(names))]
    return metadata_bytes(tuple(names)), object_bytes([(number, found[number]) for number in order])


def test_fields_in_any_order() -> None:
    """Objects are equal whatever the order of their fields and dictionaries, and whatever else is in these."""
    names = ["b", "a", "é", "", "😀", "￥", "a\n", "a\\n"]
    rng = np.random.default_rng(4)
    left: list[Row] = []
    right: list[Row] = []
    for _ in range(200):
        numbers = {name: bytes([3 << 2, number]) for number, name in enumerate(names)}
        for rows in (left, right):
            dictionary = [*rng.permutation(names).tolist(), "unused"]
            fields = rng.permutation(len(names)).tolist()[: int(rng.integers(6, 9))]
            rows.append(object_of(dictionary, fields, [numbers.get(name, NULL) for name in dictionary]))
    check(left, right)
    assert True in oracle(left, right)


def test_thousands_of_fields_in_other_orders(on_device: Move) -> None:
    """Where finding a field would take too long for a kernel, the answer is still right."""
    names = [f"k{number:05}" for number in range(5000)]
    left = object_of(names, list(range(5000)))
    # Wider numbers: their bytes allow to look for names that are there twice.
    found = [bytes([6 << 2]) + (number % 128).to_bytes(8, "little") for number in reversed(range(5000))]
    right = object_of(names[::-1], list(range(5000)), found)
    other = object_of(names[::-1], list(range(5000)), [*found[1:], found[0]])
    columns = column_of([left, GOOD, left]), column_of([right, GOOD, other])
    one, two = map(on_device, columns)
    assert answers(one, two) == [True, True, False]


@pytest.fixture(scope="module")
def corpus(parquet_test_data: Path) -> list[tuple[bytes, bytes]]:
    """Return the golden values, and every primitive at its bounds that is not long."""
    return corpus_of(parquet_test_data)


def test_changed_bytes(corpus: list[tuple[bytes, bytes]]) -> None:
    """Values with changed bytes that still decode are compared as decoded ones."""
    rng = np.random.default_rng(8)
    changed: list[Row] = [*flipped(corpus, 3000, 8)]
    trees = zip(changed, trees_of(changed), strict=True)
    broken = [row for row, tree in trees if isinstance(tree, Value)]
    others: list[Row] = [
        corpus[int(rng.integers(len(corpus)))] if rng.random() < 0.3 else row for row in broken
    ]
    check(broken, others)
    check(others, broken)


def test_the_first_error_is_raised(on_device: Move) -> None:
    """A broken row raises what decoding it raises, also beside a null: the left side first."""
    bad, worse = (GOOD[0], b"\x0c"), (GOOD[0], b"\xff\xff")
    left: list[Row] = [GOOD, None, bad]
    for right, row, wrong in (([GOOD, GOOD, worse], 2, bad), ([GOOD, worse, GOOD], 1, worse)):
        [error] = trees_of([wrong])
        assert isinstance(error, BowstringError)
        columns = on_device(column_of(left)), on_device(column_of(right))
        with pytest.raises(type(error)) as raised:
            variant.equals(*columns)
        assert str(raised.value) == str(in_row(error, row))


def test_columns_on_two_devices_are_refused() -> None:
    """Columns are compared where both are."""
    column = column_of([GOOD])
    with pytest.raises(NotOnDevice):
        variant.equals(column, column.as_batch().to_device(fake_device())[0])


def test_statuses_are_not_answers(on_device: Move) -> None:
    """A Variant null equals a Variant null; an SQL NULL is neither equal nor not."""
    null = GOOD[0], NULL
    assert answers(on_device(column_of([null, null, None])), on_device(column_of([null, None, None]))) == [
        True,
        None,
        None,
    ]


def test_long_names_are_read_once(on_device: Move) -> None:
    """Rows over other metadata whose names are long take no longer than those of short names."""
    long = ["x" * (1 << 20), "y" + "x" * ((1 << 20) - 1), "x" * 300, "short"]
    left = metadata_bytes(tuple(long)), object_bytes([(0, b"\x0c\x01")])
    names = metadata_bytes(("a", *long[1:], long[0]))
    rows = 50_000
    right = [(names, object_bytes([(4 if row % 2 else 1, b"\x0c\x01")])) for row in range(2)]
    one = on_device(column_of([left] * rows, "dictionary"))
    other = on_device(column_of(right * (rows // 2), "dictionary"))
    begin = time.process_time()
    assert answers(one, other) == [False, True] * (rows // 2)
    assert time.process_time() - begin < 1.0
    check(
        [object_of(long, [2, 3, 0]), object_of(long, [0, 1])],
        [
            object_of(long[::-1], [1, 0, 3], [b"\x0c\x03", b"\x0c\x02", b"\x0c\x01", b"\x0c\x00"]),
            object_of(long, [0, 2]),
        ],
    )


def test_metadata_of_undecided_rows_are_parsed_once(on_device: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that the kernel leaves to Python share what their metadata are parsed to, however these take turns."""
    names = [f"k{number:05}" for number in range(5000)]
    values = [bytes([6 << 2]) + (number % 128).to_bytes(8, "little") for number in reversed(range(5000))]
    left = [object_of([*names, unused], list(range(5000))) for unused in ("x", "y")]
    right = object_of(names[::-1], list(range(5000)), values)
    parsed: list[bytes] = []

    def parse(metadata: bytes) -> tuple[str, ...]:
        parsed.append(metadata)
        return decode_names(metadata)

    monkeypatch.setattr(sys.modules["bowstring.variant.equals"], "decode_names", parse)
    monkeypatch.setattr(sys.modules["bowstring.variant.equals"], "_NAMES_KEPT", 1)
    one, other = on_device(column_of(left * 2)), on_device(column_of([right] * 4))
    assert answers(one, other) == [True] * 4
    assert sorted(parsed) == sorted([left[0][0], left[1][0], right[0]])


def test_one_undecided_row_costs_nothing_for_the_others() -> None:
    """Comparing a row in Python takes memory for that row, not for each row of the column."""
    names = [f"k{number:05}" for number in range(5000)]
    values = [bytes([6 << 2]) + (number % 128).to_bytes(8, "little") for number in reversed(range(5000))]
    undecided = object_of(names, list(range(5000))), object_of(names[::-1], list(range(5000)), values)
    rows, peaks = 50_000, []
    for others in (0, rows):
        one, other = (column_of([row] + [GOOD] * others) for row in undecided)
        two, three = (column_of([GOOD] * (others + 1)) for _ in undecided)
        taken = []
        for left, right in ((one, other), (two, three)):
            tracemalloc.start()
            found = answers(left, right)
            taken.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert found == [True] * (others + 1)
        peaks.append(taken[0] - taken[1])
    assert peaks[1] - peaks[0] < 16 * rows
