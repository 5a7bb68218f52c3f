"""A driver that fails, at each of its calls, while memory is lent and read in two processes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bowstring.benchmarks.processes.child import Child
from bowstring.memory.cuda.bindings import CudaDriver
from tests.gpu.lending import Borrower, Lender
from tests.zygote import Zygote, forked_pythons

CALLS = sorted(name for name in vars(CudaDriver) if not name.startswith("_"))
# Those whose failure shows in what comes; the others are not made here, or whoever makes them goes on without.
LENDING = {"pointer_attributes", "address_range", "get_ipc_handle", "event_record", "event_done"}
COPYING = {"create", "reserve", "map", "set_access", "export", "release", "event_record", "event_done"}
OPENING = {"open_ipc_handle", "address_range"}
MAPPING = {"import_", "reserve", "map", "release"}
# What fails to give back is the driver's to keep.
GIVING_BACK = {"release", "unmap", "free_address", "close_ipc_handle"}
# Those that are made where nobody waits for the producer but its readers' streams.
EVENTS = {
    *("event_create", "event_record", "event_done", "event_destroy", "get_ipc_event_handle"),
    *("open_ipc_event_handle", "stream_wait_event", "event_done", "open_ipc_handle"),
}
# An event that a consumer cannot destroy stays open: no other test can have its processes after that.
FAILING_EVENTS = sorted(
    (call, whose)
    for call in EVENTS
    for whose in ("producer", "consumer")
    if (call, whose) != ("event_destroy", "consumer")
)
OURS = {"DeviceError", "OutOfBudget", "InvalidRegion", "BrokenError"}


@contextlib.contextmanager
def two_processes() -> Iterator[tuple[Child, Child]]:
    """Return a producer and a consumer, which go on after each failure."""
    with Child(Lender, device="fake:0") as lender, Child(Borrower, device="fake:0") as borrower:
        lender.call("allocate", value=7)
        yield lender, borrower


@pytest.fixture(scope="module")
def pair(zygote: Zygote | None) -> Iterator[tuple[Child, Child]]:
    """Return a producer and a consumer that all tests share."""
    with forked_pythons(zygote), two_processes() as pair:
        yield pair


def settled(child: Child) -> list[int]:
    """Return what a process holds of its driver, when it is done with all that it read or offered."""
    held = child.call("held")
    return [int(each) for each in held]


def finish(lender: Child) -> None:
    """Offer nothing any more, and wait until no reader has anything."""
    lender.call("end_work")
    lender.call("withdraw")
    lender.call("wait_released", deadline=30.0)


def published(lender: Child, share: str, *, events: bool = False) -> Any:
    """Publish; return the URI or the name of an error."""
    return lender.call("try_publish", share=share, events=events, deadline=30.0)


@pytest.mark.parametrize("share", ["in_place", "copy"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_fails_in_the_producer(pair: tuple[Child, Child], share: str, call: str) -> None:
    """Publishing raises an error of ours or works all the same; nothing is held, and the next time works."""
    lender, borrower = pair
    lender.call("trim")
    held = settled(lender)
    lender.call("fail_next", call=call)
    found = published(lender, share)
    lender.call("never_mind", call=call)
    assert found in OURS or found.startswith("unix:")
    if call in (LENDING if share == "in_place" else COPYING):
        assert found in OURS
    if found.startswith("unix:"):
        assert borrower.call("take", uri=found, deadline=30.0)["values"] == [7]
    finish(lender)
    lender.call("trim")
    if call not in GIVING_BACK:
        assert settled(lender) == held
    assert borrower.call("take", uri=published(lender, share), deadline=30.0)["values"] == [7]
    finish(lender)


@pytest.mark.parametrize("share", ["in_place", "copy"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_fails_in_the_consumer(pair: tuple[Child, Child], share: str, call: str) -> None:
    """Where memory cannot be opened the bytes come, and why; nothing stays open, and the producer hears the end."""
    lender, borrower = pair
    held = settled(borrower)
    uri = published(lender, share)
    borrower.call("fail_next", call=call)
    if call in (OPENING if share == "in_place" else MAPPING):
        found = borrower.call("take", uri=uri, deadline=30.0)
        assert (found["values"], found["path"], found["devices"]) == ([7], "unix: packed", ["cpu"])
        assert found["why"].count(f"{call} failed") == 1
    else:
        found = borrower.call("try_take", uri=uri, deadline=30.0)
        assert found == [7] or found in OURS
    borrower.call("never_mind", call=call)
    finish(lender)
    assert lender.call("statistics")["kept"] == 0
    if call not in GIVING_BACK:
        assert settled(borrower) == held
    assert borrower.call("take", uri=published(lender, share), deadline=30.0)["values"] == [7]
    finish(lender)


def taken(lender: Child, borrower: Child, uri: str) -> Any:
    """Read on a stream that waits for the producer, whose work ends meanwhile; return values or an error's name."""
    borrower.begin("try_take", uri=uri, named=77)
    time.sleep(0.1)
    lender.call("end_work")
    return borrower.finish(30.0)


@pytest.mark.parametrize(("call", "whose"), FAILING_EVENTS)
def test_a_call_fails_while_a_stream_waits(pair: tuple[Child, Child], whose: str, call: str) -> None:
    """Whoever's call fails, there is an error of ours or the data come; no event stays, and the next time works."""
    lender, borrower = pair
    held = settled(lender), settled(borrower)
    events = [child.call("events") for child in pair]
    failing = lender if whose == "producer" else borrower
    lender.call("begin_work")
    if failing is lender:
        lender.call("fail_next", call=call)
    uri = published(lender, "in_place", events=True)
    if failing is borrower:
        borrower.call("fail_next", call=call)
    found = taken(lender, borrower, uri) if uri.startswith("unix:") else uri
    failing.call("never_mind", call=call)
    assert found == [7] or found in OURS
    if whose == "producer" and call in ("event_create", "event_record", "get_ipc_event_handle"):
        assert found in OURS
    finish(lender)
    if call != "event_destroy":
        assert (settled(lender), settled(borrower)) == held
        assert [child.call("events") for child in pair] == events
    lender.call("begin_work")
    assert taken(lender, borrower, published(lender, "in_place", events=True)) == [7]
    finish(lender)
    assert lender.call("statistics")["kept"] == 0
    assert lender.call("misused") == []


def test_a_consumer_cannot_destroy_an_event() -> None:
    """The data come, nobody hears of the failure, and the next time works though the event stays open."""
    with two_processes() as (lender, borrower):
        lender.call("begin_work")
        uri = published(lender, "in_place", events=True)
        borrower.call("fail_next", call="event_destroy")
        borrower.begin("try_take", uri=uri, named=77)
        lender.call("wait_waited_for")
        lender.call("end_work")
        assert borrower.finish(30.0) == [7]
        finish(lender)
        assert borrower.call("events") == 1
        assert borrower.call("never_mind", call="event_destroy") is False
        lender.call("begin_work")
        assert taken(lender, borrower, published(lender, "in_place", events=True)) == [7]
        finish(lender)
        assert lender.call("statistics")["kept"] == 0


def test_a_device_disappears_under_the_producer(pair: tuple[Child, Child]) -> None:
    """Publishing says that the device is gone, and works when it is there again."""
    lender, borrower = pair
    for share in ("in_place", "copy"):
        lender.call("disappear")
        assert published(lender, share) in OURS
        lender.call("come_back")
        assert borrower.call("take", uri=published(lender, share))["values"] == [7]
        finish(lender)


def test_a_device_disappears_under_the_consumer(pair: tuple[Child, Child]) -> None:
    """A reader whose device is gone gets the bytes, or an error, and the producer gets its memory back."""
    lender, borrower = pair
    for share in ("in_place", "copy"):
        uri = published(lender, share)
        settled(borrower)  # so that nothing is mapped already
        borrower.call("disappear")
        assert borrower.call("try_take", uri=uri, deadline=30.0) == [7]
        borrower.call("come_back")
        assert borrower.call("begin", uri=uri) == [7]
        borrower.call("disappear")
        assert borrower.call("go_on", deadline=30.0) in ("the end", *OURS)
        borrower.call("drop")
        finish(lender)
        borrower.call("come_back")
