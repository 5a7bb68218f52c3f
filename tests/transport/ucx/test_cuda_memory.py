"""Memory of a GPU over UCX: as CUDA memory where UCX has CUDA, else through the host; on the fake device only.

No UCX here has CUDA. A stand-in before libucp takes memory of the fake device for CUDA memory, and refuses what UCX
would take wrongly: an address of a device that is called memory of the host, and the other way round.
"""

from __future__ import annotations

import collections
import ctypes
import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.testing import FakeDevice, fake_device
from bowstring.testing.fake_array import ADDRESS_SHIFT
from bowstring.testing.fake_device import EXT_DEV
from bowstring.transport.ucx.context import CUDA, HOST, MEMORY_TYPES
from bowstring.transport.ucx.library import library
from bowstring.transport.ucx.structures import RequestParams

Over = Callable[[str], None]
ROWS = 300_000
NUMBERS = np.arange(ROWS)
TEXTS = pa.array([None if row % 7 == 0 else f"text {row % 5}" for row in range(ROWS)])
TABLES = {
    "numbers": pa.table({"n": NUMBERS, "x": NUMBERS / 3}),
    "texts": pa.table({"t": TEXTS, "n": pa.array(NUMBERS, mask=NUMBERS % 3 == 0)}),
    "lists": pa.table({"l": pa.FixedSizeListArray.from_arrays(NUMBERS, 3), "b": NUMBERS[: ROWS // 3] % 2 == 0}),
    "dictionaries": pa.table({"d": TEXTS.dictionary_encode(), "n": NUMBERS}),
    "views": pa.table({"v": TEXTS.cast(pa.string_view())}),
    "no rows": pa.table({"n": pa.array([], pa.int64()), "t": pa.array([], pa.string())}),
    "nothing": pa.table({"z": pa.nulls(3)}),
    "batches": pa.Table.from_batches(pa.table({"n": NUMBERS, "t": TEXTS}).to_batches(10_000)),
}  # fmt: skip


class Cuda:
    """What UCX is told of memory: how many bytes of each kind were sent and received."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sent: collections.Counter[int] = collections.Counter()
        self.received: collections.Counter[int] = collections.Counter()
        ucp = library()
        query, send, receive = ucp.context_query, ucp.tag_send_nbx, ucp.tag_msg_recv_nbx

        def context_query(context: Any, asked: Any) -> Any:
            status = query(context, asked)
            asked._obj.memory_types |= 1 << CUDA
            return status

        def tag_send_nbx(endpoint: Any, address: int, count: int, tag: int, asked: Any) -> Any:
            if asked._obj.op_attr_mask & RequestParams.DATATYPE:  # pieces of the host, in a table of the host
                assert asked._obj.memory_type == HOST
                return send(endpoint, address, count, tag, asked)
            return send(endpoint, self._place(address, count, asked._obj, self.sent), count, tag, asked)

        def tag_msg_recv_nbx(worker: Any, address: int, count: int, handle: int, asked: Any) -> Any:
            if isinstance(asked, int):  # what is always asked of memory of the host
                asked = ctypes.byref(RequestParams())
            place = self._place(address, count, asked._obj, self.received)
            return receive(worker, place, count, handle, asked)

        patch.setitem(MEMORY_TYPES, EXT_DEV, CUDA)
        for function in (context_query, tag_send_nbx, tag_msg_recv_nbx):
            patch.setattr(ucp, function.__name__, function)

    def _place(self, address: int, count: int, asked: Any, counts: collections.Counter[int]) -> int:
        kind = asked.memory_type
        assert (kind == CUDA) == (address >= ADDRESS_SHIFT), "memory is sent as what it is not"
        counts[kind] += count
        asked.memory_type = HOST
        return address - ADDRESS_SHIFT * (kind == CUDA)


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    """Return a fake device on which nothing is left afterwards."""
    device = fake_device()
    device.stats.reset()
    yield device
    gc.collect()
    device.sweep()


@pytest.fixture
def cuda(ucx_over: Over, monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """Have UCX know CUDA, over TCP: between nodes nothing else reads memory."""
    ucx_over("tcp")
    return Cuda(monkeypatch)


def handed_over(table: pa.Table, source: FakeDevice, **options: Any) -> tuple[pa.Table, set[str], Any]:
    """Publish a table on a device, and read it; return what came, where it was, and the figures."""
    with bow.Server("ucx://", pool=bow.Pool(source, budget=64 << 20)) as server:
        with bow.connect(server.publish("t", table), **options) as stream:
            batches = list(stream)
            stats = stream.stats
        devices = {batch.device.name for batch in batches}
        found = pa.Table.from_batches([batch.to_device("cpu").to_arrow() for batch in batches], table.schema)
        del batches
    return found, devices, stats


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("to", ["cpu", "fake:0", "fake:1"])
def test_as_cuda_memory(cuda: Cuda, device: FakeDevice, name: str, to: str) -> None:
    """Bodies leave the device as CUDA memory, and land on the device that a reader asks for, whatever they hold."""
    table = TABLES[name]
    found, devices, stats = handed_over(table, device, device=to)
    assert found.equals(table)
    assert devices <= {to}
    assert stats.path == "ucx: packed"
    if not table.num_rows:  # no batch lies anywhere
        return
    assert "sent as CUDA memory" in stats.why
    assert cuda.sent[CUDA] >= table.nbytes * (name != "nothing") - ROWS  # validity that no column has
    if to != "cpu":
        assert cuda.received[CUDA] == cuda.sent[CUDA]


def test_numbers_are_not_read_by_the_host(cuda: Cuda, device: FakeDevice) -> None:
    """From one device to another, nothing of a body is copied to the host."""
    with bow.Server("ucx://", pool=bow.Pool(device, budget=64 << 20)) as server:
        endpoint = server.publish("t", TABLES["numbers"])
        device.stats.reset()
        with bow.connect(endpoint, device="fake:0") as stream:
            batches = list(stream)
        assert device.stats.host_read_bytes == 0
        del batches
    assert cuda.received[CUDA] >= TABLES["numbers"].nbytes


def test_a_device_without_room(cuda: Cuda, device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the GPU has no room for a packed body, or the reader's for what comes, it goes by the host."""
    table = TABLES["texts"]
    empty = device.xp.empty

    def no_room(shape: Any, dtype: Any) -> Any:
        if dtype is np.uint8:
            raise MemoryError("out of memory allocating bytes")
        return empty(shape, dtype)

    with monkeypatch.context() as patch:
        patch.setattr(device.xp, "empty", no_room)
        found, _, stats = handed_over(table, device)
    assert found.equals(table)
    assert cuda.sent[CUDA] == 0
    assert "through the host where the GPU has no room" in stats.why
    with bow.Server("ucx://", pool=bow.Pool(device, budget=64 << 20)) as server:
        options = bow.ConnectOptions(pool=bow.Pool(device, budget=1 << 20))
        with bow.connect(server.publish("t", table), options=options, device="fake:0") as stream:
            with pytest.raises(bow.errors.OutOfBudget):
                list(stream)
            assert cuda.sent[CUDA] > 0
            assert cuda.received[CUDA] == 0


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("scheme", ["ucx://", "tcp://127.0.0.1:0"])
def test_through_the_host(ucx_over: Over, device: FakeDevice, scheme: str, name: str) -> None:
    """Without CUDA, bodies are copied by the copy engine into two pinned buffers in turn, and sent."""
    ucx_over("tcp")
    table = TABLES[name]
    with bow.Server(scheme, pool=bow.Pool(device, budget=64 << 20)) as server:
        endpoint = server.publish("t", table)
        copies = device.driver.calls["copy_out"]
        with bow.connect(endpoint) as stream:
            assert stream.read_all().equals(table)
            stats = stream.stats
        assert (device.driver.calls["copy_out"] > copies) == (table.nbytes > 0)
    assert ("pinned buffers" in stats.why) == (scheme == "ucx://" and table.num_rows > 0)
