"""A batch is dropped while work on a private stream still reads it: its memory waits for that work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bowstring.benchmarks.processes.child import Child
from tests.gpu.roles import PrivateReader, SizedProducer

pytest.importorskip("numba", reason="kernels are not installed")

MIB = 1 << 20
OTHERS = 5


@pytest.mark.parametrize("size", [4 * MIB, pytest.param(256 * MIB, marks=pytest.mark.gpu)])
def test_nothing_is_freed_before_the_private_stream_is_done(
    start: Callable[..., Child], device: str, size: int
) -> None:
    """While the stream reads, the producer still lends, and writes elsewhere; then the memory comes back."""
    producer = start(SizedProducer, device=device, budget=4 * (1 + OTHERS) * size)
    reader = start(PrivateReader, device=device)
    uri, expected = producer.call("publish_bytes", nbytes=size, seed=1)
    each = producer.call("in_use")
    reader.call("begin", endpoint=uri)
    other = start(PrivateReader, device=device)
    lent = []
    for seed in range(2, 2 + OTHERS):
        # Were the memory given back too early, these would be written over it.
        uri, _ = producer.call("publish_bytes", nbytes=size, seed=seed)
        lent.append(producer.call("in_use"))
        if seed == 2:
            other.call("begin", endpoint=uri)
    assert reader.call("is_reading")
    # All those that were published since, and the one that is read.
    assert lent == [number * each for number in range(2, 2 + OTHERS)]
    assert reader.call("finish") == expected
    other.call("finish")


def test_the_memory_comes_back_when_the_stream_is_done(start: Callable[..., Child], device: str) -> None:
    """Once the work is done, nothing is lent any more, without another word of the reader."""
    producer, reader = start(SizedProducer, device=device), start(PrivateReader, device=device)
    uri, expected = producer.call("publish_bytes", nbytes=MIB)
    reader.call("begin", endpoint=uri)
    assert reader.call("finish") == expected
    assert producer.call("wait_until_free", seconds=10.0) == 0
