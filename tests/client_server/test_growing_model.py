"""Random orders of what can happen to a data set that grows, against a list; and a reader that follows for long."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import random
import resource
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.memory import Pool
from tests.client_server.conftest import PATIENCE

TOKEN = "0123456789abcdef"
# Of the reader that follows for long; the watch over tests that hang ends no run for it.
SECONDS = float(os.environ.get("BOWSTRING_TEST_FOLLOWER_SECONDS", "240"))


@dataclasses.dataclass(eq=False)
class Version:
    """What a version holds: the numbers that were appended, from which one on they are kept, and how it ended."""

    numbers: list[int] = dataclasses.field(default_factory=list)
    positions: dict[int, bow.Position] = dataclasses.field(default_factory=dict)
    first: int = 0
    most: int | None = None
    ended: type[BaseException] | None = None

    def append(self, numbers: list[int], position: bow.Position) -> None:
        """Add numbers, and trim."""
        self.numbers += numbers
        self.positions[len(self.numbers)] = position
        if self.most is not None:
            self.first = max(self.first, len(self.numbers) - self.most)


@dataclasses.dataclass(eq=False)
class Reader:
    """A follower, and where it is in which version."""

    next: Callable[[], Any]
    close: Callable[[], Any]
    stream: Any
    version: Version
    at: int


def tables(numbers: list[int]) -> list[pa.RecordBatch]:
    """Return a batch for each number, with a dictionary that grows, shrinks and stays."""
    return [
        pa.record_batch(
            {
                "n": [number],
                "d": pa.array([str(each) for each in range(number % 5)] + [str(number)])[
                    -1:
                ].dictionary_encode(),
            }
        )
        for number in numbers
    ]


class World:
    """A server, what it should have, and its followers."""

    def __init__(self, address: str, seed: int, *, is_async: bool) -> None:
        self.random = random.Random(seed)
        self.address = address
        self.is_async = is_async
        self.loop = asyncio.new_event_loop()
        self.server = self.started()
        self.count = 0
        self.version: Version | None = None
        self.past: list[Version] = []
        self.readers: list[Reader] = []

    def started(self) -> bow.Server:
        """Return a server."""
        return bow.Server(self.address, token=TOKEN, pool=Pool(budget=64 << 20), limits=PATIENCE)

    def fresh(self) -> list[int]:
        """Return one to three numbers that were not there before."""
        numbers = list(range(self.count, self.count + self.random.randint(1, 3)))
        self.count += len(numbers)
        return numbers

    def end(self, error: type[BaseException] | None) -> None:
        """Note how the version ended."""
        if self.version is not None:
            self.version.ended = self.version.ended or error
            self.past.append(self.version)
        self.version = None

    def append(self) -> None:
        """Append; one that is finished refuses that."""
        numbers = self.fresh()
        if self.version is not None and self.version.ended is bow.EndOfStream:
            with pytest.raises(bow.UsageError, match="finished"):
                self.server.append("t", tables(numbers))
            return
        position = self.server.append("t", tables(numbers))
        self.version = self.version or Version()
        self.version.append(numbers, position)

    def refused(self) -> None:
        """Append what has another schema."""
        if self.version is not None:
            with pytest.raises(bow.UsageError):
                self.server.append("t", {"n": [1.5]})

    def retain(self) -> None:
        """Append, and keep the last few batches from now on."""
        if self.version is None or self.version.ended is None:
            self.version = self.version or Version()
            self.version.most = self.random.randint(1, 6)
            numbers = self.fresh()
            retain = {"batches": self.version.most}
            self.version.append(numbers, self.server.append("t", tables(numbers), retain=retain))

    def replace(self) -> None:
        """Put a new version in the place of the one that is there."""
        numbers = self.fresh()
        self.server.publish("t", tables(numbers), replace=True)
        self.end(bow.DatasetReplaced)
        self.version = Version(numbers)

    def withdraw(self) -> None:
        """Withdraw the version."""
        if self.version is not None:
            self.server.withdraw("t")
            self.end(bow.DatasetWithdrawn)

    def finish(self) -> None:
        """Finish the version."""
        if self.version is not None:
            self.version.positions[len(self.version.numbers)] = self.server.finish("t")
            self.version.ended = bow.EndOfStream

    def restart(self) -> None:
        """Close the server, and begin another one."""
        for reader in self.readers:
            reader.version.ended = reader.version.ended or bow.BrokenError
        for reader in list(self.readers):
            self.leave(reader)
        self.server.close()
        self.end(bow.BrokenError)
        self.server = self.started()

    def follow(self) -> None:
        """Open a follower at the beginning, or at a position of this version or of one before."""
        version = self.random.choice([*self.past[-2:], self.version]) if self.past else self.version
        position, at = None, version.first if version is not None else 0
        if (
            version is not None
            and version.positions
            and (version is not self.version or self.random.random() < 0.6)
        ):
            at, position = self.random.choice(list(version.positions.items()))
        if position is None:
            version = self.version
            at = version.first if version is not None else 0
        expected: type[BaseException] | None = None
        if self.version is None:
            expected = bow.UnknownTicket
        elif version is not self.version:
            expected = bow.DatasetReplaced
        elif at < self.version.first:
            expected = bow.PositionExpired
        options: dict[str, Any] = {"follow": True, "since": position, "timeout": 0.05}
        if self.random.random() < 0.2:
            options["columns"] = ["d", "n"]
        with pytest.raises(expected) if expected is not None else contextlib.nullcontext():
            if self.is_async:
                opened = self.loop.run_until_complete(self.opened(options))

                def read() -> Any:
                    batch = self.loop.run_until_complete(anext(opened, None))
                    if batch is None:
                        raise bow.EndOfStream("there are no more batches")
                    return batch

                close: Callable[[], Any] = lambda: self.loop.run_until_complete(opened.aclose())  # noqa: E731
                found = Reader(read, close, opened, version, at)  # type: ignore[arg-type]
            else:
                stream = bow.connect(self.server, "t", **options)
                found = Reader(stream.read_next_batch, stream.close, stream, version, at)  # type: ignore[arg-type]
            self.readers.append(found)

    async def opened(self, options: dict[str, Any]) -> bow.AsyncStream:
        """Return a stream of asyncio."""
        return await bow.connect_async(self.server, "t", **options)

    def read(self) -> None:
        """Let a follower read a few batches, or learn why there are none."""
        if self.readers:
            reader = self.random.choice(self.readers)
            for _ in range(self.random.randint(1, 4)):
                if reader in self.readers:
                    self.step(reader)

    def step(self, reader: Reader) -> None:
        """Read one batch."""
        version, ended = reader.version, reader.version.ended
        try:
            batch = reader.next()
        except bow.DeadlineExceeded:
            # On a busy machine something may be under way; nothing was lost.
            assert str(reader.stream.position).endswith(f":{reader.at}")
        except bow.PositionExpired:
            assert reader.at < version.first
            self.leave(reader)
        except bow.BowstringError as error:
            assert type(error) is ended  # noqa: PT017  any of several errors is right
            assert reader.at == len(version.numbers)
            self.leave(reader)
        else:
            row = batch.to_arrow().to_pylist()[0]
            assert row == {"n": version.numbers[reader.at], "d": str(version.numbers[reader.at])}
            reader.at += 1
            assert str(reader.stream.position).endswith(f":{reader.at}")

    def leave(self, reader: Reader) -> None:
        """Close a follower."""
        self.readers.remove(reader)
        reader.close()

    def plain(self) -> None:
        """Read what is there."""
        if self.version is not None:
            with bow.connect(self.server, "t") as stream:
                numbers = [row["n"] for row in stream.to_pylist()]
            assert numbers == self.version.numbers[self.version.first :]

    def close(self) -> None:
        """End everything; a version that is finished is read to its end before."""
        end = time.monotonic() + 20.0
        while self.readers:
            reader = self.readers[0]
            if reader.version.ended is None:
                self.leave(reader)
            else:
                assert time.monotonic() < end
                self.step(reader)
        self.server.close()
        self.loop.close()


STEPS = {
    World.append: 10,
    World.refused: 1,
    World.retain: 1,
    World.replace: 1,
    World.withdraw: 1,
    World.finish: 1,
    World.restart: 0.3,
    World.follow: 6,
    World.read: 20,
    World.plain: 2,
}


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("seed", range(3))
def test_any_order(address: str, seed: int, is_async: bool) -> None:
    """Whatever happens in which order, followers have each batch once, in order, and then the right end."""
    world = World(address, seed, is_async=is_async)
    try:
        for step in world.random.choices([*STEPS], weights=[*STEPS.values()], k=120):
            step(world)
    finally:
        world.close()


@pytest.mark.slow
def test_a_follower_for_long(serve: Callable[..., bow.Server]) -> None:
    """Both ends take no more memory at last than soon after the beginning."""
    server = serve(pool=Pool(budget=64 << 20))
    numbers = np.arange(4096)
    server.append("t", {"n": numbers}, retain={"batches": 64})
    ended = threading.Event()

    def append() -> None:
        while not ended.is_set():
            server.append("t", {"n": numbers})

    thread = threading.Thread(target=append)
    sizes: list[int] = []
    begun = time.monotonic()
    thread.start()
    try:
        while time.monotonic() < begun + SECONDS:
            try:
                with bow.connect(server, "t", follow=True) as stream:
                    for batch in stream:
                        assert batch["n"].to_numpy()[-1] == 4095
                        if time.monotonic() > begun + SECONDS / 60 * (len(sizes) + 1):
                            sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
                        if time.monotonic() > begun + SECONDS:
                            break
            except bow.PositionExpired:  # on a busy machine
                continue
    finally:
        ended.set()
        thread.join()
    assert len(sizes) >= 50
    assert sizes[-1] - sizes[2] < 64 << 10, sizes  # in KiB
