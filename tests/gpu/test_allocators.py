"""Arrays that CuPy and RMM allocated from a pool, read in another process where they lie."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from bowstring.benchmarks.processes.child import Child
from tests.gpu.lending import Borrower, PoolLender

MIB = 1 << 20


@pytest.fixture(params=["cupy", "rmm"])
def kind(request: pytest.FixtureRequest, device: str) -> str:
    """Return the name of a library."""
    if request.param == "rmm" and device.startswith("cuda"):
        pytest.importorskip("rmm")
    return str(request.param)


@pytest.fixture
def pair(start: Callable[..., Child], device: str) -> tuple[Child, Child]:
    """Return a producer and a consumer on the device."""
    return start(PoolLender, device=device), start(Borrower, device=device)


def test_nothing_is_copied(pair: tuple[Child, Child], device: str, kind: str) -> None:
    """What a library allocated from the pool is read where it lies: neither side makes more memory."""
    lender, borrower = pair
    lender.call("allocate", value=7, arrays=2, kind=kind)
    uri = lender.call("publish", batches=4)
    assert lender.call("statistics")["lent"] == 16_000_000
    got = borrower.call("take", uri=uri)
    assert got == {
        "values": [7],
        "devices": [device],
        "path": "unix: in place",
        "why": "the producer lends memory of its pool, which it may write still",
        "regions": 2,
        "rows": 1_000_000,
    }
    assert lender.call("statistics")["made"] == 2


def test_what_is_published_by_default_is_a_copy(pair: tuple[Child, Child], kind: str) -> None:
    """Without `share`, the library may go on writing what it allocated: readers see what was published."""
    lender, borrower = pair
    lender.call("allocate", value=7, kind=kind)
    uri = lender.call("publish", share="copy")
    lender.call("write", value=9)
    assert borrower.call("take", uri=uri)["values"] == [7]


def test_a_free_waits_for_the_last_reader(pair: tuple[Child, Child], kind: str) -> None:
    """Memory whose array is gone is not used again while a reader has it, and is afterwards."""
    lender, borrower = pair
    address = lender.call("allocate", value=7, kind=kind)
    in_use = lender.call("pool_bytes")["in_use"]
    borrower.call("hold", uri=lender.call("publish", readers=1))
    lender.call("withdraw")
    lender.call("drop")
    assert lender.call("pool_bytes") == {"allocated": 0, "in_use": in_use}
    assert lender.call("allocate", value=9, kind=kind) != address
    assert borrower.call("values") == [7]
    borrower.call("drop")
    lender.call("wait_released")
    assert lender.call("wait_in_use", nbytes=in_use) == in_use
    assert lender.call("allocate", value=8, kind=kind) == address


def test_arrays_outlive_their_readers(pair: tuple[Child, Child], kind: str) -> None:
    """An array that was lent is its owner's afterwards, and lent again with what it holds then."""
    lender, borrower = pair
    lender.call("allocate", value=1, kind=kind)
    for value in (7, 8, 9):
        lender.call("write", value=value)
        assert borrower.call("take", uri=lender.call("publish", readers=1))["values"] == [value]
        lender.call("wait_released")


def test_small_allocations_are_copied(pair: tuple[Child, Child], kind: str) -> None:
    """What shares a granule with others is copied, so that readers do not see the others."""
    lender, borrower = pair
    lender.call("allocate", value=7, rows=100, kind=kind)
    got = borrower.call("take", uri=lender.call("publish"))
    assert (got["values"], got["path"]) == ([7], "unix: mapped")
    assert "copied were 800 bytes: small allocations of a pool" in got["why"]


def test_readers_keep_what_a_producer_that_is_killed_lent(pair: tuple[Child, Child], kind: str) -> None:
    """Unlike memory that is lent by a handle of the driver, a block of a pool lives as long as its readers."""
    lender, borrower = pair
    lender.call("allocate", value=7, kind=kind)
    borrower.call("hold", uri=lender.call("publish", readers=1))
    os.kill(lender.pid, signal.SIGKILL)
    assert borrower.call("values") == [7]
    borrower.call("drop")


def test_memory_comes_back_from_a_reader_that_is_killed(pair: tuple[Child, Child], kind: str) -> None:
    """A reader that is killed keeps nothing in use."""
    lender, borrower = pair
    lender.call("allocate", value=7, kind=kind)
    borrower.call("hold", uri=lender.call("publish", readers=1))
    lender.call("withdraw")
    lender.call("drop")
    os.kill(borrower.pid, signal.SIGKILL)
    assert lender.call("wait_in_use", nbytes=0) == 0


@pytest.mark.parametrize("rounds", [20, pytest.param(2_000, marks=pytest.mark.slow)])
def test_loans_leave_nothing(pair: tuple[Child, Child], kind: str, rounds: int) -> None:
    """However often memory is allocated, lent and freed, no more is made than is in use at a time."""
    lender, borrower = pair
    for number in range(rounds):
        lender.call("allocate", value=number, kind=kind)
        assert borrower.call("take", uri=lender.call("publish", readers=1))["values"] == [number]
        lender.call("wait_released")
        lender.call("drop")
    assert lender.call("statistics")["made"] <= 2
    assert lender.call("pool_bytes")["in_use"] == 0
