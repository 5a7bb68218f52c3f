"""What does not hold what it says is found out, on every device, and names its column."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.columnar import Batch, Dictionary, compacted
from bowstring.columnar.parts import batch_parts, derived, make_batch
from bowstring.errors import InvalidBody
from bowstring.memory import Device, Pool
from tests.strategies import record_batches

SOURCE = pa.record_batch(
    {
        "n": pa.array([1, None, 3]),
        "s": pa.array(["x", "yy", "zzz"]),
        "l": pa.array([["a"], ["b", "c"], []]),
        "f": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int8(), 2)),
        "r": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["u", "v"])),
    }
)


def remade(batch: Batch, **changes: Any) -> Batch:
    """Return a batch with some parts changed."""
    parts = {
        "spans": batch_parts(batch).spans.table.copy(),
        "regions": batch_parts(batch).spans.regions,
        "device": batch.device,
    }
    nodes = batch_parts(batch).nodes.copy()
    return make_batch(Batch, batch.layout, changes.pop("rows", batch.num_rows), nodes, **{**parts, **changes})


def shorter(batch: Batch, row: int, by: int = 1) -> Batch:
    """Return a batch with one buffer cut short."""
    spans = batch_parts(batch).spans.table.copy()
    spans[row, 2] -= by
    return remade(batch, spans=spans)


def with_node(batch: Batch, node: int, length: int, nulls: int) -> Batch:
    """Return a batch with one node changed."""
    changed = remade(batch)
    batch_parts(changed).nodes[node] = length, nulls
    return changed


def overwritten(batch: Batch, row: int, values: Any) -> Batch:
    """Return a batch with other bytes in one buffer."""
    buffer = Pool(batch.device, budget=2 << 20).allocate(values.nbytes)
    with buffer.writable(values.dtype) as array:
        array[:] = batch.device.xp.asarray(values)
    buffers = list(batch.buffers)
    buffers[row] = buffer
    return make_batch(
        Batch, batch.layout, batch.num_rows, batch_parts(batch).nodes, buffers, device=batch.device
    )


# Buffers: n 0-1, s 2-4, l 5-6, l.item 7-9, f 10, f.item 11-12, r none, r.run_ends 13-14, r.values 15-17
# Nodes: n 0, s 1, l 2, l.item 3, f 4, f.item 5, r 6, r.run_ends 7, r.values 8
BROKEN: dict[str, tuple[str, Callable[[Batch], Batch]]] = {
    "rows": ("n", lambda batch: remade(batch, rows=4)),
    "negative length": ("n", lambda batch: with_node(batch, 0, -1, 0)),
    "too many nulls": ("n", lambda batch: with_node(batch, 0, 3, 4)),
    "impossible null count": ("n", lambda batch: with_node(batch, 0, 3, -2)),
    "missing bitmap": ("n", lambda batch: shorter(batch, 0)),
    "short data": ("n", lambda batch: shorter(batch, 1)),
    "short offsets": ("s", lambda batch: shorter(batch, 3)),
    "short bytes": ("s", lambda batch: shorter(batch, 4)),
    "short child": ("l", lambda batch: with_node(batch, 3, 2, 0)),
    "short child of a fixed list": ("f.item", lambda batch: with_node(batch, 5, 5, 0)),
    "no runs": ("r", lambda batch: with_node(batch, 7, 0, 0)),
    "fewer values than runs": ("r", lambda batch: with_node(batch, 8, 1, 0)),
    "first offset negative": ("s", lambda batch: overwritten(batch, 3, np.array([-1, 1, 3, 6], np.int32))),
    "last offset too large": ("s", lambda batch: overwritten(batch, 3, np.array([0, 1, 3, 7], np.int32))),
    "last before first": ("l", lambda batch: overwritten(batch, 6, np.array([3, 3, 3, 2], np.int32))),
    "runs too short": ("r", lambda batch: overwritten(batch, 14, np.array([1, 2], np.int32))),
    "runs from nowhere": ("r", lambda batch: overwritten(batch, 14, np.array([0, 3], np.int32))),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_structure_is_found(device: Device, what: str) -> None:
    """Each way in which counts, sizes and ends can be wrong raises InvalidBody and names the column."""
    path, breaks = BROKEN[what]
    batch = breaks(Batch.from_arrow(SOURCE).to_device(device))
    with pytest.raises(InvalidBody) as caught:
        batch.validate()
    assert caught.value.where is not None
    assert caught.value.where.startswith(path)


INSIDE: dict[str, tuple[str, Callable[[Batch], Batch]]] = {
    "offsets that fall": (
        "s, row 1",
        lambda batch: overwritten(batch, 3, np.array([0, 5, 3, 6], np.int32)),
    ),
    "an offset outside": (
        "l, row 0",
        lambda batch: overwritten(batch, 6, np.array([0, 900, 3, 3], np.int32)),
    ),
    "bad UTF-8": ("s, row 0", lambda batch: overwritten(batch, 4, np.array([255] * 6, np.uint8))),
    "bad UTF-8 in a list": (
        "l.item, row 1",
        lambda batch: overwritten(batch, 9, np.array([97, 255, 97], np.uint8)),
    ),
    "a wrong null count": ("n", lambda batch: with_node(batch, 0, 3, 2)),
    "runs that fall": (
        "r.run_ends, slot 1",
        lambda batch: overwritten(batch, 14, np.array([3, 3], np.int32)),
    ),
    "bad UTF-8 in a run": (
        "r.values, row 2",
        lambda batch: overwritten(batch, 17, np.array([97, 255], np.uint8)),
    ),
}


@pytest.mark.parametrize("what", INSIDE)
def test_broken_elements_are_found_by_full_validation(device: Device, what: str) -> None:
    """What is wrong between the ends passes the check of the structure, and full validation names the row."""
    pytest.importorskip("numba")
    where, breaks = INSIDE[what]
    batch = breaks(Batch.from_arrow(SOURCE).to_device(device))
    batch.validate()
    with pytest.raises(InvalidBody) as caught:
        batch.validate(full=True)
    assert caught.value.where == where
    assert caught.value.expected is not None
    assert caught.value.found is not None


def test_dictionaries_are_validated() -> None:
    """Broken values of a dictionary, and indices beyond it, are found."""
    batch = Batch.from_arrow({"d": pa.array(["x", "y"]).dictionary_encode()})
    values = batch.dictionaries[0].values
    broken = {0: Dictionary(0, shorter(values, 2))}
    with pytest.raises(InvalidBody):
        derived(batch, batch_parts(batch), 2, broken).validate()
    short = {0: Dictionary(0, values.slice(0, 1))}
    with pytest.raises(InvalidBody):
        derived(batch, batch_parts(batch), 2, short).validate(full=True)


def test_a_missing_dictionary_is_named(device: Device) -> None:
    """Whatever needs a dictionary that the batch does not have raises InvalidBody, and names the id."""
    source = {"n": [1, 2], "d": pa.array(["x", "y"]).dictionary_encode()}
    batch = Batch.from_arrow(source).to_device(device)
    broken = derived(batch, batch_parts(batch), 2, {})
    for use in (
        lambda: broken.validate(full=True),
        broken.to_arrow,
        lambda: broken.slice(1),
        lambda: broken.select(["d"]),
        lambda: broken["d"].dictionary,
    ):
        with pytest.raises(InvalidBody, match="dictionary is missing"):
            use()


def test_large_batches_are_validated_by_kernels_on_the_host() -> None:
    """Where the compiler is loaded, pyarrow is not asked about a large batch."""
    pytest.importorskip("numba")
    times = pa.Array.from_buffers(
        pa.time32("s"), 300_000, [None, pa.py_buffer(bytes(1_199_996) + b"\xff" * 4)]
    )
    batch = Batch.from_arrow({"t": times})
    entered: set[str] = set()
    sys.setprofile(lambda frame, event, _: entered.add(frame.f_code.co_name) if event == "call" else None)
    try:
        with pytest.raises(InvalidBody) as caught:
            batch.validate(full=True)
    finally:
        sys.setprofile(None)
    assert "to_arrow" not in entered
    assert caught.value.where == "t, row 299999"


WITHOUT_COMPILER = """
import os, sys
sys.modules["numba"] = None
os.environ["BOWSTRING_KERNELS"] = "jit"
import pyarrow as pa
from bowstring.columnar import Batch
from bowstring.errors import InvalidBody, MissingDependency
from bowstring.testing import fake_device
wrong = pa.Array.from_buffers(pa.time32("s"), 1, [None, pa.py_buffer(b"\\xff" * 4)])
batch = Batch.from_arrow({"t": wrong})
try:
    batch.validate(full=True)
except InvalidBody as error:
    assert error.where == "t", error
else:
    raise AssertionError("not found")
try:
    batch.to_device(fake_device()).validate(full=True)
except MissingDependency as error:
    print(error.hint)
"""


def test_without_a_compiler_pyarrow_validates_on_the_host() -> None:
    """Without numba and a library the host does without kernels, and a device says what to install."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILER], capture_output=True, text=True, timeout=60, check=False
    )
    assert "bowstring[kernels]" in done.stdout, done.stderr


@given(source=record_batches(min_columns=1), data=st.data())
def test_wrong_numbers_never_lead_outside(
    device: Device, source: pa.RecordBatch, data: st.DataObject
) -> None:
    """Whatever numbers stand in the tables of a batch, working on it gives a result or InvalidBody."""
    batch = compacted(Batch.from_arrow(source).to_device(device))
    nodes, spans = batch_parts(batch).nodes.copy(), batch_parts(batch).spans.table.copy()
    for _ in range(data.draw(st.integers(1, 3))):
        if data.draw(st.booleans()) or not spans[:, 2].any():
            row = data.draw(st.integers(0, len(nodes) - 1))
            nodes[row, data.draw(st.integers(0, 1))] = data.draw(st.integers(0, 100))
        else:
            row = int(data.draw(st.sampled_from(np.flatnonzero(spans[:, 2]).tolist())))
            spans[row, 2] = data.draw(st.integers(0, int(spans[row, 2])))
    changed = make_batch(
        Batch,
        batch.layout,
        batch.num_rows,
        nodes,
        variadic_counts=batch_parts(batch).variadic_counts,
        dictionaries=batch.dictionaries,
        spans=spans,
        regions=batch_parts(batch).spans.regions,
        device=device,
    )
    for work in (
        Batch.validate,
        compacted,
        lambda each: each.slice(1, 5),
        lambda each: compacted(each.slice(2)),
    ):
        try:
            work(changed)
        except InvalidBody as error:
            assert error.what  # noqa: PT017  either outcome is right
