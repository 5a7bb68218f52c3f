"""``connect_async``: streams for programs on asyncio, whose event loop waits for nothing else meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
import time
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, Self, TypeVar

import pyarrow as pa

from bowstring.client.names import list_datasets
from bowstring.client.opening import ConnectOptions, InsideOptions, connect
from bowstring.client.stream import Described, Readiness, Stream, StreamStatistics, copy_borrowed
from bowstring.columnar.interchange.conversions import needed, polars_frame
from bowstring.errors import ClosedError, EndOfStream, NotPicklable, Starved
from bowstring.transport.awaiting import in_thread

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Generator
    from types import TracebackType

    from bowstring.columnar.batch import Batch
    from bowstring.dissociated.endpoint import Dataset, Endpoint
    from bowstring.dissociated.listing import DatasetInfo
    from bowstring.dissociated.position import Position
    from bowstring.limits import Limits
    from bowstring.transport import Channel
    from bowstring.transport.certificates import TlsConfig

_LOOK: Final = 1.0  # in seconds: so often an awaiting reader looks whether its producer lives
_Result = TypeVar("_Result")
_Parameters = ParamSpec("_Parameters")


def _with_parameters_of(
    _: Callable[_Parameters, Any],
) -> Callable[[Callable[..., _Result]], Callable[_Parameters, _Result]]:
    """Give a function the parameters of another, for type checkers and `inspect.signature`."""

    def given(function: Callable[..., _Result]) -> Callable[_Parameters, _Result]:
        signature = inspect.signature(_)
        result = function.__annotations__["return"]
        function.__signature__ = signature.replace(return_annotation=result)  # type: ignore[attr-defined]
        return function

    return given


@_with_parameters_of(connect)
def connect_async(*arguments: Any, **options: Any) -> AsyncOpening:
    """Open a data set for a program on asyncio: ``async with bow.connect_async(…) as stream``.

    ``stream = await bow.connect_async(…)`` opens it as well; ``await stream.aclose()`` closes it then. If that is
    cancelled, connections that were made are closed at once. One that is just being made, or a server that is just
    asked for a name, is let go of after ``Limits.connect_timeout`` at the latest.

    Parameters
    ----------
    *arguments, **options
        Those of :func:`bowstring.connect`.

    Returns
    -------
    AsyncOpening
        To enter, or to await, for an `AsyncStream`.

    Raises
    ------
    BowstringError
        When it is entered or awaited: what :func:`bowstring.connect` raises.

    Examples
    --------
    >>> import asyncio, pyarrow as pa, bowstring as bow
    >>> async def rows(endpoint):
    ...     async with bow.connect_async(endpoint, columns=["b"]) as stream:
    ...         table = await stream.to_arrow()
    ...     return table.to_pylist()
    >>> with bow.Server() as server:
    ...     endpoint = server.publish("t", pa.table({"a": [1, 2], "b": ["x", "y"]}))
    ...     asyncio.run(rows(endpoint))
    [{'b': 'x'}, {'b': 'y'}]
    """
    return AsyncOpening(functools.partial(connect, *arguments, **options))


class AsyncStream(Described, AsyncIterator["Batch"]):
    """Batches, one after the other, of a data set that :func:`bowstring.connect_async` opened.

    Iterate over it with ``async for``, in an ``async with`` block. What is said of `Stream` holds here, too: it is
    read once, and its batches stay true after it is closed. Batches are what `Stream` gives, and are used without
    ``await``. Tasks of one event loop may share a stream, each batch goes to one of them. An ``await`` that is
    cancelled, as by ``asyncio.timeout``, loses no batch: the next one returns what it would have.

    Awaiting readers share a few threads, which take messages from the connections; the event loop is free
    meanwhile. Copies, conversions, what waits for a device, and for data sets of many endpoints, are done by a
    thread for each that waits.

    Examples
    --------
    >>> import asyncio, pyarrow as pa, bowstring as bow
    >>> async def total(endpoint):
    ...     async with bow.connect_async(endpoint) as stream:
    ...         return sum([batch["fare"].to_numpy().sum() async for batch in stream])
    >>> with bow.Server() as server:
    ...     endpoint = server.publish("trips", pa.table({"fare": [1.5, 2.5]}))
    ...     float(asyncio.run(total(endpoint)))
    4.0
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = self._facts = stream
        self._schema = stream.schema
        self._turn = asyncio.Lock()  # of the task that reads
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._working: asyncio.Future[Batch | None] | None = None
        self._before: Position | None = None  # of what is worked on
        self._noted(None)

    @property
    def stats(self) -> StreamStatistics:
        """What came so far, and how."""
        return self._stream.stats

    @property
    def endpoint(self) -> Endpoint | Dataset | None:
        """What this stream reads, to send to others: it stands for this version alone, whatever replaces it."""
        return self._stream.endpoint

    @property
    def position(self) -> Position | None:
        """Where the stream is in its data set, as :attr:`Stream.position` says."""
        return self._stream.position if self._working is None else self._before

    def __aiter__(self) -> Self:
        self._check_more()
        return self

    async def __anext__(self) -> Batch:
        """Return the next batch, waiting for it.

        Raises
        ------
        StopAsyncIteration
            There are no more.
        BrokenError, DeadlineExceeded, ProducerFailed, Starved, ClosedError
            The stream cannot go on; the error says why.
        """
        batch = await self._take()
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def _take(self) -> Batch | None:
        """Return the next batch, or ``None`` at the end."""
        async with self._turn:
            if self._working is None:
                began = time.monotonic()
                self._loop = asyncio.get_running_loop()
                while (ready := self._stream._readiness(self._wake, began)) is Readiness.NOT_YET:
                    await self._wait(began)
                if ready is not Readiness.SLOW:
                    return self._noted(self._next())
                self._before = self._stream.position
                self._working = in_thread(self._next)
            try:
                batch = await asyncio.shield(self._working)
            except asyncio.CancelledError:
                raise  # of the wait: the next call returns the batch, which may be there already
            except BaseException:
                self._working = None
                raise
            self._working = None
            return self._noted(batch)

    def _next(self) -> Batch | None:
        try:
            return self._stream.read_next_batch()
        except EndOfStream:  # which no coroutine may raise: it is a StopIteration
            return None

    def _noted(self, batch: Batch | None) -> Batch | None:
        """Return a batch; for a task that opened the stream, or sees its end, reading on is reading again."""
        if batch is None and (task := asyncio.current_task()) is not None:
            self._stream._readers.add(task)
        return batch

    def _check_more(self) -> None:
        self._stream._check_open()
        self._stream._check_more(asyncio.current_task())

    async def _wait(self, began: float) -> None:
        """Wait until something has changed, or it is time to look at the producer."""
        self._waiter = self._loop.create_future()
        most = self._stream._timeout
        look = _LOOK if most is None else min(_LOOK, max(0.0, began + most - time.monotonic()))
        timer = self._loop.call_later(look, self._awaken)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._awaken)

    def _awaken(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read_all(self) -> pa.Table:
        """Return all batches that are left as one pyarrow table, as :meth:`Stream.read_all` does.

        Raises
        ------
        BowstringError
            As the iteration; never a table that is shorter than the stream.
        UsageError
            The stream was read to its end already.
        """
        self._check_more()
        taken: list[Batch] = []
        while True:
            try:
                batch = await self._take()
            except Starved:
                if not await in_thread(functools.partial(copy_borrowed, taken)):
                    raise
                continue
            if batch is None:
                return await in_thread(
                    lambda: pa.Table.from_batches([each.to_arrow() for each in taken], schema=self.schema)
                )
            taken.append(batch)

    async def to_arrow(self) -> pa.Table:
        """Return what :meth:`read_all` returns."""
        return await self.read_all()

    async def to_pandas(self, **options: Any) -> Any:
        """Return all that is left as a ``pandas.DataFrame``.

        Parameters
        ----------
        **options
            Those of pyarrow's ``to_pandas``.

        Raises
        ------
        MissingDependency
            pandas is not installed.
        BowstringError
            As :meth:`read_all`.
        """
        needed("pandas")
        return await in_thread(functools.partial((await self.read_all()).to_pandas, **options))

    async def to_polars(self) -> Any:
        """Return all that is left as a ``polars.DataFrame``, without a copy where polars can.

        Raises
        ------
        MissingDependency
            polars is not installed.
        BowstringError
            As :meth:`read_all` and :meth:`bowstring.Stream.to_polars`.
        """
        polars = needed("polars")
        return await in_thread(functools.partial(polars_frame, await self.read_all(), polars))

    async def to_pylist(self) -> list[Any]:
        """Return all rows that are left as Python objects, a dict each.

        Raises
        ------
        BowstringError
            As :meth:`read_all`.
        """
        return await in_thread((await self.read_all()).to_pylist)

    async def to_pydict(self) -> dict[str, list[Any]]:
        """Return the columns of all batches that are left as lists of Python objects, by name.

        Raises
        ------
        BowstringError
            As `read_next_batch`.
        UsageError
            The stream was read to its end already.
        """
        return await in_thread((await self.read_all()).to_pydict)

    async def aclose(self) -> None:
        """Ask for nothing more. Batches stay true. Idempotent; it waits for nothing."""
        self._stream.close()
        self._awaken()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __reduce__(self) -> NoReturn:
        raise NotPicklable(
            "an AsyncStream belongs to its process",
            hint="Send the Endpoint, and call connect_async() in the other process.",
        )

    def __repr__(self) -> str:
        return f"<Async{repr(self._stream)[1:]}"

    def _repr_html_(self) -> str:
        return self._stream._html("AsyncStream")


class AsyncOpening(Awaitable[AsyncStream]):
    """What :func:`bowstring.connect_async` returns: ``async with`` it, or ``await`` it and close the stream."""

    def __init__(self, open_: functools.partial[Stream]) -> None:
        self._open = open_
        self._stream: AsyncStream | None = None

    def __await__(self) -> Generator[Any, None, AsyncStream]:
        return self._opened().__await__()

    async def _opened(self) -> AsyncStream:
        beginning = _Beginning()
        given = self._open.keywords.get("options") or ConnectOptions()
        if isinstance(given, ConnectOptions):  # else it is refused there
            given = InsideOptions(**vars(given), dialled=beginning.dialled)
        opening = in_thread(functools.partial(self._open, options=given), drop=Stream.close)
        try:
            stream = await opening
        except asyncio.CancelledError:
            beginning.give_up()
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result().close()
            raise
        beginning.end()
        return AsyncStream(stream)

    async def __aenter__(self) -> AsyncStream:
        self._stream = await self
        return self._stream

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            await self._stream.aclose()


class _Beginning:
    """The channels of a stream that is being opened, to close them if opening is cancelled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: list[Channel] | None = []
        self._given_up = False

    def dialled(self, channel: Channel) -> None:
        """Keep a channel to close; raise `ClosedError` if opening the stream was cancelled."""
        with self._lock:
            if self._given_up:
                raise ClosedError("opening the stream was cancelled")
            if self._channels is not None:
                self._channels.append(channel)

    def give_up(self) -> None:
        with self._lock:
            self._given_up = True
            channels, self._channels = self._channels or [], None
        for channel in channels:
            channel.close()

    def end(self) -> None:
        with self._lock:
            self._channels = None


async def list_datasets_async(
    address: str,
    *,
    token: str | None = None,
    tls: TlsConfig | ssl.SSLContext | None = None,
    limits: Limits | None = None,
) -> list[DatasetInfo]:
    """Return what a server offers now, by name, as :func:`bowstring.list_datasets` does, for a program on asyncio.

    Parameters
    ----------
    address, token, tls, limits
        As in :func:`bowstring.list_datasets`, which says what is raised, too.

    Examples
    --------
    >>> import asyncio, bowstring as bow
    >>> with bow.Server() as server:
    ...     endpoint = server.publish("trips", {"id": [1, 2, 3]})
    ...     found = asyncio.run(bow.list_datasets_async(server.address))
    >>> found
    [<DatasetInfo 'trips' 3 rows × 1 columns, 24 bytes, 0 readers>]
    """
    return await in_thread(functools.partial(list_datasets, address, token=token, tls=tls, limits=limits))
