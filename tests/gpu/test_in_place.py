"""Memory of another library, read in another process where it lies: ``publish(…, share="in_place")``."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from bowstring.benchmarks.processes.child import Child
from tests.gpu.lending import Borrower, Lender


@pytest.fixture
def pair(start: Callable[..., Child], device: str) -> tuple[Child, Child]:
    """Return a producer and a consumer on the device."""
    return start(Lender, device=device), start(Borrower, device=device)


def test_nothing_is_copied(pair: tuple[Child, Child], device: str) -> None:
    """What is lent is read where it lies: neither side makes memory, and one allocation is one region."""
    lender, borrower = pair
    lender.call("allocate", value=7, arrays=5)
    uri = lender.call("publish", batches=4, readers=1)
    got = borrower.call("take", uri=uri)
    assert got == {
        "values": [7],
        "devices": [device],
        "path": "unix: in place",
        "why": "the producer lends its own memory, which dies with it",
        "regions": 1,
        "rows": 1000,
    }
    assert lender.call("statistics")["made"] == 0


def test_small_blocks_of_one_granule(pair: tuple[Child, Child]) -> None:
    """Blocks that a driver put into one granule, where a handle opens all of it, are each read where they begin."""
    lender, borrower = pair
    lender.call("allocate_small", value=[3, 4, 5])
    got = borrower.call("take", uri=lender.call("publish"))
    assert (got["values"], got["path"], got["rows"]) == ([3, 4, 5], "unix: in place", 100)
    lender.call("wait_released")
    assert borrower.call("opened") == 0


def test_an_allocation_is_opened_once(pair: tuple[Child, Child], device: str) -> None:
    """However many streams read an allocation at a time, it is open once, and closed before the last hangs up."""
    lender, borrower = pair
    if device.startswith("fake"):
        borrower.call("close_slowly", seconds=0.2)
    lender.call("allocate", value=7, arrays=2)
    uris = [lender.call("publish", batches=2) for _ in range(3)]
    for uri in uris:
        borrower.call("hold", uri=uri)
        assert borrower.call("opened") == 1
    assert borrower.call("values") == [7]
    borrower.call("drop")
    lender.call("wait_released")
    # Not asked for: whoever hears that it was released may free it at once.
    assert borrower.call("opened") == 0


def test_the_memory_lives_until_it_was_freed(pair: tuple[Child, Child]) -> None:
    """The producer's arrays are kept for readers, also when it lets them go itself, and not for longer."""
    lender, borrower = pair
    lender.call("allocate", value=7)
    uri = lender.call("publish", readers=1)
    lender.call("drop")
    borrower.call("hold", uri=uri)
    lender.call("withdraw")
    assert lender.call("alive") == 1
    assert borrower.call("values") == [7]
    borrower.call("drop")
    assert lender.call("wait_dead") == 0
    assert lender.call("statistics")["kept"] == 0


def test_streams_wait_for_the_producers_work(pair: tuple[Child, Child], device: str) -> None:
    """What is published while its producer is at work is read, behind that work, as it will have been written."""
    lender, borrower = pair
    lender.call("allocate", value=7, rows=100_000)
    borrower.call("warm")  # the work would be done before CuPy is imported
    for value in (8, 9):
        uri = lender.call("publish_at_work", value=value)
        borrower.begin("take_in_order", uri=uri)
        if device.startswith("fake"):
            while not lender.call("calls").get("event_done"):  # the reader is told of it, or not, just then
                time.sleep(0.01)
            lender.call("end_work")
        got = borrower.finish()
        assert got["values"] == [value]
        assert got["why"].endswith("wait for the producer's work")
        lender.call("wait_released")
    assert lender.call("statistics")["kept"] == 0


def test_an_address_that_is_used_again(pair: tuple[Child, Child], device: str) -> None:
    """Freed, allocated again at the same address, and published again: the reader sees the new bytes."""
    lender, borrower = pair
    addresses = set()
    for value in range(1, 6):
        addresses.add(lender.call("allocate", value=value))
        uri = lender.call("publish")
        assert borrower.call("take", uri=uri)["values"] == [value]
        lender.call("wait_released")
        lender.call("drop")
        assert lender.call("wait_dead") == 0 or device.startswith("cuda")  # CuPy's pool keeps its blocks
    # CuPy's pool has several free blocks to choose from, but not five.
    assert len(addresses) == 1 or (device.startswith("cuda") and len(addresses) < 5)


def test_memory_comes_back_from_a_consumer_that_is_killed(pair: tuple[Child, Child]) -> None:
    """A consumer that is killed while it reads keeps nothing alive."""
    lender, borrower = pair
    lender.call("allocate", value=7)
    uri = lender.call("publish", readers=1)
    borrower.call("hold", uri=uri)
    lender.call("drop")
    lender.call("withdraw")
    assert lender.call("alive") == 1
    os.kill(borrower.pid, signal.SIGKILL)
    assert lender.call("wait_dead") == 0
    assert lender.call("statistics")["kept"] == 0


def test_a_producer_that_is_killed(pair: tuple[Child, Child]) -> None:
    """A reader of a producer that was killed gets an error and does not hang; so does one that comes later."""
    lender, borrower = pair
    lender.call("allocate", value=7, rows=100_000)
    uri = lender.call("publish", batches=10_000, readers=2)
    assert borrower.call("begin", uri=uri) == [7]
    os.kill(lender.pid, signal.SIGKILL)
    began = time.monotonic()
    assert borrower.call("go_on", deadline=60.0) == "BrokenError"
    assert borrower.call("try_take", uri=uri, deadline=60.0) in ("BrokenError", "DeadlineExceeded")
    assert time.monotonic() - began < 60.0


def test_a_consumer_that_is_lost_while_it_lives(start: Callable[..., Child], device: str) -> None:
    """Memory that a lost reader may look at still is kept for good, and counted, and what it shows stays true."""
    lender, borrower = start(Lender, device=device), start(Borrower, device=device)
    lender.call("allocate", value=7)
    uri = lender.call("publish", readers=1)
    borrower.call("hold", uri=uri)
    lender.call("drop")
    lender.call("close")  # which ends the connection under the reader
    assert lender.call("alive") == 1
    assert lender.call("allocate", value=9) > 0
    assert borrower.call("values") == [7]
    borrower.call("drop")


def test_copies_are_taken_too(pair: tuple[Child, Child], device: str) -> None:
    """A reader that copies frees what was lent at once, and keeps its copy."""
    lender, borrower = pair
    lender.call("allocate", value=3)
    got = borrower.call("take", uri=lender.call("publish"), mode="copy")
    assert (got["values"], got["devices"], got["path"]) == ([3], [device], "unix: in place")
    lender.call("wait_released")


@pytest.mark.parametrize("rounds", [50, pytest.param(10_000, marks=pytest.mark.slow)])
def test_loans_leave_nothing(pair: tuple[Child, Child], rounds: int) -> None:
    """However often memory is lent, nothing stays open, and no descriptor is left."""
    lender, borrower = pair
    lender.call("allocate", value=1)
    before = 0, 0
    for number in range(rounds):
        assert borrower.call("take", uri=lender.call("publish"))["values"] == [1]
        if number in (5, rounds - 1):
            lender.call("wait_released")
            held = _descriptors(lender), _descriptors(borrower)
            before = before if number > 5 else held
    assert borrower.call("opened") == 0
    assert held == pytest.approx(before, abs=2)


def _descriptors(child: Child) -> int:
    return len(os.listdir(f"/proc/{child.pid}/fd"))
