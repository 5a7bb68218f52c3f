"""Single integers out of buffers: the same however many are asked for at a time, and never from outside of one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.columnar.spans import Spans
from bowstring.errors import InvalidBody
from bowstring.memory import cpu, foreign_region

MEMORY = [np.random.default_rng(seed).integers(0, 256, 200, np.uint8) for seed in (1, 2)]
ROWS = [(0, 8, 100), (1, 0, 200), (0, 120, 7), (1, 40, 0)]


def spans() -> Spans:
    """Return a few buffers in two regions."""
    regions = [foreign_region(each.ctypes.data, each.nbytes, each) for each in MEMORY]
    return Spans(np.array(ROWS, np.int64), regions)


WANTED = st.lists(
    st.tuples(st.integers(0, len(ROWS) - 1), st.integers(-9, 210), st.sampled_from([1, 2, 4, 8])),
    min_size=1,
    max_size=60,
)
MANY = 65  # times what is wanted, which is gathered then


@given(WANTED)
def test_few_and_many(wanted: list[tuple[int, int, int]]) -> None:
    """What is read one by one is what is gathered, and both refuse what lies outside of its buffer."""
    rows, at, widths = (list(each) for each in zip(*wanted, strict=True))
    buffers = spans()
    if all(byte >= 0 and byte + width <= ROWS[row][2] for row, byte, width in wanted):
        few = buffers.fetch(cpu(), rows, at, widths)
        assert buffers.fetch(cpu(), rows * MANY, at * MANY, widths * MANY) == few * MANY
    else:
        for times in (1, MANY):
            with pytest.raises(InvalidBody):
                buffers.fetch(cpu(), rows * times, at * times, widths * times)


@pytest.mark.parametrize("row", [(0, 190, 20), (0, 201, 8), (0, -8, 16), (1, 2**62, 8)])
def test_a_buffer_outside_of_its_region(row: tuple[int, int, int]) -> None:
    """Nothing is read of a buffer that is not wholly in its region."""
    buffers = Spans(np.array([row], np.int64), spans().regions)
    with pytest.raises(InvalidBody):
        buffers.fetch(cpu(), [0], [row[2] - 8], [8])
