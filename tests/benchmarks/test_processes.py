"""Processes that a case starts answer, or are gone."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from bowstring.benchmarks.processes.child import Child, ChildFailed


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_a_child_answers_and_is_reaped(no_leaks: None) -> None:
    """Results come back, and the process is gone at the end of the block."""
    with Child("fractions:Fraction", numerator=6, denominator=4) as child:
        assert child.call("limit_denominator.__name__.upper") == "LIMIT_DENOMINATOR"
        assert child.call("__str__") == "3/2"
        pid = child.pid
    assert is_gone(pid)


def test_an_error_in_the_child_is_raised_here(no_leaks: None) -> None:
    """A method that raises ends the call with what it said; the child goes on until the block ends."""
    with Child("threading:Event") as child:
        with pytest.raises(ChildFailed, match="TypeError"):
            child.call("is_set", unknown=1)
        assert child.call("is_set") is False
        pid = child.pid
    assert is_gone(pid)


def test_children_are_reaped_on_error(no_leaks: None) -> None:
    """An exception in the block ends the child at once, in the middle of what it does."""
    children = []

    def fail() -> None:
        with Child("threading:Event") as child:
            children.append(child)
            child.begin("wait", timeout=600)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert is_gone(children[0].pid)


def test_a_call_has_a_deadline(no_leaks: None) -> None:
    """A child that does not answer in time is an error, and is ended."""
    with pytest.raises(ChildFailed, match=r"did not answer within 0\.2 s"), Child("threading:Event") as child:
        child.call("wait", timeout=600, deadline=0.2)
    assert is_gone(child.pid)


def test_a_child_that_dies_is_an_error(no_leaks: None) -> None:
    """A child that is killed ends the call under way and the ones after it."""
    with Child("threading:Event") as child:
        child.begin("wait", timeout=600)
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(ChildFailed, match="ended"):
            child.finish(30)
        with pytest.raises(ChildFailed, match="ended"):
            child.call("is_set", deadline=30)


def test_a_role_that_cannot_be_made_is_an_error(no_leaks: None) -> None:
    """What the constructor raises is raised here, and no process is left."""
    with pytest.raises(ChildFailed, match="ZeroDivisionError"):
        Child("fractions:Fraction", numerator=1, denominator=0)


def test_a_child_ends_with_its_harness(no_leaks: None) -> None:
    """A child whose standard input ends, as when the harness is killed, ends by itself."""
    with Child("threading:Event") as child:
        assert child._process.stdin is not None
        child._process.stdin.close()
        assert child._process.wait(30) == 0
