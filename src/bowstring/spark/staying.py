"""What a task does that keeps its data itself: it serves them, and stays until they were read."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
from typing import TYPE_CHECKING, Final

from bowstring.columnar.batch import Batch
from bowstring.dissociated.host import this_host
from bowstring.dissociated.uri import Endpoint
from bowstring.errors import BowstringError
from bowstring.memory import Pool, cpu
from bowstring.server import Server
from bowstring.spark.incoming import incoming
from bowstring.spark.scheduling import device_of
from bowstring.spark.task import own_address
from bowstring.spark.tickets import Ticket
from bowstring.transport import Message, dial

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from bowstring.spark.task import Order
    from bowstring.transport import Channel

__all__ = ["StayingTask"]

_LOOK: Final = 0.2
_SAY_SECONDS: Final = 10.0
_NAME: Final = "partition"


@dataclasses.dataclass(frozen=True)
class StayingTask:
    """Publishes a partition from the task's own memory; Spark calls it with the partition's batches.

    Attributes
    ----------
    order
        What every task is told.
    driver, token
        Where the driver's process waits, and the secret that it knows its tasks by.
    device
        Where the data are put (:func:`bowstring.spark.publish`).
    """

    order: Order
    driver: str
    token: str = dataclasses.field(repr=False)
    device: str | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Publish the batches of one partition, and stay; give back one ticket."""
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        device = device_of(self.device) or cpu()
        with contextlib.ExitStack() as ends:
            pool = Pool(device)
            ends.callback(pool.close)
            _, present = incoming(batches)
            data = [Batch.from_arrow(batch).to_device(device, pool) for batch in present]
            servers = self._servers(ends, pool)
            ticket = self._offer(servers, data, context.partitionId())
            del data
            # Spark numbers attempts at tasks; those of one attempt at the stage are known by their lowest.
            attempt = min(map(int, context.allGather(str(context.taskAttemptId()))))
            channel = ends.enter_context(dial(self.driver))
            self._say(channel, ticket, attempt, len(context.getTaskInfos()))
            if ticket.endpoint:
                self._stay(servers, channel)
        yield ticket.as_batch()

    def _servers(self, ends: contextlib.ExitStack, pool: Pool) -> list[Server]:
        """Return a server for readers of this host and, where there are other hosts, one for those."""
        servers = [ends.enter_context(Server(pool=pool))]
        elsewhere = own_address(self.order.driver)
        if elsewhere is not None:
            servers.append(ends.enter_context(Server(elsewhere, token=secrets.token_hex(16), pool=pool)))
        return servers

    def _offer(self, servers: list[Server], data: list[Batch], partition: int) -> Ticket:
        if not data:
            return Ticket(partition)
        # A data set in regions of the pool is not copied again by the second server. Each knows it by its name.
        here, *others = [server.publish(_NAME, data, readers=self.order.readers) for server in servers]
        endpoint = here
        if others:
            endpoint = Endpoint(here.uri, _NAME.encode(), None, others[0].uri, this_host())
        return Ticket(
            partition,
            str(endpoint),
            data[0].schema.serialize().to_pybytes(),
            sum(batch.num_rows for batch in data),
            len(data),
            sum(batch.nbytes for batch in data),
        )

    def _say(self, channel: Channel, ticket: Ticket, attempt: int, tasks: int) -> None:
        said = {
            "token": self.token,
            "ticket": {**dataclasses.asdict(ticket), "schema": ticket.schema.hex()},
            "attempt": attempt,
            "tasks": tasks,
        }
        channel.send([Message(None, [json.dumps(said).encode()])], _SAY_SECONDS)

    def _stay(self, servers: list[Server], channel: Channel) -> None:
        """Wait until all readers were here, or the driver's process says so or is gone."""
        wanted = self.order.readers
        while wanted is None or sum(server.statistics.readers for server in servers) < wanted:
            try:
                if channel.receive(_LOOK) is not None:
                    return
            except BowstringError:
                return
