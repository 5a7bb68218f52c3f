"""What Spark hands to a task, as it is published: small batches joined, and all of them proper Arrow."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from bowstring.spark.variant import FromSpark

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["incoming", "joined"]

_BATCH_BYTES: Final = 2 << 20


def incoming(batches: Iterable[pa.RecordBatch]) -> tuple[pa.Schema | None, Iterator[pa.RecordBatch]]:
    """Return the schema and the batches that a task publishes of its partition; no schema where it has no rows.

    Examples
    --------
    >>> schema, present = incoming([pa.record_batch({"a": [1]}), pa.record_batch({"a": [2, 3]})])
    >>> schema.names, [batch["a"].to_pylist() for batch in present]
    (['a'], [[1, 2, 3]])
    """
    present = joined(batches)
    first = next(present, None)
    if first is None:
        return None, present
    convert = FromSpark(first.schema)
    return convert.schema, map(convert, itertools.chain((first,), present))


def joined(batches: Iterable[pa.RecordBatch], least: int = _BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some batches in batches of about so many bytes, or of what they were where that is more.

    Where rows are few bytes, what a reader pays for each batch is more than what this copy costs. What is large
    enough is not copied, so nothing that is joined becomes too large for 32-bit offsets.
    """
    waiting: list[pa.RecordBatch] = []
    nbytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        size = batch.nbytes
        if waiting and size >= least:
            yield _one(waiting)
            waiting, nbytes = [], 0
        waiting.append(batch)
        nbytes += size
        if nbytes >= least:
            yield _one(waiting)
            waiting, nbytes = [], 0
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
