"""What the fault tests share: servers, programs that are always reaped, the watch for leaks."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bowstring as bow
from bowstring.memory import Pool
from tests.faults.program import Program
from tests.transport.certified import authority, serving, shown_at
from tests.ucx import UCX

TLS = "tls://127.0.0.1:0"

# Long enough for a busy machine where something must come, short enough where it must not.
WAIT = 20.0
LIMITS = bow.Limits(
    connect_timeout=WAIT,
    reply_timeout=WAIT,
    stall_timeout=WAIT,
    heartbeat=0.1,
    lease_timeout=WAIT,
    close_timeout=2.0,
    release_timeout=WAIT,
)


def until(true: Callable[[], object], what: str, seconds: float = WAIT) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(0.01)
        gc.collect()


def mapped() -> list[str]:
    """Return the regions that are mapped into this process."""
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:bowstring" in line]


@pytest.fixture(autouse=True)
def certified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let readers trust what servers at ``tls:`` show, and programs that a test starts show the same."""
    monkeypatch.setenv("SSL_CERT_FILE", authority().path)
    monkeypatch.setenv("TESTS_TLS_CERT", str(serving().cert))


@pytest.fixture(autouse=True)
def tidy(no_leaks: None, unmap_idle: Callable[[], None]) -> Iterator[None]:
    """Leave nothing behind: no descriptor, no thread, and no mapping of a region either."""
    unmap_idle()
    before = len(mapped())
    yield

    def clean() -> bool:
        unmap_idle()
        return len(mapped()) <= before

    until(clean, "regions stay mapped", 10.0)


# They write the framing of `unix:` and `tcp:` to a socket themselves, which `ucx:` does not have.
_OF_BYTES = {
    "test_a_message_that_stops_halfway",
    "test_a_relay_that_cuts_nothing",
    "test_a_ticket_that_does_not_come_in_time",
    "test_an_oversize_message_after_a_good_hello",
    "test_bad_framing_after_a_good_hello",
    "test_much_at_once_is_heard_at_once",
    "test_few_descriptors",  # of which UCX needs dozens: `test_ucx.py`
    "test_one_deadline",
    "test_random_bytes",
    "test_what_ends_is_gone",
    "test_what_the_producer_says_is_cut_off",
    "test_what_the_reader_says_is_cut_off",
}
_STUCK_INSIDE = {"test_killed", "test_stopped"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `ucx:` has not: tests of bytes on a socket, and peers that are stuck inside a message."""
    left_out = [item for item in items if "[ucx" in item.name and _is_of_bytes(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _is_of_bytes(item: pytest.Item) -> bool:
    name, file = item.name.partition("[")[0], item.path.name
    stuck = name in _STUCK_INSIDE or (
        file == "test_killed_readers.py" and name == "test_stopped_for_a_moment"
    )
    return (name in _OF_BYTES and file != "test_ucx.py") or (stuck and file.startswith("test_killed"))


@pytest.fixture
def serve() -> Iterator[Callable[..., bow.Server]]:
    """Return a function that makes servers; after the test they are closed, and their memory must come home."""
    with contextlib.ExitStack() as stack:

        def make(
            address: str = "unix:",
            *,
            limits: bow.Limits = LIMITS,
            budget: int = 64 << 20,
            token: str | None = None,
        ) -> bow.Server:
            pool = Pool(budget=budget)
            stack.callback(pool.close)
            stack.callback(until, lambda: pool.stats.in_use == 0, "memory comes home", 10.0)
            return stack.enter_context(
                bow.Server(address, limits=limits, pool=pool, token=token, tls=shown_at(address))
            )

        yield make


@pytest.fixture
def run(forked: None) -> Iterator[Callable[..., Program]]:
    """Return a function that starts a program of the folder ``programs``; it is killed after the test."""
    with contextlib.ExitStack() as stack:

        def start(name: str, *arguments: str) -> Program:
            program = Program(name, *arguments)
            stack.callback(program.kill)
            return program

        yield start


@pytest.fixture(
    params=[
        pytest.param("unix:", id="unix"),
        pytest.param("tcp://127.0.0.1:0", id="tcp"),
        pytest.param(TLS, id="tls"),
        UCX,
    ]
)
def between_processes(request: pytest.FixtureRequest) -> str:
    """Return an address of each transport between processes."""
    return str(request.param)


@pytest.fixture(
    params=[
        pytest.param("unix:", id="unix"),
        pytest.param("tcp://127.0.0.1:0", id="tcp"),
        pytest.param(TLS, id="tls"),
        pytest.param("inproc:", id="inproc"),
        UCX,
    ]
)
def address(request: pytest.FixtureRequest) -> str:
    """Return an address of each transport."""
    return str(request.param)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
