"""Endpoints and data sets: how data of a server are named to its readers."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import importlib
import json
import os
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bowstring.columnar.interchange.conversions import Converting
from bowstring.dissociated.location import (
    COPY_WHOLE,
    Location,
    from_base64,
    with_token,
    without_secrets,
)
from bowstring.errors import BrokenError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

_FLIGHT: Final = frozenset({"grpc", "grpc+tcp", "grpc+tls", "grpc+unix"})
_OF_ENDPOINTS: Final = frozenset({"ticket", "data", "elsewhere", "host", "others"})
_MOST_OFFERS: Final = 16
_OFFER_FIELDS: Final = 3


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Offer:
    """One way to a data set, and what a reader needs to take it."""

    uri: str  # the server, of the metadata only where `data_uri` is given
    data_uri: str | None = None  # the server of the bodies, where that is another connection
    # The host that the reader must be on, as `this_host` says there; even there it may be out of reach.
    host: str | None = None

    @property
    def locations(self) -> tuple[Location, ...]:
        """The one or two connections: metadata first."""
        first = Location.parse(self.uri)
        return (first,) if self.data_uri is None else (first, Location.parse(self.data_uri))

    def why_not(self) -> str:
        """Return why a reader in this process lacks what this way needs, in words; empty if it lacks nothing."""
        if self.host is not None and self.host != this_host():
            return f"it is on host {self.host}, and this is host {this_host()}"
        return ""

    @property
    def by_flight(self) -> bool:
        """Whether it is a server of Arrow Flight, which is asked with ``DoGet`` and no transport dials."""
        return is_flight(self.uri)

    @property
    def address(self) -> str:
        return self.uri.partition("?")[0]

    def __repr__(self) -> str:
        return f"Offer({self.address!r})"


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Endpoint:
    """Where a data set can be had: offers, best first. It pickles, and prints as one URI to copy and paste.

    Parameters
    ----------
    uri
        The server, for metadata and bodies, or for the metadata only where `data_uri` is given.
    ticket
        The opaque name of the data set.
    data_uri
        The server of the bodies, where that is another connection.
    elsewhere
        The server for readers on other hosts than `host`, or in containers that cannot connect to `uri`.
    host
        Where the server is, as :func:`this_host` says there; ``None`` where any reader takes `uri`.
    others
        More offers, which a reader takes where it can take none of these.

    Examples
    --------
    >>> endpoint = Endpoint("tcp://127.0.0.1:4711?want_data=7", b"trips")
    >>> str(endpoint)
    'tcp://127.0.0.1:4711?want_data=7&ticket=dHJpcHM'
    >>> Endpoint.parse(str(endpoint)) == endpoint
    True
    """

    uri: str
    ticket: bytes
    data_uri: str | None = None
    elsewhere: str | None = None
    host: str | None = None
    others: tuple[Offer, ...] = ()

    @property
    def offers(self) -> tuple[Offer, ...]:
        """All ways to the data set, best first: a reader takes the first one that works."""
        elsewhere = () if self.elsewhere is None else (Offer(self.elsewhere),)
        return (Offer(self.uri, self.data_uri, self.host), *elsewhere, *self.others)

    def __setstate__(self, state: list[Any]) -> None:
        # Pickles of earlier versions lack the last fields.
        for field, value in zip(dataclasses.fields(self), [*state, ()], strict=False):
            object.__setattr__(self, field.name, value)

    def __repr__(self) -> str:
        # What ends up in logs must not let anybody in; str() is what gets copied to readers.
        uris = [each.address for each in self.offers]
        return f"<Endpoint {self.ticket.decode(errors='replace')!r} at {', '.join(uris)}>"

    def _repr_html_(self) -> str:
        return _preview(self)

    def __str__(self) -> str:
        extra = {
            "ticket": base64.urlsafe_b64encode(self.ticket).decode().rstrip("="),
            "data": self.data_uri,
            "elsewhere": self.elsewhere,
            "host": self.host,
        }
        if self.others:
            extra["others"] = json.dumps([[each.uri, each.data_uri, each.host] for each in self.others])
        query = urllib.parse.urlencode({name: value for name, value in extra.items() if value is not None})
        return f"{self.uri}{'&' if '?' in self.uri else '?'}{query}"

    @classmethod
    def parse(cls, text: str, ticket: str | bytes | None = None) -> Endpoint:
        """Read what an endpoint prints; `ticket` names the data set where the text does not.

        White space around the text is not of it: it was read from a file, or copied with its line.

        Raises
        ------
        UsageError
            It is not a URI of this protocol, or there is no ticket.
        """
        if ticket is not None:
            ticket = ticket.encode() if isinstance(ticket, str) else bytes(ticket)
        return _endpoint(text.strip(), ticket, set())

    def with_token(self, token: str | None) -> Endpoint:
        """Return the endpoint with another token in each of its URIs, or, with None, without one.

        Examples
        --------
        >>> Endpoint("tcp://127.0.0.1:4711?want_data=7", b"trips").with_token("a b").uri
        'tcp://127.0.0.1:4711?want_data=7&token=a+b'
        """

        def changed(uri: str | None) -> str | None:
            return None if uri is None else with_token(uri, token)

        return dataclasses.replace(
            self,
            uri=with_token(self.uri, token),
            data_uri=changed(self.data_uri),
            elsewhere=changed(self.elsewhere),
            others=tuple(
                Offer(with_token(each.uri, token), changed(each.data_uri), each.host) for each in self.others
            ),
        )

    def over(self, scheme: str) -> Endpoint:
        """Return the endpoint with those of its offers that one transport carries.

        Raises
        ------
        UsageError
            There is none.

        Examples
        --------
        >>> both = Endpoint(
        ...     "unix:/run/a.sock?want_data=7", b"t", elsewhere="ucx://10.0.0.1:13337?want_data=7"
        ... )
        >>> both.over("ucx").uri
        'ucx://10.0.0.1:13337?want_data=7'
        """
        offers = [each for each in self.offers if each.uri.startswith(f"{scheme}:")]
        if not offers:
            raise UsageError(
                f"the data set is not offered over {scheme}:",
                found=", ".join(each.address for each in self.offers),
            )
        return of_offers(self.ticket, offers)

    @property
    def is_here(self) -> bool:
        """Whether a reader of this process tries `uri`: the server names this host, or none.

        In another container of the host, or as another user, it may still have to take another offer.
        """
        return self.host is None or self.host == this_host()

    @property
    def locations(self) -> tuple[Location, ...]:
        """The one or two connections that a reader in this process tries first: metadata first.

        Raises
        ------
        BrokenError
            The server is on another host, and nothing is offered to readers of this one.
        """
        return self.candidates()[0].locations

    def candidates(self) -> list[Offer]:
        """Return the offers that a reader in this process can try, best first: one at least.

        Raises
        ------
        BrokenError
            The server is on another host, and nothing is offered to readers of this one.
        """
        usable = [each for each in self.offers if not each.why_not()]
        if not usable:
            raise BrokenError(
                "the data set is on another host, and is not offered to others",
                expected=f"host {self.host}",
                found=f"host {this_host()}",
                hint="Let its producer listen on tcp:, too.",
            )
        return usable


_NO_DATASET: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclasses.dataclass(frozen=True, repr=False)
class Dataset(Converting):
    """Endpoints that together are one data set. It pickles.

    Parameters
    ----------
    endpoints
        In the order of the data.
    schema
        The schema of all of them.
    num_rows, nbytes
        Where known.

    Examples
    --------
    >>> import pyarrow as pa
    >>> len(Dataset((Endpoint("inproc:a?want_data=1", b"t"),), pa.schema([])))
    1
    """

    endpoints: tuple[Endpoint, ...]
    schema: pa.Schema
    num_rows: int | None = None
    nbytes: int | None = None
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "endpoints", tuple(self.endpoints))

    def to_json(self) -> str:
        """Return the data set as text; what is in `metadata` must be fit for that.

        Examples
        --------
        >>> import pyarrow as pa
        >>> dataset = Dataset((Endpoint("inproc:a?want_data=1", b"t"),), pa.schema({"a": pa.int8()}), 3)
        >>> Dataset.from_json(dataset.to_json()) == dataset
        True
        """
        fields = {
            "endpoints": [str(each) for each in self.endpoints],
            "schema": base64.b64encode(self.schema.serialize()).decode(),
            "num_rows": self.num_rows,
            "nbytes": self.nbytes,
            "metadata": self.metadata,
        }
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str) -> Dataset:
        """Return the data set that a text of :meth:`to_json` says.

        Raises
        ------
        UsageError
            It says none.
        """
        import pyarrow as pa

        try:
            fields = json.loads(text)
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(fields["schema"])))
            num_rows, nbytes = fields["num_rows"], fields["nbytes"]
            if not all(count is None or type(count) is int for count in (num_rows, nbytes)):
                raise TypeError(f"{num_rows} rows, {nbytes} bytes")
            checked: set[Offer] = set()
            endpoints = tuple(_endpoint(each.strip(), None, checked) for each in fields["endpoints"])
            return cls(endpoints, schema, num_rows, nbytes, dict(fields["metadata"]))
        # A damaged schema is an OSError of pyarrow's, or an ArrowException.
        except (*_NO_DATASET, OSError, pa.ArrowException) as error:
            raise UsageError("this is no data set", found=str(error)[:200]) from None

    def to_arrow(self) -> pa.Table:
        """Connect, and return all of the data as one pyarrow table; ``to_pandas``, ``to_polars`` convert it.

        Raises
        ------
        BowstringError
            As :func:`bowstring.connect` and :meth:`bowstring.Stream.read_all`.

        Examples
        --------
        >>> import bowstring as bow, pyarrow as pa
        >>> with bow.Server() as server:
        ...     parts = [server.publish(name, pa.table({"a": [1, 2]})) for name in ("one", "two")]
        ...     Dataset(tuple(parts), pa.schema({"a": pa.int64()})).to_pandas()["a"].tolist()
        [1, 2, 1, 2]
        """
        with importlib.import_module("bowstring.client").connect(self) as stream:
            return stream.read_all()

    def _as_pyarrow(self) -> pa.Table:
        return self.to_arrow()

    def _stream(self, opened: Callable[[Dataset], Any], columns: tuple[str, ...] | None, tls: Any) -> Any:  # noqa: ARG002
        """Return the stream of its batches; `opened` returns that of some endpoints."""
        return opened(self)

    def __repr__(self) -> str:
        known = "" if self.num_rows is None else f"{self.num_rows:,} rows × "
        size = "" if self.nbytes is None else f", {self.nbytes:,} bytes"
        of = f"{len(self)} endpoint{'s' * (len(self) != 1)}"
        return f"<{type(self).__name__} {known}{len(self.schema)} columns{size} at {of}>"

    def _repr_html_(self) -> str:
        return _preview(self)

    def __len__(self) -> int:
        return len(self.endpoints)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self.endpoints)


def _preview(source: Endpoint | Dataset) -> str:
    shown: str = importlib.import_module("bowstring.client.preview").source_html(source)
    return shown


def _endpoint(text: str, ticket: bytes | None, checked: set[Offer]) -> Endpoint:
    """Return the endpoint that a text says; its offers are `checked` from then on, each once."""
    head, _, query = text.partition("?")
    kept: list[str] = []
    said: dict[str, str] = {}
    for part in query.split("&") if query else []:
        name, _, value = part.partition("=")
        if name in said:
            raise UsageError("the URI says something twice", found=name)
        if name in _OF_ENDPOINTS:
            said[name] = urllib.parse.unquote_plus(value)
        else:
            kept.append(part)
    if ticket is None and "ticket" in said:
        ticket = from_base64(said["ticket"], "ticket")
    if ticket is None:
        raise UsageError(
            "the URI names no data set",
            found=without_secrets(text),
            hint="Give connect(uri, name), or the whole URI that the server printed.",
        )
    uri = f"{head}?{'&'.join(kept)}" if kept else head
    others = _others(said["others"]) if "others" in said else ()
    endpoint = Endpoint(uri, ticket, said.get("data"), said.get("elsewhere"), said.get("host"), others)
    for offer in endpoint.offers:
        if offer not in checked:
            _ = offer.by_flight or offer.locations  # each of which must be one
            checked.add(offer)
    return endpoint


def _others(text: str) -> tuple[Offer, ...]:
    """Return the offers that a URI lists as JSON: each an address, an address of bodies or null, a host or null."""
    try:
        rows: Any = json.loads(text)
    except (ValueError, RecursionError):
        rows = None
    are_offers = isinstance(rows, list) and all(
        isinstance(row, list)
        and len(row) == _OFFER_FIELDS
        and isinstance(row[0], str)
        and all(each is None or isinstance(each, str) for each in row[1:])
        for row in rows
    )
    if not (are_offers and len(rows) <= _MOST_OFFERS):
        raise UsageError(
            "the other offers of the URI cannot be read", found=f"{len(text)} characters", hint=COPY_WHOLE
        )
    return tuple(Offer(*row) for row in rows)


def of_offers(ticket: bytes, offers: Sequence[Offer]) -> Endpoint:
    """Return the endpoint that has these offers, one or more, best first."""
    first, *others = offers
    return Endpoint(first.uri, ticket, first.data_uri, None, first.host, tuple(others))


def has_flight(endpoint: Endpoint) -> bool:
    """Return whether a server of Arrow Flight is among the offers of an endpoint."""
    is_alone = endpoint.elsewhere is None and not endpoint.others
    return endpoint.uri.partition(":")[0] in _FLIGHT or not (
        is_alone or all(not each.by_flight for each in endpoint.offers)
    )


def is_flight(address: str) -> bool:
    """Return whether an address is one of a server of Arrow Flight."""
    return address.partition(":")[0] in _FLIGHT


_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def this_host() -> str:
    """Return an opaque name of this host, another one after each boot; ``BOWSTRING_HOST`` may set it."""
    return os.environ.get("BOWSTRING_HOST") or _of_boot()


@functools.cache
def _of_boot() -> str:
    try:
        known = _BOOT_ID.read_text().strip()
    except OSError:  # another kernel than Linux, or a closed /proc
        known = os.uname().nodename
    # Not the number itself, which programs are asked to keep to themselves (machine-id(5)).
    return hashlib.blake2b(f"bowstring host {known}".encode(), digest_size=8).hexdigest()
