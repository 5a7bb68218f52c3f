"""``connect``: opens the data sets that servers publish."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import os
from collections.abc import Iterable, KeysView, Mapping
from collections.abc import Set as AbstractSet
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from bowstring.client.connection import Connection
from bowstring.client.dataset import DatasetStream
from bowstring.client.endpoint_stream import EndpointStream
from bowstring.client.grouping import Unit
from bowstring.client.names import depot_dataset, is_address, is_depot, named_endpoint
from bowstring.client.reading import Reading
from bowstring.client.stream import Stream
from bowstring.columnar.validation import checked_choice
from bowstring.dissociated.endpoint import Dataset, Endpoint, has_flight, of_offers
from bowstring.dissociated.listing import only_name
from bowstring.dissociated.position import checked_position
from bowstring.dissociated.wire import Hello
from bowstring.errors import UnknownName, Unsupported, UsageError, did_you_mean
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.memory import Device, Pool, default_pool, named_streams
from bowstring.memory.buffer import PrivateMemory
from bowstring.memory.devices import device_named
from bowstring.transport import check_scheme, path_hint, unix_address

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from bowstring.client.endpoint_stream import Incoming
    from bowstring.columnar.parts import Validated
    from bowstring.dissociated.position import Position
    from bowstring.transport import Channel
    from bowstring.transport.certificates import TlsConfig

_MOST_SHOWN: Final = 200  # of a URI in an error
_MOST_CONNECTIONS: Final = 64


class Serving(Protocol):
    """A server of this process, such as :class:`bowstring.Server`."""

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """What it offers, by name."""


Source: TypeAlias = Endpoint | Dataset | Serving | str | os.PathLike[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConnectOptions:
    """What few readers need to say to :func:`bowstring.connect`: ``connect(…, options=ConnectOptions(…))``.

    Parameters
    ----------
    token_hosts
        Further hosts that may be sent `token`, as ``"host"`` or ``"host:port"``, where a Flight server names
        them as places of its data. From ``grpc+tls:`` nothing is read over a network without encryption.
    ordered
        For a data set of many endpoints: in the order of the endpoints, or as the batches come, those of this host
        before those of others. Endpoints of one serving process share one stream, which brings them one after the
        other.
    pool
        Where bytes land that cannot be mapped, and copies go. A pool on a device asks for that device.
    decode
        With ``"device"``, encoded batches of Vortex (:func:`bowstring.vortex.to_messages`) are decoded after they
        have come to `device`, or where they come by default. Then `columns` names columns of the decoded batches.
    transport
        Of several offers, take those of this transport only: ``"unix"``, ``"tcp"``, ``"tls"``, ``"ucx"``. By
        default the first one that works is taken, which on the producer's host hands memory over.
    connections
        For a data set of many endpoints: over how many connections those of one serving process come, where their
        bytes are sent. More than one help where a network is faster than one connection, as over ``tcp:``.
    validate
        What is checked of each batch before it is delivered: ``"full"``, every element, so that no offset, view or
        index leads outside, and text is UTF-8; or ``"structure"``, sizes and ends, for servers that you trust.
        By default structure where processes of the same user are at both ends (``unix:``, ``inproc:``), and all
        elsewhere: a token or a certificate says who may speak, not that it speaks well. See `Batch.validated`.

    Examples
    --------
    >>> import bowstring as bow
    >>> with bow.Server() as server:
    ...     endpoint = server.publish("t", {"a": [1, 2]})
    ...     with bow.connect(endpoint, options=bow.ConnectOptions(validate="full")) as stream:
    ...         stream.read_next_batch().validated
    'full'
    """

    token_hosts: Sequence[str] = ()
    ordered: bool = True
    pool: Pool | None = None
    decode: Literal["device"] | None = None
    transport: str | None = None
    connections: int = 1
    validate: Validated | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class InsideOptions(ConnectOptions):
    """What Bowstring itself says beside: `dialled` is called with each channel, and streams share threads then.

    With `looks`, the server does not count a reader; if it would, or had to make batches: `Unsupported`.
    """

    dialled: Callable[[Channel], None] | None = None
    looks: bool = False


_NONE: Final = ConnectOptions()


def connect(
    source: Source,
    name: str | bytes | None = None,
    *,
    ticket: bytes | None = None,
    columns: Sequence[str] | None = None,
    device: Device | str | None = None,
    mode: Literal["map", "copy"] | None = None,
    writable: bool = False,
    shard: tuple[int, int] | None = None,
    cuda_stream: Any = None,
    token: str | None = None,
    tls: TlsConfig | ssl.SSLContext | None = None,
    limits: Limits | None = None,
    timeout: float | None = None,
    follow: bool = False,
    since: Position | str | None = None,
    options: ConnectOptions | None = None,
) -> Stream:
    """Open a data set that a :class:`bowstring.Server` publishes, maybe in another process.

    Parameters
    ----------
    source
        The address of a server (``"unix:/run/app/tables.sock"``, ``"tcp://host:port"``), an endpoint, the URI that
        one prints, a data set of many endpoints, or ``"grpc://host:port/name"`` of any server of Arrow Flight;
        ``"depot:trips"`` is what Spark published as ``trips`` on this host. A ``pathlib.Path`` is that of the
        socket of a server, and a `Server` of this process stands for itself.
    name
        The name of the data set, with an address; without it, the only one there. Over ``tcp:`` a server answers to
        names only if it has a token.
    ticket
        The bytes of a ticket, as Arrow Flight has them, instead of `name`.
    token
        The server's secret, where the source does not have it. With an address of Arrow Flight it is sent to that
        scheme, host and port only.
    tls
        Whom to trust on ``tls:``, and which certificate to show: by default the authorities of this system, and
        none. With it nothing crosses a network unencrypted: addresses of ``tcp:`` off loopback are not taken.
    shard
        ``(i, n)``: the i-th of n parts, counted from 0, which together are the data set. A published table is cut
        into contiguous ranges of rows by the producer, which copies nothing but what must be aligned anew; of a
        callable, which is called once for each shard and must give the same batches each time, it is every n-th
        batch. Of a data set of many endpoints it is the i-th part of each of them, on whatever host the reader is:
        n readers that know nothing of each other read each row exactly once. n shards that were read to their end
        count as one of ``publish(readers=…)``. Where a data set may be replaced meanwhile, open all shards by the
        `Stream.endpoint` of one stream, which stands for one version.
    columns
        Names of the columns wanted, in order; all by default.
    device
        Where the batches shall be: a device, ``"cuda:1"``, ``"cpu"``, or by default wherever the producer has
        them. Between two GPUs they are copied directly where the driver says that these reach each other, else
        through memory of the host; ``Stream.stats`` says which, and why.
    mode
        ``"map"`` gives views of the producer's memory where the transport can hand it over. ``"copy"`` copies
        each batch when it is delivered, and frees the producer's memory at once. By default memory of the host is
        mapped and that of a GPU copied on it, until mapping has been verified on one; `cuda_stream` asks for views.
    writable
        Whether the batches may be written, in place: ``values``, ``raw_values``, ``to_numpy()``, ``numpy.asarray``
        and DLPack (``torch.from_dlpack``) of numbers are then writable. What is written is seen in these batches
        alone; the producer and all other readers, in this process too, keep what was published. On the same host a
        page is copied when it is first written, and only then. ``inproc:``, memory of a GPU and compressed bodies
        are copied when they are delivered, as ``Stream.stats.copied`` shows; ``mode="map"`` is an error there.
        Arrow's objects (`to_arrow`, `read_all`) stay read-only.
    cuda_stream
        The CUDA stream, or streams, on which batches of a GPU are read: of CuPy, torch, cuda.core or Numba, or an
        address. Memory that is let go is freed when what is queued there by then is done; by default, and for
        copies, on the streams that are current, as CuPy has it, where batches are taken. They are made to wait for
        a producer that has not waited for its own work (``publish(…, cuda_stream=…)``).
    limits
        Bounds and deadlines; ``bow.DEFAULT_LIMITS`` by default.
    timeout
        Seconds that a call waits for a batch before `DeadlineExceeded`, after which the stream can still be read.
        By default it waits for as long as the producer is there.
    follow
        Whether the stream goes on as the data set grows (`Server.append`), until `Server.finish`. Otherwise it has
        what is there now. See the guide *Data sets that grow*.
    since
        The position to begin at: `Stream.position` of a stream before, or what `Server.append` returned; or its
        text. By default with the first batch that is kept.
    options
        What few readers need: a `ConnectOptions`.

    Returns
    -------
    Stream
        Its schema is there already: this call waits for the producer's first answer.

    Raises
    ------
    UnknownName, UnknownTicket, AccessDenied
        The producer says no; or there are several data sets, and no name.
    BrokenError, DeadlineExceeded
        The producer cannot be reached, or does not answer.
    NotOnDevice
        There is no such device here, or no way to it.
    DatasetReplaced, PositionExpired
        `since` belongs to another version of the data set, or its batches are no longer kept.
    UsageError
        The source or a column's name is wrong.
    InvalidData
        What comes is malformed; while batches are read, too. The message names the column, and the row.
    LimitExceeded
        No descriptor or thread is left, here or at the producer's.

    Examples
    --------
    >>> import pyarrow as pa, bowstring as bow
    >>> with bow.Server() as server:
    ...     endpoint = server.publish("t", pa.table({"a": [1, 2], "b": ["x", "y"]}))
    ...     with bow.connect(endpoint, columns=["b"]) as stream:
    ...         table = stream.read_all()
    >>> table.column("b").to_pylist()
    ['x', 'y']
    """
    if limits is None:
        limits = DEFAULT_LIMITS
    elif not isinstance(limits, Limits):
        raise UsageError("limits is a bowstring.Limits", found=repr(limits)[:80])
    if mode not in ("map", "copy", None):
        raise UsageError("no such mode", expected="'map' or 'copy'", found=repr(mode))
    if options is None:
        options = _NONE
    else:
        _check_options(options)
    pool, inside = options.pool, options if isinstance(options, InsideOptions) else None
    checks = None if options.validate is None else checked_choice(options.validate)
    chosen = None if columns is None else _chosen(columns)
    position = None if since is None else checked_position(since)
    if follow is not False or position is not None:
        _check_following(follow, shard, options.decode)
    seconds = None if timeout is None else checked_seconds(timeout)
    if options.decode is not None and writable:
        raise UsageError(
            "decoded batches are read-only", found="writable=True, ConnectOptions(decode='device')"
        )
    encoded_columns = chosen if options.decode is None else None
    part = None if shard is None else _shard(shard)
    count = options.connections
    wanted = None if name is None and ticket is None else ticket_of(name, ticket)
    if wanted is not None or token is not None or not isinstance(source, Endpoint):
        source = source_of(source, wanted, token, options.token_hosts, limits, tls)
    if options.transport is not None:
        source = _over(options.transport, source)
    target = None if device is None else device_named(device)
    if target is None and pool is not None and not pool.device.is_host:
        target = pool.device

    streams = () if cuda_stream is None else named_streams(cuda_stream)
    if streams and mode is None:
        mode = "map"  # a caller that names the stream that reads the memory wants views of it
    # Copies of ours are on whatever stream is the current one, and nothing else reads what was lent.
    if mode == "copy" or target is not None:
        streams = ()
    landing = pool if pool is not None and pool.device.is_host else default_pool()
    copies = pool or landing
    if target is not None and not target.is_host and copies.device is not target:
        copies = Pool(target)  # one budget for all endpoints
    hello = Hello(
        encoded_columns,
        limits.window_bytes,
        events=bool(streams),
        shard=part,
        looks=inside is not None and inside.looks,
        follow=follow,
        since=None if position is None else str(position),
    )
    reading = Reading(
        hello,
        limits,
        landing,
        PrivateMemory() if writable else None,
        copies,
        target,
        mode,
        streams,
        tls,
        None if inside is None else inside.dialled,
        seconds,
        checks,
    )

    def open_unit(unit: Unit) -> EndpointStream:
        connection: Incoming | None = None
        try:
            if hello.follows:
                connection = Connection(_without_flight(unit.endpoint), reading)
            elif has_flight(unit.endpoint):
                from bowstring.client.do_get import opened  # and with it pyarrow's Flight

                connection = opened(unit.endpoint, reading, unit.tickets)
            else:
                connection = Connection(unit.endpoint, reading, unit.tickets)
            return EndpointStream(connection, reading, shared=bool(unit.tickets))
        except BaseException:
            if connection is not None:
                connection.close()
            raise

    if isinstance(source, Endpoint):
        if count != 1:
            raise UsageError(
                "one endpoint comes over one connection",
                found=f"connections={count}",
                hint="connect(shard=(i, n)) opens it in parts.",
            )
        stream: Stream = open_unit(Unit(source, (0,)))
    elif isinstance(source, Dataset):
        if hello.follows:
            raise UsageError(
                "a list of endpoints, which a name of a depot is, cannot be followed, or read from a position on",
                found="connect(follow=…, since=…)",
                hint="For a name of a depot, Depot.lookup_range(name, since=position) returns what is new.",
            )
        make = functools.partial(
            DatasetStream,
            open_unit=open_unit,
            columns=encoded_columns,
            ordered=options.ordered,
            connections=count,
        )
        stream = source._stream(make, encoded_columns, tls)
    else:
        raise UsageError(
            "this is not a source",
            expected="an Endpoint, a Dataset or a URI",
            found=type(source).__name__,
            hint=path_hint(source),
        )
    if options.decode is None:
        return stream
    from bowstring.client.decoded import DecodedStream  # and with it all of Vortex

    try:
        return DecodedStream(stream, chosen, limits)
    except BaseException:
        stream.close()
        raise


def endpoint_of(uri: str, ticket: str | bytes | None = None) -> Endpoint:
    """Return the endpoint that a URI names.

    Raises
    ------
    UsageError
        It is not a URI of this protocol, no transport is known for it, or there is no ticket.

    Examples
    --------
    >>> endpoint_of("tcp://127.0.0.1:4711?want_data=7", "trips").ticket
    b'trips'
    """
    head = uri.strip().partition("?")[0]
    if ":" in head or path_hint(head):  # else it is no URI at all, and the error of that says what one is
        check_scheme(head[:_MOST_SHOWN])
    return Endpoint.parse(uri, ticket)


def _check_options(options: Any) -> None:
    if not isinstance(options, ConnectOptions):
        raise UsageError("options are a ConnectOptions", found=repr(options)[:80])
    if not isinstance(options.pool, Pool | None):
        raise UsageError("pool is a bowstring.Pool", found=repr(options.pool)[:80])
    if options.decode not in ("device", None):
        raise UsageError("no such way to decode", expected="'device'", found=repr(options.decode))
    count: Any = options.connections
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST_CONNECTIONS:
        raise UsageError(
            "connections is a number of them",
            expected=f"1 to {_MOST_CONNECTIONS}",
            found=repr(count)[:80],
            where="ConnectOptions(connections=…)",
        )


def _chosen(columns: Any) -> tuple[str, ...]:
    """Return the names of the columns that a user wants."""
    # A set is not a list of columns: it has no order; the keys of a dict have theirs.
    ordered = isinstance(columns, KeysView) or not isinstance(columns, str | bytes | Mapping | AbstractSet)
    is_list = ordered and isinstance(columns, Iterable)
    chosen = tuple(columns) if is_list else ()
    if not is_list or not all(isinstance(name, str) for name in chosen):
        raise UsageError("columns is a list of names", found=repr(columns)[:80])
    for name in chosen:
        try:
            name.encode()
        except UnicodeEncodeError as error:  # half a surrogate pair: no schema or message can hold it
            raise UsageError(
                "the name of a column must be text that UTF-8 can encode",
                found=ascii(name)[:80],
                where="connect(columns=…)",
            ) from error
    return chosen


def source_of(
    source: Any,
    ticket: bytes | None,
    token: str | None,
    token_hosts: Sequence[str],
    limits: Limits,
    tls: TlsConfig | ssl.SSLContext | None,
) -> Endpoint | Dataset:
    """Return the endpoints that a user's source stands for."""
    if isinstance(source, str):
        if is_depot(source):
            return depot_dataset(source, None if ticket is None else ticket.decode())
        if is_address(source):
            return named_endpoint(source, ticket, token, limits, tls, token_hosts)
        source = endpoint_of(source, ticket)
    elif isinstance(source, os.PathLike):
        address = unix_address(source)
        return named_endpoint(address, ticket, token, limits, tls, token_hosts)
    elif isinstance(getattr(source, "endpoints", None), dict):
        offered: dict[str, Endpoint] = source.endpoints
        if ticket is None:
            return offered[only_name([*offered], None)]
        wanted = ticket.decode(errors="replace")
        if wanted not in offered:
            hint = did_you_mean(wanted, offered)
            raise UnknownName("no data set of that name is offered", found=repr(wanted[:80]), hint=hint)
        return offered[wanted]
    elif ticket is not None and isinstance(source, Endpoint):
        source = dataclasses.replace(source, ticket=ticket)
    elif ticket is not None and isinstance(source, Dataset):
        raise UsageError("a data set of many endpoints has a ticket in each", found=repr(ticket))
    if token is None or not isinstance(source, Endpoint | Dataset):
        return source  # type: ignore[no-any-return]  # other types are refused below
    if isinstance(source, Dataset):
        endpoints = tuple(each.with_token(token) for each in source.endpoints)
        return dataclasses.replace(source, endpoints=endpoints)
    return source.with_token(token)


def _over(transport: Any, source: Endpoint | Dataset) -> Endpoint | Dataset:
    """Return a source with the offers of one transport."""
    if not isinstance(transport, str):
        raise UsageError("not a transport", expected="a name such as 'ucx'", found=repr(transport)[:80])
    check_scheme(f"{transport}:")
    if isinstance(source, Dataset):
        endpoints = tuple(each.over(transport) for each in source.endpoints)
        return dataclasses.replace(source, endpoints=endpoints)
    return source.over(transport)


def _shard(shard: Any) -> tuple[int, int]:
    try:
        index, count = (operator.index(each) for each in shard)
    except (TypeError, ValueError):
        index, count = -1, 0
    if not 0 <= index < count < 1 << 31:
        raise UsageError(
            "a shard is a pair of a number and how many there are",
            expected="(i, n) with 0 <= i < n",
            found=repr(shard)[:80],
            where="connect(shard=…)",
        )
    return index, count


def _check_following(follow: object, shard: object, decode: str | None) -> None:
    if not isinstance(follow, bool):
        raise UsageError("follow is True or False", found=repr(follow)[:80])
    if shard is not None or decode is not None:
        raise UsageError(
            "a data set is followed as a whole, and as it is",
            found="connect(shard=…)" if shard is not None else "ConnectOptions(decode=…)",
            where="connect(follow=…, since=…)",
        )


def checked_seconds(seconds: Any) -> float:
    """Return a time that a user gives, in seconds."""
    is_number = isinstance(seconds, Real) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds < math.inf:
        raise UsageError("timeout is a finite number of seconds, 0 or more", found=repr(seconds)[:80])
    return float(seconds)


def _without_flight(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint without the places from which Arrow Flight gives what is there, and no more."""
    ours = [each for each in endpoint.offers if not each.by_flight]
    if not ours:
        raise Unsupported(
            "Arrow Flight gives a data set as it is: it cannot be followed, or read from a position on",
            found="connect(follow=…, since=…)",
            where=endpoint.offers[0].address,
            hint="Connect to the Bowstring server itself.",
        )
    return of_offers(endpoint.ticket, ours) if len(ours) < len(endpoint.offers) else endpoint


def ticket_of(name: Any, ticket: Any) -> bytes | None:
    """Return what names a data set, as bytes."""
    if name is not None and ticket is not None:
        raise UsageError("name and ticket are the same", found=f"name={name!r}, ticket={ticket!r}"[:200])
    if isinstance(ticket, str):
        raise UsageError(
            "a ticket is bytes", found=ascii(ticket)[:80], hint="A name comes second: connect(source, name)."
        )
    ticket = name if ticket is None else ticket
    if ticket is None:
        return None
    try:
        return ticket.encode() if isinstance(ticket, str) else bytes(memoryview(ticket))
    except (TypeError, UnicodeEncodeError) as error:
        raise UsageError("not a ticket", expected="bytes, or text", found=ascii(ticket)[:80]) from error
