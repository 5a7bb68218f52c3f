"""Neither memory of the device nor handles grow, however often tables are handed over, or processes killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from bowstring.benchmarks.processes.child import Child
from tests.gpu.processes import TABLES
from tests.gpu.roles import SizedConsumer, SizedProducer

pytest.importorskip("numba", reason="kernels are not installed")

MIB = 1 << 20
SETTLED = 10
# What a driver may keep for itself, and other processes of the machine may take meanwhile.
SLACK = 64 * MIB
FEW = 2


def kill(child: Child) -> None:
    """Kill a process, and wait until it has ended: what it had on the device has gone back to the driver then."""
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


def compare(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Fail where more is held than before."""
    assert after["descriptors"] <= before["descriptors"] + FEW
    assert after["threads"] <= before["threads"] + FEW
    if before["driver"] is not None:
        pairs = zip(before["driver"], after["driver"], strict=True)
        assert all(now <= then + FEW for then, now in pairs), (before, after)
    if before["free"] is not None:
        assert after["free"] >= before["free"] - SLACK


@pytest.mark.parametrize("rounds", [30, pytest.param(10_000, marks=pytest.mark.slow)])
def test_hand_overs_of_all_tables_do_not_grow(start: Callable[..., Child], device: str, rounds: int) -> None:
    """Small tables of every kind, mapped and copied in turn, leave what they found."""
    producer, consumer = start(SizedProducer, device=device), start(SizedConsumer, device=device)
    names = [name for name in TABLES if name not in ("64 MiB", "nothing")]
    held: dict[int, list[dict[str, Any]]] = {}
    for number in range(rounds):
        name, mode = names[number % len(names)], ("map", "copy")[number // len(names) % 2]
        uri = producer.call("publish", name=name)
        assert consumer.call("take", endpoint=uri, name=name, mode=mode)["equal"], (number, name, mode)
        if number in (SETTLED, rounds - 1):
            assert producer.call("wait_until_free", seconds=10.0) == 0
            held[number] = [each.call("held") for each in (producer, consumer)]
    for before, after in zip(held[SETTLED], held[rounds - 1], strict=True):
        compare(before, after)


def test_consumers_that_are_killed_leave_nothing(start: Callable[..., Child], device: str) -> None:
    """One consumer after the other is killed with a mapped table in its hands: the producer gets all of it back."""
    producer = start(SizedProducer, device=device)
    held = []
    for number in range(3):
        consumer = start(SizedConsumer, device=device)
        uri, _ = producer.call("publish_bytes", nbytes=8 * MIB, seed=number)
        consumer.call("hold", endpoint=uri)
        assert producer.call("in_use") > 0
        kill(consumer)
        # One that is killed before its last message is sent has not read the table, which is offered again.
        producer.call("withdraw")
        assert producer.call("wait_until_free", seconds=10.0) == 0
        producer.call("trim")
        held.append(producer.call("held"))
    compare(held[0], held[-1])


def test_producers_that_are_killed_leave_nothing(start: Callable[..., Child], device: str) -> None:
    """A consumer that outlived several producers holds nothing of theirs, once it lets their tables go."""
    consumer = start(SizedConsumer, device=device)
    held = []
    for number in range(3):
        producer = start(SizedProducer, device=device)
        uri, _ = producer.call("publish_bytes", nbytes=8 * MIB, seed=number)
        consumer.call("hold", endpoint=uri)
        kill(producer)
        consumer.call("drop")
        held.append(consumer.call("held"))
    compare(held[0], held[-1])
