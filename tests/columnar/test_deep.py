"""Deep schemas: dictionaries in dictionaries cost as much as they are many, and too many levels are refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring import ipc
from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.errors import LimitExceeded, NotExportable
from bowstring.limits import DEFAULT_LIMITS

DEEPEST: Final = 64
"""Levels that Arrow C++ takes by the C data interface, the batch among them."""
CALLS: Final = 100_000
"""More than any of these things takes, and far less than one call for each path to a dictionary: 2 ** 31."""


class TooMuch(Exception):
    """More was done than there is to do."""


@pytest.fixture(autouse=True)
def few_calls() -> Iterator[None]:
    """Let each test call `CALLS` functions of Bowstring in its thread, and no more."""
    left = CALLS
    package = os.path.dirname(bow.__file__)

    def count(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal left
        if event != "call" or not frame.f_code.co_filename.startswith(package):
            return  # what is imported, and what runs the tests
        left -= 1
        if left < 0:
            sys.setprofile(None)
            raise TooMuch(f"more than {CALLS} calls")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)


def lists(levels: int) -> pa.RecordBatch:
    """Return a batch of a list of lists."""
    column: pa.Array = pa.array([1], pa.int8())
    for _ in range(levels - 2):
        column = pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column)
    return pa.record_batch([column], ["a"])


def dictionaries(levels: int) -> pa.RecordBatch:
    """Return a batch of a dictionary of structs of a dictionary."""
    column: pa.Array = pa.array([1], pa.int8())
    for level in range(2, levels):
        if level % 2:
            column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), column)
        else:
            column = pa.StructArray.from_arrays([column], ["a"])
    return pa.record_batch([column], ["a"])


def in_one_dictionary(levels: int) -> pa.RecordBatch:
    """Return a batch of a dictionary of a list of lists."""
    (values,) = lists(levels - 1).columns
    return pa.record_batch([pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), values)], ["a"])


MAKERS = [lists, dictionaries, in_one_dictionary]
Maker = Callable[[int], pa.RecordBatch]


def written(batch: pa.RecordBatch, new: Any = pa.ipc.new_stream) -> bytes:
    """Return a stream of one batch, as pyarrow writes it."""
    sink = pa.BufferOutputStream()
    with new(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def test_nested_dictionaries_are_laid_out_once_each() -> None:
    """A dictionary that lies in thirty others has one layout, which all of them name."""
    layout = Layout.of(dictionaries(DEEPEST).schema)
    assert len(layout.dictionaries) == 31
    for inner in layout.dictionaries.values():
        assert all(each is layout.dictionaries[id_] for id_, each in inner.dictionaries.items())


def test_nested_dictionaries_are_taken_in_and_handed_out() -> None:
    """So is the data: each dictionary is looked at once on its way in and out."""
    source = dictionaries(DEEPEST)
    batch = Batch.from_arrow(source)
    assert len(batch.dictionaries) == 31
    batch.validate(full=True)
    assert batch.to_arrow().equals(source)
    assert batch["a"].to_arrow().equals(source["a"])


def test_nested_dictionaries_without_rows_are_made() -> None:
    """A table without batches becomes a batch without rows, with all its dictionaries."""
    schema = dictionaries(DEEPEST).schema
    batch = Batch.from_arrow(pa.Table.from_batches([], schema))
    assert len(batch.dictionaries) == 31
    assert batch.to_arrow().schema.equals(schema)
    assert batch.num_rows == 0


@pytest.mark.parametrize("kind", ["stream", "file"])
def test_nested_dictionaries_are_read_and_written(kind: str) -> None:
    """Streams and files of them are read and written, and dictionaries that are the same are found to be so."""
    source = dictionaries(DEEPEST)
    first, second = Batch.from_arrow(source), Batch.from_arrow(dictionaries(DEEPEST))
    sink = pa.BufferOutputStream()
    with getattr(ipc, f"new_{kind}")(sink, source.schema) as writer:
        for batch in (first, first, second):
            writer.write_batch(batch)
    reader = getattr(ipc, f"open_{kind}")(sink.getvalue())
    assert reader.read_all().equals(pa.Table.from_batches([source] * 3))
    assert reader.stats.num_dictionary_batches == 31
    assert getattr(pa.ipc, f"open_{kind}")(sink.getvalue()).read_all().num_rows == 3


@pytest.mark.parametrize("address", ["unix:", "tcp://127.0.0.1:0"])
def test_nested_dictionaries_are_published(address: str) -> None:
    """They go from process to process, produced lazily or not."""
    source = dictionaries(DEEPEST)
    other = dictionaries(DEEPEST)
    for data in (pa.Table.from_batches([source, other]), iter([source, other])):
        with bow.Server(address) as server:
            endpoint = server.publish("deep", data, readers=1)
            with bow.connect(endpoint) as stream:
                assert stream.read_all().equals(pa.Table.from_batches([source, source]))


@pytest.mark.parametrize("make", MAKERS)
def test_as_many_levels_as_pyarrow_takes(make: Maker) -> None:
    """64 levels, counted as pyarrow counts them, go in and out by every road, and 65 are refused by all."""
    source, deeper = make(DEEPEST), make(DEEPEST + 1)
    batch = Batch.from_arrow(source)
    assert batch.layout.depth == DEEPEST
    assert pa.record_batch(batch).equals(source)
    assert ipc.open_stream(written(source)).read_all().equals(pa.Table.from_batches([source]))
    assert ipc.open_file(written(source, pa.ipc.new_file)).read_all().num_rows == 1
    with pytest.raises(pa.ArrowInvalid, match="Recursion level"):
        pa.RecordBatch._import_from_c_capsule(*deeper.__arrow_c_array__())
    with pytest.raises(LimitExceeded, match="deeply; expected at most 64 levels"):
        Batch.from_arrow(deeper)
    with pytest.raises(LimitExceeded, match="deeply; expected at most 64 levels"):
        ipc.open_stream(written(deeper))
    with pytest.raises(LimitExceeded, match="deeply; expected at most 64 levels"):
        ipc.open_file(written(deeper, pa.ipc.new_file))
    with pytest.raises(LimitExceeded, match="deeply; expected at most 64 levels"):
        ipc.new_stream(pa.BufferOutputStream(), deeper.schema)


@pytest.mark.parametrize("make", MAKERS)
def test_what_raised_limits_let_in_is_not_handed_out(make: Maker) -> None:
    """A deeper batch can be read where the limits say so; what pyarrow cannot take is refused in words of ours."""
    limits = DEFAULT_LIMITS.replace(depth=DEEPEST + 1)
    batch = ipc.open_stream(written(make(DEEPEST + 1)), limits=limits).read_next_batch()
    assert batch.num_rows == 1
    assert batch.layout.depth == DEEPEST + 1
    for hand_out in (batch.to_arrow, batch.__arrow_c_array__, batch.__arrow_c_device_array__):
        with pytest.raises(NotExportable, match=r"deeply.*expected at most 64 levels; found 65"):
            hand_out()
    with pytest.raises(LimitExceeded, match="deeply"):
        ipc.new_stream(pa.BufferOutputStream(), batch.schema)


def test_a_smaller_depth_counts_the_batch_and_the_dictionaries() -> None:
    """A flat column has two levels, one of a dictionary three, whoever counts."""
    flat, coded = (pa.schema({"a": type_}) for type_ in (pa.int8(), pa.dictionary(pa.int8(), pa.string())))
    for schema, levels in ((flat, 2), (coded, 3)):
        assert Layout.of(schema).depth == levels
        stream = bytes(schema.serialize())
        enough, few = (DEFAULT_LIMITS.replace(depth=depth) for depth in (levels, levels - 1))
        assert ipc.open_stream(stream, limits=enough).schema == schema
        Layout.of(schema, limits=enough)
        with pytest.raises(LimitExceeded, match="deeply"):
            ipc.open_stream(stream, limits=few)
        with pytest.raises(LimitExceeded, match="deeply"):
            Layout.of(schema, limits=few)
