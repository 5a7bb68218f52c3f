"""One batch of a few buffers over a producer's memory: the short road takes what the long one takes, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.dissociated.leases import AnnouncedRegions
from bowstring.errors import BowstringError
from bowstring.ipc.body.check import check_pairs
from bowstring.ipc.body.check_scalar import MOST_FEW
from bowstring.ipc.body.offset_bounds import check_offsets
from bowstring.ipc.flatbuf.message import RecordBatchHeader
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import Region, foreign_region
from bowstring.reading import assembler
from bowstring.reading.pointed_few import FoundFew, pointed_few
from tests.doors.conftest import PATIENCE

BASE = 1 << 21
ROWS = 20
COLUMNS: dict[str, Callable[[], pa.Array]] = {
    "numbers": lambda: pa.array(range(ROWS), pa.int32()),
    "numbers with nulls": lambda: pa.array([None, *range(1, ROWS)], pa.int64()),
    "bits": lambda: pa.array([True, None] * (ROWS // 2)),
    "words": lambda: pa.array(["x" * row for row in range(ROWS)]),
    "long words": lambda: pa.array([None, *(["é"] * (ROWS - 1))], pa.large_string()),
    "bytes of one length": lambda: pa.array([b"abc"] * ROWS, pa.binary(3)),
    "nothing": lambda: pa.nulls(ROWS),
}


class Given(NamedTuple):
    """What came of one batch, and the memory that it points into."""

    header: RecordBatchHeader
    layout: Layout
    pairs: np.ndarray
    announced: AnnouncedRegions
    memory: np.ndarray


def given_of(columns: pa.RecordBatch, regions: int = 1) -> Given:
    """Lay a batch out as a producer does."""
    batch = Batch.from_arrow(columns)
    memory = np.zeros(1 << 14, np.uint8)
    pairs = np.zeros((len(batch.buffers), 2), np.uint64)
    at = 64
    for row, buffer in enumerate(batch.buffers):
        if buffer is not None:
            memory[at : at + buffer.nbytes] = buffer.array()
            pairs[row] = BASE + at, buffer.nbytes
            at += -(-buffer.nbytes // 64) * 64
    buffers = np.zeros(pairs.shape, np.int64)
    buffers[:, 1] = pairs[:, 1].astype(np.int64)
    announced = AnnouncedRegions(DEFAULT_LIMITS)
    for number in range(regions):
        region = foreign_region(memory.ctypes.data, memory.nbytes, memory)
        announced.add(BASE * (1 + number), region, memory.nbytes)
    header = RecordBatchHeader(batch.num_rows, np.array(batch.nodes), buffers, batch.variadic_counts)
    return Given(header, batch.layout, pairs, announced, memory)


def by_the_long_road(given: Given) -> tuple[list[list[int]], list[int]] | None:
    """Return (spans, addresses) of a batch that is right; None of one that is wrong."""
    header, layout, pairs, announced, _ = given
    try:
        check_pairs(header, layout, pairs[:, 1].astype(np.int64))
        spans = announced.resolve(pairs)
        regions: list[Region] = announced.regions
        check_offsets(Batch.from_parts(layout, header.length, header.nodes, spans=spans, regions=regions))
    except BowstringError:
        return None
    return spans.tolist(), pairs[pairs[:, 0] != 0, 0].tolist()


def by_the_short_road(given: Given) -> tuple[list[list[int]], list[int]] | None:
    """Return the same, as far as it is surely right."""
    found = pointed_few(*given[:4])
    return None if found is None else (found.spans.tolist(), found.addresses.tolist())


def whole(rows: int = ROWS) -> pa.RecordBatch:
    """Return a batch with a column of each kind."""
    return pa.record_batch({name: make()[:rows] for name, make in COLUMNS.items()})


@pytest.mark.parametrize("rows", [0, 1, 7, ROWS])
@pytest.mark.parametrize("kind", [*COLUMNS, "all"])
def test_right_ones_are_taken(kind: str, rows: int) -> None:
    """Flat columns of any type without variadic buffers are taken, and found where the long road finds them."""
    columns = whole(rows) if kind == "all" else pa.record_batch({"c": COLUMNS[kind]()[:rows]})
    given = given_of(columns)
    found = by_the_short_road(given)
    assert found is not None
    assert found == by_the_long_road(given)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1], [2, 3]]),
        pa.array([{"a": 1}]),
        pa.array(["longer than twelve bytes"], pa.string_view()),
        pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([7])),
    ],
    ids=lambda column: str(column.type),
)
def test_others_are_left(column: pa.Array) -> None:
    """Columns with children or variadic buffers, many columns, and several regions are left to the long road."""
    assert by_the_short_road(given_of(pa.record_batch({"c": column}))) is None


def test_many_are_left() -> None:
    """Batches of many buffers, or in several regions, are left to the long road."""
    columns = [pa.array([1])] * (MOST_FEW // 2 + 1)
    assert by_the_short_road(given_of(pa.RecordBatch.from_arrays(columns, [*map(str, range(17))]))) is None
    assert by_the_short_road(given_of(whole(), regions=2)) is None


NUMBERS = st.integers(-2, 70) | st.sampled_from(
    [
        1 << 14,
        BASE - 1,
        BASE,
        BASE + 64,
        BASE + (1 << 14),
        1 << 31,
        1 << 62,
        (1 << 63) - 1,
        -(1 << 63),
        1 << 63,
    ]
)


@given(
    where=st.sampled_from(
        ["length", "nodes", "buffers", "pairs", "both lengths", "offsets", "rows of a table"]
    ),
    place=st.integers(0, 1000),
    number=NUMBERS,
)
def test_wrong_ones_are_left(where: str, place: int, number: int) -> None:
    """Whatever number of a batch is another one: what is taken is what the long road finds right, in its place."""
    given = given_of(whole())
    header, layout, pairs, _, memory = given
    signed = (number + (1 << 63)) % (1 << 64) - (1 << 63)
    match where:
        case "length":
            given = given._replace(header=header._replace(length=signed))
        case "nodes":
            header.nodes.flat[place % header.nodes.size] = signed
        case "buffers":
            header.buffers.flat[place % header.buffers.size] = signed
        case "pairs":
            pairs.flat[place % pairs.size] = number % (1 << 64)
        case "both lengths":
            row = place % len(pairs)
            header.buffers[row, 1] = signed
            pairs[row, 1] = number % (1 << 64)
        case "offsets":
            which = layout.offsets[place % len(layout.offsets)]
            begin = int(pairs[which.buffer, 0]) - BASE
            end = begin + int(pairs[which.buffer, 1])
            offsets = memory[begin:end].view(f"<i{which.width}")
            offsets[0 if place % 2 else -1] = number % (1 << 31)
        case _:
            given = given._replace(pairs=pairs[: place % len(pairs)])
    found = by_the_short_road(given)
    assert found is None or found == by_the_long_road(given)


def test_streams_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream's batches and dictionaries go this road, and arrive with their values."""
    table = pa.table(
        {"n": [1, None, 3], "s": ["a", "b", None], "d": pa.array(["u", "v", "u"]).dictionary_encode()}
    )
    taken: list[FoundFew | None] = []

    def noted(*arguments: object) -> FoundFew | None:
        taken.append(pointed_few(*arguments))  # type: ignore[arg-type]
        return taken[-1]

    monkeypatch.setattr(assembler, "pointed_few", noted)
    with bow.Server("unix:", limits=PATIENCE) as server:
        with bow.connect(server.publish("t", table, readers=1), limits=PATIENCE) as stream:
            assert stream.read_all().equals(table)
        server.wait_released(None)
    assert len(taken) == 2
    assert None not in taken
