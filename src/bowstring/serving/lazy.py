"""Lazy data: batches that are produced for one reader when it has room for them, and live until it frees them."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from bowstring.columnar.materialize import placed
from bowstring.errors import EndOfStream, InvalidData, OutOfBudget, ProducerFailed, UnknownTicket
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import settle_devices
from bowstring.serving.encoder import Encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, MutableMapping

    import pyarrow as pa

    from bowstring.columnar.batch import Batch
    from bowstring.columnar.dictionary import Dictionary
    from bowstring.columnar.materialize import Lending
    from bowstring.dissociated.producer import Item
    from bowstring.memory import Allocator, Device, Pending, Pool, Region
    from bowstring.serving.source import MakeRoom

__all__ = ["Lazy"]


class Lazy:
    """A data set whose batches are produced when a reader has credit for them.

    Parameters
    ----------
    produce
        Makes (schema, iterator of batches) anew for each reader.
    pool
        Where batches are placed.
    seconds
        The most that each wait for a device may take.
    """

    charged = True
    num_rows: int | None = None
    num_batches: int | None = None
    nbytes: int | None = None
    lending: Lending | None = None
    pending: Pending | None = None

    def __init__(
        self,
        schema: pa.Schema,
        produce: Callable[[], tuple[pa.Schema, Iterable[Batch]]],
        pool: Pool,
        seconds: float = DEFAULT_LIMITS.device_timeout,
    ) -> None:
        self.schema = schema
        self._produce: Callable[[], tuple[pa.Schema, Iterable[Batch]]] | None = produce
        self._pool = pool
        self.devices: tuple[Device, ...] = () if pool.device.is_host else (pool.device,)
        self._seconds = seconds

    def runs(self, columns: tuple[str, ...] | None) -> None:
        """Return ``None``: each batch is made when it is asked for."""

    def items(
        self, columns: tuple[str, ...] | None, *, pointers: bool, make_room: MakeRoom
    ) -> Iterator[Item]:
        """Yield the items, producing each batch when it is asked for."""
        if self._produce is None:
            raise UnknownTicket("the data set was withdrawn")
        schema, source = _begun(self._produce)
        if not schema.equals(self.schema, check_metadata=False):
            raise InvalidData("the producer changed its schema", expected=str(self.schema), found=str(schema))
        allocator = self._pool.allocator()
        encoder = Encoder(schema, columns, pointers=pointers, charged=True)
        yield encoder.schema()
        # Batches that share a dictionary go on sharing it, for as long as one of them is there.
        known: weakref.WeakKeyDictionary[Dictionary, Dictionary] = weakref.WeakKeyDictionary()
        iterator = iter(source)
        try:
            while (batch := _produced(iterator)) is not None:
                yield from encoder.encode(_placed(batch, allocator, known, make_room, self._seconds))
                del batch  # what the reader frees must not stay alive here
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()

    def regions(
        self,
        columns: tuple[str, ...] | None,  # noqa: ARG002  nobody knows them yet
        first: int | None = None,  # noqa: ARG002
    ) -> list[Region]:
        """Return one that the pool has warm from now on, so that the first batch will mostly lie in it."""
        return [self._pool.allocator().allocate(1).region]

    def prepare(self, *, pointers: bool) -> None:
        """Do nothing: each reader has batches of its own."""

    def release(self) -> None:
        """Let go of the producer."""
        self._produce = None


def _begun(
    produce: Callable[[], tuple[pa.Schema, Iterable[Batch]]],
) -> tuple[pa.Schema, Iterable[Batch]]:
    """Return what the user's code makes batches of; its lost connections and closed readers are none of ours."""
    try:
        return produce()
    except UnknownTicket:
        raise
    except Exception as error:
        raise _failed(error) from error


def _failed(error: Exception) -> ProducerFailed:
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, EndOfStream):
        error = error.__cause__  # Python puts a RuntimeError around any StopIteration that leaves a generator
    found = f"{type(error).__name__}: {error}"[:2000]
    return ProducerFailed("the code that makes the batches raised", found=found)


def _produced(iterator: Iterator[Batch]) -> Batch | None:
    """Return the next batch that the user's code makes; whatever it raises is its failure, not the stream's."""
    try:
        return next(iterator, None)
    except Exception as error:
        raise _failed(error) from error


def _placed(
    batch: Batch,
    allocator: Allocator,
    known: MutableMapping[Dictionary, Dictionary],
    make_room: MakeRoom,
    seconds: float,
) -> Batch:
    """Place a batch, waiting for room as long as the reader can make some."""
    settle_devices((batch.device,), seconds)
    while True:
        try:
            found = placed(batch, allocator, known, seconds=seconds)
            settle_devices((allocator.device,), seconds)
            return found
        except OutOfBudget as error:
            if not make_room(batch.nbytes):
                raise ProducerFailed("the producer's pool has no room", found=str(error)) from error
