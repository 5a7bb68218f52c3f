"""Long runs: random moments of death, crowds of readers, and memory that must not grow."""

from __future__ import annotations

import concurrent.futures
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import bowstring as bow
from tests.faults.conftest import LIMITS, until
from tests.faults.program import Program
from tests.faults.tables import number_of, table_of

pytestmark = pytest.mark.slow


def resident_kib() -> int:
    """Return how much memory this process has, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


@pytest.mark.parametrize("seed", range(40))
def test_producers_killed_at_random_moments(
    run: Callable[..., Program], between_processes: str, seed: int
) -> None:
    """Whenever a producer dies, each of ten readers has all, or an error, and nothing changed under its views."""
    chosen = random.Random(seed)
    program = run("plain_producer", between_processes, "lazy")
    uri = program.hear()
    limits = LIMITS.replace(window_bytes=chosen.choice([1, 100_000, 1 << 30]))

    def read() -> tuple[list[bow.Batch], bow.BowstringError | None]:
        batches: list[bow.Batch] = []
        try:
            with bow.connect(uri, limits=limits.replace(outstanding_bytes=1 << 40)) as stream:
                batches.extend(stream)
        except bow.BowstringError as error:
            return batches, error.with_traceback(None)
        return batches, None

    with concurrent.futures.ThreadPoolExecutor(10) as executor:
        futures = [executor.submit(read) for _ in range(10)]
        time.sleep(chosen.uniform(0.0, 0.6))
        program.kill()
        found = [future.result(60.0) for future in futures]
    for batches, error in found:
        assert (error is None) == (len(batches) == 100), error
        assert error is None or type(error) is bow.BrokenError
        assert [number_of(batch) for batch in batches] == list(range(len(batches)))


def test_readers_killed_at_random_moments(
    serve: Callable[..., bow.Server], run: Callable[..., Program]
) -> None:
    """Whenever a reader dies, its producer gets all memory back and serves on."""
    chosen = random.Random(0)
    server = serve("unix:")
    endpoint = server.publish("t", lambda: iter(table_of(30).to_batches()))
    for _ in range(100):
        program = run("looking_reader", str(endpoint), "1000000")
        time.sleep(chosen.uniform(0.3, 0.7))
        program.kill()
    until(lambda: server.stats.connections == 0, "all sessions end")
    assert server.pool.stats.retired == 0
    with bow.connect(endpoint, limits=LIMITS) as stream:
        assert [number_of(batch) for batch in list(stream)] == list(range(30))


def test_two_hundred_clients(serve: Callable[..., bow.Server], address: str) -> None:
    """Two hundred readers at once are all served."""
    patient = LIMITS.replace(connect_timeout=90.0, reply_timeout=90.0, stall_timeout=90.0)
    server = serve(address, limits=patient)
    endpoint = server.publish("t", table_of())

    def read() -> int:
        with bow.connect(endpoint, limits=patient) as stream:
            return sum(number_of(batch) for batch in stream)

    with concurrent.futures.ThreadPoolExecutor(200) as executor:
        assert [future.result(120.0) for future in [executor.submit(read) for _ in range(200)]] == [3] * 200
    until(lambda: server.stats.readers == 200, "all are through")


@pytest.mark.parametrize("broken", [False, True], ids=["read", "broken off"])
def test_memory_does_not_grow(serve: Callable[..., bow.Server], address: str, *, broken: bool) -> None:
    """Thousands of streams, read or broken off, cost no memory that stays."""
    server = serve(address)
    endpoint = server.publish("t", table_of(3, rows=10))
    before, first = 0, 200 if address.startswith("ucx:") else 1_000  # whose connections take long to make
    for number in range(5 * first):
        if number == first:
            before = resident_kib()
        with bow.connect(endpoint, limits=LIMITS) as stream:
            assert number_of(stream.read_next_batch()) == 0
            if not broken:
                assert sum(1 for _ in stream) == 2
    until(lambda: server.stats.connections == 0, "all sessions end")
    assert resident_kib() - before < 10_000, "KiB grown over all streams but the first"
