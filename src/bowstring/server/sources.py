"""Sources: where the items of a data set come from, made of whatever a user publishes."""

from __future__ import annotations

import contextlib
import itertools
import time
import weakref
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, cast

from bowstring.columnar.batch import Batch
from bowstring.columnar.interchange.foreign import Importer
from bowstring.columnar.interchange.source import gives_batches, open_batches
from bowstring.columnar.layout import Layout
from bowstring.columnar.materialize import placed
from bowstring.errors import EndOfStream, InvalidData, OutOfBudget, ProducerFailed, UnknownTicket, UsageError
from bowstring.ipc.flatbuf.schema import check_dictionaries
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import on_streams, settle_devices
from bowstring.memory.cuda.driver import Capturing
from bowstring.memory.devices import current_streams
from bowstring.server.encoder import Encoder, MakeRoom, Produced
from bowstring.server.materialized import MaterializedSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence

    import pyarrow as pa

    from bowstring.columnar.parts import Dictionary
    from bowstring.dissociated.items import IpcMessage
    from bowstring.memory import Allocator, Device, NamedStream, Pool, Region
    from bowstring.memory.cuda.driver_device import DriverDevice

_AGAIN_SECONDS: Final = 0.05

# Makes a block in which what lies on a device is copied, behind the work on it.
On = Callable[["Device"], contextlib.AbstractContextManager[None]]


def source_of(
    data: Any,
    schema: pa.Schema | None,
    pool: Pool,
    readers: int | None,
    seconds: float,
    *,
    in_place: bool,
    streams: Sequence[NamedStream],
    waits: bool,
) -> tuple[Source, int | None]:
    """Return (source, readers) for whatever a user publishes.

    Tables, batches and arrays are materialized; readers, generators and callables are produced lazily.
    """
    makes = callable(data) and not _is_arrow(data)
    once = not makes and _reads_once(data)
    again = not (makes or once) and gives_batches(data)  # a file, which can be read any number of times
    if in_place and (makes or once or again):
        raise UsageError(
            "what is produced lazily cannot be lent in place",
            found=type(data).__name__,
            hint="Its memory would be freed while the reader has it open: publish a table or a list of batches.",
        )
    if once and readers not in (None, 1):
        raise UsageError(
            "a reader or generator can be read only once",
            expected="readers=1",
            found=f"readers={readers}",
            hint="Publish a callable that makes a new one for each reader, or a table.",
        )
    first = batches_of(data, schema)
    if not (makes or once or again):
        return MaterializedSource(*first, pool, seconds, in_place=in_place, waits=waits), readers
    begun = [] if again else [first]
    if once:
        data = None  # which goes when its reader is done

    def produce() -> tuple[pa.Schema, Iterable[Batch]]:
        if begun:
            return begun.pop()
        if once:
            raise UnknownTicket("the data set could be read once, and a reader broke off")
        return open_batches(data() if makes else data, schema, Importer(Batch))

    on = _on(pool, streams, seconds)
    return StreamingSource(first[0], produce, pool, seconds, once=once, on=on), 1 if once else readers


def _on(pool: Pool, streams: Sequence[NamedStream], seconds: float) -> On:
    if streams:  # copies are queued on the first of them, behind the others
        return lambda device: on_streams(pool.device if device.is_host else device, streams)
    current = current_streams()

    @contextlib.contextmanager
    def behind(device: Device) -> Iterator[None]:
        # The stream that is current in this thread stays so: it may be that of the user's generator.
        stream = current.get(device)
        if stream is not None:
            _wait(cast("DriverDevice", device), stream.address, seconds)
        yield

    return behind


def _wait(device: DriverDevice, stream: int, seconds: float) -> None:
    """Wait for a stream of another thread, which may be capturing a graph on it."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return device.wait_streams((stream,), max(0.0, deadline - time.monotonic()))
        except Capturing:
            if time.monotonic() > deadline:
                raise
        time.sleep(_AGAIN_SECONDS)


def batches_of(data: Any, schema: pa.Schema | None) -> tuple[pa.Schema, Iterator[Batch]]:
    """Return a schema that can be sent, and the batches of data, or of what they make where they are a callable."""
    makes = callable(data) and not _is_arrow(data)
    opened = open_batches(data() if makes else data, schema, Importer(Batch))
    layout = Layout.of(opened[0])
    if layout.dictionaries:
        check_dictionaries(layout)
    return opened


def batches_to_append(data: Any) -> tuple[pa.Schema, list[Batch]]:
    """Return schema and batches of what is appended to a data set, where they lie; refuse what is made lazily."""
    lazy = _reads_once(data) or gives_batches(data) or callable(data)
    if lazy and not (_is_arrow(data) and not _reads_once(data)):
        raise UsageError(
            "what is produced lazily cannot be appended",
            found=type(data).__name__,
            hint="Append its batches one by one, or a table.",
        )
    schema, batches = batches_of(data, None)
    return schema, list(batches)


def _is_arrow(data: Any) -> bool:
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


def _reads_once(data: Any) -> bool:
    return hasattr(data, "__next__") or hasattr(data, "read_next_batch")


class StreamingSource(Produced):
    """A data set whose batches are produced when a reader has credit for them."""

    def __init__(
        self,
        schema: pa.Schema,
        produce: Callable[[], tuple[pa.Schema, Iterable[Batch]]],
        pool: Pool,
        seconds: float = DEFAULT_LIMITS.device_timeout,
        *,
        once: bool = False,
        on: On = lambda _: contextlib.nullcontext(),
    ) -> None:
        self.schema = schema
        self._once = once  # `produce` can be called only once
        self._produce: Callable[[], tuple[pa.Schema, Iterable[Batch]]] | None = produce
        self._pool = pool
        self.devices = () if pool.device.is_host else (pool.device,)
        self._seconds = seconds
        self._on = on  # makes a block in which a batch on a device is copied, behind the work that fills it

    def items(
        self, columns: tuple[str, ...] | None, *, pointers: bool, make_room: MakeRoom
    ) -> Iterator[IpcMessage]:
        """Yield the items, producing each batch when it is asked for; `make_room` waits until the pool has some."""
        allocator = self._pool.allocator()
        schema, batches = self._begun()
        encoder = Encoder(schema, columns, pointers=pointers, charged=True)
        yield encoder.schema()
        # Batches that share a dictionary go on sharing it, for as long as one of them is there.
        known: weakref.WeakKeyDictionary[Dictionary, Dictionary] = weakref.WeakKeyDictionary()
        with contextlib.closing(batches):
            for batch in batches:
                with self._on(batch.device):
                    ready = _placed(batch, allocator, known, make_room, self._seconds)
                yield from encoder.encode(ready)
                del batch, ready  # what the reader frees must not stay alive here

    def batches(self) -> Iterator[Batch]:
        """Yield each batch when it is asked for, where its producer has put it."""
        return self._begun()[1]

    def _begun(self) -> tuple[pa.Schema, Generator[Batch]]:
        if self._produce is None:
            raise UnknownTicket("the data set was withdrawn")
        try:
            schema, source = self._produce()
        except UnknownTicket:
            raise
        except Exception as error:
            raise _failed(error) from error
        if not schema.equals(self.schema, check_metadata=False):
            raise InvalidData("the producer changed its schema", expected=str(self.schema), found=str(schema))
        return schema, _all_produced(iter(source))

    def regions(
        self,
        columns: tuple[str, ...] | None,  # noqa: ARG002  nobody knows them yet
        first: int | None = None,  # noqa: ARG002
    ) -> list[Region]:
        """Return one that the pool has warm from now on, so that the first batch will mostly lie in it."""
        return [self._pool.allocator().allocate(1).region]

    def shard(self, index: int, count: int) -> StreamingSource:
        """Return every so many-th batch, of batches that are made anew."""
        if self._once:
            raise UsageError(
                "a reader or generator has no shards: it can be read only once",
                hint="Publish a callable that makes the same batches each time, or a table.",
            )
        if self._produce is None:
            raise UnknownTicket("the data set was withdrawn")
        produce = self._produce

        def produce_part() -> tuple[pa.Schema, Iterable[Batch]]:
            schema, batches = produce()
            return schema, itertools.islice(batches, index, None, count)

        return StreamingSource(self.schema, produce_part, self._pool, self._seconds, on=self._on)

    def release(self) -> None:
        self._produce = None


def _failed(error: Exception) -> ProducerFailed:
    """Return the error for the user's code: what it raises, its lost connections too, is no fault of the stream."""
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, EndOfStream):
        error = error.__cause__  # Python puts a RuntimeError around any StopIteration that leaves a generator
    what = f"{type(error).__name__}: {error}"[:2000]
    return ProducerFailed("the code that makes the batches raised", found=what)


def _all_produced(iterator: Iterator[Batch]) -> Generator[Batch]:
    try:
        while True:
            try:
                batch = next(iterator, None)
            except Exception as error:
                raise _failed(error) from error
            if batch is None:
                return
            yield batch
            del batch  # what the reader frees must not stay alive here
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


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
            ready = placed(batch, allocator, known, seconds=seconds)
            settle_devices((allocator.device,), seconds)
            return ready
        except OutOfBudget as error:
            if not make_room(batch.nbytes):
                raise ProducerFailed("the producer's pool has no room", found=str(error)) from error


Source = MaterializedSource | StreamingSource
