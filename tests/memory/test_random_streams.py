"""Streams in random orders over publish, connect, release and append: memory waits for all that is queued on it."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bow
from bowstring.columnar.parts import batch_parts
from bowstring.memory import NamedStream, allocated_region
from bowstring.memory.cuda.driver_device import DriverDevice
from bowstring.testing import FakeDevice, fake_device

MIB = 1 << 20
STREAMS = (5, 6, 7, 8)
IDLE = 99  # nothing is ever queued there, so what it would be behind is done
ROWS = 200_000
PACE = bow.Limits(connect_timeout=20.0, reply_timeout=20.0, release_timeout=20.0, device_timeout=20.0)


class Missing(AssertionError):
    """Memory is used before work that it should wait for."""


class Array:
    """An array, and the work that fills it."""

    def __init__(self, values: Any, stream: NamedStream, work: object) -> None:
        self.values, self.stream, self.work = values, stream, work


class Play:
    """A server and its readers in one process, which queue work on streams.

    Of the work of all streams some is done whenever the host asks for an event; what nobody waits for is not.
    """

    def __init__(self, device: FakeDevice, folder: Path, seed: int) -> None:
        self.device, self.chance = device, random.Random(seed)
        self.pool = bow.Pool(device, budget=24 * MIB)
        self.server = bow.Server(f"unix:{folder}/{seed}", pool=self.pool, limits=PACE)
        self.arrays: list[Array] = []
        self.reads: dict[bytes, list[object]] = {}  # what was queued to read memory, by its name
        self.held: list[bow.Batch] = []
        self.grown: list[Array] = []

    def check(self, stream: int, works: list[object], what: str) -> None:
        """Raise where a stream could overtake some work."""
        if not all(self.device.driver.is_behind(stream, work) for work in works):
            raise Missing(f"{what}: stream {stream} does not wait")

    def stream(self) -> NamedStream:
        """Return some stream."""
        return NamedStream(self.chance.choice(STREAMS), self)

    def fill(self) -> None:
        """Make an array, of the pool or of another library, which work on a stream fills."""
        stream = self.stream()
        with self.device.on([stream]):
            if self.chance.random() < 0.6:
                with self.pool.cupy():
                    values = self.device.xp.full(ROWS, 1)
                region = allocated_region(values.data.ptr, values.nbytes)
                assert region is not None
                self.check(stream.address, self.reads.pop(region.uuid, []), "an allocation")
            else:
                values = self.device.allocate(8 * ROWS).view(np.int64)
            self.arrays.append(Array(values, stream, self.device.driver.begin_work(stream.address)))

    def drop(self) -> None:
        """Let an array go, on the stream that fills it."""
        if self.arrays:
            array = self.arrays.pop(self.chance.randrange(len(self.arrays)))
            region = allocated_region(array.values.data.ptr, array.values.nbytes)
            if region is not None:
                self.reads.setdefault(region.uuid, []).append(array.work)
            with self.device.on([array.stream]):
                del array.values

    def publish(self) -> None:
        """Publish an array, with its stream named or current, as a copy or where it lies, and read it."""
        if not self.arrays:
            return self.fill()
        array = self.chance.choice(self.arrays)
        share: Any = self.chance.choice(["copy", "in_place"])
        if self.chance.random() < 0.5:
            with self.device.on([array.stream]):
                endpoint = self.server.publish("t", {"a": array.values}, share=share, replace=True)
        else:
            endpoint = self.server.publish(
                "t", {"a": array.values}, share=share, replace=True, cuda_stream=array.stream.address
            )
        if share == "copy":
            self.check(IDLE, [array.work], "a copy that is published")
        return self.read(endpoint, [array], is_copy=share == "copy")

    def append(self) -> None:
        """Append an array to a data set that grows, and read all of that."""
        if not self.arrays:
            return self.fill()
        array = self.chance.choice(self.arrays)
        with self.device.on([array.stream]):
            if self.grown:
                self.server.append("grows", {"a": array.values})
            else:
                self.server.publish("grows", {"a": array.values}, retain={"batches": 2})
        self.grown = [*self.grown[-1:], array]
        self.check(IDLE, [array.work], "a batch that is appended")
        return self.read(self.server.endpoints["grows"], self.grown[-1:], is_copy=False)

    def read(self, endpoint: Any, arrays: list[Array], *, is_copy: bool) -> None:
        """Read a data set on a stream, on which work then reads its memory, and keep some of it."""
        stream = self.stream()
        with (
            self.device.on([stream]),
            bow.connect(endpoint, mode="map", limits=PACE, cuda_stream=stream.address) as batches,
        ):
            for batch in batches:
                self.check(stream.address, [each.work for each in arrays], "a batch that is read")
                for region in batch_parts(batch).spans.regions:
                    if is_copy:  # it was written when it was published
                        self.check(IDLE, self.reads.pop(region.uuid, []), "memory that is written")
                    work = self.device.driver.begin_work(stream.address)
                    self.reads.setdefault(region.uuid, []).append(work)
                if self.chance.random() < 0.5:
                    self.held.append(batch)
                del batch

    def release(self) -> None:
        """Let go of a batch."""
        if self.held:
            self.held.pop(self.chance.randrange(len(self.held)))

    def withdraw(self) -> None:
        """Offer nothing any more."""
        for name in self.server.endpoints:
            self.server.withdraw(name)
        self.grown = []

    def step(self) -> None:
        """Do something."""
        acts = [self.fill, self.drop, self.publish, self.publish, self.append, self.release, self.withdraw]
        try:
            self.chance.choice(acts)()
        except bow.errors.OutOfBudget:
            self.withdraw()
            self.held, self.arrays = [], []

    def end(self) -> None:
        """Let go of everything, and wait until all know."""
        self.held, self.arrays = [], []
        self.withdraw()
        for stream in STREAMS:
            self.device.driver.end_work(stream)
        gc.collect()
        self.server.wait_released()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    """Return a fake device on which work ends, of one stream after the other, while the host asks for events."""
    device = fake_device()
    device.sweep()
    ask, chance = device.driver.event_done, random.Random(1)

    def event_done(ordinal: int, event: int) -> bool:
        done = ask(ordinal, event)
        if not done and chance.random() < 0.2:
            device.driver.end_work(chance.choice(STREAMS))
        return done

    monkeypatch.setattr(device.driver, "event_done", event_done)
    yield device
    for stream in STREAMS:
        device.driver.end_work(stream)
    gc.collect()
    device.rest(20.0)
    device.sweep()


def _played(device: FakeDevice, folder: Path, seeds: int, steps: int = 40) -> None:
    for seed in range(seeds):
        play = Play(device, folder, seed)
        try:
            for _ in range(steps):
                play.step()
            play.end()
        finally:
            play.server.close()
            del play


@pytest.mark.parametrize("seeds", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_no_wait_is_missing(device: FakeDevice, tmp_path: Path, seeds: int) -> None:
    """In whatever order tables are published, read and let go on streams, memory waits for what is queued there."""
    _played(device, tmp_path, seeds)


def _none(*_: Any, **__: Any) -> None:
    return None


WAITS: dict[str, Callable[[pytest.MonkeyPatch, FakeDevice], None]] = {
    "of the host": lambda patch, _: patch.setattr(DriverDevice, "wait_marks", _none),
    "of streams": lambda patch, device: patch.setattr(device.driver, "stream_wait_event", _none),
    "for readers": lambda patch, _: patch.setattr(DriverDevice, "rest", _none),
    "for a stream": lambda patch, _: patch.setattr(DriverDevice, "wait_streams", _none),
}


@pytest.mark.parametrize("which", WAITS)
def test_a_wait_that_is_missing_is_found(
    device: FakeDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Where waits are left out, the play above finds it."""
    with monkeypatch.context() as patch:
        WAITS[which](patch, device)
        with pytest.raises(Missing):
            _played(device, tmp_path, 30)
