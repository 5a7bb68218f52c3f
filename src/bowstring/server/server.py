"""``Server`` and ``publish``: offers tables to readers in other processes."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import logging
import math
import os
import signal
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

from bowstring.closing import Closing
from bowstring.columnar.display import table_of_facts
from bowstring.dissociated.endpoint import Endpoint
from bowstring.dissociated.producer import Outcome
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ForkedError,
    NotPicklable,
    UnknownTicket,
    UsageError,
)
from bowstring.limits import Limits, limits_or_default
from bowstring.locks import Condition
from bowstring.memory import Pool, kept_for_good, named_streams, on_streams
from bowstring.server.acceptor import Acceptor
from bowstring.server.advertising import Addresses, advertised_host
from bowstring.server.arguments import check_address, check_offer, check_retain, check_seconds, check_token
from bowstring.server.catalogue import Catalogue, Publication, taken
from bowstring.server.filling import EmptyTable
from bowstring.server.growth import Growth, all_of
from bowstring.server.materialized import MaterializedSource
from bowstring.server.session import Session
from bowstring.server.sources import batches_of, batches_to_append, source_of
from bowstring.transport import check_scheme
from bowstring.transport.awaiting import in_thread

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from bowstring.columnar.batch import Batch
    from bowstring.dissociated.position import Position
    from bowstring.memory import PoolStatistics
    from bowstring.server.sources import Source
    from bowstring.transport.certificates import TlsConfig

_servers: weakref.WeakSet[Server] = weakref.WeakSet()

_SLICE: Final = 1.0

# Silent, unless the program configures logging.
logging.getLogger("bowstring").addHandler(logging.NullHandler())


class Server(Closing):
    """Offers data sets to readers in other processes, for as long as the ``with`` block or until `close`.

    Parameters
    ----------
    address
        ``"unix:"`` (the default: a socket in a private folder), ``"unix:/path"``, ``"tcp://host:port"``
        (port 0 picks one), ``"tls://host:port"``, or ``"inproc:name"``.
    token
        A secret that readers must give; it is part of the endpoints' URIs. Off the loopback interface there
        must be one, of 16 characters or more: ``secrets.token_urlsafe()`` makes one. Readers that must show a
        certificate need none.
    tls
        The certificate of a server at ``tls:``; with ``TlsConfig(ca=…)`` those of its readers must be of that
        authority.
    plaintext
        Whether data and token may cross a network unencrypted; without it, ``tcp:`` listens on loopback only.
    advertise
        The host that URIs name, for an address such as ``"tcp://0.0.0.0:4711"``, under which nobody reaches it. By
        default such a server is called by its certificate's name, or else by the first address of this machine.
    pool
        Where the data lie; a new pool by default.
    limits
        Bounds and deadlines.

    Raises
    ------
    UsageError
        The address is malformed, in use, or needs a token; or another argument means nothing.
    LimitExceeded
        No descriptor or thread is left.

    Examples
    --------
    >>> import pyarrow as pa, bowstring as bow
    >>> with bow.Server() as server:
    ...     endpoint = server.publish("numbers", pa.table({"n": [1, 2, 3]}), readers=1)
    ...     with bow.connect(endpoint) as stream:
    ...         total = sum(batch["n"].to_numpy().sum() for batch in stream)
    >>> int(total)
    6
    """

    def __init__(
        self,
        address: str = "unix:",
        *,
        token: str | None = None,
        tls: TlsConfig | ssl.SSLContext | None = None,
        plaintext: bool = False,
        advertise: str | None = None,
        pool: Pool | None = None,
        limits: Limits | None = None,
    ) -> None:
        limits = limits_or_default(limits)
        check_scheme(address)
        check_token(token)
        if not isinstance(pool, Pool | None):
            raise UsageError("not a pool", expected="a bowstring.Pool", found=repr(pool))
        check_address(address, token, plaintext=plaintext, tls=tls)
        host = None if advertise is None else advertised_host(advertise, address)
        self.limits = limits
        self._own_pool = pool is None
        self.pool = pool or Pool()
        self._pid = os.getpid()
        self._changed = Condition()
        self._catalogue = Catalogue(self._changed, token)
        self._beginning = threading.Lock()  # of data sets by their first append
        self._closed = False
        session_of = functools.partial(Session, self._catalogue, self.pool, limits, self._ended)
        self._acceptor = Acceptor(session_of, limits, self._changed)
        self._addresses = Addresses(self._acceptor, token, host)
        self._addresses.listen(address, tls)
        _servers.add(self)

    @property
    def address(self) -> str:
        """Where the server listens, as a transport dials it."""
        return self._addresses.first

    # Offering.

    def publish(
        self,
        name: str,
        data: Any,
        *,
        schema: pa.Schema | None = None,
        readers: int | None = None,
        replace: bool = False,
        ttl: float | None = None,
        separate: bool = False,
        share: Literal["copy", "in_place"] = "copy",
        cuda_stream: Any = None,
        retain: Mapping[str, float] | None = None,
        resident: bool = False,
    ) -> Endpoint:
        """Offer a data set.

        Parameters
        ----------
        name
            What to call it, in at most 1,024 bytes of UTF-8; each name is offered once at a time (see `replace`).
        data
            Anything with the Arrow PyCapsule interface, a Batch or a list of them, a dict of arrays: copied
            once, into shared memory, unless it lies there already. A reader or generator of batches: produced
            when its one reader has room for them. A callable that returns such a thing: called for each reader.
            A reader of a file of `bow.ipc`: read anew for each reader.
        schema
            The schema, for a generator of batches that does not say it.
        readers
            How many readers read it to its end before its memory is released; any number by default, until it
            is withdrawn.
        replace
            Whether it takes the place of the data set that has this name now, if there is one. That happens at the
            end of this call, at once: who reads the former version keeps it, and new readers get this one.
            `readers` counts for each version by itself.
        ttl
            Seconds from now on after which it is withdrawn; until `withdraw` or `close` by default.
        separate
            Whether readers fetch metadata and bodies over a connection each.
        share
            ``"copy"`` copies what does not lie in regions of ours, once, on its device. ``"in_place"`` lends memory
            of a GPU that others allocated (``cudaMalloc``: the pools of CuPy and RMM) where it lies, by a handle of
            each whole allocation, and copies nothing of it. Such data die with this process, and must not be
            written; their objects are kept alive until the readers are done, and for good where a reader is lost
            that may look at them still. What has no such handle (memory of the host, ``cudaMallocAsync``, managed,
            or mapped by the driver) is copied as always, and the reader's ``stats.why`` says so. A reader can see
            all of an allocation, beyond what is published of it.

        cuda_stream
            The CUDA stream, or streams, on which work on the data is queued: of CuPy, torch, cuda.core or Numba,
            or an address. By default the stream that is current in this thread, as CuPy has it; other streams are
            not waited for. Copies are queued there too, and this call waits for them. With ``share="in_place"`` a
            stream that is named lets the readers wait instead: the call returns while work on the stream still
            fills the data, streams that a reader names (``connect(cuda_stream=…)``) wait for an event of that
            work, and for other readers the server waits before it sends anything. Where data are on several
            devices, nothing can be lent, or the driver has no events for other processes, this call waits as
            always. This process must live until the work is done: what waits for one that ended may do so for ever.

        retain
            How much of the data set is kept as it grows (`append`): ``{"batches": n}``, ``{"bytes": n}``,
            ``{"seconds": s}``, or several of them. Older batches are let go of; readers that have them keep them,
            and one that has yet to read them gets `PositionExpired`.
        resident
            Whether a reader, generator or callable is read now, by this call, batch by batch into shared memory,
            instead of by its reader: any number of readers then share what it made, and this process holds one
            batch beside. The data set is finished (`finish`).

        Returns
        -------
        Endpoint
            What a reader needs to :func:`bowstring.connect`. It names the data set, and so follows `replace` and a
            server that starts again at the same address; on ``tcp:`` without a token, and with `separate`, it
            stands for this version alone.

        Raises
        ------
        UsageError
            The name is taken or none, or the data cannot be published, or not so.
        Unsupported
            A type cannot be sent, such as a dictionary of values of an extension type.
        OutOfBudget
            The pool has no room; nothing is published.
        DeadlineExceeded
            A stream did not finish what was queued on it within ``Limits.device_timeout``.
        DeviceError
            The driver fails; nothing is published.
        """
        self._check()
        if share not in ("copy", "in_place"):
            raise UsageError("no such way to share", expected="'copy' or 'in_place'", found=repr(share))
        streams = () if cuda_stream is None else named_streams(cuda_stream)
        check_offer(name, schema, readers)
        ttl = None if ttl is None else check_seconds(ttl, "ttl")
        if retain is not None:
            check_retain(retain, readers)
        if resident and (retain is not None or share == "in_place"):
            raise UsageError(
                "what is read into shared memory is copied, and finished",
                found="resident=True beside share= or retain=",
            )
        if not replace and self._catalogue.find(name) is not None:
            raise taken(name)
        seconds, in_place = self.limits.device_timeout, share == "in_place"
        with on_streams(self.pool.device, streams) if streams else contextlib.nullcontext():
            waits = not (in_place and streams)
            growth = all_of(*batches_of(data, schema), self.pool, seconds) if resident else None
            if growth is not None:
                source: Source = growth.snapshot()
            else:
                source, readers = source_of(
                    data, schema, self.pool, readers, seconds, in_place=in_place, streams=streams, waits=waits
                )
        if separate and source.charged:
            raise UsageError(
                "a lazily produced data set goes over one connection",
                hint="Publish a table, or separate=False.",
            )
        # Now, so that the first reader waits no longer than the others.
        if isinstance(source, MaterializedSource):
            source.prepare(pointers=self._addresses.passes_memory)
        publication = Publication(name, source, readers, self._changed)
        publication.separate = separate
        if retain is not None:
            growth = Growth(publication.version, publication.resident(), self.pool)
            growth.keep(retain)
        if growth is not None:
            growth.version = publication.version
            publication.grow(growth)
        with self._changed:
            self._check()
            self._catalogue.add(publication, replace=replace, ttl=ttl)
        # Two connections could be answered by two versions of one name.
        by_name = self._addresses.names_open and not separate
        ticket = name.encode() if by_name else publication.ticket
        return self._addresses.endpoint(ticket, separate=separate)

    async def publish_async(self, name: str, data: Any, **options: Any) -> Endpoint:
        """Do what `publish` does, for programs on asyncio: a worker copies, and the event loop goes on.

        It takes, returns and raises what `publish` does. Where it is cancelled, what it has begun is published all
        the same.

        Examples
        --------
        >>> import asyncio, bowstring as bow
        >>> async def rows():
        ...     with bow.Server() as server:
        ...         endpoint = await server.publish_async("trips", {"id": [1, 2, 3]}, readers=1)
        ...         async with bow.connect_async(endpoint) as stream:
        ...             return (await stream.to_arrow()).num_rows
        >>> asyncio.run(rows())
        3
        """
        return await in_thread(functools.partial(self.publish, name, data, **options))

    def empty(self, name: str, schema: pa.Schema, rows: int) -> EmptyTable:
        """Return a table of zeros in shared memory, for its columns to be filled in place and then published.

        Parameters
        ----------
        name
            What to call it; the name stays free until it is published.
        schema
            Columns of a fixed width: numbers, times, Booleans, decimals, bytes, and lists of a fixed size of such.
        rows
            How many rows it has.

        Returns
        -------
        EmptyTable
            ``table[column]`` is a writable array, and ``table.publish()`` offers it; it is freed if it is dropped
            instead.

        Raises
        ------
        Unsupported
            A column has no fixed width.
        UsageError
            A name, a schema or a number of rows that no data set can have.
        OutOfBudget
            The pool has no room; nothing was allocated.

        Examples
        --------
        >>> import pyarrow as pa, bowstring as bow
        >>> with bow.Server() as server:
        ...     table = server.empty("prices", pa.schema({"price": pa.float64()}), rows=1000)
        ...     table["price"][:] = 9.5
        ...     endpoint = table.publish()
        """
        self._check()
        check_offer(name, schema, None)
        if schema is None:
            raise UsageError("not a schema", expected="a pyarrow.Schema", found="None")
        return EmptyTable(name, schema, rows, self.pool, self.limits.device_timeout, self.publish)

    def append(self, name: str, data: Any, *, retain: Mapping[str, float] | None = None) -> Position:
        """Add batches to a data set; the first call for a name begins one.

        A reader that comes later finds them; one that follows (``connect(name, follow=True)``) gets them now. They
        are added together or not at all, in the order of the calls, and copied once, as by `publish`; small ones
        share memory. Appending does not renew `ttl`.

        Parameters
        ----------
        name
            The data set, which may have been begun by `publish` as well, from a table.
        data
            What `publish` takes, except what is produced lazily; of the same schema, metadata included.
        retain
            How much of the data set is kept from now on (see `publish`); as much as before by default.

        Returns
        -------
        Position
            The place behind what was added: for ``connect(since=…)``, and `wait_for`.

        Raises
        ------
        UsageError
            The data have another schema or are produced lazily; or the data set is finished, is produced lazily,
            lent in place or ``separate``. Nothing was copied.
        OutOfBudget
            The pool has no room; nothing was added.

        Examples
        --------
        >>> import bowstring as bow
        >>> with bow.Server() as server:
        ...     server.append("ticks", {"price": [1.0, 2.0]})
        ...     server.append("ticks", {"price": [3.0]})
        ...     server.finish("ticks")
        ...     with bow.connect(server, "ticks", follow=True) as stream:
        ...         [batch["price"].to_pylist() for batch in stream]  # doctest: +ELLIPSIS
        <Position ...:1>
        <Position ...:2>
        <Position ...:2>
        [[1.0, 2.0], [3.0]]
        """
        self._check()
        check_offer(name, None, None)
        schema, batches = batches_to_append(data)
        position: Position | None = None
        while position is None:
            publication = self._catalogue.find(name)
            if retain is not None:
                check_retain(retain, None if publication is None else publication.readers)
            if publication is None:
                position = self._begin(name, schema, batches, retain)
                continue
            try:
                growth = self._catalogue.growth_of(publication, self.pool)
            except UnknownTicket:
                if publication.offered:
                    raise
                continue  # it was replaced or withdrawn meanwhile
            growth.check(schema)
            with growth.appending:
                self._check()
                if growth.finished:
                    raise UsageError(
                        "the data set is finished",
                        found=repr(name),
                        hint="publish(…, replace=True) puts another one in its place.",
                    )
                chunks = growth.placed(batches, self.limits.device_timeout)
                if retain is not None:
                    growth.keep(retain)
                position = self._catalogue.enter_chunks(publication, growth, chunks)
        return position

    async def append_async(self, name: str, data: Any, **options: Any) -> Position:
        """Do what `append` does, for programs on asyncio: a worker copies, and the event loop goes on.

        It takes, returns and raises what `append` does. Where it is cancelled, what it has begun is appended all
        the same.

        Examples
        --------
        >>> import asyncio, bowstring as bow
        >>> async def rows():
        ...     with bow.Server() as server:
        ...         end = await server.append_async("ticks", {"price": [1.0, 2.0]})
        ...         return end == server.finish("ticks")
        >>> asyncio.run(rows())
        True
        """
        return await in_thread(functools.partial(self.append, name, data, **options))

    def _begin(
        self, name: str, schema: pa.Schema, batches: Sequence[Batch], retain: Mapping[str, float] | None
    ) -> Position | None:
        """Begin a data set that grows; ``None`` if another one took its name meanwhile."""
        with self._beginning:
            if self._catalogue.find(name) is not None:
                return None
            empty = MaterializedSource.of_placed(schema, (), (), self.pool)
            publication = Publication(name, empty, None, self._changed)
            growth = Growth(publication.version, empty, self.pool)
            publication.grow(growth)
            if retain is not None:
                growth.keep(retain)
            position = growth.enter(growth.placed(batches, self.limits.device_timeout))
            with self._changed:
                self._check()
                if self._catalogue.find(name) is not None:
                    return None
                self._catalogue.add(publication)
            return position

    def finish(self, name: str) -> Position:
        """Let nothing be appended to a data set any more: readers that follow it come to its end.

        Parameters
        ----------
        name
            The data set. One that is finished already stays so.

        Returns
        -------
        Position
            The place behind its last batch.

        Raises
        ------
        UnknownName
            There is no such data set.
        UsageError
            It cannot grow (see `append`).

        Examples
        --------
        >>> import bowstring as bow
        >>> with bow.Server() as server:
        ...     end = server.append("ticks", {"price": [1.0]})
        ...     server.finish("ticks") == end
        True
        """
        self._check()
        position: Position | None = None
        while position is None:
            publication = self._catalogue.named(name)
            growth = self._catalogue.growth_of(publication, self.pool)
            with growth.appending:
                position = self._catalogue.finish(publication, growth)
        return position

    def listen_too(
        self, address: str, *, tls: TlsConfig | ssl.SSLContext | None = None, plaintext: bool = False
    ) -> str:
        """Take readers on one more address, too; return it as a transport dials it.

        Endpoints that are made from now on name both addresses. ``publish(readers=…)`` counts the readers of both
        together.

        Parameters
        ----------
        address, tls, plaintext
            As for the server's first address.

        Raises
        ------
        UsageError
            The address is malformed, in use, or needs a token or encryption.
        """
        self._check()
        check_address(address, self._catalogue.token, plaintext=plaintext, tls=tls)
        return self._addresses.listen(address, tls)

    def withdraw(self, name: str) -> None:
        """Offer a data set no longer; those who read it keep what they have.

        Raises
        ------
        UnknownName
            There is no such data set.
        """
        self._check()
        self._catalogue.named(name).withdraw()

    def wait_released(self, name: str | None = None, timeout: float | None = None) -> None:
        """Wait until a data set, or all of them, was read to the end by its readers, and freed by them.

        Parameters
        ----------
        name
            Which one; all by default.
        timeout
            Seconds, ``Limits.release_timeout`` by default.

        Raises
        ------
        DeadlineExceeded
            Somebody still reads, or has not come; says who is missing.
        UnknownName
            There is no such data set, and never was one.
        """
        self._check()
        seconds = self.limits.release_timeout if timeout is None else check_seconds(timeout)
        self._catalogue.wait_released(name, seconds, lambda: self._closed)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server is closed, or this process is asked to end (SIGINT, Ctrl-C, or SIGTERM).

        Parameters
        ----------
        timeout
            Seconds; without it this is the one wait that has no deadline.

        Returns
        -------
        bool
            Whether that happened; false when the time is over. Signals are noticed in the main thread only.

        Examples
        --------
        >>> import bowstring as bow
        >>> with bow.Server() as server:
        ...     server.wait(timeout=0.01)
        False
        """
        self._check_process()
        end = math.inf if timeout is None else time.monotonic() + check_seconds(timeout)
        try:
            with _ended_by_sigterm(), self._changed:
                while not self._closed and (left := end - time.monotonic()) > 0:
                    # A handler of C code (polars installs one) has waits without a deadline go on after a signal.
                    self._changed.wait(min(left, _SLICE))
                return self._closed
        except KeyboardInterrupt:
            return True

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """The data sets that are offered now, by name."""
        self._check_process()
        return {each.name: endpoint for each, endpoint in self._offered()}

    def _offered(self, name: str | None = None) -> list[tuple[Publication, Endpoint]]:
        addresses = self._addresses
        return [
            (each, addresses.endpoint(each.name.encode() if addresses.names_open else each.ticket))
            for each in self._catalogue.offered()
            if name in (None, each.name)
        ]

    @property
    def stats(self) -> ServerStatistics:
        """What the server has done, and does now."""
        self._check_process()
        with self._changed:
            sources, ended = self._catalogue.sources(), self._acceptor.outcomes
            return ServerStatistics(
                connections=len(self._acceptor),
                readers=ended[Outcome.COMPLETED],
                bytes_offered=sum(source.nbytes or 0 for source in sources),
                bytes_lent=sum(source.lending.nbytes for source in sources if source.lending is not None),
                kept=kept_for_good(),
                refused=ended[Outcome.REFUSED],
                lost=ended[Outcome.LOST],
                pool=self.pool.stats,
                stopped=ended[Outcome.STOPPED],
                idle=ended[Outcome.IDLE],
            )

    @property
    def token(self) -> str | None:
        """The secret that readers must give."""
        return self._catalogue.token

    # Life.

    def _ended(self, session: Session, outcome: Outcome) -> None:
        with self._changed:
            self._acceptor.ended(session, outcome)
            self._catalogue.forget()
            self._changed.notify_all()

    def _check(self) -> None:
        if self._pid != os.getpid():
            self._check_process()
        if self._closed:
            raise ClosedError("the server is closed")

    def _check_process(self) -> None:
        # Before any lock: a fork leaves the child's locks as they happened to be.
        if self._pid != os.getpid():
            raise ForkedError("the server belongs to the parent process", hint="Make one in the child.")

    def close(self) -> None:
        """Stop offering. Readers keep the batches they have; a stream that goes on breaks. Idempotent."""
        self._close(self.limits.close_timeout)

    def _close(self, seconds: float) -> None:
        if self._pid != os.getpid():
            return
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self._acceptor.shut()
        self._catalogue.withdraw_all()
        self._acceptor.close(time.monotonic() + seconds)
        if self._own_pool:
            self.pool.close()

    def __reduce__(self) -> NoReturn:
        raise NotPicklable("a Server belongs to its process", hint="Send the Endpoint that publish returned.")

    def __repr__(self) -> str:
        state = (
            "closed" if self._closed else f"{len(self._catalogue)} data sets, {len(self._acceptor)} readers"
        )
        return f"<Server {self.address} {state}>"


# What depots and Flight servers, which stand on a server, ask of it.


def catalogue_of(server: Server) -> Catalogue:
    """Return what a server offers, and to whom, as its sessions use it."""
    server._check()
    return server._catalogue


def offer(
    server: Server, name: str, source: Source, readers: int | None = None
) -> tuple[Publication, Endpoint]:
    """Offer a source that was prepared already.

    With a second address, the endpoint is for readers on this host and elsewhere.
    """
    server._check()
    publication = Publication(name, source, readers, server._changed)
    with server._changed:
        server._check()
        server._catalogue.enter(publication)
    return publication, server._addresses.endpoint(publication.ticket)


def listen_unnamed(server: Server, address: str) -> None:
    """Take connections at one more address of this host, which no endpoint names."""
    server._check()
    server._acceptor.listen(address)


def offered(server: Server, name: str | None = None) -> list[tuple[Publication, Endpoint]]:
    """Return what a server offers now, by name, or of one name, and the endpoint that stands for each name."""
    server._check()
    return sorted(server._offered(name), key=lambda each: each[0].name)


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, by KeyboardInterrupt, unless another handler is set."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


# Threads that run somebody's generator are not waited for when the interpreter ends.
_END_SECONDS = 0.5


@atexit.register
def _close_all() -> None:
    for server in list(_servers):
        with contextlib.suppress(BowstringError):
            server._close(_END_SECONDS)


@dataclasses.dataclass(frozen=True, slots=True)
class ServerStatistics:
    """What a server has done, and does now.

    Attributes
    ----------
    connections, readers
        Connections now; streams served to their end so far.
    bytes_offered
        Bytes of the resident data sets.
    refused
        Connections that were not served: too many at once, a wrong token, no such data set or column.
    lost
        Readers that disconnected in the middle of a stream without a word, still held memory when they
        disconnected, did not answer in time, or broke the protocol.
    bytes_lent
        Bytes of the data sets that are lent where they lie (``share="in_place"``).
    kept
        Allocations of this process's users that are kept alive until it ends, because a reader of what was lent
        in them was lost and may look at them still.
    pool
        The memory.
    stopped
        Streams that ended before their reader had read everything, with nothing amiss: the reader closed early, or
        disconnected after the end without confirming that it read it, or the producer closed or failed.
    idle
        Connections that ended before they asked for a data set, such as a health check.
    """

    connections: int
    readers: int
    bytes_offered: int
    refused: int
    lost: int
    bytes_lent: int
    kept: int
    pool: PoolStatistics
    stopped: int = 0
    idle: int = 0

    def _repr_html_(self) -> str:
        facts = [(each.name, getattr(self, each.name)) for each in dataclasses.fields(self)]
        return table_of_facts("What the server has done, and does now", ("", ""), facts)
