"""Leases: a batch can be released when no view of it is alive, and nobody can look at it afterwards."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import pickle
import queue
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.columnar import Batch, Dictionary, compacted
from bowstring.columnar.parts import batch_parts, make_batch
from bowstring.errors import ClosedError, NotPicklable, UsageError, ViewsAlive
from bowstring.ipc import open_stream
from bowstring.memory import Device, Lease, wrap
from tests.ipc.forms import without_library
from tests.ipc.null_counts import stream_without_nulls

VIEWS: dict[str, Callable[[Batch], Any]] = {
    "values": lambda batch: batch["a"].raw_values,
    "slice of values": lambda batch: batch["a"].raw_values[1:],
    "validity": lambda batch: batch["a"].validity,
    "offsets": lambda batch: batch["s"].offsets,
    "buffer array": lambda batch: batch.buffers[1].array() if batch.buffers[1] else None,
    "capsule": lambda batch: batch.__arrow_c_device_array__(),
    "column capsule": lambda batch: batch["s"].__arrow_c_device_array__(),
    "slice": lambda batch: batch.slice(1),
    "odd slice's array": lambda batch: batch.slice(1)["a"].raw_values,
    "selection": lambda batch: batch.select(["a"]),
    "array of a selection": lambda batch: batch.select(["a"])["a"].raw_values,
    "one column": lambda batch: batch["a"].as_batch(),
    "compact part": lambda batch: compacted(batch.slice(1)),
}

OURS = str(Path(bow.__file__).parent)


@pytest.fixture
def ended() -> queue.SimpleQueue[object]:
    """Return where leases that end are noted."""
    return queue.SimpleQueue()


def leased(device: Device, ended: queue.SimpleQueue[object]) -> Batch:
    """Return a batch with a lease that notes its end."""
    made = Batch.from_arrow({"a": pa.array([1, None, 3]), "s": pa.array(["x", "y", None])}).to_device(device)
    lease = Lease(batch_parts(made).spans.regions, ended, "ended")
    return make_batch(
        Batch,
        made.layout,
        3,
        batch_parts(made).nodes,
        spans=batch_parts(made).spans.table,
        regions=batch_parts(made).spans.regions,
        lease=lease,
    )


@pytest.fixture
def batch(device: Device, ended: queue.SimpleQueue[object]) -> Batch:
    """Return a batch with a lease that notes its end."""
    return leased(device, ended)


@pytest.mark.parametrize("view", VIEWS)
def test_release_waits_for_views(batch: Batch, ended: queue.SimpleQueue[object], view: str) -> None:
    """While a view of any kind is alive the batch cannot be released; without it, it can, once."""
    kept = VIEWS[view](batch)
    with pytest.raises(ViewsAlive):
        batch.release()
    assert not batch.lease.released
    assert batch["a"].null_count == 1
    del kept
    gc.collect()
    batch.release()
    batch.release()
    assert ended.get_nowait() == "ended"
    assert ended.empty()


@pytest.mark.parametrize("view", VIEWS)
def test_a_lease_ends_with_the_last_view(view: str, device: Device, ended: queue.SimpleQueue[object]) -> None:
    """A batch that is dropped ends its lease when its last view is collected, not before."""
    batch = leased(device, ended)
    kept = VIEWS[view](batch)
    del batch
    gc.collect()
    assert ended.empty()
    del kept
    gc.collect()
    assert ended.get_nowait() == "ended"
    assert ended.empty()


@pytest.mark.parametrize("view", [*VIEWS, "to_arrow"])
def test_nobody_can_look_after_release(batch: Batch, view: str) -> None:
    """Everything that would look at a released batch says that it was released; its shape is still known."""
    column = batch["a"]
    batch.release()
    with pytest.raises(ClosedError):
        (VIEWS.get(view) or Batch.to_arrow)(batch)
    with pytest.raises(ClosedError):
        column.raw_values  # noqa: B018  it raises
    assert (len(batch), batch.schema.names) == (3, ["a", "s"])
    assert "released" in repr(batch)


def test_parts_are_released_by_themselves(batch: Batch, ended: queue.SimpleQueue[object]) -> None:
    """Releasing a slice leaves the batch alone, and then the batch can be released."""
    part = batch.slice(1)
    part.release()
    with pytest.raises(ClosedError):
        part["a"].raw_values  # noqa: B018  it raises
    assert batch["a"].null_count == 1
    batch.release()
    assert ended.get_nowait() == "ended"


def test_dictionaries_keep_their_own_lease(ended: queue.SimpleQueue[object]) -> None:
    """Releasing a batch does not end the lease of a dictionary that others use; dropping the last one does."""
    made = Batch.from_arrow({"d": pa.array(["x", "y", "x"]).dictionary_encode()})
    values = made.dictionaries[0].values
    leased = make_batch(
        Batch,
        values.layout,
        2,
        batch_parts(values).nodes,
        spans=batch_parts(values).spans.table,
        regions=batch_parts(values).spans.regions,
        lease=Lease(batch_parts(values).spans.regions, ended, "dictionary"),
    )
    dictionary = Dictionary(0, leased)
    del values, leased

    def use(dictionary: Dictionary) -> Batch:
        return make_batch(
            Batch,
            made.layout,
            3,
            batch_parts(made).nodes,
            dictionaries={0: dictionary},
            spans=batch_parts(made).spans.table,
            regions=batch_parts(made).spans.regions,
        )

    first, second = use(dictionary), use(dictionary)
    del dictionary
    first.release()
    gc.collect()
    assert ended.empty()
    taken = second.to_arrow()
    del second
    gc.collect()
    assert ended.empty()
    assert taken["d"].to_pylist() == ["x", "y", "x"]
    del taken
    gc.collect()
    assert ended.get_nowait() == "dictionary"


def test_buffers_bring_their_leases(ended: queue.SimpleQueue[object]) -> None:
    """A batch made of buffers of another batch keeps that one's lease, and its views count as views of both."""
    numbers = Batch.from_arrow({"a": np.arange(3)})
    lease = Lease(batch_parts(numbers).spans.regions, ended, "first")
    first = make_batch(
        Batch,
        numbers.layout,
        3,
        batch_parts(numbers).nodes,
        spans=batch_parts(numbers).spans.table,
        regions=batch_parts(numbers).spans.regions,
        lease=lease,
    )
    second = make_batch(Batch, first.layout, 3, batch_parts(first).nodes, list(first.buffers))
    with pytest.raises(ViewsAlive):
        first.release()
    view = second["a"].raw_values
    del second
    gc.collect()
    with pytest.raises(ViewsAlive):
        first.release()
    del view
    gc.collect()
    first.release()
    assert ended.get_nowait() == "first"


def test_buffers_without_a_lease_count_too(ended: queue.SimpleQueue[object]) -> None:
    """Views of plain buffers that a batch with a lease was made of are views of the batch."""
    layout = Batch.from_arrow({"a": np.arange(2)}).layout
    lease = Lease((), ended, "batch")
    batch = make_batch(Batch, layout, 2, np.array([[2, 0]]), [None, wrap(np.arange(2))], lease=lease)
    view = batch["a"].raw_values
    with pytest.raises(ViewsAlive):
        batch.release()
    del view
    batch.release()


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_batches_refuse_pickle(protocol: int) -> None:
    """Batches, columns and dictionaries cannot be pickled or copied, and say what to do instead."""
    batch = Batch.from_arrow({"d": pa.array(["x"]).dictionary_encode()})
    for thing in (batch, batch["d"], batch.dictionaries[0]):
        with pytest.raises(NotPicklable, match="process"):
            pickle.dumps(thing, protocol)
        with pytest.raises(NotPicklable):
            copy.copy(thing)


def test_batches_are_not_made_by_hand() -> None:
    """The constructor says how a batch is made."""
    with pytest.raises(UsageError, match="from_arrow"):
        Batch()


def test_batches_over_the_same_regions_end_one_by_one() -> None:
    """Batches made over one list of regions have their own leases: each can be released by itself."""
    whole = Batch.from_arrow({"a": np.arange(12), "b": np.arange(12.0)})
    first = whole.slice(0, 4)
    copied = compacted(first)
    others = [
        make_batch(
            Batch,
            first.layout,
            4,
            batch_parts(first).nodes,
            spans=batch_parts(whole.slice(4 * number, 4)).spans.table.copy(),
            regions=batch_parts(first).spans.regions,
        )
        for number in (1, 2)
    ]
    assert [each["a"].raw_values.tolist() for each in others] == [[4, 5, 6, 7], [8, 9, 10, 11]]
    assert [each["b"].raw_values.tolist() for each in others] == [[4, 5, 6, 7], [8, 9, 10, 11]]
    assert all(each.equals(whole.slice(4 * number, 4)) for number, each in enumerate(others, 1))
    others[0].release()
    with pytest.raises(ClosedError):
        others[0]["a"].raw_values  # noqa: B018  asked for, to be refused
    assert others[1]["a"].raw_values.tolist() == [8, 9, 10, 11]
    assert first.equals(copied)


def test_what_a_released_batch_still_tells(batch: Batch) -> None:
    """Sizes and types are told after the release, as far as they were known; values are not."""
    columns = [batch["a"], batch["s"]]
    told = [(len(each), each.null_count, each.type) for each in columns]
    batch.release()
    assert [(len(each), each.null_count, each.type) for each in columns] == told
    assert (len(batch), batch.num_columns) == (3, 2)
    for each in columns:
        assert each.name in each._repr_html_()
        with pytest.raises(ClosedError):
            each.to_pylist()


def with_open_counts() -> bytes:
    """Return a stream of one batch whose message does not say how many nulls it has."""
    sink = io.BytesIO()
    texts = pa.array(["x", "y", None])
    data = pa.record_batch({"a": [1, 2, 3], "s": texts, "d": texts.dictionary_encode()})
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_batch(data)
    return stream_without_nulls(sink.getvalue(), -1)


LOOKS: dict[str, Callable[[Batch], Any]] = {
    **{name: view for name, view in VIEWS.items() if name != "compact part"},  # that may be a copy
    "null count": lambda batch: batch["a"].null_count,
    "null count of text": lambda batch: batch["s"].null_count,
    "dictionary": lambda batch: batch["d"].dictionary,
    "array of a dictionary": lambda batch: batch["d"].as_batch(),
    "to_arrow": Batch.to_arrow,
    "bytes": lambda batch: batch.nbytes,
    "repr": repr,
}


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("look", LOOKS)
def test_a_release_between_any_two_lines_of_a_look(look: str, compiled: bool) -> None:
    """Released by another thread while it is looked at, a batch is released for good, or a view keeps it."""
    data = with_open_counts()

    def released_at(line: int) -> int:
        with contextlib.nullcontext() if compiled else without_library():
            (batch,) = open_stream(data)
        seen, found = 0, None

        def on_line(_: FrameType, event: str, __: object) -> Any:
            nonlocal seen
            seen += event == "line"
            if seen > line:
                sys.settrace(None)
                with contextlib.suppress(ViewsAlive):
                    batch.release()
            return on_line

        before = sys.gettrace()
        sys.settrace(lambda frame, *_: on_line if frame.f_code.co_filename.startswith(OURS) else None)
        try:
            found = LOOKS[look](batch)
        except ClosedError:
            pass
        finally:
            sys.settrace(before)
        if batch.lease.released:
            assert found is None or isinstance(found, int | str | bow.Column), (look, line, found)
            assert "released" in repr(batch), (look, line)
            with pytest.raises(ClosedError):
                batch_parts(batch)
        return seen

    released_at(sys.maxsize)  # which imports what is looked with
    for line in range(released_at(sys.maxsize)):
        released_at(line)
