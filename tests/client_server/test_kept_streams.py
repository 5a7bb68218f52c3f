"""The keeper of a process's streams: what goes wrong with one of them is its own end, not that of the others."""

from __future__ import annotations

import threading

import pytest

import bowstring as bow
from bowstring.client.connection.keeper import Keeper, Patience
from tests.faults.conftest import until


class Stream:
    """A stream for a keeper, of which one call fails; it asks to be attended to where it is failed, as ours do."""

    def __init__(self, keeper: Keeper, failing: str = "") -> None:
        self.patience = Patience.of(1.0, 0.05)
        self.attended = self.looked = 0
        self.errors: list[bow.BowstringError] = []
        self._keeper = keeper
        self._failing = failing

    def attend(self) -> None:
        self.attended += 1
        if self._failing == "attend":
            raise RuntimeError("attend")

    def look(self, now: float) -> float:
        self.looked += 1
        if self._failing in ("look", "fail"):
            raise RuntimeError("look")
        return 0.01

    def fail(self, error: bow.BowstringError) -> None:
        self.errors.append(error)
        self._keeper.keep(self)
        self._keeper.ring(self)
        if self._failing == "fail":
            raise RuntimeError("fail")

    def close(self) -> None: ...
    def flush(self, seconds: float) -> None: ...
    def before_fork(self) -> None: ...
    def after_fork(self) -> None: ...


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the errors that are reported as those of threads."""
    errors: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: errors.append(str(arguments.exc_value)))
    return errors


@pytest.mark.parametrize("failing", ["attend", "look", "fail"])
def test_a_stream_that_fails_ends_alone(reported: list[str], failing: str) -> None:
    """An exception while a stream is attended to ends that stream, is reported, and the others are kept on."""
    keeper = Keeper()
    good, bad = Stream(keeper), Stream(keeper, failing)
    for each in (bad, good):
        keeper.keep(each)
        keeper.ring(each)
    until(lambda: bad.errors, "the stream learns of it")
    seen, attended = good.looked, good.attended
    keeper.ring(good)
    until(lambda: good.looked > seen + 3 and good.attended > attended, "the other one is kept")
    (error,) = bad.errors
    assert isinstance(error, bow.BrokenError)
    assert "RuntimeError" in str(error)
    assert reported
    # It is not tried for ever.
    tried = bad.looked, len(reported)
    seen = good.looked
    until(lambda: good.looked > seen + 3, "the other one is kept")
    assert (bad.looked, len(reported)) == tried
    keeper.drop(good)
