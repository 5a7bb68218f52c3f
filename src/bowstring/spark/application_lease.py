"""Hold the lease of an application at every depot that keeps data for it, until Spark stops."""

from __future__ import annotations

import atexit
import collections
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring import depot
from bowstring.dissociated.endpoint import Endpoint
from bowstring.errors import BowstringError
from bowstring.transport.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bowstring.spark.tickets import Ticket

__all__ = ["Application", "addresses_of", "application_of"]

_LOOK: Final = 0.5
_RENEWALS: Final = 4
_MOST_GIVEN_UP: Final = 16


class Application:
    """An application of Spark as its driver knows it: an identity, and connections to depots.

    A thread looks whether Spark was stopped, and says to all depots then that the application has ended. When the
    driver's process dies, its connections tell.

    Parameters
    ----------
    name
        The identity of the application.
    ended
        Tells whether Spark was stopped.

    Attributes
    ----------
    given_up
        The last data sets of jobs that failed: there may be streams of them on hosts that nobody told of.
    """

    def __init__(self, name: str, ended: Callable[[], bool]) -> None:
        self.name = name
        self._ended = ended
        self._lock = threading.Lock()
        self._depots: dict[str, depot.Depot] = {}
        self._leases: dict[str, float] = {}
        self._held: dict[str, float] = {}
        self._stays: dict[str, dict[str, float]] = {}
        self._closed = threading.Event()
        self._thread: Any = None
        self.given_up: collections.deque[str] = collections.deque(maxlen=_MOST_GIVEN_UP)

    def hold(
        self, dataset: str, tickets: Iterable[Ticket], lease_seconds: float, stay: float
    ) -> list[depot.Depot]:
        """Hold the lease at the depots of a data set; return them.

        Parameters
        ----------
        dataset, tickets
            What was published.
        lease_seconds
            How long a depot that loses sight of this process keeps the data.
        stay
            How long it stays after the application has ended.
        """
        found = []
        for address in addresses_of(tickets):
            found.append(self._depot(address))
            with self._lock:
                self._leases[address] = max(lease_seconds, self._leases.get(address, 0.0))
                self._stays.setdefault(address, {})[dataset] = stay
                lease, held = self._leases[address], self._held.get(address)
            if (
                lease != held
            ):  # an open connection goes on holding, and holds anew where it must connect again
                found[-1].hold(self.name, lease)
                with self._lock:
                    self._held[address] = lease
        with self._lock:
            if found and self._thread is None:
                self._thread = run_in_thread(self._watch, name="bowstring-spark-lease")
        return found

    @property
    def depots(self) -> list[depot.Depot]:
        """The depots where the lease is held."""
        with self._lock:
            return list(self._depots.values())

    def _depot(self, address: str) -> depot.Depot:
        with self._lock:
            known = self._depots.get(address)
        if known is not None:
            return known
        opened = depot.connect(address=address, start=False)
        with self._lock:
            return self._depots.setdefault(address, opened)

    def _watch(self) -> None:
        renewed = time.monotonic()
        while not self._closed.wait(_LOOK):
            if self._ended():
                self.end()
                return
            with self._lock:
                leases = dict(self._leases)
            if leases and time.monotonic() > renewed + min(leases.values()) / _RENEWALS:
                renewed = time.monotonic()
                for address, seconds in leases.items():
                    self._renew(address, seconds)

    def _renew(self, address: str, seconds: float) -> None:
        """Say that the application lives; a depot that is gone has nothing to keep for it."""
        try:
            self._depot(address).hold(self.name, seconds)
        except BowstringError:
            with self._lock:
                lost = self._depots.pop(address, None)
                self._held.pop(address, None)
            if lost is not None:
                lost.close()

    def end(self) -> None:
        """Tell all depots that the application has ended. Idempotent."""
        self._closed.set()
        with self._lock:
            depots, self._depots = self._depots, {}
            stays = dict(self._stays)
        for address, held in depots.items():
            with contextlib.suppress(BowstringError):
                self._leave(held, stays.get(address, {}))
            held.close()

    def _leave(self, held: depot.Depot, stays: dict[str, float]) -> None:
        """Free what shall not stay, and let the lease of the rest run out."""
        longest = max(stays.values(), default=0.0)
        if longest <= 0:
            held.end(self.name)
            return
        for dataset, stay in stays.items():
            if stay <= 0:
                held.release(dataset)
        held.hold(self.name, longest)


def addresses_of(tickets: Iterable[Ticket]) -> list[str]:
    """Return where this process finds the depots that keep some streams, each once."""
    return sorted({_address_of(ticket) for ticket in tickets if ticket.depot})


def _address_of(ticket: Ticket) -> str:
    return ticket.depot if Endpoint.parse(ticket.endpoint).is_here else ticket.remote_depot


_applications: dict[str, Application] = {}
_lock = threading.Lock()


def application_of(spark: Any) -> Application:
    """Return the application of a session; there is one for each in this process."""
    context = spark.sparkContext
    name = f"{context.applicationId}-{context.startTime}"

    def stopped() -> bool:
        return context._jsc is None

    with _lock:
        for known in [each for each, application in _applications.items() if application._ended()]:
            del _applications[known]
        return _applications.setdefault(name, Application(name, stopped))


@atexit.register
def _end_all() -> None:
    for application in list(_applications.values()):
        application.end()
