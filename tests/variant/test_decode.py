"""Decoding one value: what is right is read exactly, and whatever is wrong is an error that says where."""

from __future__ import annotations

import decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.errors import BowstringError, InvalidBody, LimitExceeded, Truncated, Unsupported
from bowstring.limits import Limits
from bowstring.variant import KINDS, Value
from tests.variant.decoding import decode
from tests.variant.encoding import array_bytes, metadata_bytes, object_bytes, primitive_bytes
from tests.variant.typed_values import GOLDEN

NULL, TRUE = b"\x00", b"\x04"
EMPTY, NAMES = metadata_bytes([]), metadata_bytes(["a", "b"])


def golden(folder: Path, name: str) -> tuple[bytes, bytes]:
    stem = folder / "variant" / name
    return stem.with_suffix(".metadata").read_bytes(), stem.with_suffix(".value").read_bytes()


def outcome(metadata: bytes, value: bytes) -> object:
    """Return what a value decodes to, or where our error says that it does not."""
    try:
        return decode(metadata, value)
    except BowstringError as error:
        return str(error.where).removeprefix("row 0")


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_values(parquet_test_data: Path, name: str) -> None:
    """Each golden file is decoded to the type and the exact value that it holds."""
    metadata, value = golden(parquet_test_data, name)
    assert decode(metadata, value) == GOLDEN[name]


def test_all_golden_values_are_expected(parquet_test_data: Path) -> None:
    """No golden file is left out."""
    assert {path.stem for path in (parquet_test_data / "variant").glob("*.value")} == set(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_every_prefix_is_refused(parquet_test_data: Path, name: str) -> None:
    """A golden value, or its metadata, cut short at any byte is truncated, and nothing else."""
    metadata, value = golden(parquet_test_data, name)
    for length in range(len(value)):
        with pytest.raises(Truncated):
            decode(metadata, value[:length])
    for length in range(len(metadata)):
        with pytest.raises(Truncated):
            decode(metadata[:length], value)


@given(data=st.data(), name=st.sampled_from(sorted(GOLDEN)))
def test_flipped_bytes_end_in_a_value_or_an_error(
    parquet_test_data: Path, data: st.DataObject, name: str
) -> None:
    """Whatever bytes are changed, decoding gives a value or one of our errors."""
    parts = [bytearray(part) for part in golden(parquet_test_data, name)]
    for _ in range(data.draw(st.integers(1, 4))):
        part = parts[data.draw(st.integers(0, 1))]
        part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    assert outcome(*map(bytes, parts))


@given(metadata=st.binary(max_size=40), value=st.binary(max_size=60))
def test_any_bytes_end_in_a_value_or_an_error(metadata: bytes, value: bytes) -> None:
    """Random bytes give a value or one of our errors, each with its place."""
    for names in (b"\x01\x00\x00" + metadata, metadata):
        assert outcome(names, value)


MALFORMED: dict[str, tuple[bytes, bytes, type[BowstringError], str]] = {
    "id out of range": (metadata_bytes(["a"]), object_bytes([(1, TRUE)]), InvalidBody, "id"),
    "overflow in a bounds check": (EMPTY, bytes.fromhex("1f33333333") + bytes(64), Truncated, "offsets"),
    "malformed child": (EMPTY, array_bytes([TRUE, b"\x0c"]), Truncated, "passes the end"),
    "negative dictionary size": (bytes.fromhex("c1ffffffff00"), NULL, Truncated, "offsets"),
    "offset of a child": (EMPTY, bytes.fromhex("030200090104 04".replace(" ", "")), InvalidBody, "child"),
    "dictionary size": (bytes.fromhex("01ff00"), NULL, Truncated, "offsets"),
    "element count": (EMPTY, bytes.fromhex("03ff0000"), Truncated, "offsets"),
    "size of a primitive": (EMPTY, bytes.fromhex("40ffffffff6162"), Truncated, "passes the end"),
    "short string": (EMPTY, bytes.fromhex("156162"), Truncated, "passes the end"),
    "size of a primitive cut": (EMPTY, bytes.fromhex("40ff"), Truncated, "number"),
    "unknown primitive": (EMPTY, bytes([21 << 2]), Unsupported, "primitive"),
    "version 2": (bytes.fromhex("020000"), NULL, InvalidBody, "version"),
    "duplicate key": (metadata_bytes(["a", "a"]), object_bytes([(0, TRUE), (1, NULL)]), InvalidBody, "twice"),
    "key that is not UTF-8": (bytes.fromhex("01010001ff"), NULL, InvalidBody, "UTF-8"),
    "string that is not UTF-8": (EMPTY, bytes.fromhex("05ff"), InvalidBody, "UTF-8"),
    "names step back": (bytes.fromhex("010200010061"), NULL, InvalidBody, "ends before"),
    "names begin late": (bytes.fromhex("0101010161"), NULL, InvalidBody, "begins late"),
    "scale": (EMPTY, bytes([8 << 2, 39, 1, 0, 0, 0]), InvalidBody, "scale"),
    "digits": (EMPTY, bytes([8 << 2, 0]) + (10**9).to_bytes(4, "little"), InvalidBody, "digits"),
    "time": (EMPTY, bytes([17 << 2]) + (86_400_000_000).to_bytes(8, "little"), InvalidBody, "day"),
    "negative time": (EMPTY, bytes([17 << 2]) + b"\xff" * 8, InvalidBody, "day"),
    "empty": (EMPTY, b"", Truncated, "missing"),
    "empty child": (EMPTY, bytes.fromhex("03010000"), InvalidBody, "child"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_values_are_refused(case: str) -> None:
    """What the specification forbids is refused in the words that fit, with its place."""
    metadata, value, error, words = MALFORMED[case]
    with pytest.raises(error, match=words) as raised:
        decode(metadata, value)
    assert str(raised.value.where).removeprefix("row 0")


def test_shared_children_are_legal() -> None:
    """Two fields may share one child's bytes, and offsets need not rise."""
    shared = bytes.fromhex("0202000100000104")
    assert decode(NAMES, shared).value == {"a": Value("boolean", True), "b": Value("boolean", True)}
    falling = bytes.fromhex("02020001 01 00 02 00 04".replace(" ", ""))
    assert decode(NAMES, falling).value == {"a": Value("boolean", True), "b": Value("null", None)}


def bomb(levels: int, inside: bytes) -> bytes:
    """Return objects whose two fields share one child, nested."""
    for _ in range(levels):
        size = len(inside).to_bytes(2, "little")
        inside = bytes((2 | 1 << 2, 2, 0, 1)) + bytes(4) + size + inside
    return inside


def test_a_bomb_of_shared_children_ends_at_once() -> None:
    """Children shared on every level stand for 2**60 leaves; the work stops at the value's length."""
    with pytest.raises(LimitExceeded, match="shares"):
        decode(NAMES, bomb(60, TRUE))


def test_a_long_text_shared_by_many_is_bounded() -> None:
    """Thousands of elements that share one long text are refused before they are all copied."""
    text = primitive_bytes(Value("string", "x" * 60_000))
    count = 10_000
    header = bytes((3 | (2 | 1 << 2) << 2,)) + count.to_bytes(4, "little")
    value = header + bytes(3 * count) + len(text).to_bytes(3, "little") + text
    with pytest.raises(LimitExceeded, match="bytes"):
        decode(EMPTY, value)


@pytest.mark.parametrize("levels", [64, 65, 500, 100_000])
def test_depth_is_bounded(levels: int) -> None:
    """As many levels as the limit says are read, one more is refused, and any number ends without a crash."""
    value = NULL
    if levels < 1000:
        for _ in range(levels):
            value = array_bytes([value])
    else:
        # Each level says that the rest is inside of it: only the depth is wrong.
        value = b"".join(
            bytes((0x0F, 1)) + bytes(4) + (10 * (levels - level - 1) + 1).to_bytes(4, "little")
            for level in range(levels)
        )
        value += NULL
    if levels <= Limits().depth:
        decode(EMPTY, value)
    else:
        with pytest.raises(LimitExceeded, match="deeply"):
            decode(EMPTY, value)
    if levels < 1000:
        assert decode(EMPTY, value, limits=Limits(depth=500)).type == "array"


def test_bytes_behind_the_end_and_reserved_bits_are_left_alone() -> None:
    """Trailing bytes and the bits that the specification reserves change nothing."""
    assert decode(b"\x31\x00\x00trailing", TRUE + b"trailing") == Value("boolean", True)
    assert decode(EMPTY, bytes([0x83, 0, 0])) == Value("array", [])


def test_primitives_are_numbered_as_specified() -> None:
    """The 21 primitive types have the numbers of the specification, as spelled out there."""
    zeros = bytes(17)
    kinds = [decode(EMPTY, bytes([number << 2]) + zeros).type for number in range(21)]
    assert set(kinds) == {*KINDS} - {"object", "array"}
    assert (kinds[1], kinds[2], kinds[11], kinds[20]) == ("boolean", "boolean", "date", "uuid")
    assert decode(EMPTY, bytes([10 << 2, 38]) + b"\x01" + bytes(15)).value == decimal.Decimal("1e-38")
