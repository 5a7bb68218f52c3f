"""Checks of the arguments of servers, before anything is done."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bowstring.errors import UsageError
from bowstring.transport import encrypts, is_loopback

if TYPE_CHECKING:
    import ssl

    from bowstring.transport.certificates import TlsConfig

_SHORTEST_TOKEN: Final = 16
RETAINED: Final = frozenset({"batches", "bytes", "seconds"})
_MOST_NAME: Final = 1024  # bytes; a ticket begins with the name, and has a bound of its own


def check_token(token: Any) -> None:
    """Refuse a token that no URI or header can hold: empty, or not ASCII text."""
    if token is not None and not (isinstance(token, str) and token and token.isascii()):
        raise UsageError("a token must be ASCII and not empty", found=type(token).__name__)


def check_address(
    address: str,
    token: str | None,
    *,
    plaintext: bool = False,
    tls: TlsConfig | ssl.SSLContext | None = None,
) -> None:
    """Refuse an address of a transport that other machines reach and that is not protected (`check_exposed`)."""
    if not is_loopback(address):
        certified = False
        if tls is not None:
            from bowstring.transport.certificates import asks_certificates  # and `ssl`

            certified = asks_certificates(tls)
        check_exposed(address, token, encrypted=encrypts(address), certified=certified, plaintext=plaintext)


def check_exposed(
    address: str, token: str | None, *, encrypted: bool, certified: bool = False, plaintext: bool = False
) -> None:
    """Refuse an address that other machines reach without a token or certificates, or without encryption.

    This is the one rule for all that listens: servers, their further addresses, depots, Flight.
    """
    length = 0 if token is None else len(token)
    if length < _SHORTEST_TOKEN and not certified:
        raise UsageError(
            "a server that other machines can reach needs a token",
            expected=f"at least {_SHORTEST_TOKEN} characters",
            found=f"{length} characters" if length else "no token",
            where=address,
            hint="Give token=secrets.token_urlsafe(), or listen on 127.0.0.1.",
        )
    if not (encrypted or plaintext):
        raise UsageError(
            "data and token would cross the network unencrypted",
            where=address,
            hint="Listen on tls: (grpc+tls: for Flight) with a certificate, or say plaintext=True, where everybody "
            "on the network may read them.",
        )


def check_seconds(seconds: Any, name: str = "timeout") -> float:
    """Return a finite time in seconds, not negative; `name` is that of the argument."""
    is_number = isinstance(seconds, Real) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds < math.inf:
        raise UsageError(f"{name} is a finite number of seconds, 0 or more", found=repr(seconds)[:80])
    return float(seconds)


def check_offer(name: Any, schema: Any, readers: Any) -> None:
    """Refuse a name, a schema or a number of readers that no data set can have."""
    check_name(name)
    if schema is not None and not isinstance(schema, pa.Schema):
        raise UsageError("not a schema", expected="a pyarrow.Schema", found=repr(schema)[:80])
    if readers is not None and (
        isinstance(readers, bool) or not isinstance(readers, Integral) or readers < 1
    ):
        raise UsageError("a data set needs a reader", expected="a number", found=f"readers={readers!r}")


def check_retain(retain: Any, readers: int | None) -> None:
    """Refuse what says nothing of how much of a data set is kept, and bounds beside a number of readers."""
    bounds = retain if isinstance(retain, Mapping) else {}
    is_valid = bool(bounds) and bounds.keys() <= RETAINED
    for name, most in bounds.items():
        is_number = isinstance(most, Real) and not isinstance(most, bool)
        is_valid = is_valid and is_number and (name == "batches") <= most < math.inf and most != 0
    if not is_valid:
        raise UsageError(
            "retain says how much of a data set is kept",
            expected='{"batches": n}, {"bytes": n} or {"seconds": s}, or several of them',
            found=repr(retain)[:80],
        )
    if readers is not None:
        raise UsageError(
            "what is trimmed cannot be read whole by a number of readers", found="retain= beside readers="
        )


def check_name(name: Any) -> None:
    """Refuse a name that no data set can have: not text, empty, or too long."""
    try:
        size = len(name.encode())
    except (AttributeError, UnicodeEncodeError):
        raise UsageError("not a name of a data set", expected="text", found=ascii(name)[:80]) from None
    if not size:
        raise UsageError("the name of a data set is empty", expected=f"1 to {_MOST_NAME} bytes")
    if size > _MOST_NAME:
        raise UsageError("the name is too long", expected=f"at most {_MOST_NAME} bytes", found=size)
