"""Streams of Spark, without Spark: what micro-batches read of a name that grows, is replaced, and is read again."""

from __future__ import annotations

import dataclasses
import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.dissociated.endpoint import Endpoint
from bowstring.dissociated.position import Position
from bowstring.errors import UsageError
from bowstring.spark.offsets import START, Listing, between, latest, of_offset, to_offset, wanted

URI = "inproc:server?want_data=1"


@dataclasses.dataclass
class Name:
    """A name, or a list of endpoints: no two that are ever there are the same."""

    listed: bool
    version: int = 0
    made: int = 0
    endpoints: tuple[Endpoint, ...] = ()

    def append(self, count: int) -> None:
        """Add endpoints."""
        self.endpoints += tuple(Endpoint(URI, b"%d" % (self.made + each)) for each in range(count))
        self.made += count

    def replace(self, count: int) -> None:
        """Let the name mean other endpoints."""
        self.version += 1
        self.endpoints = ()
        self.append(count)

    def listing(self, first: int = 0, last: int = 0) -> Listing:
        """Return what a reader sees now: of a name, those endpoints that it asked for."""
        if self.listed:
            return Listing(self.endpoints)
        end = Position.parse(f"{1 + self.version:016x}:{len(self.endpoints)}")
        return Listing(self.endpoints[first:last], end)


@dataclasses.dataclass
class Query:
    """A streaming query: offsets go through JSON into a log before they are read, and are committed after it."""

    reread: bool
    most: int | None = None
    log: list[str] = dataclasses.field(default_factory=lambda: [json.dumps(to_offset(START))])
    committed: int = 0
    read: list[Endpoint] = dataclasses.field(default_factory=list)

    def plan(self, name: Name) -> bool:
        """Log the next micro-batch; return whether there is one."""
        if self.committed == len(self.log) - 1:
            start = of_offset(json.loads(self.log[-1]))
            end = json.dumps(to_offset(latest(name.listing(), start, self.most, reread=self.reread)))
            if end != self.log[-1]:
                self.log.append(end)
        return self.committed < len(self.log) - 1

    def run(self, name: Name) -> list[Endpoint]:
        """Read the micro-batch that was logged."""
        start, end = (of_offset(json.loads(each)) for each in self.log[-2:])
        found = between(name.listing(*wanted(start, end)), start, end, reread=self.reread)
        self.committed += 1
        self.read += found
        return list(found)

    def drain(self, name: Name) -> list[Endpoint]:
        """Read all there is, as a restart does first with what was logged."""
        found = []
        while self.plan(name):
            found += self.run(name)
        return found


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["append", "replace"]), st.integers(0, 3)),
        st.tuples(st.sampled_from(["plan", "run", "drain"]), st.none()),
    ),
    max_size=25,
)


@given(STEPS, st.none() | st.integers(1, 2), st.booleans())
def test_each_endpoint_of_a_version_is_read_once(
    steps: list[tuple[str, Any]], most: int | None, listed: bool
) -> None:
    """Whatever happens between planning, reading and restarts: all endpoints once and in order, or an error.

    By default the error comes with the first look after something that was read, or planned, is gone, and stays.
    With `reread` there is none: the data set that is there in the end was read whole and once.
    """
    name = Name(listed)
    strict, relaxed = Query(reread=False, most=most), Query(reread=True, most=most)
    touched = broken = False
    for step, count in [*steps, ("drain", None)]:
        if step in ("append", "replace"):
            broken |= step == "replace" and touched
            getattr(name, step)(count)
            continue
        # A micro-batch is read only where one was logged.
        if step != "run" or relaxed.committed < len(relaxed.log) - 1:
            getattr(relaxed, step)(name)
        if broken:
            with pytest.raises(UsageError, match="onReplace"):
                strict.drain(name)
            continue
        if step != "run" or strict.committed < len(strict.log) - 1:
            getattr(strict, step)(name)
        touched |= strict.log[-1] != strict.log[0]
    assert strict.read == sorted(set(strict.read), key=lambda each: int(each.ticket))
    assert broken or tuple(strict.read) == name.endpoints
    assert relaxed.read == sorted(set(relaxed.read), key=lambda each: int(each.ticket))
    assert tuple(relaxed.read[len(relaxed.read) - len(name.endpoints) :]) == name.endpoints


@given(STEPS)
def test_queries_of_one_name_do_not_see_each_other(steps: list[tuple[str, Any]]) -> None:
    """A query that looks at every step and one that looks at the end have read the same last version."""
    name, often, once = Name(listed=False), Query(reread=True), Query(reread=True)
    for step, count in steps:
        if step in ("append", "replace"):
            getattr(name, step)(count)
            often.drain(name)
    often.drain(name)
    assert tuple(once.drain(name)) == name.endpoints
    assert tuple(often.read[len(often.read) - len(name.endpoints) :]) == name.endpoints


def test_a_version_that_comes_back_is_the_same_one() -> None:
    """Partitions that were published again, in the same order, are read on where the stream was."""
    name, query = Name(listed=False), Query(reread=False, most=2)
    name.append(5)
    query.plan(name)
    query.run(name)
    again = Name(listed=False, made=100)
    again.append(5)
    assert query.drain(again) == list(again.endpoints[2:])


def test_a_planned_batch_of_a_data_set_that_is_gone_is_empty(caplog: pytest.LogCaptureFixture) -> None:
    """Where replaced data sets are read anew, a batch that was planned before is left out with a warning."""
    name, query = Name(listed=False), Query(reread=True)
    name.append(2)
    query.plan(name)
    name.replace(3)
    with caplog.at_level(logging.WARNING, "bowstring.spark"):
        assert query.run(name) == []
    assert "was replaced before a stream had read it" in caplog.text
    assert query.drain(name) == list(name.endpoints)


@pytest.mark.parametrize(
    "offset",
    [{"endpoints": 3}, {"version": "a1", "endpoints": 3}, {"position": "a1:3"}, {"position": "0123456789abcdef:-1"},
     {"position": 3}, [], None, 3],
)  # fmt: skip
def test_an_offset_that_says_no_version_is_refused(offset: Any) -> None:
    """Offsets of checkpoints that counted endpoints only, and damaged ones, are errors that say what to do."""
    with pytest.raises(UsageError, match="new checkpointLocation"):
        of_offset(offset)


def test_tokens_are_not_of_the_identity() -> None:
    """A list of endpoints is the same one with other tokens, and another one at other addresses."""
    endpoints = [Endpoint(f"tcp://127.0.0.1:{port}?want_data=1&token=a", b"t") for port in (4711, 4712)]
    position = Listing(tuple(endpoints)).position(2)
    assert Listing(tuple(each.with_token("b") for each in endpoints)).holds(position)
    assert not Listing((endpoints[0], endpoints[0])).holds(position)
    assert not Listing(tuple(endpoints[:1])).holds(position)
