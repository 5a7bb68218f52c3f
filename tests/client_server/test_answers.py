"""What readers are sent first is kept for the next ones, within bounds, together with what follows it."""

from __future__ import annotations

import gc
import itertools
import weakref

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.columnar.batch import Batch
from bowstring.memory import Pool
from bowstring.server import offer
from bowstring.server.materialized import MaterializedSource

NAMES = ("word", "a", "b", "c", "d", "e", "f")


def source_of(pool: Pool, count: int, begin: int = 0) -> MaterializedSource:
    """Return a data set of so many batches of one row, with one dictionary for all."""
    word = pa.array(["x", "y"]).dictionary_encode()[:1]
    tables = [pa.record_batch([word, *([[number]] * 6)], [*NAMES]) for number in range(begin, begin + count)]
    return MaterializedSource(tables[0].schema, [Batch.from_arrow(each) for each in tables], pool)


def rows_of(address: bow.Endpoint | str, columns: list[str] | None = None) -> list[int]:
    """Return the numbers of the rows that a reader has."""
    with bow.connect(address, columns=columns) as stream:
        return [row for batch in stream for row in batch["a"].to_pylist()]


@pytest.mark.parametrize("parts", [1, 20])
def test_no_row_is_lost_between_an_answer_and_what_follows(parts: int) -> None:
    """Whatever was encoded for others meanwhile, with other columns: a stream has each batch, once, in order."""
    pool = Pool(budget=1 << 30)
    few, many = source_of(pool, 1), source_of(pool, 150, 1)
    # The messages of joined data sets repeat a dictionary that is sent once where they are encoded anew.
    joined = MaterializedSource.joined([few] * parts + [many])
    expected = [0] * parts + [*range(1, 151)]
    whole = MaterializedSource.of_placed(joined.schema, [*joined.batches()], joined.encoded())
    with bow.Server("unix:", pool=pool) as server:
        server.listen_too("tcp://127.0.0.1:0")
        for name, source in (("joined", joined), ("whole", whole)):
            _, endpoint = offer(server, name, source)
            assert rows_of(endpoint) == expected
            for others in itertools.permutations(NAMES[2:], 2):  # more than are kept
                assert rows_of(endpoint.over("tcp"), ["word", "a", *others]) == expected
            for _ in range(2):
                assert rows_of(endpoint) == expected


class Made:
    """Stands for an answer."""


def test_answers_are_kept_within_bounds() -> None:
    """However many kinds of readers come, few answers are kept, and none of joined data."""
    pool = Pool(budget=1 << 30)
    source = source_of(pool, 70)
    joined = MaterializedSource.joined([source])
    for each, most in ((source, 4), (source.shard(0, 2), 4), (joined, 0), (joined.shard(0, 2), 0)):
        made: weakref.WeakSet[Made] = weakref.WeakSet()
        for kind in range(40):

            def make(_: object, made: weakref.WeakSet[Made] = made) -> Made:
                made.add(answer := Made())
                return answer

            first = each.answer(None, kind, make)
            again = each.answer(None, kind, make)
            assert (first is again) == (most > 0)
        del first, again
        gc.collect()
        assert len(made) == most
