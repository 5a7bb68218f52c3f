"""One endpoint, read in a task of Spark: Arrow batches in Spark's types, filtered, and never rows."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

import pyarrow as pa

from bowstring.client import connect
from bowstring.dissociated.endpoint import Endpoint
from bowstring.errors import UsageError
from bowstring.spark.filters import Predicate, kept
from bowstring.spark.types import Normaliser

__all__ = ["read_endpoint"]

_OTHER: Final = "Read the data set anew: its schema is not the one that the data frame was made with."


def read_endpoint(
    endpoint: Endpoint,
    target: pa.Schema,
    *,
    columns: Sequence[str] | None = None,
    truncate: bool = False,
    predicates: Sequence[Predicate] = (),
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches of an endpoint as Spark takes them; a batch without rows is left out.

    Parameters
    ----------
    endpoint
        What is read, once, from its beginning to its end.
    target
        The schema that Spark expects.
    columns, truncate
        As the options.
    predicates
        Conditions that all rows must meet; positions are those in `target`.

    Raises
    ------
    UsageError
        The endpoint has another schema.
    BrokenError, DeadlineExceeded, RefusedError
        Its producer is gone, does not answer, or says no.

    Examples
    --------
    >>> import bowstring as bow
    >>> with bow.Server() as server:
    ...     endpoint = server.publish("t", pa.table({"a": pa.array([1, 2], pa.uint8())}))
    ...     [batch] = read_endpoint(endpoint, pa.schema([("a", pa.int16())]))
    >>> batch.column("a").to_pylist()
    [1, 2]
    """
    with connect(endpoint, columns=columns) as stream:
        normaliser = Normaliser(stream.schema, truncate=truncate)
        _check(normaliser.schema, target)
        for batch in stream:
            for part in normaliser.batches(batch):
                found = kept(part, predicates)
                if found.num_rows:
                    yield _labelled(found, target)


def _labelled(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the schema that Spark compares: columns may be nullable there that have no nulls."""
    if not batch.num_columns or batch.schema.equals(target):
        return batch
    return pa.RecordBatch.from_arrays(batch.columns, schema=target)


def _check(found: pa.Schema, target: pa.Schema) -> None:
    same = len(found) == len(target) and all(
        ours.name == theirs.name and ours.type == theirs.type and (theirs.nullable or not ours.nullable)
        for ours, theirs in zip(found, target, strict=True)
    )
    if not same:
        raise UsageError("the data set has another schema", expected=target, found=found, hint=_OTHER)
