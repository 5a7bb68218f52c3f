"""Between two devices: which road memory takes, what it costs, and what failures leave behind."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring.columnar import copy_pieces as filling
from bowstring.columnar.copy_pieces import Pieces, fill
from bowstring.columnar.parts import batch_parts
from bowstring.columnar.spans import buffer_of
from bowstring.errors import BowstringError, DeviceError, NotOnDevice, OutOfBudget
from bowstring.kernels.launch import launch
from bowstring.kernels.validity import pack_flags
from bowstring.memory import Device, Pool, Region, copying, cpu, road_between
from bowstring.testing import FakeDevice, OnlyCurrent, fake_device
from tests.memory.copies import forget_paths, unpin

MIB = 1 << 20
ROWS = 50_000
TABLE = pa.record_batch(
    {
        "n": np.arange(ROWS),
        "s": [str(number) if number % 5 else None for number in range(ROWS)],
        "d": pa.array(["x", "y"] * (ROWS // 2)).dictionary_encode(),
        "l": pa.array([[number] for number in range(ROWS)]),
    }
)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Ask the driver anew before and after each test, and leave it whole."""
    driver = fake_device(0).driver
    forget_paths()
    for number in (0, 1):
        fake_device(number).sweep()
        fake_device(number).stats.reset()
    yield
    driver.peers = True
    forget_paths()


@pytest.fixture
def first() -> FakeDevice:
    """Return the first fake device."""
    return fake_device(0)


@pytest.fixture
def second() -> FakeDevice:
    """Return the second."""
    return fake_device(1)


def moved(batch: bow.Batch, target: Device) -> bow.Batch:
    """Return a batch on another device, in memory of a pool that nothing else uses."""
    return batch.to_device(target, Pool(target, budget=64 * MIB))


def test_peers_copy_directly(first: FakeDevice, second: FakeDevice) -> None:
    """Where a device reaches the other, the host sees no body, and who may read is asked for once a region."""
    batch = moved(bow.Batch.from_arrow(TABLE), first)
    first.stats.reset()
    second.stats.reset()
    first.driver.calls.clear()
    there = moved(batch, second)
    assert first.stats.host_read_bytes < 1000
    assert second.stats.host_written_bytes == 0
    assert first.stats.peer_copied_bytes >= batch.nbytes
    assert first.driver.calls["set_access"] == 2  # of the copy's device, and for it
    assert first.driver.calls["pin"] == 0
    assert there.to_arrow().equals(TABLE)
    moved(batch, second)
    # One pair, asked about once; copies themselves look, as a driver's do.
    assert road_between(first, second).name == "peer copy"
    assert first.driver.calls["set_access"] == 3


def test_a_peer_is_let_in_where_the_driver_gives_no_less_than_writing(
    first: FakeDevice, second: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where read-only access is refused, write access is asked for, once; the copy is direct, and it is noted."""
    monkeypatch.setattr(first, "lets_read_only", None)
    batch = moved(bow.Batch.from_arrow(TABLE), first)
    first.driver.gives_read_only = False
    asked: list[bool] = []
    set_access = first.driver.set_access

    def noted(address: int, nbytes: int, ordinal: int, *, writable: bool) -> None:
        asked.extend([writable] * (address == batch_parts(batch).spans.regions[0].address))
        set_access(address, nbytes, ordinal, writable=writable)

    monkeypatch.setattr(first.driver, "set_access", noted)
    first.stats.reset()
    try:
        assert moved(batch, second).to_arrow().equals(TABLE)
    finally:
        first.driver.gives_read_only = True
    assert first.lets_read_only is False
    assert asked == [False, True]
    assert first.stats.peer_copied_bytes >= batch.nbytes
    assert first.stats.host_read_bytes < 1000


def test_others_go_through_pinned_memory(
    first: FakeDevice, second: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it does not, every byte passes two pinned buffers, however much there is."""
    first.driver.peers = False
    monkeypatch.setattr(copying, "CHUNK", 1 << 16)
    unpin(first.driver)
    first.driver.calls.clear()
    batch = moved(bow.Batch.from_arrow(TABLE), first)
    there = moved(batch, second)
    assert there.to_arrow().equals(TABLE)
    assert first.driver.calls["pin"] == 2
    assert first.stats.host_read_bytes >= batch.nbytes
    assert first.stats.peer_copies == 0
    road = road_between(first, second)
    assert (road.name, road.why) == ("staged copy", "fake:1 cannot reach the memory of fake:0")
    unpin(first.driver)
    assert first.driver.calls["unpin"] == 2


def test_drivers_are_asked_once(first: FakeDevice, second: FakeDevice) -> None:
    """What a driver said of a pair stays so until somebody wants it asked again."""
    first.driver.calls.clear()
    assert road_between(first, second) is road_between(first, second)
    assert first.driver.calls["can_reach"] == 1
    first.driver.peers = False
    assert road_between(first, second).name == "peer copy"
    forget_paths()
    assert road_between(first, second).name == "staged copy"
    assert road_between(second, first).name == "staged copy"


def test_a_peer_copy_that_is_refused(first: FakeDevice, second: FakeDevice) -> None:
    """Memory that the other device may not read after all goes through the host, once, and the reason is kept."""
    batch = moved(bow.Batch.from_arrow(TABLE.select(["n"])), first)
    first.driver.fail_next("copy_peer")
    assert moved(batch, second).equals(batch)
    there = moved(batch, second)
    first.driver.fail_next("copy_peer")
    first.stats.reset()
    again = moved(batch, second)
    assert first.stats.host_read_bytes >= ROWS * 8
    first.stats.reset()
    moved(batch, second)
    assert first.stats.host_read_bytes == 0
    assert there.equals(again)


def test_no_way(first: FakeDevice, second: FakeDevice) -> None:
    """Where memory can be neither reached nor pinned, the refusal says both."""
    first.driver.peers = False
    unpin(first.driver)
    batch = bow.Batch.from_arrow({"n": first.xp.arange(10)})
    first.driver.fail_next("pin", OutOfBudget("cuMemHostAlloc failed"))
    with pytest.raises(NotOnDevice, match=r"no way from fake:0 to fake:1.*cannot reach.*pinned"):
        moved(batch, second)
    assert moved(batch, second).num_rows == 10


@pytest.mark.parametrize("peers", [True, False])
@pytest.mark.parametrize(
    "call", ["can_reach", "set_access", "copy_peer", "copy_out", "copy_in", "event_done"]
)
def test_calls_that_fail(first: FakeDevice, second: FakeDevice, call: str, peers: bool) -> None:
    """Whichever call fails, the batch arrives by another road or the error is the driver's; nothing is kept."""
    first.driver.peers = peers
    pool = Pool(second, budget=64 * MIB)
    batch = moved(bow.Batch.from_arrow(TABLE), first)
    forget_paths()
    first.driver.fail_next(call)
    with contextlib.suppress(DeviceError):
        came = batch.to_device(second, pool)
        assert came.num_rows == ROWS
        del came
    assert call not in first.driver._failures or call not in ROADS[peers]
    first.driver._failures.clear()
    # What a copy that was given up was to fill is let go by the device's own thread.
    end = time.monotonic() + 10.0
    while pool.stats.in_use and time.monotonic() < end:
        gc.collect()
        time.sleep(0.01)
    assert pool.stats.in_use == 0
    assert batch.to_device(second, pool).to_arrow().equals(TABLE)
    gc.collect()
    pool.close()


def test_a_device_that_disappears(first: FakeDevice, second: FakeDevice) -> None:
    """A copy from a device that is gone fails and says so."""
    batch = moved(bow.Batch.from_arrow(TABLE), first)
    pool = Pool(second, budget=64 * MIB)
    pool.warm(16 * MIB)
    first.driver.disappear()
    try:
        with pytest.raises(BowstringError, match="UNAVAILABLE"):
            batch.to_device(second, pool)
    finally:
        first.driver.come_back()
    assert batch.to_device(second, pool).to_arrow().equals(TABLE)


@pytest.mark.parametrize("peers", [True, False])
def test_stats_say_which_road_and_why(first: FakeDevice, peers: bool) -> None:
    """A stream whose batches were asked for elsewhere says how they got there."""
    first.driver.peers = peers
    batch = moved(bow.Batch.from_arrow(TABLE), first)
    with bow.Server("inproc:", pool=Pool(first, budget=64 * MIB)) as server:
        endpoint = server.publish("t", batch)
        with bow.connect(endpoint, device="fake:1") as stream:
            [got] = stream
            stats = stream.stats
        assert (stats.device, got.device.name) == ("fake:1", "fake:1")
        assert stats.copied == ("peer copy" if peers else "staged copy")
        assert ("cannot reach" in stats.copied_why) is not peers
        with bow.connect(endpoint, device="cpu") as stream:
            [here] = stream
            assert stream.stats.copied == "copy to the host"
        with bow.connect(endpoint) as stream:
            list(stream)
            assert (stream.stats.copied, stream.stats.copied_why) == ("", "")
        assert got.to_arrow().equals(TABLE)
        assert here.to_arrow().equals(TABLE)
        del got, here
        gc.collect()


# What each road calls, whether peers reach each other or not.
ROADS = {
    True: ("can_reach", "set_access", "copy_peer", "event_done"),
    False: ("can_reach", "copy_out", "copy_in"),
}
SIZES = st.lists(st.integers(0, 3000), min_size=1, max_size=30)


@given(
    sizes=SIZES, shift=st.integers(0, 70), large=st.sampled_from([256, 1000, 1 << 20]), seed=st.integers(0, 9)
)
@pytest.mark.parametrize("ends", ["cpu cpu", "cpu fake:0", "fake:0 cpu", "fake:0 fake:0", "fake:0 fake:1"])
@pytest.mark.parametrize("peers", [True, False])
def test_pieces_from_anywhere(
    ends: str,
    peers: bool,
    sizes: list[int],
    shift: int,
    large: int,
    seed: int,
) -> None:
    """Pieces of any size, at any address, of as many allocations, arrive in order with zeros between them."""
    source, target = (cpu() if name == "cpu" else fake_device(int(name[-1])) for name in ends.split())
    fake_device(0).driver.peers = peers
    forget_paths()
    rng = np.random.default_rng(seed)
    contents = [rng.integers(1, 256, size, np.uint8) for size in sizes]
    arrays, regions = [], list[Region]()
    for content in contents:
        array = source.from_host(
            np.concatenate([np.full(shift, 99, np.uint8), content, np.full(9, 99, np.uint8)])
        )
        arrays.append(array)
        regions.append(buffer_of(array, source).region)
    addresses = np.array([region.address + shift for region in regions], np.int64)
    alignment = max(source.alignment, target.alignment)
    rooms = -(-np.array(sizes, np.int64) // alignment) * alignment
    stops = np.cumsum(rooms)
    if not stops[-1]:
        return
    pool = Pool(target, budget=4 * MIB)
    dirty = pool.region(MIB)
    dirty.array(0, MIB, writable=True)[:] = 0xEE
    del dirty
    buffer = pool.allocate(int(stops[-1]))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(filling, "LARGE_HERE", large)
        patched.setattr(filling, "LARGE_AWAY", large)
        patched.setattr(filling, "GATHERED", 4096)
        patched.setattr("bowstring.memory.copying.CHUNK", 1500)
        with OnlyCurrent():
            fill(
                buffer,
                Pieces(addresses, np.array(sizes, np.int64), stops - rooms, stops),
                source,
                regions,
                10.0,
            )
    padded = [
        np.pad(content, (0, int(room) - len(content))) for content, room in zip(contents, rooms, strict=True)
    ]
    assert np.array_equal(buffer.to_host(), np.concatenate(padded))
    del buffer
    pool.close()


def test_arrays_of_two_devices_do_not_mix(first: FakeDevice, second: FakeDevice) -> None:
    """An operation, an assignment, a function or a launch with arrays of two devices is refused."""
    here, there = first.xp.arange(64), second.xp.arange(64)
    flags, words = first.xp.ones(64, np.uint8), second.xp.zeros(1, np.uint64)
    for mixed in (
        lambda: here + there,
        lambda: here.__setitem__(slice(None), there),
        lambda: first.xp.concatenate([here, there]),
        lambda: launch(pack_flags, 1, flags, words),
    ):
        with pytest.raises(NotOnDevice, match="arrays of two devices"):
            mixed()


def test_work_runs_on_the_batchs_device(first: FakeDevice, second: FakeDevice) -> None:
    """Publishing, reading, cutting, checking and Variant make their device the current one, whichever it was."""
    variants = bow.variant.from_json([f'{{"a": {row}}}' for row in range(100)]).as_batch()
    pool = Pool(second, budget=64 * MIB)
    with OnlyCurrent(), first.use(), bow.Server("inproc:", pool=pool) as server:
        for source in (TABLE.slice(3, 1000), variants):
            batch = moved(bow.Batch.from_arrow(source), second)
            batch.validate(full=True)
            part = batch.slice(10, 50)
            endpoint = server.publish("t", part)
            with bow.connect(endpoint) as stream:
                [got] = stream
                assert got.device is second
                assert got.to_arrow().equals(part.to_arrow())
            assert got.columns[0].null_count == 0
            server.withdraw("t")
            del got
        column = moved(variants, second)[0]
        assert second.to_host(bow.variant.get(column, "$.a", pa.int64()).values).tolist() == list(range(100))
        assert bow.variant.to_json(column).to_arrow().to_pylist()[7] == '{"a":7}'
        gc.collect()
