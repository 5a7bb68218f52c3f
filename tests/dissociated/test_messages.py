"""The bytes of messages: what is packed is unpacked, and garbage ends in an error of the tree."""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bowstring import errors
from bowstring.dissociated.failures import pack_error, unpack_error
from bowstring.dissociated.wire import (
    END,
    METADATA,
    Hello,
    Welcome,
    pack_addresses,
    pack_pairs,
    pack_prefix,
    pack_region,
    pack_u64,
    unpack_addresses,
    unpack_pairs,
    unpack_prefix,
    unpack_region,
    unpack_u64,
)
from bowstring.errors import BowstringError, BrokenError, EndOfStream, ProtocolError
from bowstring.memory import Handle, KeyedHandle, LentHandle, this_process, unpack_handle

U64 = st.integers(0, 2**64 - 1)
NAMES = st.text(max_size=10)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
UNPACKERS: list[Callable[[bytes], Any]] = [
    Hello.unpack,
    Welcome.unpack,
    unpack_error,
    unpack_prefix,
    unpack_pairs,
    unpack_addresses,
    unpack_region,
    unpack_u64,
    unpack_handle,
    type(this_process()).unpack,
]


@given(kind=st.sampled_from([END, METADATA]), number=st.integers(0, 2**40), rest=st.binary(max_size=40))
def test_prefixes(kind: int, number: int, rest: bytes) -> None:
    """Type and number come back, and what follows is a view of the same bytes."""
    rest = b"" if kind == END else rest
    found = unpack_prefix(memoryview(pack_prefix(kind, number) + rest))
    assert (found[0], found[1], bytes(found[2])) == (kind, number % 2**32, rest)


@given(data=st.binary(max_size=12))
def test_prefixes_of_any_bytes(data: bytes) -> None:
    """A message with less than 5 bytes, a type above 1, or an end that goes on is refused; no other is."""
    fine = len(data) >= 5 and data[0] <= 1 and not (data[0] == END and len(data) > 5)
    if fine:
        assert unpack_prefix(data)[1] == int.from_bytes(data[1:5], "little")
    else:
        with pytest.raises(ProtocolError):
            unpack_prefix(data)


@given(lengths=st.lists(st.integers(0, 2**60), max_size=20), data=st.data())
def test_pairs(lengths: list[int], data: st.DataObject) -> None:
    """A body of type 1 comes back: its total, and an address and a length for each buffer."""
    addresses = data.draw(st.lists(U64, min_size=len(lengths), max_size=len(lengths)))
    pairs = np.array(list(zip(addresses, lengths, strict=True)), np.uint64).reshape(-1, 2)
    total, found = unpack_pairs(pack_pairs(pairs, sum(lengths)))
    assert total == sum(lengths)
    assert found.tolist() == pairs.tolist()


@given(pairs=hnp.arrays(np.uint64, st.tuples(st.integers(0, 6), st.just(2))), total=U64, count=U64)
@example(np.array([[0, 2**63], [0, 2**63]], np.uint64), 0, 2)
@example(np.array([[1, 2**64 - 1], [1, 2]], np.uint64), 1, 2)
@example(np.array([[0, 2**64 - 1]], np.uint64), 2**64 - 1, 1)
def test_totals_do_not_wrap(pairs: np.ndarray[Any, Any], total: int, count: int) -> None:
    """A total or a count that is wrong is refused, also where the sum of the lengths is beyond 64 bits."""
    body = struct.pack("<QQ", total, count) + pairs.astype("<u8").tobytes()
    if total == sum(int(length) for length in pairs[:, 1]) and count == len(pairs):
        assert unpack_pairs(body)[1].tolist() == pairs.tolist()
    else:
        with pytest.raises(ProtocolError):
            unpack_pairs(body)


@given(length=st.integers(0, 100))
def test_lengths_that_are_not_pairs(length: int) -> None:
    """A body that does not consist of pairs, or lacks the first, is refused."""
    if length == 0 or length % 16:
        with pytest.raises(ProtocolError, match="length"):
            unpack_pairs(bytes(length))


@given(addresses=st.lists(U64, min_size=1, max_size=20), cut=st.integers(1, 7))
def test_addresses(addresses: list[int], cut: int) -> None:
    """free_data is a list of uint64, little-endian, at least one; a cut one is refused."""
    body = pack_addresses(np.array(addresses, np.uint64))
    assert body == struct.pack(f"<{len(addresses)}Q", *addresses)
    assert unpack_addresses(body) == addresses
    for wrong in (body[:-cut], b""):
        with pytest.raises(ProtocolError):
            unpack_addresses(wrong)


@given(
    base=U64,
    uuid=st.binary(min_size=16, max_size=16),
    nbytes=U64,
    device_type=st.integers(0, 2**32 - 1),
    cut=st.integers(1, 56),
    reserved=st.integers(1, 2**32 - 1),
)
def test_regions(base: int, uuid: bytes, nbytes: int, device_type: int, cut: int, reserved: int) -> None:
    """A region's announcement is 8 bytes of base and 48 of handle; others and reserved bits are refused."""
    handle = Handle(uuid, uuid[::-1], nbytes, device_type)
    body = pack_region(base, handle)
    assert body == struct.pack("<Q16s16sQII", base, uuid, uuid[::-1], nbytes, device_type, 0)
    assert unpack_region(body) == (base, handle)
    for wrong in (body[:-cut], body + b"\0", body[:-4] + reserved.to_bytes(4, "little")):
        with pytest.raises(ProtocolError):
            unpack_region(wrong)


IDS = st.binary(min_size=16, max_size=16)
LENT = st.builds(
    LentHandle,
    st.binary(min_size=64, max_size=64),
    U64,
    U64,
    st.builds(type(this_process()), IDS, U64, U64, st.integers(0, 2**32 - 1)),
    IDS,
    U64,
    st.integers(0, 2**32 - 1),
)


KEYED = st.builds(
    KeyedHandle, IDS, IDS, U64, st.integers(0, 2**32 - 1), U64, st.binary(min_size=1, max_size=4096)
)


@given(base=U64, handle=KEYED, kind=st.integers(3, 2**32 - 1))
def test_regions_with_keys(base: int, handle: KeyedHandle, kind: int) -> None:
    """The announcement of memory with a key ends with the key, and is of no other kind or length."""
    body = pack_region(base, handle)
    head = struct.pack(
        "<16s16sQII", handle.uuid, handle.device_uuid, handle.nbytes, handle.arrow_device_type, 2
    )
    assert body == struct.pack("<Q", base) + head + struct.pack("<Q", handle.address) + handle.key
    assert unpack_region(body) == (base, handle)
    too_long = body[:64] + bytes(4097)
    for wrong in (body[:64], body[:56], too_long, body[:52] + struct.pack("<I", kind) + body[56:]):
        with pytest.raises(ProtocolError):
            unpack_region(wrong)


@given(base=U64, handle=LENT, kind=st.integers(3, 2**32 - 1))
def test_lent_regions(base: int, handle: LentHandle, kind: int) -> None:
    """The announcement of lent memory is laid out as written, named by its hash, and of no other kind or length."""
    body = pack_region(base, handle)
    exporter = handle.exporter
    rest = struct.pack("<16sQII", handle.device_uuid, handle.nbytes, handle.arrow_device_type, 1)
    rest += struct.pack("<64sQQ", handle.token, handle.buffer_id, handle.address)
    rest += struct.pack("<16sQQII", exporter.boot_id, exporter.namespace, exporter.started, exporter.pid, 0)
    assert body == struct.pack("<Q", base) + hashlib.sha256(rest).digest()[:16] + rest
    assert unpack_region(body) == (base, handle)
    for wrong in (body[:-1], body + b"\0", body[:56], body[:52] + struct.pack("<I", kind) + body[56:]):
        with pytest.raises(ProtocolError):
            unpack_region(wrong)


@given(value=U64, wrong=st.binary(max_size=20).filter(lambda data: len(data) != 8))
def test_numbers(value: int, wrong: bytes) -> None:
    """Credit, window and blocked are one uint64, and nothing else."""
    assert unpack_u64(pack_u64(value)) == value == int.from_bytes(pack_u64(value), "little")
    with pytest.raises(ProtocolError):
        unpack_u64(wrong)


@given(
    hello=st.builds(
        Hello,
        st.none() | st.lists(NAMES, max_size=4).map(tuple),
        st.integers(0, 2**63 - 1),
        st.booleans(),
        st.none() | st.text(max_size=20),
        st.integers(1, 2**40),
    )
)
def test_hellos(hello: Hello) -> None:
    """A hello comes back with its columns in order, its window, its wishes, token and version."""
    assert Hello.unpack(hello.pack()) == hello


NUMBER = st.none() | st.integers(0, 2**63 - 1)


@given(
    welcome=st.builds(
        Welcome,
        st.booleans(),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
        NUMBER,
        NUMBER,
        NUMBER,
    )
)
def test_welcomes(welcome: Welcome) -> None:
    """A welcome comes back with its path, its reason and what was known beforehand."""
    assert Welcome.unpack(welcome.pack()) == welcome


@given(fields=st.dictionaries(st.sampled_from(["later", "colour", "columns2"]), JSON))
def test_unknown_keys_are_ignored(fields: dict[str, Any]) -> None:
    """What a later version adds to a hello or a welcome changes nothing for this one."""
    hello = json.loads(Hello(("a",), 7, pointers=True).pack())
    assert Hello.unpack(json.dumps(hello | fields).encode()) == Hello(("a",), 7, pointers=True)
    welcome = json.loads(Welcome(True, "p", "w").pack())
    assert Welcome.unpack(json.dumps(welcome | fields).encode()) == Welcome(charged=True, path="p", why="w")


KEYS = ("version", "columns", "window", "pointers", "token", "charged", "path", "why", "num_rows")


@given(fields=st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, JSON)))
def test_hellos_of_any_json(fields: dict[str, Any]) -> None:
    """Any JSON object is a hello with the right types or refused, and always a welcome that can be printed."""
    data = json.dumps(fields).encode()
    try:
        hello = Hello.unpack(data)
    except ProtocolError as error:
        str(error).encode()
    else:
        assert hello.columns is None or all(isinstance(name, str) for name in hello.columns)
        assert type(hello.version) is int
        assert 0 <= hello.window < 2**63
    welcome = Welcome.unpack(data)
    f"{welcome.path}{welcome.why}".encode()
    assert type(welcome.num_rows) in (int, type(None))


@given(data=st.binary(max_size=200))
@example(b"\xff\xfe{\x00}\x00")
@example(b"[" * 100_000)
@example(b'{"path":' * 50_000)
@example(b"9" * 5000)
@example(b'{"window":' + b"9" * 4000 + b"}")
@example(b'{"version":NaN,"window":Infinity}')
@example(b'{"what":"\\ud800","code":"\\udfff","token":"\\ud800"}')
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """No bytes at all make an unpacker raise anything but an error of the tree."""
    for unpack in UNPACKERS:
        try:
            found = unpack(data)
        except BowstringError as error:
            str(error).encode()
        else:
            str(found).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("key", ["path", "columns", "window", "version", "code", "what", "token"])
def test_nesting_as_deep_as_the_stack(key: str) -> None:
    """JSON that is just not too deep for the parser is not too deep for what comes after it either."""
    deepest = sys.getrecursionlimit()
    for depth in range(deepest - 200, deepest + 5):
        data = b'{"version":1,"%s":%s}' % (key.encode(), b"[" * depth + b"]" * depth)
        for unpack in (Hello.unpack, Welcome.unpack, unpack_error):
            try:
                unpack(data)
            except BowstringError:
                continue


KINDS = [getattr(errors, name) for name in errors.__all__]


@given(
    kind=st.sampled_from(KINDS),
    texts=st.lists(st.none() | st.text(max_size=600), min_size=4, max_size=4),
    what=st.text(max_size=600),
)
def test_errors_travel(kind: type[BowstringError], texts: list[str | None], what: str) -> None:
    """Every error of the tree arrives as an error of the tree with the same words, and never as the end."""
    expected, found, where, hint = texts
    packed = pack_error(kind(what, expected=expected, found=found, where=where, hint=hint))
    error = unpack_error(packed)
    assert not isinstance(error, EndOfStream)
    str(error).encode()
    if not issubclass(kind, errors.ClosedError) and what:
        assert error.what == what[:500].encode(errors="replace").decode()


def come_back(kind: type[BowstringError]) -> type[BowstringError]:
    """Return as what an error comes back that has travelled."""
    return type(unpack_error(pack_error(kind("x"))))


@pytest.mark.parametrize("kind", KINDS)
def test_error_kinds_come_back(kind: type[BowstringError]) -> None:
    """An error comes back as what it was, or as the nearest class above it that has a name of its own."""
    found = come_back(kind)
    assert issubclass(kind, found) or found is errors.BrokenError
    above = [each for each in kind.__mro__ if issubclass(each, BowstringError) and come_back(each) is each]
    assert above[:1] in ([found], [])


def test_most_errors_have_names_of_their_own() -> None:
    """Errors that a reader would treat differently come back as what they were."""
    assert sum(come_back(kind) is kind for kind in KINDS) == 26


def test_errors_of_others_are_the_producers_failure() -> None:
    """An exception of the user's code arrives as ProducerFailed, with its kind and a bounded text."""
    error = unpack_error(pack_error(ZeroDivisionError("x" * 10_000)))
    assert type(error) is errors.ProducerFailed
    assert str(error.found).startswith("ZeroDivisionError: xxx")
    assert len(str(error)) < 5000


def test_errors_fit_a_control_message() -> None:
    """However long the texts of an error are, its message is far below ``Limits.control_bytes``."""
    text = "\U0001f3f9" * 100_000
    assert len(pack_error(BrokenError(text, expected=text, found=text, where=text, hint=text))) < 64 << 10


def test_unknown_errors_are_still_errors() -> None:
    """An error with a name that this version does not know is a BrokenError, even without words."""
    assert type(unpack_error(b'{"code": "coffee"}')) is BrokenError
    assert type(unpack_error(b"{}")) is BrokenError


@pytest.mark.parametrize("name", [r"\ud800", r"a\udfff"])
def test_names_in_a_hello_are_text(name: str) -> None:
    """A column's name that UTF-8 cannot encode, which JSON can escape, is refused with the hello."""
    with pytest.raises(ProtocolError, match="columns in a hello"):
        Hello.unpack(b'{"version": 1, "columns": ["ok", "%s"]}' % name.encode())
