"""Two processes and a device: on the fake one in every run, on a GPU where there is one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from bowstring.benchmarks.processes.child import Child
from tests.gpu.processes import TABLES, Consumer, Producer

pytest.importorskip("numba", reason="kernels are not installed")


@pytest.fixture
def pair(start: Callable[..., Child], device: str) -> tuple[Child, Child]:
    """Return a producer and a consumer on the device."""
    return start(Producer, device=device), start(Consumer, device=device)


def test_every_table_arrives_on_the_device(pair: tuple[Child, Child], device: str) -> None:
    """Tables of all shapes, mapped and copied, lie on the device with the values that were sent, and are freed."""
    producer, consumer = pair
    for name in TABLES:
        for mode in ("map", "copy"):
            got = consumer.call("take", endpoint=producer.call("publish", name=name), name=name, mode=mode)
            assert got["equal"], (name, mode)
            # Where there is no byte, there is no place either.
            assert got["devices"] == ["cpu" if name == "nothing" else device]
            assert got["path"] == "unix: mapped"
            assert producer.call("wait_until_free", seconds=10.0) == 0


def test_the_host_is_reached_too(start: Callable[..., Child], device: str) -> None:
    """A reader may ask for its batches on the host, by shared memory or over TCP."""
    consumer = start(Consumer, device=device)
    for address in ("unix:", "tcp://"):
        producer = start(Producer, device=device, address=address)
        got = consumer.call(
            "take", endpoint=producer.call("publish", name="strings"), name="strings", device="cpu"
        )
        assert (got["equal"], got["devices"]) == (True, ["cpu"])


def test_a_consumer_outlives_its_producer(pair: tuple[Child, Child]) -> None:
    """A producer that is killed while its memory is read takes nothing away: every comparison after is right."""
    producer, consumer = pair
    consumer.call("hold", endpoint=producer.call("publish", name="64 MiB"))
    consumer.call("begin_reading", name="64 MiB")
    _kill(producer)
    seen = consumer.call("end_reading")
    assert len(seen) >= 2
    assert all(seen)


def test_memory_comes_back_from_a_consumer_that_is_killed(pair: tuple[Child, Child]) -> None:
    """A consumer that is killed while it holds a table gives it back."""
    producer, consumer = pair
    consumer.call("hold", endpoint=producer.call("publish", name="numbers"))
    assert producer.call("in_use") > 0
    _kill(consumer)
    # One that is killed before its last message is sent has not read the table, which is offered again.
    producer.call("withdraw")
    assert producer.call("wait_until_free", seconds=10.0) == 0


def test_variant_on_the_device(pair: tuple[Child, Child]) -> None:
    """Values come out of a Variant column where it lies, in the reader's process."""
    producer, consumer = pair
    rows = 5000
    found = consumer.call("numbers", endpoint=producer.call("publish_documents", rows=rows), path="$.a.b")
    assert found == [rows * (rows - 1) // 2, rows, 1]


@pytest.mark.parametrize("rounds", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_hand_overs_leave_nothing(pair: tuple[Child, Child], rounds: int) -> None:
    """However often memory is handed over, nothing is held that was not held after a few times."""
    producer, consumer = pair
    held: dict[int, Any] = {}
    for number in range(rounds):
        got = consumer.call("take", endpoint=producer.call("publish", name="one byte"), name="one byte")
        assert got["equal"]
        if number in (10, rounds - 1):
            consumer.call("drop")
            producer.call("wait_until_free", seconds=10.0)
            held[number] = _held(producer, consumer)
    # On a busy machine a reader's word comes when the next region is made already; it does not go on like that.
    assert producer.call("made") <= 16
    end = time.monotonic() + 10.0
    while held[rounds - 1] != (few := pytest.approx(held[10], abs=2)) and time.monotonic() < end:
        time.sleep(0.1)  # connections are closed a moment after their streams
        held[rounds - 1] = _held(producer, consumer)
    assert held[rounds - 1] == few


def _held(producer: Child, consumer: Child) -> tuple[int, int, Any]:
    """Return descriptors of both processes without those of regions, and what the consumer has mapped."""
    regions = producer.call("made")
    return _descriptors(producer) - regions, _descriptors(consumer), consumer.call("mapped")[0]


def _kill(child: Child) -> None:
    os.kill(child.pid, signal.SIGKILL)
    time.sleep(0.3)


def _descriptors(child: Child) -> int:
    return len(os.listdir(f"/proc/{child.pid}/fd"))
