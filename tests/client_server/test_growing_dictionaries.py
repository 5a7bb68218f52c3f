"""Dictionaries that change from append to append: every batch has its own, and what is new is stored alone."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.memory import Pool
from tests.client_server.conftest import PATIENCE, until

TOKEN = "0123456789abcdef"
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "texts": (pa.string(), ["", "a", "bcd", "é" * 9, "", "f", "x" * 70, "y", "z"]),
    "large texts": (pa.large_string(), ["", "", "a", "bc", "d", "e", "f", "g", "h"]),
    "bytes": (pa.binary(), [b"\0", b"", b"\0\0", b"a", b"b", b"c", b"d", b"e", b"f"]),
    "numbers": (pa.int16(), [5, 4, 3, 2, 1, 0, -1, -2, -3]),
    "zeros": (pa.float64(), [0.0, -0.0, 1.5, float("inf"), -1.0, 2.0, 3.0, 4.0, 5.0]),
    "wide": (pa.binary(3), [bytes([each] * 3) for each in range(9)]),
    "flags": (pa.bool_(), [True, False, True, True, False, False, True, False, True]),
    "nulls": (pa.string(), ["a", None, "b", "c", None, "d", "e", "f", "g"]),
    "views": (pa.string_view(), ["a", "b" * 20, "c", "d", "e", "f", "g", "h", "i"]),
    "lists of zeros": (
        pa.list_(pa.float32()),
        [[0.0], [-0.0], [0.0, -0.0], None, [], [1.0], [-0.0, 0.0], [2.0], [3.0]],
    ),
    "pairs": (pa.list_(pa.int8()), [[1], [], [2, 3], None, [4], [5], [6], [7], [8]]),
}


@st.composite
def dictionaries(draw: st.DrawFn) -> tuple[pa.DataType, list[list[Any]]]:
    """Return the dictionaries of some batches, each the beginning of another, the same, longer, or a new one."""
    type_, values = VALUES[draw(st.sampled_from(sorted(VALUES)))]
    found, pool = [], list(values)
    for _ in range(draw(st.integers(1, 8))):
        if draw(st.integers(0, 5)) == 0:
            pool = draw(st.permutations(values))
        found.append(pool[: draw(st.integers(0, len(pool)))])
    return type_, found


def batch_of(type_: pa.DataType, values: list[Any]) -> pa.RecordBatch:
    """Return a batch that uses each value of a dictionary once, and null."""
    indices = pa.array([*range(len(values)), None], pa.int8())
    return pa.record_batch({"d": pa.DictionaryArray.from_arrays(indices, pa.array(values, type_))})


def shown(column: Any) -> list[str]:
    """Return values as text, in which -0.0 is not 0.0."""
    return [repr(each) for each in column.to_pylist()]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=dictionaries(), data=st.data())
def test_each_batch_has_its_own(
    address: str, drawn: tuple[pa.DataType, list[list[Any]]], data: st.DataObject
) -> None:
    """Whatever dictionaries follow on each other, readers from any position have what was appended."""
    type_, all_values = drawn
    expected = [[repr(each) for each in (*values, None)] for values in all_values]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            bow.Server(address, token=TOKEN, pool=Pool(budget=64 << 20), limits=PATIENCE)
        )
        early, positions = [], []
        at = 0
        while at < len(all_values):
            count = data.draw(st.integers(1, 3))  # batches of one append
            batches = [batch_of(type_, values) for values in all_values[at : at + count]]
            positions.append(server.append("t", batches))
            if at == 0:
                follower = stack.enter_context(bow.connect(server, "t", follow=True))
            early.append(follower.read_next_batch())
            if data.draw(st.integers(0, 3)) == 0:  # what fails leaves nothing behind
                with pytest.raises(bow.UsageError):
                    server.append("t", [batch_of(type_, [*all_values[at], *all_values[at]]), {"d": 1}])
            at += count
        server.finish("t")
        early += follower
        assert [shown(batch["d"]) for batch in early] == expected
        for follow in (True, False):
            with bow.connect(server, "t", follow=follow) as stream:
                assert [shown(batch["d"]) for batch in stream] == expected
        since = data.draw(st.sampled_from(positions))
        skipped = int(str(since).rpartition(":")[2])
        with bow.connect(server, "t", since=since) as stream:
            assert [shown(batch["d"]) for batch in stream] == expected[skipped:]
        with bow.connect(server, "t", shard=(0, 1), columns=["d"]) as stream:
            assert [shown(batch["d"]) for batch in stream] == expected
        del early, follower


@pytest.mark.parametrize("nulls", [[], [None]])
@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.float64(), lambda zero: zero),
        (pa.list_(pa.float32()), lambda zero: [1.0, zero]),
        (pa.list_(pa.list_view(pa.float64())), lambda zero: [[zero], []]),
        (pa.list_(pa.float16(), 2), lambda zero: [zero, 1.0]),
        (pa.struct({"x": pa.float64(), "y": pa.string()}), lambda zero: {"x": zero, "y": "z"}),
        (pa.map_(pa.float64(), pa.int8()), lambda zero: [(zero, 1)]),
    ],
    ids=lambda each: str(each) if isinstance(each, pa.DataType) else "",
)
def test_zeros_keep_their_sign(
    address: str, nulls: list[None], type_: pa.DataType, value: Callable[[float], Any]
) -> None:
    """A dictionary of -0.0 is not that of 0.0 before it, however deep it lies."""
    zeros = (0.0, -0.0, 0.0)
    with bow.Server(address, token=TOKEN) as server:
        for zero in zeros:
            server.append("t", batch_of(type_, [value(zero), *nulls]))
        with bow.connect(server, "t") as stream:
            assert [shown(batch["d"])[0] for batch in stream] == [repr(value(zero)) for zero in zeros]


@pytest.mark.parametrize("name", ["texts", "numbers"])
def test_what_is_new_is_stored_alone(serve: Callable[..., bow.Server], address: str, name: str) -> None:
    """A dictionary that grows by a little with each of many appends takes a few times its size, and no more."""
    server = serve(address, token=TOKEN)
    count, size = 200, 2000
    values: list[Any] = []
    with contextlib.ExitStack() as stack:
        for number in range(count):
            values += (
                [f"{number:0{size}}"]
                if name == "texts"
                else range(number * size // 8, (number + 1) * size // 8)
            )
            array = pa.array(values)
            indices = pa.array([len(values) - 1, 0], pa.int32())
            server.append("t", pa.record_batch({"d": pa.DictionaryArray.from_arrays(indices, array)}))
            if number == 0:
                follower = stack.enter_context(bow.connect(server, "t", follow=True))
            batch = follower.read_next_batch()
            assert batch["d"].to_pylist() == [values[-1], values[0]]
            del batch
        assert server.pool.stats.in_use <= 5 * count * size + (2 << 20)
        server.withdraw("t")
    del follower
    until(lambda: gc.collect() >= 0 and server.pool.stats.in_use == 0)
