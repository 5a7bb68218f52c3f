"""Arrow columns of any type become Variant columns."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.errors import InvalidBody, Unsupported, UsageError
from bowstring.testing import fake_device
from bowstring.variant.codec.decode import decode_names
from tests.variant.shredded_columns import unmarked

D = decimal.Decimal
UTC = dt.UTC
NOON = dt.datetime(2024, 2, 29, 12, 0, 1, tzinfo=UTC).replace(tzinfo=None)
CASES: list[tuple[pa.Array, list[Any], str]] = [
    (pa.array([True, False, None]), [True, False, None], "boolean"),
    *(
        (pa.array([1, 7, None], type_), [1, 7, None], kind)
        for type_, kind in (
            (pa.int8(), "int8"),
            (pa.int16(), "int16"),
            (pa.int32(), "int32"),
            (pa.int64(), "int64"),
            (pa.uint8(), "int16"),
            (pa.uint16(), "int32"),
            (pa.uint32(), "int64"),
            (pa.uint64(), "int64"),
        )
    ),
    (pa.array([2**64 - 1, 1], pa.uint64()), [D(2**64 - 1), D(1)], "decimal16"),
    (pa.array([1.5, None], pa.float16()), [1.5, None], "float"),
    (pa.array([1.5, None], pa.float32()), [1.5, None], "float"),
    (pa.array([1.5, None], pa.float64()), [1.5, None], "double"),
    *(
        (pa.array([D("1.50"), None], type_), [D("1.50"), None], kind)
        for type_, kind in (
            (pa.decimal32(9, 2), "decimal4"),
            (pa.decimal64(18, 2), "decimal8"),
            (pa.decimal128(9, 2), "decimal4"),
            (pa.decimal128(18, 2), "decimal8"),
            (pa.decimal128(38, 2), "decimal16"),
            (pa.decimal256(60, 2), "decimal16"),
        )
    ),
    *(
        (pa.array([NOON.date(), None], type_), [NOON.date(), None], "date")
        for type_ in (pa.date32(), pa.date64())
    ),
    *(
        (pa.array([NOON.time()], type_), [NOON.time()], "time")
        for type_ in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))
    ),
    *((pa.array([NOON], pa.timestamp(unit)), [NOON], "timestamp_ntz") for unit in ("s", "ms", "us")),
    *(
        (pa.array([NOON], pa.timestamp(unit, "UTC")), [NOON.replace(tzinfo=UTC)], "timestamp")
        for unit in ("s", "us")
    ),
    *(
        (pa.array(["x" * 70, "", None], type_), ["x" * 70, "", None], "string")
        for type_ in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))
    ),
    *(
        (pa.array([b"xyz", None], type_), [b"xyz", None], "binary")
        for type_ in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3))
    ),
    (pa.array([b"x" * 16], pa.uuid()), [uuid.UUID(bytes=b"x" * 16)], "uuid"),
    *(
        (pa.array([[1, None], None, []], type_), [[1, None], None, []], "array")
        for type_ in (pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_view(pa.int8()))
    ),
    (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), [[1, 2], None], "array"),
    (pa.array([{"b": 1, "a": {"é": None}}, None]), [{"a": {"é": None}, "b": 1}, None], "object"),
    (
        pa.array([[("b", 1), ("a", None)], None, []], pa.map_(pa.string(), pa.int8())),
        [{"a": None, "b": 1}, None, {}],
        "object",
    ),
    (pa.array([[(5, 1)]], pa.map_(pa.int8(), pa.int8())), [[{"key": 5, "value": 1}]], "array"),
    (
        pa.array(
            [[{"a": [("x", [1])]}]], pa.list_(pa.struct({"a": pa.map_(pa.string(), pa.list_(pa.int8()))}))
        ),
        [[{"a": {"x": [1]}}]],
        "array",
    ),
    (pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, 8])), [7, 7, 8], "int64"),
    (pa.nulls(3), [None, None, None], "null"),
]


@pytest.mark.parametrize(
    ("array", "expected", "kind"), CASES, ids=lambda case: str(getattr(case, "type", ""))
)
def test_every_type_becomes_its_variant_type(array: pa.Array, expected: list[Any], kind: str) -> None:
    got = variant.from_arrow(array)
    assert variant.to_python(got) == expected
    assert set(variant.type_of(got).to_arrow().to_pylist()) <= {kind, None}
    assert got.to_arrow().is_null().to_pylist() == [each is None for each in expected]
    assert set(variant.validate(got).to_arrow().to_pylist()) <= {0, 1}


@given(
    st.lists(
        st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "z": st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=80), max_size=4),
                "a": st.integers(-(2**63), 2**63 - 1),
                "\uffe5": st.fixed_dictionaries({"b": st.floats(allow_nan=False)}),
                "😀": st.booleans(),
            },
        ),
        max_size=5,
    )
)
def test_structs_become_objects_on_every_device(rows: list[Any]) -> None:
    type_ = pa.struct(
        {
            "😀": pa.bool_(),
            "z": pa.list_(pa.string()),
            "a": pa.int64(),
            "\uffe5": pa.struct({"b": pa.float64()}),
        }
    )
    array = pa.array(rows, type_)
    on_host = variant.from_arrow(array)
    assert variant.to_python(on_host) == array.to_pylist()
    moved = unmarked(array).as_batch().to_device(fake_device())[0]
    there = variant.from_arrow(moved)
    assert there.device is fake_device()
    assert there.as_batch().to_device("cpu")[0].to_arrow().storage == on_host.to_arrow().storage


@pytest.mark.parametrize(("first", "count"), [(0, 3), (1, 2), (1, 3), (3, 1), (2, 0), (0, 4)])
def test_slices_are_their_rows(first: int, count: int) -> None:
    """Children of a slice of a struct may have more rows than it has."""
    rows = [{"k": {"x": [1]}, "m": "a"}, {"k": {"x": [2, 3]}, "m": "b"}, None, {"k": None, "m": None}]
    array = pa.array(rows)
    keys = pa.array(["p", "q", "r", "s"])
    maps = pa.MapArray.from_arrays(pa.array([0, 2, 2, 3, 4], pa.int32()), keys, array)
    numbered = pa.MapArray.from_arrays(pa.array([0, 2, 2, 3, 4], pa.int32()), pa.array([1, 2, 3, 4]), array)
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(range(8)), 2)
    union = pa.UnionArray.from_sparse(pa.array([0, 1, 0, 1], pa.int8()), [array, keys])
    outer = {"s": array, "m": maps, "n": numbered, "f": fixed, "u": union, "d": keys.dictionary_encode()}
    whole = pa.StructArray.from_arrays(list(outer.values()), list(outer))
    expected = variant.to_python(variant.from_arrow(whole))
    for inside, wanted in ((whole, expected), (array, rows), (maps, [row["m"] for row in expected])):
        found = variant.from_arrow(inside.slice(first, count))
        assert variant.to_python(found) == wanted[first : first + count]


_MEMBERS = (
    st.lists(st.none() | st.integers(-5, 5), max_size=4).map(lambda each: pa.array(each, pa.int64())),
    st.lists(st.none() | st.text(max_size=3), max_size=4).map(lambda each: pa.array(each, pa.string())),
    st.lists(
        st.none() | st.fixed_dictionaries({"b": st.booleans(), "a": st.lists(st.none() | st.integers(0, 3))}),
        max_size=4,
    ).map(lambda each: pa.array(each, pa.struct({"b": pa.bool_(), "a": pa.list_(pa.int8())}))),
)


@given(
    st.tuples(*_MEMBERS), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3))), st.booleans(), st.data()
)
def test_a_union_becomes_the_values_of_its_children(
    members: tuple[pa.Array, ...], picked: list[tuple[int, int]], sparse: bool, data: st.DataObject
) -> None:
    """Dense and sparse, with any ids, slices of them, alone and inside of other columns."""
    picked = [(member, slot) for member, slot in picked if slot < len(members[member])]
    codes = data.draw(st.permutations([0, 5, 120]))
    ids = pa.array([codes[member] for member, _ in picked], pa.int8())
    slots = pa.array([slot for _, slot in picked], pa.int32())
    if sparse:
        spread = [
            each.take(pa.array([slot if number == member else None for member, slot in picked], pa.int32()))
            for number, each in enumerate(members)
        ]
        union = pa.UnionArray.from_sparse(ids, spread, type_codes=codes)
    else:
        union = pa.UnionArray.from_dense(ids, slots, list(members), type_codes=codes)
    expected = [members[member][slot].as_py() for member, slot in picked]
    first = data.draw(st.integers(0, len(picked)))
    found = variant.from_arrow(union.slice(first))
    assert variant.to_python(found) == expected[first:]
    assert found.null_count == expected[first:].count(None)
    holder = pa.StructArray.from_arrays([union], ["u"])
    assert variant.to_python(variant.from_arrow(holder)) == [{"u": each} for each in expected]


def test_metadata_name_fields_and_keys_of_maps_alone() -> None:
    """What Arrow calls the two columns of a map is no name of a Variant, but where its entries are objects."""
    for key, names in (("k", ["k", "m"]), (7, ["key", "m", "value"])):
        maps = pa.array([{"m": [(key, 1)]}], pa.struct({"m": pa.map_(pa.scalar(key).type, pa.int8())}))
        [metadata] = variant.from_arrow(maps).child("metadata").to_arrow().to_pylist()
        assert sorted(decode_names(metadata)) == names


NUMBERS = pa.array(range(6), pa.int8())


@pytest.mark.parametrize("inside", [NUMBERS, NUMBERS.dictionary_encode(), NUMBERS.cast(pa.decimal256(60))])
@pytest.mark.parametrize(("first", "count"), [(0, 3), (0, 2), (1, 2), (1, 1)])
def test_what_lies_under_a_null_is_no_part_of_the_list_before(
    inside: pa.Array, first: int, count: int
) -> None:
    """A null list or map may have elements, of whatever type they are."""
    validity = pa.array([True, False, True]).buffers()[1]
    pairs = [
        pa.StructArray.from_arrays([keys, inside], ["key", "value"])
        for keys in (NUMBERS.cast(pa.string()), NUMBERS)
    ]
    texts = {str(number): D(number) for number in range(6)}
    forms = (
        (pa.list_(inside.type), np.int32, inside, [D(0), D(1)], [D(4), D(5)]),
        (pa.large_list(inside.type), np.int64, inside, [D(0), D(1)], [D(4), D(5)]),
        (pa.list_(inside.type, 2), None, inside, [D(0), D(1)], [D(4), D(5)]),
        (
            pa.map_(pa.string(), inside.type),
            *(np.int32, pairs[0], {key: texts[key] for key in "01"}, {key: texts[key] for key in "45"}),
        ),
        (
            pa.map_(pa.int8(), inside.type),
            *(np.int32, pairs[1], [{"key": k, "value": k} for k in (0, 1)]),
            [{"key": k, "value": k} for k in (4, 5)],
        ),
    )
    for type_, dtype, children, one, other in forms:
        offsets = [] if dtype is None else [pa.py_buffer(np.arange(0, 8, 2).astype(dtype))]
        lists = pa.Array.from_buffers(type_, 3, [validity, *offsets], children=[children])
        holder = pa.StructArray.from_arrays([lists], ["m"])
        expected = [one, None, other][first : first + count]
        for array, values in ((lists, expected), (holder, [{"m": each} for each in expected])):
            assert variant.to_python(variant.from_arrow(array.slice(first, count))) == values


@pytest.mark.parametrize("offsets", [[0, 5, 9], [3, 1, 2], [-5, 0, 2], [0, -1, 2], [2, 1, 0]])
@pytest.mark.parametrize("inside", [NUMBERS[:2], NUMBERS[:2].dictionary_encode()])
def test_lists_that_are_not_within_their_elements_are_refused(offsets: list[int], inside: pa.Array) -> None:
    """Offsets that are wrong are an error of Bowstring's, also of what pyarrow rewrites."""
    for key in (None, NUMBERS[:2], NUMBERS[:2].cast(pa.string())):
        damaged = np.array([0, 1, 2], np.int32)
        type_ = pa.list_(inside.type) if key is None else pa.map_(key.type, inside.type)
        child = inside if key is None else pa.StructArray.from_arrays([key, inside], ["key", "value"])
        column = unmarked(pa.Array.from_buffers(type_, 2, [None, pa.py_buffer(damaged)], children=[child]))
        damaged[:] = offsets
        with pytest.raises(InvalidBody):
            variant.from_arrow(column)


def test_a_key_of_a_map_is_not_null() -> None:
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
    with pytest.raises(InvalidBody, match="a key of a map is null"):
        variant.from_arrow(pa.MapArray.from_arrays(pa.array([0, 2]), keys, NUMBERS[:2]))


def test_a_variant_is_returned_as_it_is() -> None:
    column = variant.from_python([1])
    assert variant.from_arrow(column) is column


@pytest.mark.parametrize(
    ("array", "error"),
    [
        (pa.array([1], pa.duration("s")), Unsupported),
        (pa.array([{"x": pa.MonthDayNano([1, 2, 3])}]), Unsupported),
        (pa.array([1001], pa.time64("ns")), InvalidBody),
        (pa.array([2**62], pa.timestamp("s")), InvalidBody),
        (pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int8())), InvalidBody),
        (pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), UsageError),
    ],
)
def test_what_variant_cannot_hold_is_refused(array: pa.Array, error: type[Exception]) -> None:
    with pytest.raises(error):
        variant.from_arrow(array)
