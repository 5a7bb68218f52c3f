"""Who carries bytes: ``listen`` and ``dial`` by address, one :class:`Channel` for all transports.

======== ================================== =================== =======================================
scheme   address                            attachments         peer
======== ================================== =================== =======================================
inproc   ``inproc:name``                    any objects         this process
unix     ``unix:/path/to.sock``, ``unix:``  file descriptors    pid, uid, pidfd; same user only
tcp      ``tcp://host:port``, ``tcp://``    none                its address
tls      ``tls://host:port``, ``tls://``    none                its address, and its certificate if asked
ucx      ``ucx://host:port``, ``ucx://``    none                its address
======== ================================== =================== =======================================

No transport starts a thread, but UCX. A transport is loaded on first use, and another one can be added with
:func:`register`; ``tests/transport/kit`` of a checkout checks that it keeps the promises of
:mod:`bowstring.transport.channel`.
"""

from __future__ import annotations

import functools
import importlib
import os
import urllib.parse
from typing import TYPE_CHECKING, Any, Final, cast

from bowstring.errors import AccessDenied, UsageError
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.memory.slab import NO_DESCRIPTOR, needing_descriptor, no_descriptor
from bowstring.transport.channel import Channel, Land, Listener, Message, Passes, Received
from bowstring.transport.peer import Peer, check_seconds

if TYPE_CHECKING:
    import ssl

    from bowstring.transport.certificates import TlsConfig

__all__ = [
    "Channel",
    "Land",
    "Listener",
    "Message",
    "Peer",
    "Received",
    "check_scheme",
    "dial",
    "encrypts",
    "is_known",
    "is_loopback",
    "listen",
    "passes_memory",
    "register",
]


def __dir__() -> list[str]:
    return __all__


_MOST_SHOWN: Final = 200

_modules = {
    "inproc": "bowstring.transport.inproc",
    "unix": "bowstring.transport.unix",
    "tcp": "bowstring.transport.tcp",
    "tls": "bowstring.transport.tls",
    "ucx": "bowstring.transport.ucx",
}


def register(scheme: str, module: str) -> None:
    """Name the module that carries a scheme; it is imported on first use.

    It offers ``listen(address, limits)``, which returns a `Listener`, ``dial(address, limits, deadline)``, which
    returns a `Channel`, and ``is_loopback(address)``: whether nobody off this machine can reach the address. One
    whose connections are encrypted says ``encrypts = True``, and takes ``tls=`` besides; one that hands memory over
    to other processes says ``passes_memory``, as its channels do.

    Raises
    ------
    UsageError
        The scheme has another module already.

    Examples
    --------
    >>> register("tcp", "bowstring.transport.tcp")
    >>> register("tcp", "somewhere.else")
    Traceback (most recent call last):
    bowstring.errors.UsageError: the scheme 'tcp' is taken; found bowstring.transport.tcp
    """
    taken = _modules.setdefault(scheme, module)
    if taken != module:
        raise UsageError(f"the scheme {scheme!r} is taken", found=taken)


def listen(
    address: str, limits: Limits = DEFAULT_LIMITS, *, tls: TlsConfig | ssl.SSLContext | None = None
) -> Listener:
    """Listen on an address.

    Parameters
    ----------
    address
        ``inproc:name``, ``unix:/path``, or ``host:port`` of ``tcp://``, ``tls://`` or ``ucx://``; what is left out
        is chosen: ``inproc:``, ``unix:`` (a private folder), ``tcp://`` (loopback, a free port). Characters that
        mean something in a URI are percent-encoded, and there is no query: that belongs to the protocol.
    limits
        Bounds for everything that is received.
    tls
        The certificates, for ``tls:``.

    Raises
    ------
    UsageError
        The address means nothing, or is in use; or `tls` is given for another scheme, or missing.
    LimitExceeded
        This process has no descriptor left.

    Examples
    --------
    >>> with listen("tcp://") as listener:
    ...     listener.uri.startswith("tcp://127.0.0.1:")
    True
    """
    with needing_descriptor(f"a listener at {address}"):
        transport = _transport(address)
        if encrypts(address):
            return cast("Listener", transport.listen(address, limits, tls=tls))
        if tls is not None:
            raise UsageError("certificates are for tls:", found=f"tls=… for {address}")
        return cast("Listener", transport.listen(address, limits))


def dial(
    address: str,
    limits: Limits = DEFAULT_LIMITS,
    deadline: float | None = None,
    *,
    tls: TlsConfig | ssl.SSLContext | None = None,
) -> Channel:
    """Connect to the address of a listener.

    Parameters
    ----------
    address
        The ``uri`` of a listener.
    limits
        Bounds for everything that is received.
    deadline
        Time in seconds to reach the listener; ``limits.connect_timeout`` unless given. A name server may
        take its own time on top.
    tls
        Whom to trust, and what to show, on ``tls:``. With it, nothing may cross a network unencrypted.

    Raises
    ------
    BrokenError
        Nobody listens there.
    DeadlineExceeded
        Nobody answered in time.
    AccessDenied
        The listener belongs to another user; or the connection would not be encrypted, and there is `tls`.
    UsageError
        The address means nothing.
    LimitExceeded
        This process has no descriptor left.

    Examples
    --------
    >>> with listen("inproc:") as listener, dial(listener.uri) as here, listener.accept(1.0) as there:
    ...     here.send([Message(None, [b"hello"])], deadline=1.0)
    ...     bytes(there.receive(idle=1.0).body)
    b'hello'
    """
    if deadline is None:
        deadline = limits.connect_timeout
    else:
        check_seconds(deadline, "deadline")
    try:
        transport = _transport(address)
        if tls is None:
            return cast("Channel", transport.dial(address, limits, deadline))
        if encrypts(address):
            return cast("Channel", transport.dial(address, limits, deadline, tls=tls))
        if not transport.is_loopback(address):
            raise AccessDenied("the connection would not be encrypted", found=f"tls=… for {address}")
        return cast("Channel", transport.dial(address, limits, deadline))
    except OSError as error:
        if error.errno not in NO_DESCRIPTOR:
            raise
        raise no_descriptor(f"a connection to {address}", error) from error


def is_loopback(address: str) -> bool:
    """Return whether nobody off this machine can reach the address; a name is looked up.

    Examples
    --------
    >>> (
    ...     is_loopback("tcp://127.0.0.1:4711"),
    ...     is_loopback("tcp://0.0.0.0:4711"),
    ...     is_loopback("unix:/tmp/x.sock"),
    ... )
    (True, False, True)
    """
    return bool(_transport(address).is_loopback(address))


def encrypts(address: str) -> bool:
    """Return whether what goes over connections to the address is encrypted.

    Examples
    --------
    >>> encrypts("tcp://127.0.0.1:4711"), encrypts("tls://127.0.0.1:4711")
    (False, True)
    """
    return bool(getattr(_transport(address), "encrypts", False))


def is_known(address: str) -> bool:
    """Return whether there is a transport for the scheme of an address.

    Examples
    --------
    >>> is_known("unix:/run/x.sock"), is_known("fabric://192.0.2.1")
    (True, False)
    """
    return address.partition(":")[0] in _modules


def passes_memory(address: str) -> Passes | None:
    """Return how memory reaches a peer at the address, if it does (:attr:`Channel.passes_memory`).

    Examples
    --------
    >>> passes_memory("unix:/run/x.sock"), passes_memory("tcp://127.0.0.1:4711")
    ('fd', None)
    """
    return cast("Passes | None", getattr(_transport(address), "passes_memory", None))


def check_scheme(address: str) -> str:
    """Return the scheme of an address, if there is a transport for it.

    Raises
    ------
    UsageError
        It is not text, or there is no transport; names those that are there.

    Examples
    --------
    >>> check_scheme("tcp://127.0.0.1:4711")
    'tcp'
    >>> check_scheme("http://127.0.0.1/x")
    Traceback (most recent call last):
    bowstring.errors.UsageError: unknown scheme; expected inproc:, unix:, tcp:, tls:, ucx:; found 'http://127.0.0.1/x'
    """
    if not isinstance(address, str):
        raise UsageError(
            "not an address",
            expected='text such as "unix:/path" or "tcp://127.0.0.1:0"',
            found=repr(address)[:_MOST_SHOWN],
            hint=path_hint(address),
        )
    scheme, colon, _ = address.partition(":")
    if not colon or scheme not in _modules:
        raise UsageError(
            "unknown scheme" if colon else "an address begins with the name of a transport",
            expected=", ".join(f"{name}:" for name in _modules),
            found=repr(address)[:_MOST_SHOWN],
            hint=path_hint(address),
        )
    return scheme


def path_hint(address: object) -> str | None:
    """Return how the path of a socket's file is given as an address, where an address is such a path alone."""
    text = os.fspath(address) if isinstance(address, str | os.PathLike) else b""
    if not isinstance(text, str):
        return None
    path = text.partition("?")[0]
    is_path = "/" in path or path.endswith(".sock") or isinstance(address, os.PathLike)
    if not is_path or ":" in path.partition("/")[0]:
        return None
    return f"The address of a Unix socket begins with unix:, as in {unix_address(path)!r}."


def unix_address(path: str | os.PathLike[str]) -> str:
    """Return the address of the socket whose file is at a path."""
    return f"unix:{urllib.parse.quote(os.fsencode(path))}"


def _transport(address: Any) -> Any:
    scheme, colon, _ = address.partition(":") if isinstance(address, str) else ("", "", "")
    return _loaded(_modules[scheme if colon and scheme in _modules else check_scheme(address)])


_loaded = functools.cache(importlib.import_module)
