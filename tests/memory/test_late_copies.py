"""Copies that a device does late, or never: nobody uses what they read or write before they are over."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from bowstring.errors import DeadlineExceeded, DeviceError, ForkedError
from bowstring.memory import Buffer, Device, Pool, Stretch, carry, copying, cpu, road_between
from bowstring.testing import FakeDevice
from bowstring.testing.fake_device import FakeDevice as _Device  # devices of the test's own
from bowstring.testing.fake_driver import FakeDriver
from tests.memory.conftest import until
from tests.memory.copies import forget_paths, unpin

MIB = 1 << 20
CHUNK = 1 << 16


class Late(FakeDriver):
    """A driver that copies when somebody waits for the device whose stream it was, unless it is stuck."""

    def __init__(self) -> None:
        super().__init__()
        self.queued: dict[int, list[Callable[[], None]]] = {0: [], 1: []}
        self._doing = threading.Lock()
        self.stuck: set[int] = set()

    def stick(self, *ordinals: int) -> None:
        """Let nothing that is queued on some devices be done."""
        self.stuck.update(ordinals)

    def go_on(self) -> None:
        """End what `stick` began."""
        self.stuck.clear()

    def _do(self, ordinal: int) -> None:
        # Who finds nothing queued must not go on, and give memory back, while another thread still copies.
        with self._doing:
            while self.queued[ordinal]:
                self.queued[ordinal].pop(0)()

    def event_done(self, ordinal: int, event: int) -> bool:
        super().event_done(ordinal, event)
        if ordinal in self.stuck:
            return False
        self._do(ordinal)
        return True

    def copy_in(self, ordinal: int, target: int, host: int, nbytes: int, stream: int) -> None:
        copy = super().copy_in
        self.queued[ordinal].append(lambda: copy(ordinal, target, host, nbytes, stream))

    def copy_out(self, ordinal: int, host: int, source: int, nbytes: int, stream: int) -> None:
        copy = super().copy_out
        self.queued[ordinal].append(lambda: copy(ordinal, host, source, nbytes, stream))

    def copy_peer(
        self, target: int, target_ordinal: int, source: int, source_ordinal: int, nbytes: int, stream: int
    ) -> None:
        copy = super().copy_peer
        self.queued[source_ordinal].append(
            lambda: copy(target, target_ordinal, source, source_ordinal, nbytes, stream)
        )


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Late]:
    """Return a driver whose copies are late."""
    monkeypatch.setattr(copying, "CHUNK", CHUNK)
    forget_paths()
    driver = Late()
    yield driver
    driver.go_on()
    unpin(driver)
    forget_paths()


@pytest.fixture
def devices(driver: Late) -> list[FakeDevice]:
    """Return both devices of that driver."""
    return [_Device(0, driver), _Device(1, driver)]


def filled(device: Device, nbytes: int, seed: int = 0) -> tuple[Buffer, bytes]:
    """Return a buffer of numbers on a device, and what they are."""
    numbers = np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)
    buffer = Pool(device, budget=64 * MIB).allocate(nbytes)
    with buffer.writable() as array:
        array[:] = numbers if device.is_host else device.from_host(numbers)
    return buffer, numbers.tobytes()


def move(source: Buffer, into: Buffer, seconds: float = 10.0) -> str:
    """Copy one buffer into another; return the road."""

    def stretches() -> list[Stretch]:
        def load(first: int, end: int, address: int) -> None:
            cpu().array(address, end - first, None, writable=True)[:] = source.to_host()[first:end]

        return [Stretch(0, source.nbytes, source.address, load if source.device.is_host else None)]

    return carry(stretches, source.device, into, [source.region], seconds).name


@pytest.mark.parametrize("nbytes", [1, CHUNK - 1, CHUNK, CHUNK + 1, 7 * CHUNK + 100])
@pytest.mark.parametrize("ends", ["0 1", "1 0", "cpu 0", "0 cpu"])
@pytest.mark.parametrize("peers", [True, False])
def test_late_copies_are_waited_for(
    driver: Late, devices: list[FakeDevice], ends: str, peers: bool, nbytes: int
) -> None:
    """However late a device copies, no pinned buffer is filled again before, and all is there at the return."""
    driver.peers = peers
    source, target = (cpu() if name == "cpu" else devices[int(name)] for name in ends.split())
    buffer, content = filled(source, nbytes)
    into = Pool(target, budget=64 * MIB).allocate(nbytes)
    move(buffer, into)
    assert into.to_host().tobytes() == content
    assert driver.queued == {0: [], 1: []}


def test_memory_is_not_used_again_under_a_peer_copy(driver: Late, devices: list[FakeDevice]) -> None:
    """A peer copy that is given up is over before its target can be anybody's, though another device does it."""
    here, there = devices
    pool = Pool(there, budget=64 * MIB)
    pool.warm(MIB)
    buffer, _ = filled(here, 1000)
    into = pool.allocate(1000)
    used = into.region.address
    driver.stick(0)
    with pytest.raises(DeadlineExceeded):
        move(buffer, into, 0.05)
    assert driver.queued[0]
    del into
    pool.close()
    gc.collect()
    again = Pool(there, budget=64 * MIB).region(MIB)
    assert again.address != used
    there.drain(10.0)
    assert driver.held[1] == 3  # the source's, the target's, and the one of just now
    driver.go_on()
    here.drain(10.0)
    assert not driver.queued[0]
    until(lambda: pool.stats.in_use == 0)
    there.sweep()
    assert driver.held[1] == 2


def test_a_pool_waits_for_a_peer_copy(driver: Late, devices: list[FakeDevice]) -> None:
    """So it is in a pool that goes on: the memory is in use until the other device is done, and warm then."""
    here, there = devices
    pool = Pool(there, budget=64 * MIB)
    buffer, _ = filled(here, 1000)
    into = pool.region(2 * MIB)
    used = into.address
    driver.stick(0)
    with pytest.raises(DeadlineExceeded):
        move(buffer, Buffer(into, 0, 1000), 0.05)
    del into
    gc.collect()
    assert pool.stats.in_use == 2 * MIB
    fresh = pool.region(2 * MIB)
    assert fresh.address != used
    driver.go_on()
    here.drain(10.0)
    until(lambda: pool.stats.idle == 2 * MIB)
    assert pool.region(2 * MIB).address == used


@pytest.mark.parametrize("stuck", [(0,), (1,), (0, 1)])
def test_pinned_memory_is_not_used_again_under_a_copy(
    driver: Late, devices: list[FakeDevice], stuck: tuple[int, ...]
) -> None:
    """Buffers whose copies were given up are nobody's before these are over, and given back then."""
    driver.peers = False
    here, there = devices
    buffer, content = filled(here, 5 * CHUNK)
    into = Pool(there, budget=64 * MIB).allocate(5 * CHUNK)
    move(buffer, into)
    assert set(driver._pinned) == set(copying._stages[driver].buffers)
    before = set(driver._pinned)
    driver.stick(*stuck)
    with pytest.raises(DeadlineExceeded):
        move(buffer, into, 0.05)
    assert before <= set(driver._pinned)
    assert not copying._stages[driver].buffers
    driver.go_on()
    here.drain(10.0)
    until(lambda: not driver._pinned)
    assert driver.queued == {0: [], 1: []}
    into = Pool(there, budget=64 * MIB).allocate(5 * CHUNK)
    move(buffer, into)
    assert into.to_host().tobytes() == content


@pytest.mark.parametrize("call", ["copy_in", "copy_out", "event_done"])
def test_a_failure_in_the_middle_leaks_no_pinned_memory(
    driver: Late, devices: list[FakeDevice], call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever call fails, at whichever chunk, at most two buffers stay pinned, and the next transfer is right."""
    driver.peers = False
    here, there = devices
    buffer, content = filled(here, 5 * CHUNK)
    works = getattr(driver, call)
    for number in range(7):
        into = Pool(there, budget=64 * MIB).allocate(5 * CHUNK)
        left = [number]

        def fails(*arguments: int, left: list[int] = left) -> object:
            left[0] -= 1
            if left[0] == -1:
                raise DeviceError("it failed")
            return works(*arguments)

        monkeypatch.setattr(driver, call, fails)
        try:
            move(buffer, into)
        except DeviceError:
            assert left[0] < 0
        monkeypatch.undo()
        monkeypatch.setattr(copying, "CHUNK", CHUNK)
        until(lambda: len(driver._pinned) <= 2)
    move(buffer, into)
    assert into.to_host().tobytes() == content


def test_transfers_wait_for_each_other_for_a_while(driver: Late, devices: list[FakeDevice]) -> None:
    """While one transfer has the pinned buffers others wait, until their own time is over."""
    here, there = devices
    buffer, content = filled(cpu(), CHUNK)
    into = Pool(there, budget=64 * MIB).allocate(CHUNK)
    driver.stick(1)
    first = threading.Thread(target=move, args=(buffer, into))
    first.start()
    until(lambda: copying._stages.get(driver) is not None and copying._stages[driver].lock.locked())
    other = Pool(here, budget=64 * MIB).allocate(CHUNK)
    with pytest.raises(DeadlineExceeded, match="another copy"):
        move(buffer, other, 0.05)
    driver.go_on()
    first.join(20.0)
    assert into.to_host().tobytes() == content


def test_a_child_waits_for_no_transfer_of_its_parent(
    driver: Late, devices: list[FakeDevice], in_child: Callable[[Callable[[], bool]], bool]
) -> None:
    """A child that was forked in the middle of a transfer is refused, and does not wait for who is not there."""
    buffer, _ = filled(cpu(), CHUNK)
    into = Pool(devices[1], budget=64 * MIB).allocate(CHUNK)
    move(buffer, into)

    def refused() -> bool:
        try:
            move(buffer, into, 0.05)
        except ForkedError:
            return True
        return False

    with copying._stages[driver].lock:
        assert in_child(refused)


def test_who_must_reach_whom(
    driver: Late, devices: list[FakeDevice], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target must reach the source's memory; the other direction says nothing."""
    here, there = devices
    monkeypatch.setattr(driver, "can_reach", lambda ordinal, peer: (ordinal, peer) == (1, 0))
    assert road_between(here, there).name == "peer copy"
    assert road_between(there, here).name == "staged copy"


def test_devices_of_two_drivers(driver: Late, devices: list[FakeDevice]) -> None:
    """What one driver maps another one knows nothing of, so copies go through the host."""
    elsewhere = _Device(1, FakeDriver())
    buffer, content = filled(devices[0], CHUNK + 1)
    into = Pool(elsewhere, budget=64 * MIB).allocate(CHUNK + 1)
    assert move(buffer, into) == "staged copy"
    assert into.to_host().tobytes() == content
    assert not driver.calls["copy_peer"]
    unpin(elsewhere.driver)
