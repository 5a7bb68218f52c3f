"""Keys of JSON texts become the names of a metadata, in the order of their bytes."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.columnar import Column


def _names_of(column: Column) -> list[list[bytes]]:
    """Return the names in each metadata of a column."""
    found = []
    for metadata in column.child("metadata").to_arrow().unique().to_pylist():
        width = (metadata[0] >> 6) + 1
        starts = range(1, len(metadata) - width + 1, width)
        numbers = [int.from_bytes(metadata[at : at + width], "little") for at in starts]
        text = metadata[1 + width * (numbers[0] + 2) :]
        offsets = numbers[1 : numbers[0] + 2]
        found.append([text[first:last] for first, last in itertools.pairwise(offsets)])
    return found


_ALIKE = st.builds(
    lambda prefix, rest: prefix + rest,
    st.sampled_from(["", "k" * 9, "\0" * 20]),
    st.text(max_size=12),
)


@given(st.lists(st.text(max_size=3) | _ALIKE | st.text(max_size=90), min_size=1, max_size=40))
@example(["a\0", "a", "a\0\0", "a", ""])
@example(["x" * 200 + "b", "x" * 200 + "a", "x" * 200, "x" * 200 + "a", "w"])
def test_names_ascend_once_each_and_objects_have_their_keys(keys: list[str]) -> None:
    """Names are in the order of their bytes, each once; each object has the key of its text."""
    column = variant.from_json([json.dumps({key: 1}) for key in keys])
    assert _names_of(column) == [sorted({key.encode() for key in keys})]
    assert variant.to_python(column) == [{key: 1} for key in keys]


@pytest.mark.parametrize("fields", [4, 100])
@pytest.mark.parametrize("shared", [0, 7, 16, 60, 200])
def test_many_names_that_begin_alike(shared: int, fields: int) -> None:
    """Many names that are alike at first, and again in places, come in order: those of all rows, or of each one."""
    rng = np.random.default_rng(shared)
    keys = ["p" * shared + str(number) for number in rng.integers(0, 1 << 34, 6000)]
    keys += [*(key + ending for key in keys[::4] for ending in ("", "\0", "\0\0", "é")), "o", ""]
    objects = [dict.fromkeys(keys[first : first + fields], True) for first in range(0, len(keys), fields)]
    column = variant.from_json(map(json.dumps, objects))
    rows = [keys] if fields == 4 else objects
    assert _names_of(column) == [sorted({key.encode() for key in each}) for each in rows]
    assert variant.to_python(column) == objects
