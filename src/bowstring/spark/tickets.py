"""Tickets of the streams that tasks publish, and the data set that the driver makes of them."""

from __future__ import annotations

import collections
import dataclasses
import socket
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

import pyarrow as pa

from bowstring.cli.terminal import number, size
from bowstring.columnar.display import table_of_facts
from bowstring.dissociated.endpoint import Dataset, Endpoint
from bowstring.errors import InvalidData, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bowstring.spark.publication import Publication


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


@dataclasses.dataclass(frozen=True, repr=False)
class PublishedDataset(Dataset):
    """A :class:`bowstring.Dataset` of :func:`bowstring.spark.publish`; elsewhere it is a plain one.

    ``metadata`` says the ``name``, the ``id`` and the ``application`` of the data set, and the ``partitions`` that
    its endpoints are, with their ``rows``. Used in a ``with`` block it is released at the end of the block. One
    without a name is freed when nothing refers to it any more; streams that read it refer to it.
    """

    control: Publication | None = dataclasses.field(default=None, repr=False, compare=False)

    def release(self) -> None:
        """Free the data: no new readers, those that read keep what they have. Idempotent."""
        self._known.release()

    def wait(self, timeout: float | None = None) -> PublishedDataset:  # noqa: ARG002  for one whose job runs
        """Wait for the job of a data set that was published with ``wait=False``, and return the whole data set.

        Parameters
        ----------
        timeout
            Seconds; as long as the job runs by default.

        Raises
        ------
        DeadlineExceeded
            The job still runs.
        BowstringError
            It failed, as :func:`bowstring.spark.publish` does.
        """
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _repr_html_(self) -> str:
        """Return a table for notebooks: name, rows, bytes, partitions, hosts and state."""
        facts = {
            "Name": self.metadata.get("name") or "(none: freed with this object)",
            "Rows": number(self.num_rows),
            "Size": size(self.nbytes or 0),
            "Partitions": number(len(self.endpoints)),
            "Hosts": ", ".join(sorted({_host_of(each) for each in self.endpoints})) or "none",
            "State": "unknown here" if self.control is None else self.control.state(),
        }
        return table_of_facts("Bowstring data set", ("", ""), facts.items())

    def wait_released(self, timeout: float | None = None) -> None:
        """Wait until every stream was read to the end by its readers and freed.

        Parameters
        ----------
        timeout
            Seconds; ``Limits.release_timeout`` by default.

        Raises
        ------
        DeadlineExceeded
            Somebody still reads, or has not come.
        """
        self._known.wait_released(timeout)

    def republish(self, partitions: Iterable[int] | None = None) -> PublishedDataset:
        """Publish partitions that were lost again, from Spark; the other ones stay as they are.

        Parameters
        ----------
        partitions
            Their numbers; by default those whose depot does not offer them any more.

        Returns
        -------
        PublishedDataset
            The data set with new endpoints for these partitions.

        Raises
        ------
        UsageError
            It was not published with ``recoverable=True``.
        InvalidData
            Spark made other rows this time.
        """
        return self._known.republish(None if partitions is None else frozenset(partitions))

    @property
    def _known(self) -> Publication:
        if self.control is None:
            raise UsageError(
                "only the process that published a data set can do this", hint="Call it in Spark's driver."
            )
        return self.control

    def __reduce__(self) -> tuple[Any, ...]:
        # The publication is of this process: whoever gets the data set gets a plain one.
        return Dataset, (self.endpoints, self.schema, self.num_rows, self.nbytes, self.metadata)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        # Dask names its tasks by their arguments, for which it looks at fields rather than at the pickle.
        return self.__reduce__()


def _host_of(endpoint: Endpoint) -> str:
    """Return the name of the host that offers a stream, as far as its URI tells."""
    for uri in (endpoint.elsewhere, endpoint.uri):
        host = urlsplit(uri).hostname if uri else None
        if host:
            return host
    return socket.gethostname() if endpoint.is_here else str(endpoint.host)
