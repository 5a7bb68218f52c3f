"""Tickets of the streams that tasks publish, and the data set that the driver makes of them."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bowstring.dissociated.endpoint import Dataset, Endpoint
from bowstring.errors import InvalidData

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Ticket:
    """One stream of a data set, as its task says it."""

    # Which part of the data frame it is.
    partition: int
    # Where it can be read, tokens included; empty for a part without rows, which has no stream.
    endpoint: str = dataclasses.field(default="", repr=False)
    # The schema of the stream, as Arrow IPC encapsulates it; empty for a part without rows.
    schema: bytes = dataclasses.field(default=b"", repr=False)
    num_rows: int = 0
    num_batches: int = 0
    nbytes: int = 0
    # The control addresses of the depot that keeps it, on its host and from others, with its token; empty without
    # one.
    depot: str = dataclasses.field(default="", repr=False)
    remote_depot: str = dataclasses.field(default="", repr=False)

    def as_batch(self) -> pa.RecordBatch:
        """Return the ticket as the one row that a task gives back to Spark."""
        return pa.RecordBatch.from_pylist([dataclasses.asdict(self)])

    @classmethod
    def of_row(cls, row: Any) -> Ticket:
        """Return the ticket that a row of Spark's is."""
        fields = row.asDict()
        return cls(**{**fields, "schema": bytes(fields["schema"])})


_SPARK: Final = {"int": "bigint", "str": "string", "bytes": "binary"}
COLUMNS: Final = ", ".join(f"{each.name} {_SPARK[str(each.type)]}" for each in dataclasses.fields(Ticket))


def dataset_of(tickets: Iterable[Ticket], empty: pa.Schema, **metadata: Any) -> Dataset:
    """Return the data set that some tickets are, in the order of the partitions."""
    ordered = sorted(tickets, key=lambda ticket: ticket.partition)
    twice = [part for part, times in collections.Counter(t.partition for t in ordered).items() if times > 1]
    if twice:
        raise InvalidData("a partition has two tickets", found=f"partitions {twice[:8]}")
    present = [ticket for ticket in ordered if ticket.endpoint]
    schema = empty
    if present:
        schema = pa.ipc.read_schema(pa.py_buffer(present[0].schema))
        for ticket in present:
            if ticket.schema == present[0].schema:
                continue
            other = pa.ipc.read_schema(pa.py_buffer(ticket.schema))
            if not other.equals(schema, check_metadata=True):
                raise InvalidData(
                    "the partitions of the data set have different schemas",
                    expected=schema.to_string(),
                    found=other.to_string(),
                    where=f"partition {ticket.partition}",
                )
    return Dataset(
        tuple(Endpoint.parse(ticket.endpoint) for ticket in present),
        schema,
        sum(ticket.num_rows for ticket in present),
        sum(ticket.nbytes for ticket in present),
        {
            **metadata,
            "partitions": [ticket.partition for ticket in present],
            "rows": [ticket.num_rows for ticket in present],
        },
    )
