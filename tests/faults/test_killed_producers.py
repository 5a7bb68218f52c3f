"""A producer that is killed or stopped at each step of the protocol, as its readers see it."""

from __future__ import annotations

import concurrent.futures
import os
import signal
from collections.abc import Callable

import pytest

import bowstring as bow
from tests.faults.conftest import WAIT
from tests.faults.program import Program
from tests.faults.tables import number_of

LIMITS = bow.Limits(
    connect_timeout=1.0, reply_timeout=0.5, stall_timeout=0.8, heartbeat=0.2, close_timeout=0.2
)
PATIENT = bow.Limits(heartbeat=0.2, close_timeout=0.2)
STEPS = {"unix:": 10, "tcp://127.0.0.1:0": 9, "tls://127.0.0.1:0": 9}
Outcome = tuple[list[bow.Batch], bow.BowstringError | None]


def read(uri: str, limits: bow.Limits) -> Outcome:
    """Read as far as it goes; return the batches, and the error that ended it."""
    batches: list[bow.Batch] = []
    try:
        with bow.connect(uri, limits=limits) as stream:
            batches.extend(stream)
    except bow.BowstringError as error:
        return batches, error.with_traceback(None)
    return batches, None


def outcomes(
    run: Callable[..., Program], address: str, act: Callable[[Program], None], limits: bow.Limits
) -> list[Outcome]:
    """Start a producer, have readers at each step, do something to it; return what each reader has."""
    program = run("stuck_producer", address, str(STEPS[address]))
    uris = [program.hear() for _ in range(2 * STEPS[address] + 2)]
    with concurrent.futures.ThreadPoolExecutor(len(uris)) as executor:
        futures = [executor.submit(read, uri, limits) for uri in uris]
        for _ in range(len(uris) - 1):  # nobody hears of the one that is never accepted
            assert program.hear() == "stuck"
        act(program)
        found = [future.result(WAIT) for future in futures]
    program.kill()
    return found


def check(address: str, found: list[Outcome], kind: tuple[type[bow.BowstringError], ...]) -> None:
    """See to it that each reader has one error, and views that are true."""
    for place, (batches, error) in enumerate(found):
        assert type(error) in kind, f"reader {place}: {error!r}"
        assert [number_of(batch) for batch in batches] == list(range(len(batches)))
    complete = found[2 * STEPS[address] - 2][0]
    assert len(complete) == 3, "all batches came, only the end is missing"


def test_killed(run: Callable[..., Program], between_processes: str) -> None:
    """A producer that is killed between any two messages, or inside one, is broken; what came stays true."""
    found = outcomes(run, between_processes, Program.kill, PATIENT)
    check(between_processes, found, (bow.BrokenError,))


def test_stopped(run: Callable[..., Program], between_processes: str) -> None:
    """A producer that is stopped between any two messages, or inside one, is given up in time."""
    found = outcomes(run, between_processes, Program.stop, LIMITS)
    check(between_processes, found, (bow.DeadlineExceeded,))


def test_stopped_for_a_moment(run: Callable[..., Program], between_processes: str) -> None:
    """A producer that goes on after less than the deadline is read to the end."""
    program = run("plain_producer", between_processes, "lazy")
    uri = program.hear()
    with bow.connect(uri, limits=LIMITS.replace(reply_timeout=10.0, stall_timeout=10.0)) as stream:
        first = stream.read_next_batch()
        program.stop()
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            rest = executor.submit(lambda: [number_of(batch) for batch in stream])
            with pytest.raises(concurrent.futures.TimeoutError):
                rest.result(0.5)
            program.go_on()
            assert rest.result(WAIT) == list(range(1, 100))
        assert number_of(first) == 0


def test_killed_while_producing(run: Callable[..., Program], between_processes: str) -> None:
    """A producer that is killed while it makes batches leaves its reader with an error, never a shorter table."""
    program = run("plain_producer", between_processes, "lazy")
    seen: list[int] = []

    def read() -> None:
        with bow.connect(program.hear(), limits=PATIENT.replace(window_bytes=1_000_000)) as stream:
            for batch in stream:
                seen.append(number_of(batch))
                if len(seen) == 10:
                    os.kill(program.pid, signal.SIGKILL)

    with pytest.raises(bow.BrokenError):
        read()
    assert seen == list(range(len(seen)))
    assert len(seen) < 100


def test_killed_after_everything(run: Callable[..., Program], between_processes: str) -> None:
    """Batches stay true when their producer is killed, and so do the tables made from them."""
    program = run("plain_producer", between_processes, "table")
    with bow.connect(program.hear(), limits=PATIENT) as stream:
        table = stream.read_all()
    with bow.connect(program.hear(), limits=PATIENT) as stream:
        batches = list(stream)
        program.kill()
        assert [number_of(batch) for batch in batches] == list(range(100))
    assert table.num_rows == sum(batch.num_rows for batch in batches)
    assert table.column("n").combine_chunks().to_numpy()[::1000].tolist() == sorted(range(100))
    del batches, table


def test_nobody_there(run: Callable[..., Program], between_processes: str) -> None:
    """A producer that was killed before anybody came cannot be reached, and that is said at once."""
    program = run("plain_producer", between_processes, "table")
    uri = program.hear()
    program.kill()
    with pytest.raises(bow.BrokenError):
        bow.connect(uri, limits=PATIENT)
