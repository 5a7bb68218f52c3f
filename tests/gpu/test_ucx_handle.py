"""A server that knows only the specification lends memory of a GPU by a CUDA IPC handle, over UCX."""

from __future__ import annotations

import base64
import gc
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
import bowstring.testing  # with it the fake device
from bowstring.benchmarks.processes.child import Child
from bowstring.errors import BowstringError
from bowstring.memory import device_by_name, mappings
from tests.peer.ucx import UcxServer, image_of, parts_of
from tests.ucx import needs_ucx

pytestmark = [needs_ucx, pytest.mark.slow]


def a_table() -> pa.Table:
    """Return two batches, with nulls, texts and empty buffers."""
    numbers = np.arange(10_000)
    texts = pa.array([None if number % 7 == 0 else f"word {number % 5}" for number in range(10_000)])
    batch = pa.record_batch({"n": numbers, "s": texts, "z": pa.nulls(10_000)})
    return pa.Table.from_batches([batch, batch.slice(5_000)])


class _Role:
    def __init__(self, device: str) -> None:
        self._device: Any = device_by_name(device)


class Owner(_Role):
    """Has a table in memory of a GPU, and serves it as the specification says."""

    def __init__(self, device: str, *, sized: bool) -> None:
        super().__init__(device)
        parts = parts_of(a_table())
        image = np.frombuffer(image_of(parts), np.uint8)
        fake = hasattr(self._device, "allocate")
        self._memory = (
            self._device.allocate(len(image)) if fake else self._device.xp.empty(len(image), np.uint8)
        )
        self._memory[:] = self._device.from_host(image)
        self._device.synchronize()
        start, nbytes = self._device.driver.address_range(self._device.ordinal, self._memory.data.ptr)
        assert start == self._memory.data.ptr
        token = self._device.driver.get_ipc_handle(self._device.ordinal, start)
        self._server = UcxServer(parts, handle=nbytes.to_bytes(8, "little") * sized + token)

    def uri(self) -> str:
        """Return the address."""
        return self._server.uri

    def freed(self) -> list[int]:
        """Return what was freed, when the client is gone."""
        end = time.monotonic() + 10.0
        while not self._server.served:
            assert time.monotonic() < end
            time.sleep(0.01)
        return sorted(self._server.freed)

    def close(self) -> None:
        """End the server."""
        self._server.close()


class Reader(_Role):
    """Reads it on the same GPU."""

    def take(self, uri: str) -> dict[str, Any]:
        """Read all of it as views, and look at every value."""
        with bow.connect(uri, ticket=b"t", mode="map", device=self._device.name) as stream:
            batches = list(stream)
            devices = {batch.device.name for batch in batches}
            table = pa.Table.from_batches([batch.to_device("cpu").to_arrow() for batch in batches])
            path = stream.stats.path
            del batches
        gc.collect()
        return {"equal": table.equals(a_table()), "devices": sorted(devices), "path": path}

    def refused(self, uri: str) -> str:
        """Return the error of reading it."""
        try:
            self.take(uri)
        except BowstringError as error:
            return str(error)
        return ""

    def opened(self) -> int:
        """Return how many allocations of others are open."""
        gc.collect()
        mappings().clear()
        self._device.sweep()
        return len(self._device.openings)


@pytest.mark.parametrize("sized", [False, True], ids=["handle", "size and handle"])
def test_views(start: Callable[..., Child], device: str, *, sized: bool) -> None:
    """Offsets become views of the allocation; when they are gone it is closed, and each buffer was freed."""
    owner, reader = start(Owner, device=device, sized=sized), start(Reader, device=device)
    found = reader.call("take", uri=owner.call("uri"))
    assert found == {"equal": True, "devices": [device], "path": "ucx: in place"}
    assert reader.call("opened") == 0
    freed = owner.call("freed")
    assert freed[0] == 0
    assert len(freed) == len(set(freed)) > 4
    owner.call("close")


def test_what_is_no_handle(start: Callable[..., Child], device: str) -> None:
    """A handle that the driver cannot open is refused, and says so."""
    owner, reader = start(Owner, device=device, sized=False), start(Reader, device=device)
    uri = owner.call("uri")
    wrong = urllib.parse.quote(base64.b64encode(b"\xff" * 64))
    answer = reader.call("refused", uri=f"{uri.partition('&remote_handle=')[0]}&remote_handle={wrong}")
    assert "CUDA IPC handle cannot be opened" in answer
    owner.call("close")
