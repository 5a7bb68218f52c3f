"""Encoding: what is written reads back exactly, in every width, and follows the strictest readers' rules."""

from __future__ import annotations

import decimal
import itertools
import math
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.errors import UsageError
from bowstring.variant import Status, Value
from tests.variant import encoding
from tests.variant.decoding import decode
from tests.variant.encoding import Widths, column_of, variant_array, variant_field
from tests.variant.typed_values import GOLDEN, KEYS, PRIMITIVE_VALUES, VALUES

WIDTHS = st.builds(Widths, st.integers(1, 4), st.integers(1, 4), st.booleans())
ALL_WIDTHS = [Widths(*each) for each in itertools.product(range(1, 5), range(1, 5), (False, True))]


def written(value: Value) -> tuple[bytes, bytes]:
    """Return the metadata and the value of one tree."""
    rows = variant.from_python([value]).to_arrow().storage
    return rows.field("metadata").dictionary[0].as_py(), rows.field("value")[0].as_py()


def written_child(child: Value, *, key: int | None = None) -> bytes:
    """Return an array of one child, or an object with a key of this id."""
    if key is None:
        return written(Value("array", [child]))[1]
    others = Value("object", {f"{number:07}": Value("null", None) for number in range(key)})
    rows = variant.from_python([others, Value("object", {"x": child})]).to_arrow().storage
    found: bytes = rows.field("value")[1].as_py()
    return found


@given(value=VALUES)
def test_what_is_written_is_the_narrowest_form(value: Value) -> None:
    """Every tree is written as an encoder of its own writes it that takes any widths, in the least."""
    assert written(value) == encoding.encode(value)


@given(value=VALUES, widths=WIDTHS)
def test_round_trip(value: Value, widths: Widths) -> None:
    """Every tree, in any widths, decodes to itself: types, values, keys."""
    metadata, encoded = encoding.encode(value, widths)
    assert decode(metadata, encoded) == value


@given(values=st.lists(VALUES, max_size=4), widths=WIDTHS)
def test_what_is_written_is_valid(values: list[Value], widths: Widths) -> None:
    """Every tree in any widths passes the full validation: order, uniqueness, flags, ranges, UTF-8."""
    array = variant_array(encoding.encode(value, widths) for value in values)
    found = variant.validate(column_of(array, variant_field("v")), full=True).to_arrow().to_pylist()
    assert not any(Status(status).is_error for status in found)


@pytest.mark.parametrize("widths", ALL_WIDTHS, ids=str)
def test_every_type_at_its_bounds_in_every_width(widths: Widths) -> None:
    """Objects and arrays of all primitives at their bounds read back in all widths of ids, offsets and counts."""
    fields = {f"k{index}": value for index, value in enumerate(PRIMITIVE_VALUES)}
    whole = Value("array", [Value("object", fields), Value("array", PRIMITIVE_VALUES)])
    metadata, encoded = encoding.encode(whole, widths)
    assert decode(metadata, encoded) == whole


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("order", ["sorted", "reversed", "duplicates"])
def test_any_dictionary_is_read(order: str, flag: bool) -> None:
    """Names in any order, twice, and with a flag that lies, read back by their ids."""
    names = {"sorted": ["", "a", "😀"], "reversed": ["😀", "a", ""], "duplicates": ["a", "a", "b"]}[order]
    metadata = encoding.metadata_bytes(names, sorted_flag=flag)
    assert metadata[0] >> 4 & 1 == flag
    for id_, name in enumerate(names):
        value = encoding.object_bytes([(id_, encoding.primitive_bytes(Value("int8", 7)))])
        assert decode(metadata, value).value == {name: Value("int8", 7)}


@given(keys=st.sets(KEYS))
def test_a_dictionary_is_flagged_as_sorted(keys: set[str]) -> None:
    """Names in the order of their UTF-8 are said to be sorted and unique, but where there are none."""
    metadata, _ = written(Value("object", dict.fromkeys(keys, Value("null", None))))
    assert metadata[0] & 0x3F == 1 | bool(keys) << 4
    assert metadata.endswith(b"".join(sorted(key.encode() for key in keys)))
    for id_, name in enumerate(sorted(keys, key=str.encode)):
        assert decode(metadata, encoding.object_bytes([(id_, b"\0")])).value == {name: Value("null", None)}


@given(value=VALUES)
def test_ids_rise_and_reserved_bits_are_zero(value: Value) -> None:
    """Of each object the ids rise over a sorted dictionary; offsets begin at 0 and rise; no reserved bit is set."""
    names = encoding.names_in([value])
    assert [name.encode() for name in names] == sorted(name.encode() for name in names)
    _, encoded = written(value)
    header = encoded[0]
    if header & 3 == 2:
        assert header & 0x80 == 0
        width, id_width = (header >> 2 & 3) + 1, (header >> 4 & 3) + 1
        assert header >> 6 & 1 == 0
        count = encoded[1]
        ids = _numbers(encoded, 2, count, id_width)
        offsets = _numbers(encoded, 2 + count * id_width, count + 1, width)
        assert all(one < next_ for one, next_ in itertools.pairwise(ids))
        assert offsets[0] == 0
        assert all(one < next_ for one, next_ in itertools.pairwise(offsets))
        assert len(encoded) == 2 + count * id_width + (count + 1) * width + offsets[-1]
    if header & 3 == 3:
        assert header & 0xE0 == 0


def _numbers(encoded: bytes, start: int, count: int, width: int) -> list[int]:
    return [
        int.from_bytes(encoded[start + index * width : start + (index + 1) * width], "little")
        for index in range(count)
    ]


@pytest.mark.parametrize(("count", "large"), [(255, 0), (256, 1)])
def test_large_where_a_byte_cannot_count(count: int, large: int) -> None:
    """256 children take a count of 4 bytes, 255 do not."""
    null = Value("null", None)
    keys = {f"{index:03}": null for index in range(count)}
    assert written(Value("array", [null] * count))[1][0] >> 4 & 1 == large
    assert written(Value("object", keys))[1][0] >> 6 & 1 == large


@pytest.mark.parametrize(("size", "width"), [(255, 1), (256, 2), (65_535, 2), (65_536, 3), (1 << 24, 4)])
def test_the_narrowest_offsets(size: int, width: int) -> None:
    """Offsets take as many bytes as the size of all children needs."""
    child = Value("binary", bytes(size - 5))
    assert (written_child(child)[0] >> 2 & 3) + 1 == width
    assert (written_child(child, key=0)[0] >> 2 & 3) + 1 == width


@pytest.mark.parametrize(("id_", "width"), [(255, 1), (256, 2), (65_536, 3)])
def test_the_narrowest_ids(id_: int, width: int) -> None:
    """Ids take as many bytes as the largest of them needs."""
    assert (written_child(Value("null", None), key=id_)[0] >> 4 & 3) + 1 == width


def test_strings_below_64_bytes_are_short() -> None:
    """63 bytes of UTF-8 fit the header byte, 64 do not."""
    assert written(Value("string", "x" * 63))[1][0] == 1 | 63 << 2
    assert written(Value("string", "ä" * 32))[1][0] == 16 << 2


@given(number=st.integers(-(1 << 63), (1 << 63) - 1))
def test_the_narrowest_integer(number: int) -> None:
    """An integer takes the narrowest of the four widths that NumPy too would need."""
    bits = next(bits for bits in (8, 16, 32, 64) if -(1 << bits - 1) <= number < 1 << bits - 1)
    [found] = variant.to_python(variant.from_python([number]), typed=True)
    assert found == Value(f"int{bits}", number)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("999999999", "decimal4"),
        ("1000000000", "decimal8"),
        ("1e-9", "decimal4"),
        ("1e-10", "decimal8"),
        ("1e-18", "decimal8"),
        ("1e-19", "decimal16"),
        ("1e-38", "decimal16"),
        ("1e-39", None),
        ("1e37", "decimal16"),
        ("1e38", None),
        ("0e9999", "decimal4"),
        ("1e999999", None),
        ("NaN", None),
        ("-Infinity", None),
    ],
)
def test_the_narrowest_decimal(number: str, expected: str | None) -> None:
    """A decimal takes the narrowest width that Spark reads: neither digits nor scale beyond the width's."""
    if expected is None:
        with pytest.raises(UsageError):
            variant.from_python([decimal.Decimal(number)])
    else:
        [found] = variant.to_python(variant.from_python([decimal.Decimal(number)]), typed=True)
        assert found == Value(expected, decimal.Decimal(number))


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_values_are_written_as_spark_does(parquet_test_data: Path, name: str) -> None:
    """What is encoded has a golden file's bytes, but for ids of names and the order of fields' values."""
    stem = parquet_test_data / "variant" / name
    expected = stem.with_suffix(".value").read_bytes()
    metadata, found = written(GOLDEN[name])
    assert len(found) == len(expected)
    if name in ("array_nested", "object_nested", "object_primitive"):
        # Spark leaves the fields' values in the order in which they came.
        assert decode(metadata, found) == GOLDEN[name]
    else:
        assert found == expected


@pytest.mark.parametrize(
    "value",
    [
        Value("int8", 128),
        Value("int64", 1 << 63),
        Value("int8", True),
        Value("int8", 1.0),
        Value("float", 0.1),
        Value("float", 1e39),
        Value("double", 1),
        Value("decimal4", decimal.Decimal(10**9)),
        Value("decimal4", decimal.Decimal("1e-10")),
        Value("time", -1),
        Value("time", 86_400_000_000),
        Value("string", b"x"),
        Value("string", "\ud800"),
        Value("binary", "x"),
        Value("uuid", "x"),
        Value("true", True),
        Value("int128", 1),
        Value("object", {"\ud800": Value("null", None)}),
    ],
    ids=repr,
)
def test_what_a_type_cannot_hold_is_refused(value: Value) -> None:
    """Nothing is cut, rounded or replaced on its way into a Variant."""
    with pytest.raises(UsageError):
        written(value)


def test_not_a_number_keeps_being_none() -> None:
    """NaNs of both widths are written and read back."""
    for type_, form in (("double", "<d"), ("float", "<f")):
        metadata, encoded = written(Value(type_, math.nan))
        assert math.isnan(struct.unpack(form, encoded[1:])[0])
        assert math.isnan(decode(metadata, encoded).value)
