"""What a task does that keeps its data itself: it serves them, and stays until they were read."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
from typing import TYPE_CHECKING, Final

from bowstring.columnar.batch import Batch
from bowstring.errors import BowstringError
from bowstring.memory import Pool, cpu
from bowstring.server import Server
from bowstring.spark.input_batches import incoming
from bowstring.spark.task import device_of, own_address
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
            server = self._server(ends, pool)
            ticket = self._offer(server, data, context.partitionId())
            del data
            # Spark numbers attempts at tasks; those of one attempt at the stage are known by their lowest.
            attempt = min(map(int, context.allGather(str(context.taskAttemptId()))))
            channel = ends.enter_context(dial(self.driver))
            self._say(channel, ticket, attempt, len(context.getTaskInfos()))
            if ticket.endpoint:
                self._stay(server, channel)
        yield ticket.as_batch()

    def _server(self, ends: contextlib.ExitStack, pool: Pool) -> Server:
        """Return a server for readers of this host and, where there are other hosts, for those, too."""
        elsewhere = own_address(self.order.driver)
        token = None if elsewhere is None else secrets.token_hex(16)
        server = ends.enter_context(Server(token=token, pool=pool))
        if elsewhere is not None:
            server.listen_too(elsewhere)
        return server

    def _offer(self, server: Server, data: list[Batch], partition: int) -> Ticket:
        if not data:
            return Ticket(partition)
        endpoint = server.publish(_NAME, data, readers=self.order.readers)
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

    def _stay(self, server: Server, channel: Channel) -> None:
        """Wait until all readers were here, or the driver's process says so or is gone."""
        wanted = self.order.readers
        while wanted is None or server.statistics.readers < wanted:
            try:
                if channel.receive(_LOOK) is not None:
                    return
            except BowstringError:
                return
