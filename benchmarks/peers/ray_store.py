"""Ray's object store, where Ray is installed: a table put by one process, got and read by an actor in another."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from bowstring.benchmarks.data.payload import fingerprint, payload, read_every_byte
from bowstring.benchmarks.data.tables import table
from bowstring.benchmarks.processes.child import Child
from bowstring.benchmarks.processes.clock import starting_time, wait_until

_SEEDS: Final = (11, 12)
_LEAST: Final = 1 << 28


def missing() -> str | None:
    """Return why Ray cannot be measured here, or None."""
    return None if find_spec("ray") else "not installed: ray"


@contextlib.contextmanager
def started(kind: str, size: int, readers: int = 1) -> Iterator[Child | None]:
    """Start Ray with its store and actors that read, if it is installed, for the time of the block."""
    if missing():
        yield None
        return
    with Child(RayStore, kind=kind, size=size, readers=readers) as child:
        yield child


class RayStore:
    """A role for a started process: a driver of Ray's on this machine alone, with actors that read."""

    def __init__(self, kind: str, size: int, readers: int) -> None:
        # What Ray sends home, and what it prints, does not belong to a measurement.
        os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"})
        self._ray: Any = import_module("ray")
        self._folder = tempfile.TemporaryDirectory(prefix="ray-")
        self._ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=max(_LEAST, 8 * size),
            _temp_dir=self._folder.name,
        )
        self._tables = [table(kind, size, seed) for seed in _SEEDS]
        self._sent = [fingerprint(payload(each.to_batches())) for each in self._tables]
        self._readers = [self._ray.remote(_Reader).remote() for _ in range(readers)]
        self._turn = 0

    def once(self) -> dict[str, Any]:
        """Put the next table, and have all actors get and read it at once."""
        self._turn ^= 1
        begin = time.perf_counter()
        reference = self._ray.put(self._tables[self._turn])
        put = time.perf_counter() - begin
        at = starting_time(len(self._readers))
        results = self._ray.get([reader.read.remote([reference], at) for reader in self._readers])
        begins, ends, arrived = zip(*results, strict=True)
        sent = [self._sent[self._turn]] * len(results)
        return {
            "seconds": put + max(ends) - min(begins),
            "sent": " ".join(sent),
            "arrived": " ".join(arrived),
        }

    def close(self) -> None:
        """Stop Ray."""
        self._ray.shutdown()
        self._folder.cleanup()


class _Reader:
    """What runs in the actor's process."""

    def read(self, references: list[Any], at: float) -> tuple[float, float, str]:
        """Wait for a time, get a table out of the store and read every byte of it."""
        ray: Any = import_module("ray")
        wait_until(at)
        begin = time.perf_counter()
        data = ray.get(references[0])
        views = payload(data.to_batches())
        read_every_byte(views)
        return begin, time.perf_counter(), fingerprint(views)
