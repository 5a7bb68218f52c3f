"""Limits are whole numbers of bytes and of things, and floats for times and ratios, however they are given."""

from __future__ import annotations

import dataclasses
import io
import pickle
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow

DEFAULTS = dataclasses.asdict(bow.Limits())
WHOLE = [name for name, value in DEFAULTS.items() if isinstance(value, int)]
REAL = [name for name, value in DEFAULTS.items() if isinstance(value, float)]
MIB = 1 << 20


def made(name: str, value: Any) -> bow.Limits:
    return bow.Limits(**{name: value})


def typed(limits: bow.Limits) -> dict[str, tuple[type, Any]]:
    return {name: (type(value), value) for name, value in dataclasses.asdict(limits).items()}


def test_each_field_is_of_one_kind() -> None:
    """Sizes and counts are ints by default, times and the ratio floats."""
    assert sorted([*WHOLE, *REAL]) == sorted(DEFAULTS)
    assert {"decompression_ratio", "reply_timeout"} <= set(REAL)


@pytest.mark.parametrize("name", DEFAULTS)
@pytest.mark.parametrize("number", [1.0, np.int64(4), np.uint8(7), 1e6, np.float64(64), 1 << 40])
def test_all_kinds_of_a_number_are_the_same_limit(name: str, number: Any) -> None:
    """A field has one type, whether it was given as an int, a float, or a number of NumPy."""
    kind = int if name in WHOLE else float
    found = made(name, number)
    assert typed(found)[name] == (kind, kind(number))
    for other in (made(name, int(number)), made(name, float(number))):
        assert typed(other) == typed(found)
        assert hash(other) == hash(found)
    assert typed(bow.Limits().replace(**{name: number})) == typed(found)
    assert typed(pickle.loads(pickle.dumps(found))) == typed(found)


WRONG = [0, -1, -1.5, float("nan"), True, False, np.bool_(True), "1", None, 1j, Fraction(1, 2), [1], b"1"]


@pytest.mark.parametrize("name", DEFAULTS)
@pytest.mark.parametrize("value", WRONG, ids=lambda value: repr(value)[:9])
def test_what_is_no_number_is_refused(name: str, value: Any) -> None:
    """So is what is not positive, and a bool."""
    with pytest.raises(bow.UsageError, match=f"Limits.{name}"):
        made(name, value)


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("number", [10**400, float("inf")], ids=["too many digits", "inf"])
def test_what_is_not_finite_is_refused(name: str, number: float) -> None:
    """Times and the ratio are floats, and what has no bound is none."""
    with pytest.raises(bow.UsageError, match=f"Limits.{name}"):
        made(name, number)


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_the_largest_ratio_leaves_the_other_bounds(codec: str | None) -> None:
    """A ratio whose product no float holds bounds nothing, and what is decompressed stays bounded by its size."""
    wide = bow.Limits(decompression_ratio=sys.float_info.max, decompression_floor=1)
    sinks = io.BytesIO(), io.BytesIO()
    batch = pa.record_batch({"zeros": pa.array(np.zeros(1 << 16)), "text": ["x" * 100] * (1 << 16)})
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sinks[0], batch.schema, options=options) as writer:
        writer.write_batch(batch)
    with bow.vortex.new_stream(sinks[1], batch.schema, compress=codec is not None) as encoder:
        encoder.write_batch(batch)
    readers: tuple[Any, Any] = bow.ipc.open_stream, bow.vortex.open_stream
    for sink, open_ in zip(sinks, readers, strict=True):
        assert open_(sink.getvalue(), limits=wide).read_all().num_rows == 1 << 16
        if codec is not None:
            with pytest.raises(bow.LimitExceeded):
                open_(sink.getvalue(), limits=wide.replace(decompressed_bytes=1 << 12)).read_all()


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("value", [0.5, 1.5, 1e-300, float("inf")])
def test_parts_of_a_byte_are_refused(name: str, value: float) -> None:
    """A size or a count is whole."""
    with pytest.raises(bow.UsageError, match="whole"):
        made(name, value)


def verdict(data: bytes, limits: bow.Limits) -> str:
    try:
        with bow.ipc.open_stream(data, limits=limits) as reader:
            return f"{reader.read_next_batch().nbytes} bytes"
    except bow.BowstringError as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("number", [2, 1_000, MIB, 1 << 34])
def test_floats_bound_what_ints_bound(codec: str | None, number: int) -> None:
    """A stream that unfolds to 16 MiB is read or refused, with the same words, by either."""
    sink = io.BytesIO()
    batch = pa.record_batch({"zeros": pa.array(np.zeros(2 * MIB)), "text": pa.nulls(2 * MIB, pa.utf8())})
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    data = sink.getvalue()
    for name in WHOLE:
        narrow = bow.Limits(decompression_floor=1, decompression_ratio=2 if name.endswith("floor") else 1e5)
        assert verdict(data, narrow.replace(**{name: float(number)})) == verdict(
            data, narrow.replace(**{name: number})
        )
    if codec and number <= MIB:
        assert "LimitExceeded" in verdict(data, made("decompressed_bytes", float(number)))
