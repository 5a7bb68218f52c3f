"""Bytes of every number come over every road, by two processes and a device."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bowstring.benchmarks.processes.child import Child
from bowstring.memory import device_by_name
from tests.gpu.roles import SizedConsumer, SizedProducer, free_bytes

pytest.importorskip("numba", reason="kernels are not installed")

MIB = 1 << 20
# Around what a byte, a slab and a driver's granularity are.
SIZES = (1, 7, 8, 4095, MIB - 1, MIB, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 5 * MIB)
LARGE = (64 * MIB, 65 * MIB, 1 << 30, 8 << 30)
BUDGET = 10 << 30


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_every_size_is_mapped_and_copied(start: Callable[..., Child], device: str, mode: str) -> None:
    """From one byte on, what arrives on the device is what was there, and the memory comes back."""
    producer, consumer = start(SizedProducer, device=device), start(SizedConsumer, device=device)
    for size in SIZES:
        uri, expected = producer.call("publish_bytes", nbytes=size)
        got = consumer.call("take_bytes", endpoint=uri, mode=mode)
        assert got == {"seen": expected, "device": device, "path": "unix: mapped"}, size
        assert producer.call("wait_until_free", seconds=10.0) == 0


@pytest.mark.parametrize("target", ["device", "cpu"])
@pytest.mark.parametrize("address", ["unix:", "tcp://"])
def test_every_road_ends_where_it_was_asked_to(
    start: Callable[..., Child], device: str, address: str, target: str
) -> None:
    """Regions that are mapped and bodies that are packed come to the device, or to the host, as wanted."""
    producer = start(SizedProducer, device=device, address=address)
    consumer = start(SizedConsumer, device=device)
    wanted = device if target == "device" else "cpu"
    for size in (1, 4095, 2 * MIB + 1):
        uri, expected = producer.call("publish_bytes", nbytes=size, seed=3)
        got = consumer.call("take_bytes", endpoint=uri, device=wanted)
        assert (got["seen"], got["device"]) == (expected, wanted), size


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["map", "copy"])
@pytest.mark.parametrize("size", LARGE)
def test_large_tables(start: Callable[..., Child], size: int, mode: str) -> None:
    """Up to 8 GiB are handed over; without room for it on this GPU the test is skipped."""
    free = free_bytes(device_by_name("cuda:0")) or 0
    if free < 6 * size:
        pytest.skip(f"{size} bytes six times do not fit into the {free} that are free")
    producer = start(SizedProducer, device="cuda:0", budget=BUDGET)
    consumer = start(SizedConsumer, device="cuda:0")
    for seed in (1, 2):
        uri, expected = producer.call("publish_bytes", nbytes=size, seed=seed)
        assert consumer.call("take_bytes", endpoint=uri, mode=mode)["seen"] == expected
        assert producer.call("wait_until_free", seconds=30.0) == 0
