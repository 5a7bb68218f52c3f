"""The Flight service: what ``pyarrow.flight`` calls for each request."""

from __future__ import annotations

import atexit
import contextlib
import datetime as dt
import logging
import os
import secrets
import socket
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import flight

from bowstring.columnar.batch import Batch
from bowstring.columnar.validation import check_once
from bowstring.errors import (
    AccessDenied,
    BowstringError,
    BrokenError,
    ClosedError,
    DeadlineExceeded,
    InvalidBody,
    InvalidData,
    UnknownTicket,
    Unsupported,
    UsageError,
)
from bowstring.flight.mapping import flight_endpoint, flight_info

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bowstring.flight.catalogs import Catalog
    from bowstring.transport.certificates import TlsConfig

_log = logging.getLogger("bowstring")
_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)
_ATTEMPTS: Final = 20
_PAUSE: Final = 0.1
_RENEW: Final = "RenewFlightEndpoint"
_ACTIONS: Final = [
    (
        "renew",
        "let a data set that expires have all of its time again; body: its name; result: until when, ISO 8601",
    ),
    (_RENEW, "the same by the endpoint, as Arrow Flight specifies it"),
    ("withdraw", "offer a data set no longer; body: its name; where clients may publish"),
]


def started(
    catalog: Catalog,
    address: str,
    token: str | None,
    tls: TlsConfig | None,
    where: str | None,
    allow_put: bool,
) -> Any:
    """Start a server at ``grpc+tcp://host:port`` or ``grpc+tls://host:port``.

    `where` is the scheme and host as clients reach it, without the port.
    """
    options: dict[str, Any] = {}
    if token is not None:
        options["middleware"] = {"bowstring": _Bearer(token)}
    if tls is not None:
        options |= _certificates(tls)
    try:
        return _Service(catalog, address, where, allow_put=allow_put, **options)
    except (pa.ArrowException, OSError) as error:
        raise UsageError(
            f"cannot listen on {address}", found=str(error)[:200], hint="Port 0 picks a free port."
        ) from error


def _certificates(tls: TlsConfig) -> dict[str, Any]:
    tls.for_server()  # which says what is wrong with them
    assert tls.cert is not None
    arguments: dict[str, Any] = {"tls_certificates": [(_read(tls.cert), _read(tls.key or tls.cert))]}
    if tls.ca is not None:
        arguments |= {"verify_client": True, "root_certificates": _read(tls.ca)}
    return arguments


def _read(path: Any) -> bytes:
    return Path(path).read_bytes()


class _Bearer(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Lets in who has the token, and nobody else, for every call."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:  # noqa: ARG002  Flight's signature
        given = next((value for name, value in headers.items() if name.lower() == "authorization"), [])
        # The same time for every wrong one.
        if len(given) != 1 or not secrets.compare_digest(_bytes(given[0]), self._expected):
            raise flight.FlightUnauthenticatedError(
                "the token is wrong: it is the header `authorization: Bearer …`, or connect(…, token=…)"
            )


def _bytes(header: Any) -> bytes:
    return header if isinstance(header, bytes) else str(header).encode(errors="replace")


class _Service(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    def __init__(
        self, catalog: Catalog, address: str, where: str | None, *, allow_put: bool, **options: Any
    ) -> None:
        super().__init__(address, **options)
        self._catalog = catalog
        self._where = None if where is None else f"{where}:{self.port}"
        self._allow_put = allow_put
        self._stopped = False
        self._seconds = catalog.limits.close_timeout
        # After pyarrow's own finalizer, hence called before it, which waits for clients without a deadline.
        atexit.register(self._end_at_exit, os.getpid())

    def end(self, seconds: float) -> None:
        """Give no more batches; after so many seconds, end the connections of clients that have stopped reading."""
        self._stopped = True
        atexit.unregister(self._end_at_exit)
        ending = threading.Thread(target=self.shutdown, name="flight end (bowstring)", daemon=True)
        ending.start()
        ending.join(seconds)
        if ending.is_alive():
            _log.warning("a Flight client of port %d stopped reading; its connection is ended", self.port)
        for _ in range(_ATTEMPTS):  # what the data set's own generator waits for cannot be ended
            if not ending.is_alive():
                break
            _end_connections(self.port)
            ending.join(_PAUSE)

    def _end_at_exit(self, pid: int) -> None:
        if pid == os.getpid():
            self.end(self._seconds)

    # What is read.

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:  # noqa: ARG002
        """Yield all data sets."""
        with _statuses():
            if criteria:
                raise NotImplementedError("data sets are listed without criteria")
            infos = [flight_info(each, self._where) for each in self._catalog.all()]
        yield from infos

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:  # noqa: ARG002
        """Say where a data set is; nobody counts as a reader for that."""
        with _statuses():
            return flight_info(self._catalog.named(_name(descriptor)), self._where)

    def get_schema(self, context: Any, descriptor: Any) -> Any:  # noqa: ARG002
        """Say what a data set's schema is."""
        with _statuses():
            return flight.SchemaResult(self._catalog.named(_name(descriptor)).info.schema)

    def do_get(self, context: Any, ticket: Any) -> Any:  # noqa: ARG002
        """Give the batches of an endpoint: views, which gRPC reads where they lie."""
        with _statuses():
            self._check_running()
            reading = self._catalog.read(ticket.ticket)
            schema = next(reading)

        def batches() -> Iterator[pa.RecordBatch]:
            with _statuses(), contextlib.closing(reading):
                for batch in reading:
                    self._check_running()
                    yield batch

        return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(schema, batches()))

    def _check_running(self) -> None:
        if self._stopped:
            raise ClosedError("the Flight server was closed")

    # What is written.

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:  # noqa: ARG002
        """Publish what comes under the name of the descriptor, in the place of what has it now."""
        with _statuses():
            self._check_allowed()
            batches = (_checked(chunk.data) for chunk in reader if chunk.data is not None)
            self._catalog.publish(_name(descriptor), reader.schema, batches)

    def _check_allowed(self) -> None:
        if not self._allow_put:
            raise flight.FlightUnauthorizedError(
                "clients of this server may not publish or withdraw: bow.flight.serve(…, allow_put=True)"
            )

    # Actions.

    def list_actions(self, context: Any) -> list[tuple[str, str]]:  # noqa: ARG002
        """Return what `do_action` knows."""
        return [each for each in _ACTIONS if each[0] != "withdraw" or self._allow_put]

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:  # noqa: ARG002
        """Renew or withdraw a data set."""
        body = action.body.to_pybytes()
        with _statuses():
            if action.type == "renew":
                until = self._catalog.renew(body.decode())
                reply = (
                    b"" if until is None else dt.datetime.fromtimestamp(until, dt.UTC).isoformat().encode()
                )
            elif action.type == _RENEW:
                reply = self._renewed(body)
            elif action.type == "withdraw":
                self._check_allowed()
                self._catalog.withdraw(body.decode())
                reply = b""
            else:
                raise NotImplementedError(f"no such action: {action.type[:80]!r}")
        yield flight.Result(reply)

    def _renewed(self, body: bytes) -> bytes:
        """Return the endpoint of a request of Flight's own, renewed."""
        ticket = flight.FlightEndpoint.deserialize(_only_field(body)).ticket.ticket
        for offered in self._catalog.all():
            for place in offered.places:
                if place.endpoint.ticket == ticket:
                    until = self._catalog.renew(offered.info.name)
                    serialized: bytes = flight_endpoint(place, self._where, until).serialize()
                    return serialized
        raise UnknownTicket("no endpoint has that ticket", found=repr(ticket[:80]))


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of a client, of which every element was checked: readers of the server's user trust it."""
    try:
        batch.validate()  # pyarrow has not looked whether buffers fit their lengths
    except pa.ArrowException as error:
        raise InvalidBody("a batch is malformed", found=str(error)) from error
    check_once(Batch.from_arrow(batch))
    return batch


def _end_connections(port: int) -> None:
    """End each connection of this process whose own end has that port: pyarrow cannot cancel a call."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                listens = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if not listens and connection.family in _INTERNET and connection.getsockname()[1] == port:
                    connection.shutdown(socket.SHUT_RDWR)


def _name(descriptor: Any) -> str:
    """Return the data set that a descriptor means; refuse commands by `NotImplementedError`.

    ADBC's client ended in a panic when a server answered a command that it did not know.
    """
    if descriptor.descriptor_type != flight.DescriptorType.PATH or not descriptor.path:
        raise NotImplementedError("data sets are found by path: FlightDescriptor.for_path(name)")
    return "/".join(part.decode(errors="replace") for part in descriptor.path)


_FIRST_FIELD: Final = 0x0A
_MOST_OF_LENGTH: Final = 5


def _only_field(message: bytes) -> bytes:
    """Return the first field of a message of protocol buffers that has no other."""
    length, shift, at = 0, 0, 1
    while at <= min(len(message) - 1, _MOST_OF_LENGTH):
        byte = message[at]
        length |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            break
    if message[:1] != bytes([_FIRST_FIELD]) or len(message) - at != length:
        raise UsageError("not a RenewFlightEndpointRequest", found=f"{len(message)} bytes")
    return message[at:]


# None for those that pyarrow tells clients itself: as INVALID_ARGUMENT, and Unsupported as UNIMPLEMENTED.
_STATUSES: Final = (
    (UnknownTicket, KeyError),  # NOT_FOUND
    (AccessDenied, flight.FlightUnauthorizedError),
    ((ClosedError, BrokenError), flight.FlightUnavailableError),
    (DeadlineExceeded, flight.FlightTimedOutError),
    ((UsageError, InvalidData, Unsupported), None),
    (BowstringError, flight.FlightServerError),
)


@contextlib.contextmanager
def _statuses() -> Iterator[None]:
    """Give clients our errors by the status codes of Flight."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise UsageError("a name is UTF-8", found=str(error)) from None
    except BowstringError as error:
        kind = next((theirs for ours, theirs in _STATUSES if isinstance(error, ours)), None)
        if kind is None:
            raise
        raise kind(str(error)) from None
