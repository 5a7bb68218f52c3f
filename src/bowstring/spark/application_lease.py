"""Hold the lease of an application at every depot that keeps data for it, until Spark stops."""

from __future__ import annotations

import atexit
import collections
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.depot.launch import Paths, connect
from bowstring.errors import BowstringError
from bowstring.locks import Event
from bowstring.transport import encrypts
from bowstring.transport.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bowstring.depot.client import Depot
    from bowstring.depot.options import Options
    from bowstring.spark.driver import Driver
    from bowstring.spark.tickets import Ticket
    from bowstring.transport.certificates import TlsConfig

_LOOK: Final = 0.5
_RENEWALS: Final = 4
_MOST_GIVEN_UP: Final = 16


class Application:
    """An application of Spark as its driver knows it: an identity, and connections to depots.

    A thread looks whether Spark was stopped, and says to all depots then that the application has ended. When the
    driver's process dies, its connections tell.
    """

    def __init__(self, name: str, ended: Callable[[], bool]) -> None:
        self.name = name
        self._ended = ended
        self._lock = threading.Lock()
        # By the first of their addresses; that of this host, which keeps the names, by its path alone, too.
        self._depots: dict[str, Depot] = {}
        self._leases: dict[tuple[str, ...], float] = {}
        # How long data sets are kept after its end.
        self._stays: dict[str, float] = {}
        self._closed = Event()
        self._ending = threading.Lock()
        self._thread: Any = None
        # The depot that keeps the names, where anything was named.
        self.known_catalog: Depot | None = None
        self._tls: TlsConfig | None = None
        # What finalizers leave: they may run in the midst of anything.
        self._forgotten: collections.deque[tuple[str, list[Depot]]] = collections.deque()
        self.given_up: collections.deque[str] = collections.deque(maxlen=_MOST_GIVEN_UP)

    def trust(self, options: Options | None) -> None:
        """Ask depots of other hosts by the certificates that depots are started with, where they have some."""
        if options is not None and options.tls is not None:
            self._tls = options.tls
            if self.known_catalog is not None:
                self.known_catalog._tls = options.tls

    def hold(self, dataset: str, tickets: Iterable[Ticket], lease_seconds: float, stay: float) -> list[Depot]:
        """Hold the lease at the depots of a data set; return them."""
        if stay > 0:
            self._stays[dataset] = stay
        depots = []
        for addresses in addresses_of(tickets):
            depots.append(self._depot(addresses))
            self._hold(depots[-1], addresses, lease_seconds)
        return depots

    def _hold(self, depot: Depot, addresses: tuple[str, ...], lease_seconds: float) -> None:
        with self._lock:
            lease = self._leases[addresses] = max(lease_seconds, self._leases.get(addresses, 0.0))
        # After each job: tasks for a client of Spark Connect let the depot keep data for long, until this.
        depot.hold(self.name, lease)
        with self._lock:
            if self._thread is None:
                self._thread = run_in_thread(self._watch, name="bowstring-spark-lease")

    def catalog(self, options: Options | None, lease_seconds: float) -> Depot:
        """Return the depot of this host, which keeps the names; it is started where there is none."""
        # Whichever depot is there: one that ended, or was replaced, kept names that are gone, too.
        address = Paths().control
        known = self._connected(address, options=options, tls=self._tls)
        self._hold(known, (address,), lease_seconds)
        self.known_catalog = known
        return known

    def forget(self, dataset: str, depots: list[Depot]) -> None:
        """Release a data set soon, from any thread and at any time: its last handle is gone."""
        self._forgotten.append((dataset, depots))

    @property
    def depots(self) -> list[Depot]:
        """The depots where the lease is held."""
        with self._lock:
            return list(self._depots.values())

    def _depot(self, addresses: tuple[str, ...]) -> Depot:
        # A depot that was started without certificates says so by its address.
        tls = self._tls if any(map(encrypts, addresses)) else None
        return self._connected(addresses[0], address=addresses, start=False, tls=tls)

    def _connected(self, key: str, **how: Any) -> Depot:
        """Return the connection to a depot; where there is none it is made."""
        with self._lock:
            known = self._depots.get(key)
        if known is None:
            opened = connect(**how)
            with self._lock:
                known = self._depots.setdefault(key, opened)
            if known is not opened:
                opened.close()
        return known

    def _watch(self) -> None:
        renewed = time.monotonic()
        while not self._closed.wait(_LOOK):
            if self._ended():
                self.end()
                return
            while self._forgotten:
                dataset, depots = self._forgotten.popleft()
                for depot in depots:
                    # One that is gone has freed all it had.
                    with contextlib.suppress(BowstringError):
                        depot.release(dataset)
            with self._lock:
                leases = dict(self._leases)
            if leases and time.monotonic() > renewed + min(leases.values()) / _RENEWALS:
                renewed = time.monotonic()
                for addresses, seconds in leases.items():
                    try:
                        self._depot(addresses).hold(self.name, seconds)
                    except BowstringError:  # a depot that is gone has nothing to keep for it
                        with self._lock:
                            lost = self._depots.pop(addresses[0], None)
                        if lost is not None:
                            lost.close()

    def stop_depots(self) -> None:
        """Free all data of the application, and end those of its depots that then hold nothing."""
        with self._lock:
            depots, self._depots = self._depots, {}
            self._leases.clear()
            self._stays.clear()
        # That which keeps the names first: it knows of others, and has the certificates for them.
        for depot in sorted(depots.values(), key=lambda each: each is not self.known_catalog):
            with contextlib.suppress(BowstringError):
                depot.stop(application=self.name, everywhere=True)
            depot.close()

    def end(self) -> None:
        """Tell all depots that the application has ended: what shall not stay is freed now. Idempotent."""
        self._closed.set()
        with self._ending:
            with self._lock:
                depots, self._depots = self._depots, {}
            for depot in depots.values():
                with contextlib.suppress(BowstringError):
                    depot.end(self.name, stays=self._stays.copy())
                depot.close()


def addresses_of(tickets: Iterable[Ticket]) -> list[tuple[str, ...]]:
    """Return where the depots are found that keep some streams: of each its addresses, of its own host first."""
    depots = {ticket.depot: tuple(filter(None, (ticket.depot, ticket.remote_depot))) for ticket in tickets}
    return [addresses for own, addresses in sorted(depots.items()) if own]


_applications: dict[str, Application] = {}
_lock = threading.Lock()


def application_of(driver: Driver) -> Application:
    """Return the application of a session; there is one for each in this process."""
    with _lock:
        over = [_applications.pop(each) for each, known in list(_applications.items()) if known._ended()]
    for each in over:
        # The next one has the name of this one, where one process of Java has both.
        each.end()
    with _lock:
        known = _applications.get(driver.key)
        if known is None:
            known = _applications[driver.key] = Application(driver.application(), driver.ended)
        return known


@atexit.register
def _end_all() -> None:
    for application in list(_applications.values()):
        application.end()
