"""The event in a struct of a device: there, true as long as any of the structs, and waited for by who takes it."""

from __future__ import annotations

import ctypes
import gc
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import nanoarrow as na
import nanoarrow.device
import numpy as np
import pyarrow as pa
import pytest

from bowstring.columnar.batch import Batch
from bowstring.errors import DeviceError, UsageError
from bowstring.testing import FakeDevice, fake_device
from tests.columnar.capsules import STRUCT_BYTES, address_in, event_in
from tests.columnar.elsewhere import Elsewhere
from tests.device_events import swept_events, wait_for_events

SOURCE = pa.record_batch(
    {"n": [1, None, 3], "s": ["x", None, "yz"], "d": pa.array(["u", "v", "u"]).dictionary_encode()}
)
EVENT_WORD = STRUCT_BYTES + 16


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    """Return the second fake device, to which each event is given back that the test made."""
    device = fake_device(1)
    before = swept_events(device)
    yield device
    wait_for_events(device, before)


def taken(thing: Any) -> tuple[Any, int]:
    """Return a capsule of something, and the handle of its event."""
    capsule = thing.__arrow_c_device_array__()[1]
    event = event_in(address_in(capsule, b"arrow_device_array"))
    assert event is not None
    return capsule, event


def test_an_event_lives_as_long_as_its_capsule(device: FakeDevice) -> None:
    """Every export records an event of its own, which nobody destroys or uses again before its end."""
    batch = Batch.from_arrow(SOURCE).to_device(device)
    device.driver.calls.clear()
    first, one = taken(batch)
    second, other = taken(batch["s"])
    assert one != other
    assert device.driver.calls["event_record"] == 2
    del batch
    gc.collect()
    device.sweep()
    assert device.driver.held_events >= {one, other}
    del first
    device.sweep()
    assert one not in device.driver.held_events
    assert other in device.driver.held_events
    del second
    device.sweep()
    assert other not in device.driver.held_events


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_whoever_goes_last_gives_the_event_back(device: FakeDevice, order: tuple[int, ...]) -> None:
    """Batch, capsule and what nanoarrow made of it may go in any order: the event stays until the last is gone."""
    batch = Batch.from_arrow(SOURCE).to_device(device)
    capsule, event = taken(batch)
    array = nanoarrow.device.c_device_array(Capsules(batch.schema, capsule))
    held: dict[int, Any] = {0: batch, 1: capsule, 2: array}
    del batch, capsule, array
    for index in order:
        assert (event in device.driver.held_events) is bool(held.keys() & {1, 2})
        del held[index]
        gc.collect()
        device.sweep()
    assert event not in device.driver.held_events


class Capsules:
    """A schema and a capsule, as an object that gives them."""

    def __init__(self, schema: pa.Schema, capsule: Any) -> None:
        self.pair = schema.__arrow_c_schema__(), capsule

    def __arrow_c_device_array__(self, requested_schema: Any = None, **_: Any) -> Any:
        return self.pair


def test_a_child_that_was_moved_out_keeps_the_event(device: FakeDevice) -> None:
    """Who keeps one child and releases the rest may still wait for the event."""
    batch = Batch.from_arrow(SOURCE).to_device(device)
    capsule, event = taken(batch)
    words = (ctypes.c_int64 * 10).from_address(address_in(capsule, b"arrow_device_array"))
    child = ctypes.c_int64.from_address(words[6]).value
    moved = (ctypes.c_int64 * 10)()
    ctypes.memmove(moved, child, STRUCT_BYTES)
    ctypes.c_int64.from_address(child + 64).value = 0
    del capsule, batch
    gc.collect()
    device.sweep()
    assert event in device.driver.held_events
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(moved[8])(ctypes.addressof(moved))
    device.sweep()
    assert event not in device.driver.held_events


def test_release_in_other_threads(device: FakeDevice) -> None:
    """Structs may be released by any thread, while others are made."""
    batch = Batch.from_arrow(SOURCE).to_device(device)
    held = [taken(batch)[0] for _ in range(32)]
    threads = [threading.Thread(target=held.pop) for _ in range(32)]
    for thread in threads:
        thread.start()
        taken(batch)
    for thread in threads:
        thread.join(10)
    batch.release()


def test_who_takes_a_struct_waits_for_its_event(device: FakeDevice) -> None:
    """The current stream waits for the event before anything is read; the host does not."""
    ours = Batch.from_arrow(SOURCE).to_device(device)
    capsule, event = taken(ours)
    device.stats.reset()
    device.driver.waits.clear()
    batch = Batch.from_arrow(Capsules(ours.schema, capsule))
    assert list(device.driver.waits) == [(0, event)]
    assert device.stats.synchronizations == 0
    assert batch.to_arrow().equals(SOURCE)


def test_who_takes_a_struct_without_an_event_does_not_wait(device: FakeDevice) -> None:
    """No event says that the data are ready."""
    ours = Batch.from_arrow(SOURCE).to_device(device)
    capsule, _ = taken(ours)
    ctypes.c_int64.from_address(address_in(capsule, b"arrow_device_array") + EVENT_WORD).value = 0
    device.driver.waits.clear()
    batch = Batch.from_arrow(Capsules(ours.schema, capsule))
    assert not device.driver.waits
    assert batch.to_arrow().equals(SOURCE)


def test_an_event_that_is_none_is_an_error(device: FakeDevice) -> None:
    """A struct with an event that the driver refuses is not taken, and its memory goes back."""
    ours = Batch.from_arrow(SOURCE).to_device(device)
    capsule, _ = taken(ours)
    wrong = ctypes.c_uint64(1)
    at = address_in(capsule, b"arrow_device_array") + EVENT_WORD
    ctypes.c_int64.from_address(at).value = ctypes.addressof(wrong)
    with pytest.raises(DeviceError, match="stream_wait_event"):
        Batch.from_arrow(Capsules(ours.schema, capsule))
    del capsule
    gc.collect()
    ours.release()


def test_a_struct_that_somebody_took_is_not_looked_at(device: FakeDevice) -> None:
    """Who moved a struct out may have freed its event, so nobody reads the pointer that was left behind."""
    ours = Batch.from_arrow(SOURCE).to_device(device)
    capsule, _ = taken(ours)
    release = ctypes.c_int64.from_address(address_in(capsule, b"arrow_device_array") + 8 * 8)
    before, release.value = release.value, 0
    device.driver.waits.clear()
    with pytest.raises(UsageError, match="released"):
        Batch.from_arrow(Capsules(ours.schema, capsule))
    assert not device.driver.waits
    release.value = before


@pytest.mark.parametrize("call", ["event_create", "event_record"])
def test_a_device_that_refuses_hands_nothing_out(device: FakeDevice, call: str) -> None:
    """Where no event can be had no struct is made, and nothing is held."""
    batch = Batch.from_arrow(SOURCE).to_device(device)
    device.sweep()  # no event is left to be used again
    device.driver.fail_next(call)
    with pytest.raises(DeviceError, match=call):
        batch.__arrow_c_device_array__()
    batch.release()


def test_the_host_has_no_event() -> None:
    """On the host the struct says no event, as nobody has to wait."""
    capsule = Batch.from_arrow(SOURCE).__arrow_c_device_array__()[1]
    assert event_in(address_in(capsule, b"arrow_device_array")) is None


def test_through_two_libraries(device: FakeDevice) -> None:
    """What nanoarrow took and gives on has the same event, which lives until the last of all copies is gone."""
    batch = Batch.from_arrow({"a": np.arange(4)}).to_device(device)
    capsule, event = taken(batch)
    array = nanoarrow.device.c_device_array(Capsules(batch.schema, capsule))
    again = Batch.from_arrow(array)
    assert device.driver.waits[-1] == (0, event)
    del array, capsule
    gc.collect()
    device.sweep()
    assert event in device.driver.held_events
    assert device.to_host(again["a"].values).tolist() == [0, 1, 2, 3]
    del again
    gc.collect()
    device.sweep()
    assert event not in device.driver.held_events


def test_schemas_come_along(device: FakeDevice) -> None:
    """The schema beside the struct is that of the batch."""
    batch = Batch.from_arrow(SOURCE).to_device(device)
    assert na.c_schema(Elsewhere(batch).__arrow_c_device_array__()[0]).n_children == 3


def test_options_that_nobody_knows_are_refused(device: FakeDevice) -> None:
    """An option that a later specification may bring is refused, unless it says nothing."""
    for batch in (Batch.from_arrow(SOURCE), Batch.from_arrow(SOURCE).to_device(device)):
        assert batch.__arrow_c_device_array__(None, stream=None)
        with pytest.raises(NotImplementedError, match="stream"):
            batch.__arrow_c_device_array__(None, stream=5)
