"""URIs: how a data set of a server is named to its readers (specification: *URI Specification*)."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import hashlib
import json
import os
import re
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bowstring.errors import BrokenError, UsageError
from bowstring.remembered import remembered

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

__all__ = ["Dataset", "Endpoint", "Location", "is_within_reach", "this_host"]

_U64: Final = 1 << 64
# URIs that were read are remembered, those asked for last.
_KEPT: Final = 256
_LONGEST_KEPT: Final = 4096
_MOST_ENCODED: Final = 3
_KNOWN: Final = frozenset(
    {
        "want_data",
        "free_data",
        "remote_handle",
        "bow",
        "hello",
        "token",
        "ticket",
        "data",
        "elsewhere",
        "host",
    }
)
_OF_ENDPOINTS: Final = frozenset({"ticket", "data", "elsewhere", "host"})
_COPY_WHOLE: Final = "Copy the whole URI that the server printed, in quotes."
# What an error may show of a URI. All else is a secret, holds one, or may be one whose name is misspelt or whose
# marks were encoded once too often.
_PUBLIC: Final = re.compile(r"(want_data|free_data|bow|hello)=[0-9]*")
_BETWEEN: Final = re.compile(r"[?&;]|%3[Ff]|%26")


@dataclasses.dataclass(frozen=True, slots=True)
class Location:
    """One parsed URI: where the server is, and the tags it wants to be spoken to with.

    Attributes
    ----------
    address
        What a transport dials: ``unix:/run/x.sock``, ``tcp://127.0.0.1:4711``, ``inproc:name``.
    want_data, free_data
        Tags of the specification; `free_data` is ``None`` where the server never lends memory.
    remote_handle
        The bytes of the handle, if any.
    hello
        The tag of the hello, where the server speaks Bowstring's extensions (``bow=1``), else ``None``.
    token
        The secret that the server asks for, if any.
    """

    address: str
    want_data: int
    free_data: int | None = None
    remote_handle: bytes | None = None
    hello: int | None = None
    token: str | None = dataclasses.field(default=None, repr=False)

    def __str__(self) -> str:
        query: dict[str, str] = {"want_data": str(self.want_data)}
        if self.free_data is not None:
            query["free_data"] = str(self.free_data)
        if self.remote_handle is not None:
            query["remote_handle"] = base64.b64encode(self.remote_handle).decode()
        if self.hello is not None:
            query |= {"bow": "1", "hello": str(self.hello)}
        if self.token is not None:
            query["token"] = self.token
        return f"{self.address}?{urllib.parse.urlencode(query)}"

    @classmethod
    def parse(cls, uri: str) -> Location:
        """Read a URI.

        Raises
        ------
        UsageError
            It is not a URI of this protocol; says what is missing or wrong.

        Examples
        --------
        >>> Location.parse("ucx://10.0.0.1:13337?want_data=7").want_data
        7
        """
        return _location(uri)


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Endpoint:
    """Where a data set can be had. It pickles, and prints as one URI to copy and paste.

    Parameters
    ----------
    uri
        The server, for metadata and bodies, or for the metadata only where `data_uri` is given.
    ticket
        The opaque name of the data set.
    data_uri
        The server of the bodies, where that is another connection.
    elsewhere
        The road for readers on other hosts than `host`, or in containers of it that do not see the socket of `uri`.
    host
        Where the server is, as :func:`this_host` says there; ``None`` where any reader takes `uri`.

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

    def __repr__(self) -> str:
        # What ends up in logs must not let anybody in; str() is what gets copied to readers.
        known = (self.uri, self.data_uri, self.elsewhere)
        uris = [_without_token(uri) for uri in known if uri is not None]
        return f"Endpoint({', '.join(map(repr, uris))}, ticket={self.ticket!r})"

    def __str__(self) -> str:
        extra = {
            "ticket": base64.urlsafe_b64encode(self.ticket).decode().rstrip("="),
            "data": self.data_uri,
            "elsewhere": self.elsewhere,
            "host": self.host,
        }
        extra = {name: value for name, value in extra.items() if value is not None}
        return f"{self.uri}{'&' if '?' in self.uri else '?'}{urllib.parse.urlencode(extra)}"

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
        return _endpoint(text.strip(), ticket)

    def with_token(self, token: str | None) -> Endpoint:
        """Return the endpoint with another token in each of its URIs, or, with None, without one.

        Examples
        --------
        >>> Endpoint("tcp://127.0.0.1:4711?want_data=7", b"trips").with_token("a b").uri
        'tcp://127.0.0.1:4711?want_data=7&token=a+b'
        """
        uris = (self.uri, self.data_uri, self.elsewhere)
        changed = [None if uri is None else _with_token(uri, token) for uri in uris]
        return Endpoint(changed[0] or self.uri, self.ticket, changed[1], changed[2], self.host)

    @property
    def is_here(self) -> bool:
        """Whether a reader of this process takes `uri`: the server is on this host, or does not say where it is."""
        return self.host is None or self.host == this_host()

    @property
    def locations(self) -> tuple[Location, ...]:
        """The one or two connections that a reader in this process opens: metadata first.

        Raises
        ------
        BrokenError
            The server is on another host, and there is no road to it.
        """
        uris: tuple[str, ...]
        if self.elsewhere is not None and not (self.is_here and is_within_reach(self.uri.partition("?")[0])):
            uris = (self.elsewhere,)
        elif self.is_here:
            uris = (self.uri,) if self.data_uri is None else (self.uri, self.data_uri)
        else:
            raise BrokenError(
                "the data set is on another host, and is not offered to others",
                expected=f"host {self.host}",
                found=f"host {this_host()}",
                hint="Let its producer listen on tcp:, too.",
            )
        return tuple(Location.parse(uri) for uri in uris)


@dataclasses.dataclass(frozen=True)
class Dataset:
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
            endpoints = tuple(Endpoint.parse(each) for each in fields["endpoints"])
            return cls(endpoints, schema, num_rows, nbytes, dict(fields["metadata"]))
        except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
            raise UsageError("this is no data set", found=str(error)[:200]) from None

    def __len__(self) -> int:
        return len(self.endpoints)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self.endpoints)


def _may_be_kept(uri: str) -> bool:
    return len(uri) <= _LONGEST_KEPT and not _may_have_token(uri)


@remembered(_KEPT, lambda text, ticket: _may_be_kept(text) and len(ticket or b"") <= _LONGEST_KEPT)
def _endpoint(text: str, ticket: bytes | None) -> Endpoint:
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
        ticket = _base64(said["ticket"], "ticket")
    if ticket is None:
        raise UsageError(
            "the URI names no data set",
            found=_without_secrets(text),
            hint="Give connect(…, ticket=…), or the whole URI that the server printed.",
        )
    uri = f"{head}?{'&'.join(kept)}" if kept else head
    endpoint = Endpoint(uri, ticket, said.get("data"), said.get("elsewhere"), said.get("host"))
    for each in (endpoint.uri, endpoint.data_uri, endpoint.elsewhere):
        if each is not None:
            Location.parse(each)
    return endpoint


@remembered(_KEPT, _may_be_kept)
def _location(uri: str) -> Location:
    address, query = _split(uri)
    if "want_data" not in query:
        raise UsageError(
            "the URI has no want_data",
            found=_without_secrets(uri),
            hint=_COPY_WHOLE,
        )
    extended = query.get("bow") == "1"
    if extended and "hello" not in query:
        raise UsageError("the URI says bow=1 and has no hello", found=_without_secrets(uri))
    return Location(
        address,
        _u64(query, "want_data"),
        _u64(query, "free_data") if "free_data" in query else None,
        _base64(query["remote_handle"], "remote_handle") if "remote_handle" in query else None,
        _u64(query, "hello") if extended else None,
        query.get("token"),
    )


def _split(uri: str) -> tuple[str, dict[str, str]]:
    address, _, query = uri.partition("?")
    scheme, colon, rest = address.partition(":")
    if not colon or not scheme.isascii() or not scheme.replace("+", "").isalnum() or not rest:
        raise UsageError(
            "this is not a URI",
            expected="scheme:address?want_data=…",
            found=repr(_without_secrets(uri)),
            hint=_COPY_WHOLE,
        )
    try:
        pairs = urllib.parse.parse_qsl(
            query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=32
        )
    except ValueError:
        # Without the cause, which shows the part that it stumbled over.
        raise UsageError("the query of the URI cannot be read", found=_without_secrets(uri)) from None
    names = [name for name, _ in pairs]
    for name in _KNOWN:
        if names.count(name) > 1:
            raise UsageError("the URI says something twice", found=name)
    return address, dict(pairs)


def _u64(query: dict[str, str], name: str) -> int:
    text = query[name]
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) < _U64):
        raise UsageError(f"{name} is not a number", expected="a decimal uint64", found=_beginning(text))
    return int(text)


def _base64(text: str, name: str) -> bytes:
    # A raw '+' of ordinary base64 arrives as a space, because a query is form-encoded.
    plain = text.replace(" ", "+").replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(
            f"{name} is not base64", found=f"{len(text)} characters", hint=_COPY_WHOLE
        ) from error


def _beginning(text: str) -> str:
    """Return what a wrong value begins with, without the parameters that may have run into it."""
    return repr(re.split("[&=?;]|token", text, flags=re.IGNORECASE)[0][:40])


def _without_secrets(uri: str) -> str:
    head, *parts = _BETWEEN.split(uri)
    shown = [part for part in parts if _PUBLIC.fullmatch(part)]
    return f"{head}?{'&'.join(shown)}"[:200] if shown else head[:200]


def _with_token(uri: str, token: str | None) -> str:
    head, _, query = uri.partition("?")
    parts = [
        part for part in query.split("&") if part and urllib.parse.unquote(part.partition("=")[0]) != "token"
    ]
    if token is not None:
        parts.append(urllib.parse.urlencode({"token": token}))
    return f"{head}?{'&'.join(parts)}" if parts else head


def _without_token(uri: str) -> str:
    shown, others = (re.sub(r"(?<=[?&])token=[^&]*", new, uri) for new in ("token=…", ""))
    return _without_secrets(uri) if _may_have_token(others) else shown


def _may_have_token(uri: str) -> bool:
    """Whether a token may be in a URI, whose marks may be encoded: it may be a part of another."""
    for _ in range(_MOST_ENCODED):
        uri = urllib.parse.unquote(uri)
    return "token" in uri or "%" in uri


_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def this_host() -> str:
    """Return an opaque name of this host, another one after each boot; ``BOWSTRING_HOST`` may set it.

    Examples
    --------
    >>> this_host() == this_host()
    True
    """
    return os.environ.get("BOWSTRING_HOST") or _of_boot()


def is_within_reach(address: str) -> bool:
    """Return whether an address of this host may be one of this process, too: containers see files of their own.

    Examples
    --------
    >>> is_within_reach("tcp://127.0.0.1:1"), is_within_reach("unix:/not/there.sock")
    (True, False)
    """
    scheme, _, path = address.partition(":")
    return scheme != "unix" or os.path.exists(urllib.parse.unquote_to_bytes(path))


@functools.cache
def _of_boot() -> str:
    try:
        known = _BOOT_ID.read_text().strip()
    except OSError:  # another kernel than Linux, or a closed /proc
        known = os.uname().nodename
    # Not the number itself, which programs are asked to keep to themselves (machine-id(5)).
    return hashlib.blake2b(f"bowstring host {known}".encode(), digest_size=8).hexdigest()
