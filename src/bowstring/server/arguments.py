"""What a server is told by its user, checked before anything is done."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, Final

import pyarrow as pa

from bowstring.errors import UsageError
from bowstring.limits import Limits
from bowstring.memory import Pool
from bowstring.transport import is_loopback

__all__ = ["advertised_host", "check_door", "check_offer", "check_seconds", "check_token"]

_SHORTEST_TOKEN: Final = 16
_MOST_NAME: Final = 1024  # bytes; a ticket begins with the name, and has a bound of its own


def check_door(address: Any, token: Any, pool: Any, limits: Any) -> None:
    """Refuse what no server can be made of.

    Raises
    ------
    UsageError
        One of the arguments means nothing, or the address needs a token.
    """
    if not isinstance(address, str):
        raise UsageError(
            "not an address", expected='text such as "unix:/path" or "tcp://127.0.0.1:0"', found=repr(address)
        )
    if token is not None and not (isinstance(token, str) and token and token.isascii()):
        raise UsageError("a token must be ASCII and not empty", found=type(token).__name__)
    if not isinstance(pool, Pool | None):
        raise UsageError("not a pool", expected="a bowstring.Pool", found=repr(pool))
    if not isinstance(limits, Limits):
        raise UsageError("not limits", expected="a bowstring.Limits", found=repr(limits))
    check_token(token, address)


def check_token(token: str | None, address: str) -> None:
    """Refuse an address that other machines reach where there is no token, or one that is soon guessed.

    Raises
    ------
    UsageError
        The token is missing, or too short.
    """
    length = 0 if token is None else len(token)
    if length < _SHORTEST_TOKEN and not is_loopback(address):
        raise UsageError(
            "a server that other machines can reach needs a token",
            expected=f"at least {_SHORTEST_TOKEN} characters",
            found=f"{length} characters" if length else "no token",
            where=address,
            hint="Give token=secrets.token_urlsafe(), on the command line --token auto, or listen on 127.0.0.1.",
        )


def advertised_host(host: Any, address: str) -> str:
    """Return the host that URIs shall name, as they name it.

    Raises
    ------
    UsageError
        It is no host, or the address has none.
    """
    if not address.startswith("tcp:"):
        raise UsageError("only an address of tcp: has a host to advertise", found=address, where="advertise")
    text = host if isinstance(host, str) else ""
    plain = text.removeprefix("[").removesuffix("]")
    is_name = bool(plain) and all(each.isalnum() or each in "-._:%" for each in plain)
    if not is_name:
        raise UsageError(
            "not a host", expected="a name or an IP address, without a port", found=repr(host)[:80]
        )
    return f"[{plain}]" if ":" in plain else plain


def check_seconds(seconds: Any, name: str = "timeout") -> float:
    """Return a time that ends, in seconds; `name` is that of the argument.

    Raises
    ------
    UsageError
        It is no number, negative, not a number, or infinite.
    """
    is_number = isinstance(seconds, Real) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds < math.inf:
        raise UsageError(f"{name} is a finite number of seconds, 0 or more", found=repr(seconds)[:80])
    return float(seconds)


def check_offer(name: Any, schema: Any, readers: Any) -> None:
    """Refuse what no data set can be called, or have.

    Raises
    ------
    UsageError
        The name is no text, or too long, or the schema or the number of readers is none.
    """
    try:
        size = len(name.encode())
    except (AttributeError, UnicodeEncodeError):
        raise UsageError("not a name of a data set", expected="text", found=ascii(name)[:80]) from None
    if size > _MOST_NAME:
        raise UsageError("the name is too long", expected=f"at most {_MOST_NAME} bytes", found=size)
    if schema is not None and not isinstance(schema, pa.Schema):
        raise UsageError("not a schema", expected="a pyarrow.Schema", found=repr(schema)[:80])
    if readers is not None and (
        isinstance(readers, bool) or not isinstance(readers, Integral) or readers < 1
    ):
        raise UsageError("a data set needs a reader", expected="a number", found=f"readers={readers!r}")
