"""What goes wrong where the loop looks after a stream is the end of that stream, and not of the others."""

from __future__ import annotations

import collections
import threading
from typing import Any

import pytest

import bowstring as bow
from bowstring.client.connection import Connection
from tests.faults.conftest import until


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the errors that are reported as those of threads."""
    errors: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: errors.append(str(arguments.exc_value)))
    return errors


@pytest.mark.parametrize("failing", ["_do_due", "fail"])
def test_a_stream_that_fails_ends_alone(
    reported: list[str], monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """An exception while a stream is looked after ends that stream, is reported once, and the others go on."""
    bad: list[Connection] = []
    looked: dict[Connection, int] = {}
    look, fail = Connection._do_due, Connection.fail

    def counted(self: Connection) -> float:
        looked[self] = looked.get(self, 0) + 1
        if self in bad:
            raise RuntimeError("looking after it")
        look(self)
        return 0.01

    def failed(self: Connection, error: bow.BowstringError) -> None:
        fail(self, error)
        if self in bad and failing == "fail":
            raise RuntimeError("failing")

    monkeypatch.setattr(Connection, "_do_due", counted)
    monkeypatch.setattr(Connection, "fail", failed)
    with bow.Server() as server:
        server.append("t", {"a": [1, 2]})
        with bow.connect(server, "t", follow=True) as good, bow.connect(server, "t", follow=True) as other:
            connections: list[Any] = [good._connection, other._connection]  # type: ignore[attr-defined]
            until(lambda: all(each in looked for each in connections), "both are looked after")
            bad.append(connections[1])
            until(lambda: reported, "it is reported")
            seen, tried = looked[connections[0]], looked[connections[1]]
            until(lambda: looked[connections[0]] > seen + 3, "the other one is looked after")
            assert looked[connections[1]] == tried
            assert len(reported) == 1
            assert good.read_next_batch().num_rows == 2
            # What had come stays, and what had not is an error of its own.
            with pytest.raises(bow.BrokenError, match="RuntimeError"):
                collections.deque(other, maxlen=0)
