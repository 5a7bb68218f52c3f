"""Every type through nanoarrow, which knows devices and has none: from a device and from the host, and back."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator
from typing import Any

import nanoarrow.device
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring.columnar import Batch
from bowstring.columnar.parts import batch_parts
from bowstring.memory import Device, cpu
from bowstring.testing import fake_device
from tests import strategies
from tests.conformance.arrow_types import deep_tables
from tests.device_events import swept_events, wait_for_events

BATCHES = st.one_of(deep_tables(), strategies.tables()).map(lambda batches: batches[0])


class Passed:
    """What nanoarrow holds, given on as it came: its own copies of views lose buffers (so in 0.9)."""

    def __init__(self, batch: Batch) -> None:
        self.schema, self.array = batch.__arrow_c_device_array__()
        self.taken = nanoarrow.device.CDeviceArray._import_from_c_capsule(self.schema, self.array)

    def __arrow_c_device_array__(self, requested_schema: Any = None, **_: Any) -> Any:
        return self.schema, self.array


def has_views(type_: pa.DataType) -> bool:
    """Return whether a type is one of views of text or bytes, or has such inside."""
    if isinstance(type_, pa.BaseExtensionType):
        return has_views(type_.storage_type)
    if isinstance(type_, pa.DictionaryType):
        return has_views(type_.value_type)
    if pa.types.is_run_end_encoded(type_):
        return has_views(type_.value_type)
    own = pa.types.is_string_view(type_) or pa.types.is_binary_view(type_)
    return own or any(has_views(type_.field(index).type) for index in range(type_.num_fields))


@given(source=BATCHES)
def test_every_type_goes_to_nanoarrow_and_back(source: pa.RecordBatch) -> None:
    """From a device and from the host: type, length and device as they were, and every value when it is back."""
    for device in (cpu(), fake_device(1)):
        ours = Batch.from_arrow(source).to_device(device)
        through = Passed(ours)
        taken = through.taken
        assert (taken.device_type_id, taken.device_id) == (
            ours.device.arrow_device_type,
            ours.device.arrow_device_id,
        )
        assert taken.array.length == source.num_rows
        assert taken.schema.n_children == source.num_columns
        again: Any = through
        if device is not cpu() and not any(has_views(field.type) for field in source.schema):
            again = taken
        back = Batch.from_arrow(again)
        assert back.device is ours.device
        assert back.equals(ours)


@pytest.fixture
def device() -> Iterator[Device]:
    """Return a fake device to which each event is given back that the test made."""
    device = fake_device(1)
    before = swept_events(device)
    yield device
    wait_for_events(device, before)


def test_what_nanoarrow_holds_outlives_stream_and_server(device: Device) -> None:
    """A struct of a received batch stays true after its stream, its server and its batch are gone."""
    source = pa.record_batch({"n": list(range(1000)), "s": ["x"] * 1000})
    pool = bow.Pool(device, budget=64 << 20)
    server = bow.Server(pool=pool)
    stream = bow.connect(server.publish("t", Batch.from_arrow(source).to_device(device)))
    [batch] = stream
    region = weakref.ref(batch_parts(batch).spans.regions[0])
    held = nanoarrow.device.c_device_array(batch)
    del batch
    stream.close()
    server.close()
    del stream, server
    gc.collect()
    assert region() is not None
    assert Batch.from_arrow(held).to_arrow().equals(source)
    del held
    end = time.monotonic() + 10.0
    while region() is not None and time.monotonic() < end:  # threads of the stream are on their way out
        gc.collect()
        time.sleep(0.005)
    assert region() is None
    pool.close()
