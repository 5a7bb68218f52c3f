"""Which rows of a data set a reader takes: all readers together take each row once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bowstring.client import connect
from bowstring.dissociated.endpoint import Dataset, Endpoint
from bowstring.errors import UsageError


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Rows of one endpoint."""

    endpoint: int  # its index in the data set
    rows: int
    first: int  # to before `last`
    last: int


def parts_of(rows: Sequence[int], index: int, count: int, *, even: bool) -> list[Part]:
    """Return the rows that one of several readers takes: a contiguous range of all of them.

    With `even` all take equally many: fewer than `count` rows at the end are left out.
    """
    total = sum(rows)
    if even:
        total -= total % count
    first, last = total * index // count, total * (index + 1) // count
    parts, begin = [], 0
    for endpoint, number in enumerate(rows):
        low, high = max(first - begin, 0), min(last - begin, number)
        if low < high:
            parts.append(Part(endpoint, number, low, high))
        begin += number
    return parts


def known_rows(dataset: Dataset) -> tuple[int, ...] | None:
    """Return how many rows each endpoint has, as its maker says; ``None`` where that is not said of all."""
    rows = dataset.metadata.get("rows")
    if not isinstance(rows, list) or len(rows) != len(dataset.endpoints):
        return None
    if not all(isinstance(each, int) and each >= 0 for each in rows) or sum(rows) != dataset.num_rows:
        return None
    return tuple(rows)


def rows_by_asking(endpoints: Sequence[Endpoint]) -> tuple[int, ...]:
    """Return how many rows each endpoint has, as its server says."""
    rows = []
    for endpoint in endpoints:
        with connect(endpoint) as stream:
            if stream.num_rows is None:
                raise UsageError(
                    "even=True needs to know how many rows there are, and the server does not",
                    where=repr(endpoint),
                    hint="Publish a table, or from Spark; or train with even=False.",
                )
            rows.append(stream.num_rows)
    return tuple(rows)
