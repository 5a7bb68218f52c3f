"""What is asked for before it is read: the bytes of rows to come, and no more than rows have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.kernels.variant import walk as variant_fields
from bowstring.variant import Value, open_column
from tests.variant.encoding import encode_with, metadata_bytes
from tests.variant.get_columns import column_of

LINE = 64
AHEAD = int(variant_fields.AHEAD)
ROWS = AHEAD + 40


def objects(fields: int, form: str = "binary") -> Column:
    """Return rows of so many numbers of changing widths."""
    names = [f"{number:04}" for number in range(fields)]
    ids = {name: number for number, name in enumerate(names)}
    rows = [
        encode_with(
            ids,
            Value(
                "object", {name: Value(("int8", "int32")[row * k % 3 % 2], k % 99) for name, k in ids.items()}
            ),
        )
        for row in range(ROWS)
    ]
    return column_of([(metadata_bytes(names), row) for row in rows], value=form)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the places that an interpreted walk asks for, as it goes."""
    places: list[int] = []

    def note(_data: Any, at: Any) -> None:
        places.append(int(at))

    monkeypatch.setenv("BOWSTRING_KERNELS", "interpret")
    monkeypatch.setattr(variant_fields, "prefetch", note)
    monkeypatch.setattr(variant_fields, "prefetch_page", note)
    return places


@pytest.mark.parametrize("form", ["binary", "large_binary"])
@pytest.mark.parametrize("paths", [1, 10])
def test_every_byte_of_rows_to_come(paths: int, form: str, asked: list[int]) -> None:
    """Of rows of some hundred bytes every byte is asked for, but for the first rows, for one path or many."""
    column = objects(90, form)
    variant.get_many(column, {f"{k}": (f"$.{k:04}", pa.int32()) for k in range(paths)})
    value = open_column(column).value
    first, last = int(value.starts[AHEAD]), int(value.stops[ROWS - 1])
    assert 192 < last // ROWS < 768
    covered = np.zeros(last + LINE, np.bool_)
    for at in asked:
        covered[at : at + LINE] = True
    assert covered[first:last].all()
    assert not covered[:first].any()
    assert len(asked) <= (last - first) // LINE + ROWS - AHEAD


def test_short_rows_are_asked_for_a_page_ahead(asked: list[int]) -> None:
    """Of short rows one place each is, a page behind where it begins."""
    column = objects(10)
    variant.get(column, "$.0001", pa.int32())
    assert asked == [start + 4096 for start in open_column(column).value.starts.tolist()]


def test_long_rows_are_asked_for_in_part(asked: list[int]) -> None:
    """Of long rows a few places are, where few are read, and none where many are."""
    column = objects(250)
    variant.get(column, "$.0100", pa.int32())
    assert 0 < len(asked) <= 6 * (ROWS - AHEAD)
    asked.clear()
    variant.get_many(column, {f"{k}": (f"$.{k:04}", pa.int32()) for k in range(5)})
    assert asked == []


def test_offsets_that_lead_anywhere(asked: list[int]) -> None:
    """However far apart or long rows claim to be, the work is bounded by their number, and nothing is harmed."""
    values = pa.array([b"\x0c\x07" * 40] * ROWS, pa.binary_view())
    views = np.frombuffer(values.buffers()[1], np.uint32).reshape(-1, 4).copy()
    views[1::3, 3] = 2**31 - 5
    views[2::3, 0] = 2**31 - 1
    broken = pa.Array.from_buffers(pa.binary_view(), ROWS, [None, pa.py_buffer(views), *values.buffers()[2:]])
    array = pa.StructArray.from_arrays(
        [pa.array([b"\x01\x00\x00"] * ROWS, pa.binary()), broken], ["metadata", "value"]
    )
    got = variant.get(array, "$.a", pa.int32(), plain=True, with_status=True)
    assert set(got["status"].values[::3].tolist()) == {variant.Status.MISSING}
    assert set(got["status"].values[1::3].tolist()) == {variant.Status.MALFORMED}
    assert len(asked) <= int(variant_fields.MOST_LINES) * ROWS
