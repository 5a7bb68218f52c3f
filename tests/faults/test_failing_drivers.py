"""A driver that fails, at each of its calls, while memory is lent and read in two processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bowstring.benchmarks.processes import Child
from bowstring.memory.driver import Driver
from tests.gpu.lending import Borrower, Lender

CALLS = sorted(name for name in vars(Driver) if not name.startswith("_"))
# Those whose failure somebody must hear of; the others are not made here, or whoever makes them goes on without.
LENDING = {"pointer_attributes", "address_range", "get_ipc_handle", "synchronize"}
COPYING = {"create", "reserve", "map", "set_access", "export", "release", "synchronize"}
OPENING = {"open_ipc_handle", "address_range"}
MAPPING = {"import_", "reserve", "map", "release"}
# What fails to give back is the driver's to keep.
GIVING_BACK = {"release", "unmap", "free_address", "close_ipc_handle"}
OURS = {"DeviceError", "OutOfBudget", "InvalidRegion", "BrokenError"}


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Child, Child]]:
    """Return a producer and a consumer, which go on after each failure."""
    with Child(Lender, device="fake:0") as lender, Child(Borrower, device="fake:0") as borrower:
        lender.call("allocate", value=7)
        yield lender, borrower


def settled(child: Child) -> list[int]:
    """Return what a process holds of its driver, when it is done with all that it read or offered."""
    held = child.call("held")
    return [int(each) for each in held]


def finish(lender: Child) -> None:
    """Offer nothing any more, and wait until no reader has anything."""
    lender.call("withdraw")
    lender.call("wait_released", deadline=30.0)


def published(lender: Child, share: str) -> Any:
    """Publish; return the URI or the name of an error."""
    return lender.call("try_publish", share=share, deadline=30.0)


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
    """Reading raises an error of ours or works all the same; nothing stays open, and the producer hears the end."""
    lender, borrower = pair
    held = settled(borrower)
    uri = published(lender, share)
    borrower.call("fail_next", call=call)
    found = borrower.call("try_take", uri=uri, deadline=30.0)
    borrower.call("never_mind", call=call)
    assert found == [7] or found in OURS
    if call in (OPENING if share == "in_place" else MAPPING):
        assert found in OURS
    finish(lender)
    assert lender.call("statistics")["kept"] == 0
    if call not in GIVING_BACK:
        assert settled(borrower) == held
    assert borrower.call("take", uri=published(lender, share), deadline=30.0)["values"] == [7]
    finish(lender)


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
    """Reading says that the device is gone, at whatever point, and the producer gets its memory back."""
    lender, borrower = pair
    for share in ("in_place", "copy"):
        uri = published(lender, share)
        settled(borrower)  # so that nothing is mapped already
        borrower.call("disappear")
        assert borrower.call("try_take", uri=uri, deadline=30.0) in OURS
        borrower.call("come_back")
        assert borrower.call("begin", uri=uri) == [7]
        borrower.call("disappear")
        assert borrower.call("go_on", deadline=30.0) in ("the end", *OURS)
        borrower.call("drop")
        finish(lender)
        borrower.call("come_back")
