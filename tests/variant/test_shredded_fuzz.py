"""Random bytes in any child of a shredded column are a status or a clear error, and harm no other row."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.columnar.batch import Batch, Column
from bowstring.columnar.parts import batch_parts, make_batch
from bowstring.errors import BowstringError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import wrap
from bowstring.testing import fake_device
from bowstring.variant import Status, Value
from tests.variant.encoding import column_of
from tests.variant.get_columns import MARK
from tests.variant.shredded_columns import TREES, TYPES, shredded_rows

LIMITS = DEFAULT_LIMITS.replace(extracted_bytes=1 << 20)
WANTED = (pa.int64(), pa.string(), pa.list_(pa.int64()), variant.type(), pa.map_(pa.string(), variant.type()))
STEPS = st.lists(st.sampled_from(["a", "b", "é", "", 0, 1]), max_size=3)


def _column(rows: list[Any], type_: pa.DataType) -> Column:
    array = pa.array(rows, type_)
    return column_of(array, pa.field("v", type_, metadata=MARK))


def _bytes_of(group: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield where the bytes are that a row has: its metadata, values, and text."""
    for name, held in (group or {}).items():
        if isinstance(held, bytes | str) or (held is None and name in ("metadata", "value")):
            yield group, name
        elif isinstance(held, dict):
            yield from _bytes_of(held)
        elif isinstance(held, list):
            for each in held:
                yield from _bytes_of(each)


def _got(column: Column, where: Any, wanted: pa.DataType) -> tuple[list[int], list[str]]:
    batch = variant.get(column, where, wanted, with_status=True, limits=LIMITS).to_device("cpu")
    rows = [batch[0].as_batch().slice(row, 1)[0] for row in range(len(column))]
    return batch["status"].to_arrow().to_pylist(), [repr(_shown(row)) for row in rows]


def _shown(row: Column) -> Any:
    """Return a row, decoded as far as it can be."""
    try:
        if row.type.id == pa.lib.Type_STRUCT:
            return variant.to_python(row, plain=True)
        if pa.types.is_map(row.type):
            return [len(each.values) if each.is_valid else None for each in row.to_arrow()]
        return row.to_arrow().to_pylist()
    except BowstringError as error:
        return type(error).__name__


@given(
    st.lists(st.none() | TREES, min_size=2, max_size=4),
    TYPES,
    st.randoms(),
    st.binary(max_size=12),
    STEPS,
    st.sampled_from(WANTED),
    st.booleans(),
)
def test_bytes_of_one_row_harm_no_other(
    trees: list[Value | None],
    schema: pa.DataType,
    drawn: random.Random,
    noise: bytes,
    where: list[str | int],
    wanted: pa.DataType,
    device: bool,
) -> None:
    column = shredded_rows(trees, schema, drawn)
    rows, type_ = column.to_arrow().storage.to_pylist(), column.type
    before = _got(column, where, wanted)
    number = drawn.randrange(len(rows))
    places = [(group, name) for group, name in _bytes_of(rows[number]) if not isinstance(group[name], str)]
    if not places:
        return
    group, name = drawn.choice(places)
    group[name] = noise
    broken = _column(rows, type_)
    if device:
        broken = broken.as_batch().to_device(fake_device())[0]
    after = _got(broken, where, wanted)
    others = [row for row in range(len(rows)) if row != number]
    assert [after[0][row] for row in others] == [before[0][row] for row in others]
    assert [after[1][row] for row in others] == [before[1][row] for row in others]
    assert after[0][number] in list(Status)
    try:
        whole = variant.unshred(broken, limits=LIMITS)
    except BowstringError:
        return
    twin = _got(variant.unshred(column), [], variant.type())
    found = _got(whole, [], variant.type())
    assert [found[1][row] for row in others] == [twin[1][row] for row in others]


@pytest.mark.filterwarnings("ignore:.* became null")
@given(st.lists(TREES, min_size=1, max_size=4), TYPES, st.randoms(), STEPS, st.sampled_from(WANTED))
def test_random_buffers_are_statuses_or_errors(
    trees: list[Value], schema: pa.DataType, drawn: random.Random, where: list[str | int], wanted: pa.DataType
) -> None:
    """Offsets, bitmaps and bytes of any child: nothing is read outside of the buffers, and memory is bounded."""
    batch = shredded_rows(trees, schema, drawn).as_batch()
    buffers = list(batch.buffers)
    filled = {k: each for k, each in enumerate(buffers) if each is not None and len(each)}
    number = drawn.choice(list(filled))
    raw = filled[number].to_host().copy()
    for _ in range(drawn.randint(1, 4)):
        raw[drawn.randrange(len(raw))] = drawn.choice([0, 1, 2, 127, 128, 255, drawn.randrange(256)])
    buffers[number] = wrap(raw)
    hostile = make_batch(
        Batch, batch.layout, batch.num_rows, batch_parts(batch).nodes, buffers, device=batch.device
    )[0]
    calls: tuple[Callable[[Any], object], ...] = (
        lambda column: variant.get(column, where, wanted, limits=LIMITS),
        lambda column: variant.unshred(column, limits=LIMITS),
        lambda column: variant.shred(column, limits=LIMITS),
    )
    for call in calls:
        try:
            call(hostile)
        except BowstringError:
            continue
