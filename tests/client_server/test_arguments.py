"""Arguments of the wrong kind are refused in words, before anything is opened."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.memory import Pool

TABLE = pa.table({"a": [1, 2, 3]})
# Nobody listens there, which whoever tried would be told.
NOWHERE = "unix:/nowhere/x.sock?want_data=1&ticket=dA"


KINDS: dict[str, list[Any]] = {
    "columns": [5, "a", b"a", [1], {"a": 1}, {"a"}, ["\ud800"], ["a", "b\udfff"]],
    "ticket": [5, "t", [1]],
    "name": [5, "\ud800", [1]],
    "limits": [{}, "none", 3],
    "device": [5],
    "options": [5, {"ordered": False}, bow.ConnectOptions(pool=5)],  # type: ignore[arg-type]
    "mode": [5],
    "cuda_stream": [5.0],
    "timeout": ["3", -1, math.nan, math.inf, True],
    "follow": [5, "no", None],
    "since": [5, "", "x", b"x:1"],
}
WRONG = [{name: value} for name, values in KINDS.items() for value in values]


@pytest.mark.parametrize("wrong", WRONG, ids=ascii)
@pytest.mark.parametrize("parsed", [False, True], ids=["uri", "endpoint"])
def test_connect(wrong: dict[str, Any], *, parsed: bool) -> None:
    """Each argument of connect is of its kind, and nobody is asked before that is known."""
    source = bow.Endpoint.parse(NOWHERE) if parsed else NOWHERE
    with pytest.raises(bow.BowstringError) as caught:
        bow.connect(source, **wrong)
    assert isinstance(caught.value, bow.UsageError)
    assert "nobody listens" not in str(caught.value)


@pytest.mark.parametrize("name", ["deadline", "batch_size"])
def test_arguments_that_are_none(server: bow.Server, name: str) -> None:
    """What no call knows is a TypeError that names it."""
    unknown: dict[str, Any] = {name: 3}
    with pytest.raises(TypeError, match=name):
        bow.connect(NOWHERE, **unknown)
    with pytest.raises(TypeError, match=name):
        server.publish("t", TABLE, **unknown)


@pytest.mark.parametrize("readers", ["two", 1.5, 0, -1, True], ids=repr)
def test_readers(server: bow.Server, readers: Any) -> None:
    """A number of readers is a number, and at least one."""
    with pytest.raises(bow.UsageError, match="readers="):
        server.publish("t", TABLE, readers=readers)


@pytest.mark.parametrize("timeout", ["3", -1, math.nan, math.inf, True], ids=repr)
def test_timeouts(server: bow.Server, timeout: Any) -> None:
    """A wait has an end: no text, nothing negative, not a number or infinite."""
    server.publish("t", TABLE)
    with pytest.raises(bow.UsageError, match="finite number of seconds"):
        server.wait_released("t", timeout)


@pytest.mark.parametrize(
    "wrong",
    [*({"budget": each} for each in ("x", -1, math.nan, 0.5, True)), {"device": 5}],
    ids=str,
)
def test_pools(wrong: dict[str, Any]) -> None:
    """A pool has a device, and a budget that is a number."""
    with pytest.raises(bow.UsageError):
        Pool(**wrong)


def test_numbers_and_lists_of_other_kinds(server: bow.Server) -> None:
    """Numbers of NumPy's, and the keys of a dict, are as good as Python's own numbers and lists."""
    budget: Any = np.int64(8 << 20)
    assert (type(Pool(budget=budget).budget), Pool(budget=budget).budget) == (int, 8 << 20)
    keys: Any = {"a": 1}.keys()
    with bow.connect(server.publish("t", TABLE), columns=keys) as stream:
        assert stream.read_all().equals(TABLE)
    waits: list[Any] = [np.int64(0), np.float32(0.01)]
    for seconds in waits:
        with pytest.raises(bow.DeadlineExceeded):
            server.wait_released("t", seconds)
