"""Random trees of encodings decode to what vortex-data makes of them, on the host and on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.errors import InvalidBody
from bowstring.limits import Limits
from bowstring.testing import fake_device
from bowstring.vortex.dtype import DType, Kind, primitive
from bowstring.vortex.message import Piece
from tests.vortex.streams import messages_of, numbers, stream_of
from tests.vortex.trees import TYPES, Trees, fields

WIDE = Limits(decompression_ratio=1e6)


def comparable(column: pa.Array) -> str:
    """Return what differs where two columns do: also signs of zeros; dates beyond any calendar as integers."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return repr(column.to_pylist())


def decoded(data: bytes, dtype: DType, device: Any = None) -> str:
    """Return the values of a stream of one batch."""
    [batch] = bow.vortex.open_stream(data, limits=WIDE)
    found = batch.decode(device=device).to_arrow()
    found.validate(full=True)
    if dtype.kind is Kind.STRUCT and not dtype.nullable:
        return comparable(found.to_struct_array())
    return comparable(found.column(0))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(TYPES),
    nullable=st.booleans(),
    rows=st.sampled_from((1, 3, 70, 1024, 1500, 2500)),
    depth=st.integers(0, 3),
)
def test_trees_decode_as_vortex_data_decodes_them(
    seed: int, dtype: DType, nullable: bool, rows: int, depth: int
) -> None:
    """Every encoding, of every type that it takes, with nulls, offsets and patches, inside of others."""
    serde = pytest.importorskip("vortex.serde")
    dtype = dtype.as_nullable(nullable)
    data = stream_of(dtype, (Trees(np.random.default_rng(seed)).array(dtype, rows, depth), rows))
    found = decoded(data, dtype)
    assert decoded(data, dtype, fake_device()) == found
    first, message = messages_of(data)
    try:
        expected = serde.decode_ipc_array_buffers([message], [first]).to_arrow_array()
    except BaseException as error:  # it refuses what it does not implement, and panics
        if isinstance(error, RuntimeError) or type(error).__name__ == "PanicException":
            reject()
        raise
    assert found == comparable(expected)


@pytest.mark.parametrize("name", ["i1", "i2", "i4", "i8"])
def test_codes_of_dictionaries_may_be_signed(name: str) -> None:
    """As those of Arrow are; negative ones stand for no value."""
    dtype = primitive("i4")
    kind = {"i1": 4, "i2": 5, "i4": 6, "i8": 7}[name]
    for codes, fits in (([1, 0, 1], True), ([1, -1, 0], False), ([1, 2, 0], False)):
        children = (numbers(codes, f"<{name}"), numbers([10, 20], "<i4"))
        data = stream_of(dtype, (Piece("vortex.dict", fields(f1=2, f2=kind), (), children), 3))
        if fits:
            assert decoded(data, dtype) == "[20, 10, 20]"
        else:
            with pytest.raises(InvalidBody):
                decoded(data, dtype)


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("ends", [[2, 2, 5], [3, 2, 5], [1024, 1024, 2000], [5, 5]])
def test_runs_without_a_row_are_an_error_everywhere(ends: list[int], on_device: bool) -> None:
    """Ends that do not rise are noted, wherever they lie, also where no row looks at them."""
    dtype = primitive("i4")
    children = (numbers(ends, "<u2"), numbers(range(len(ends)), "<i4"))
    piece = Piece("vortex.runend", fields(f1=1, f2=len(ends), f3=0), (), children)
    data = stream_of(dtype, (piece, ends[-1]))
    with pytest.raises(InvalidBody, match="runs"):
        decoded(data, dtype, fake_device() if on_device else None)
