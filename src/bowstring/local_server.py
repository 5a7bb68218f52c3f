"""Handing tables over without a server of one's own: ``put``, ``get`` and ``release``.

Each process has one server for them, on a private socket. It starts with the first ``put``, anew in the child of a
fork, and ends with the process.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from typing import TYPE_CHECKING, Any

from bowstring.client import ConnectOptions, connect
from bowstring.dissociated.endpoint import Endpoint
from bowstring.errors import UnknownTicket, UsageError
from bowstring.server import Server

if TYPE_CHECKING:
    import pyarrow as pa

    from bowstring.columnar.parts import Validated

_lock = threading.Lock()
_server: Server | None = None
_numbers = itertools.count(1)


def _forget_parent() -> None:
    global _lock, _server
    _lock, _server = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_parent)


def put(data: Any, *, readers: int | None = None, ttl: float | None = None) -> Endpoint:
    """Publish data on a server that this process has for itself, and return the endpoint to send to others.

    The data stay until :func:`release`, until they were read by so many `readers`, for `ttl` seconds, or until this
    process ends, whichever is first. Readers keep what they have.

    Parameters
    ----------
    data
        What :meth:`bowstring.Server.publish` takes.
    readers
        How many readers read it to its end before its memory is released; any number by default.
    ttl
        Seconds from now on.

    Raises
    ------
    UsageError
        It cannot be published.
    OutOfBudget
        The pool has no room.

    Examples
    --------
    >>> import bowstring as bow
    >>> endpoint = bow.put({"a": [1, 2, 3]})
    >>> bow.get(endpoint).num_rows
    3
    >>> bow.release(endpoint)
    """
    global _server  # noqa: PLW0603  one for each process
    with _lock:
        server = _server = _server or Server()
    return server.publish(f"put-{next(_numbers)}", data, readers=readers, ttl=ttl)


def get(endpoint: Endpoint | str, *, validate: Validated | None = None) -> pa.Table:
    """Return a data set as a ``pyarrow.Table``: on the same host a view of the memory of the process that put it.

    Parameters
    ----------
    endpoint
        What :func:`put` or :meth:`bowstring.Server.publish` returned, or its text.
    validate
        As for :func:`bowstring.connect`.

    Raises
    ------
    UnknownTicket
        It was released.
    BrokenError
        The process that put it has ended.
    InvalidData
        What came is malformed.

    Examples
    --------
    >>> import bowstring as bow
    >>> bow.get(bow.put({"a": ["x", "y"]}, readers=1)).column("a").to_pylist()
    ['x', 'y']
    """
    with connect(endpoint, options=ConnectOptions(validate=validate)) as stream:
        return stream.read_all()


def release(endpoint: Endpoint | str) -> None:
    """Let no new reader have what this process has put; those that read it keep it. Does nothing the second time.

    Raises
    ------
    UsageError
        Another process has put it, or a server of the user's.

    Examples
    --------
    >>> import bowstring as bow
    >>> endpoint = bow.put({"a": [1]})
    >>> bow.release(endpoint)
    >>> bow.get(endpoint)
    Traceback (most recent call last):
      ...
    bowstring.errors.UnknownTicket: the data set is no longer offered; found put-...
    """
    parsed = Endpoint.parse(endpoint) if isinstance(endpoint, str) else endpoint
    with _lock:
        server = _server
    if server is None or all(each.address != server.address for each in parsed.offers):
        raise UsageError(
            "only what this process has put can be released here",
            found=str(parsed.uri)[:200],
            hint="Call release() in the process that called put(), or Server.withdraw() for a server of your own.",
        )
    with contextlib.suppress(UnknownTicket):
        server.withdraw(parsed.ticket.decode())
