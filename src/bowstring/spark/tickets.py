"""Tickets: what a task of Spark tells the driver about the stream that it published."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bowstring.dissociated.uri import Dataset, Endpoint
from bowstring.errors import InvalidData

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["COLUMNS", "Ticket", "dataset_of"]

COLUMNS: Final = (
    "partition int, endpoint string, schema binary, num_rows bigint, num_batches bigint, nbytes bigint, "
    "depot string, remote_depot string"
)
_ARROW: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("endpoint", pa.string()),
        ("schema", pa.binary()),
        ("num_rows", pa.int64()),
        ("num_batches", pa.int64()),
        ("nbytes", pa.int64()),
        ("depot", pa.string()),
        ("remote_depot", pa.string()),
    ]
)


@dataclasses.dataclass(frozen=True)
class Ticket:
    """One stream of a data set, as its task says it.

    Attributes
    ----------
    partition
        Which part of the data frame it is.
    endpoint
        Where it can be read; empty for a part without rows, which has no stream.
    schema
        The schema of the stream, as Arrow IPC encapsulates it; empty for a part without rows.
    num_rows, num_batches, nbytes
        What it holds.
    depot, remote_depot
        The control addresses of the depot that keeps it, on its host and from others; empty without one.
    """

    partition: int
    # Addresses hold tokens.
    endpoint: str = dataclasses.field(default="", repr=False)
    schema: bytes = dataclasses.field(default=b"", repr=False)
    num_rows: int = 0
    num_batches: int = 0
    nbytes: int = 0
    depot: str = ""
    remote_depot: str = dataclasses.field(default="", repr=False)

    def as_batch(self) -> pa.RecordBatch:
        """Return the ticket as the one row that a task gives back to Spark."""
        return pa.RecordBatch.from_pylist([dataclasses.asdict(self)], schema=_ARROW)

    @classmethod
    def of_row(cls, row: Any) -> Ticket:
        """Return the ticket that a row of Spark's is."""
        fields = row.asDict()
        return cls(**{**fields, "schema": bytes(fields["schema"])})


def dataset_of(tickets: Iterable[Ticket], empty: pa.Schema, **metadata: Any) -> Dataset:
    """Return the data set that some tickets are, in the order of the partitions.

    Parameters
    ----------
    tickets
        One of each partition.
    empty
        The schema of a data set without rows, of which no task has seen a batch.
    **metadata
        What else the data set shall say of itself.

    Raises
    ------
    InvalidData
        A partition came twice, or two of them have different schemas.
    """
    ordered = sorted(tickets, key=lambda ticket: ticket.partition)
    twice = [part for part, times in collections.Counter(t.partition for t in ordered).items() if times > 1]
    if twice:
        raise InvalidData("a partition has two tickets", found=f"partitions {twice[:8]}")
    present = [ticket for ticket in ordered if ticket.endpoint]
    schema = empty
    if present:
        schema = pa.ipc.read_schema(pa.py_buffer(present[0].schema))
        for ticket in present:
            found = pa.ipc.read_schema(pa.py_buffer(ticket.schema))
            if not found.equals(schema, check_metadata=True):
                raise InvalidData(
                    "the partitions of the data set have different schemas",
                    expected=schema.to_string(),
                    found=found.to_string(),
                    where=f"partition {ticket.partition}",
                )
    return Dataset(
        tuple(Endpoint.parse(ticket.endpoint) for ticket in present),
        schema,
        sum(ticket.num_rows for ticket in present),
        sum(ticket.nbytes for ticket in present),
        {**metadata, "partitions": [ticket.partition for ticket in present]},
    )
