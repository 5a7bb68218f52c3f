"""The door of the depot: ``connect``."""

from __future__ import annotations

from bowstring.depot.client import Depot
from bowstring.depot.connection import Connection
from bowstring.depot.options import Options
from bowstring.depot.places import Places
from bowstring.depot.starting import found_or_started

__all__ = ["connect"]


def connect(
    *,
    start: bool = True,
    address: str | None = None,
    folder: str | None = None,
    tcp: str | None = None,
    options: Options | None = None,
    timeout: float = 30.0,
) -> Depot:
    """Find this user's depot on this host, and start one where there is none.

    Parameters
    ----------
    start
        Whether to start one; else there must be one.
    address
        A certain depot, by its :attr:`Depot.address` or :attr:`Depot.remote_address`; it is not started.
    folder
        Where this user's depot lies, where that is not the private runtime folder, or the one that
        ``BOWSTRING_DEPOT`` names in the environment.
    tcp
        An address of this host (``tcp://192.0.2.7:0``) at which readers and drivers on other hosts find the depot,
        too. The first one that is asked for stays. The token, requests and data cross the network unencrypted: who
        listens there can read, and release, everything.
    options
        For a depot that is started.
    timeout
        How long all of it may take, in seconds.

    Returns
    -------
    Depot
        Close it, or use it in a ``with`` block.

    Raises
    ------
    BrokenError
        There is no depot, and none shall be started.
    RefusedError
        It cannot be started.
    DeadlineExceeded
        It does not answer.
    AccessDenied
        The token is wrong.

    Examples
    --------
    >>> import tempfile, bowstring as bow
    >>> with tempfile.TemporaryDirectory() as folder, bow.depot.connect(folder=folder) as depot:
    ...     held = depot.status().applications
    ...     depot.stop()
    >>> held
    ()
    """
    places = None if address is not None else Places(folder)
    where = address if places is None else places.control
    assert where is not None

    def find(seconds: float) -> Connection:
        return Connection(where, seconds)

    def find_or_start() -> Connection:
        if places is None or not start:
            return find(timeout)
        return found_or_started(places, options or Options(), find, timeout)

    depot = Depot(where, find_or_start)
    if tcp is not None and depot.remote_address is None:
        try:
            depot._listen(tcp)
        except BaseException:
            depot.close()
            raise
    return depot
