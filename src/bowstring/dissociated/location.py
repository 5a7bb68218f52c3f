"""Locations: URIs that name one connection (specification: *URI Specification*), and what of them is secret."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import re
import urllib.parse
from typing import Final

from bowstring.errors import UsageError

_MOST_FIELDS: Final = 32
_U64: Final = 1 << 64
_SCHEME: Final = re.compile("[A-Za-z0-9+]*[A-Za-z0-9][A-Za-z0-9+]*")
_DIGITS: Final = re.compile("[0-9]{1,20}")

_KNOWN: Final = re.compile(
    "want_data|free_data|remote_handle|bow|hello|partitions|token|ticket|data|elsewhere|host|others"
)
COPY_WHOLE: Final = "Copy the whole URI that the server printed, in quotes."
# What an error may show of a URI. All else is a secret, holds one, or may be one whose name is misspelt or whose
# marks were encoded once too often.
_PUBLIC: Final = re.compile(r"(want_data|free_data|bow|hello|partitions)=[0-9]*")
_BETWEEN: Final = re.compile(r"[?&;]|%3[Ff]|%26")


@dataclasses.dataclass(frozen=True, slots=True)
class Location:
    """One parsed URI: where the server is, and the tags by which it is addressed."""

    address: str  # what a transport dials: unix:/run/x.sock, tcp://127.0.0.1:4711, inproc:name
    want_data: int
    free_data: int | None = None  # None where the server never lends memory
    remote_handle: bytes | None = None
    hello: int | None = None  # tag of the hello, where the server speaks Bowstring's extensions (bow=1)
    token: str | None = dataclasses.field(default=None, repr=False)
    partitions: bool = False  # the server sends many partitions over one stream (partitions=1)

    def __str__(self) -> str:
        query: dict[str, str] = {"want_data": str(self.want_data)}
        if self.free_data is not None:
            query["free_data"] = str(self.free_data)
        if self.remote_handle is not None:
            query["remote_handle"] = base64.b64encode(self.remote_handle).decode()
        if self.hello is not None:
            query |= {"bow": "1", "hello": str(self.hello)}
        if self.partitions:
            query["partitions"] = "1"
        if self.token is not None:
            query["token"] = self.token
        return f"{self.address}?{urllib.parse.urlencode(query)}"

    @classmethod
    def parse(cls, uri: str) -> Location:
        """Read a URI; raise `UsageError` if it is not one of this protocol."""
        address, query = _split(uri)
        if "want_data" not in query:
            raise UsageError(
                "the URI has no want_data",
                found=without_secrets(uri),
                hint=COPY_WHOLE,
            )
        extended = query.get("bow") == "1"
        if extended and "hello" not in query:
            raise UsageError("the URI says bow=1 and has no hello", found=without_secrets(uri))
        return cls(
            address,
            _u64(query, "want_data"),
            _u64(query, "free_data") if "free_data" in query else None,
            from_base64(query["remote_handle"], "remote_handle") if "remote_handle" in query else None,
            _u64(query, "hello") if extended else None,
            query.get("token"),
            extended and query.get("partitions") == "1",
        )


def _split(uri: str) -> tuple[str, dict[str, str]]:
    address, _, query = uri.partition("?")
    scheme, _, rest = address.partition(":")
    if not _SCHEME.fullmatch(scheme) or not rest:
        raise UsageError(
            "this is not a URI",
            expected="scheme:address?want_data=…",
            found=repr(without_secrets(uri)),
            hint=COPY_WHOLE,
        )
    options: dict[str, str] = {}
    parts = query.split("&", _MOST_FIELDS) if query else []
    encoded = "%" in query or "+" in query
    for part in parts:  # not parse_qsl, which takes four times as long
        name, sign, value = part.partition("=")
        if not sign or len(parts) > _MOST_FIELDS:
            raise UsageError("the query of the URI cannot be read", found=without_secrets(uri))
        if encoded:
            name, value = urllib.parse.unquote_plus(name), urllib.parse.unquote_plus(value)
        if name in options and _KNOWN.fullmatch(name):
            raise UsageError("the URI says something twice", found=name)
        options[name] = value
    return address, options


def _u64(query: dict[str, str], name: str) -> int:
    text = query[name]
    if not _DIGITS.fullmatch(text) or (value := int(text)) >= _U64:
        # Of a wrong value only its beginning, without the parameters that may have run into it.
        beginning = re.split("[&=?;]|token", text, flags=re.IGNORECASE)[0][:40]
        raise UsageError(f"{name} is not a number", expected="a decimal uint64", found=repr(beginning))
    return value


def from_base64(text: str, name: str) -> bytes:
    """Return the bytes of a parameter, in either alphabet of base64."""
    # A raw '+' of ordinary base64 arrives as a space, because a query is form-encoded.
    plain = text.replace(" ", "+").replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"{name} is not base64", found=f"{len(text)} characters", hint=COPY_WHOLE) from error


def without_secrets(uri: str) -> str:
    """Return what an error may show of a URI."""
    head, *parts = _BETWEEN.split(uri)
    shown = [part for part in parts if _PUBLIC.fullmatch(part)]
    return f"{head}?{'&'.join(shown)}"[:200] if shown else head[:200]


def token_of(uri: str) -> str | None:
    """Return the token in an address's query, if any; the rest is not checked."""
    return dict(urllib.parse.parse_qsl(uri.partition("?")[2])).get("token")


def with_token(uri: str, token: str | None) -> str:
    """Return a URI with another token, or, with None, without one."""
    head, _, query = uri.partition("?")
    parts = [
        part for part in query.split("&") if part and urllib.parse.unquote(part.partition("=")[0]) != "token"
    ]
    if token is not None:
        parts.append(urllib.parse.urlencode({"token": token}))
    return f"{head}?{'&'.join(parts)}" if parts else head
