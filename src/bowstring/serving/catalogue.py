"""The catalogue: which data sets a server offers, by name and by ticket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bowstring.dissociated.producer import Role
from bowstring.errors import ClosedError, DeadlineExceeded, UnknownTicket, UsageError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from bowstring.serving.publication import Publication
    from bowstring.serving.source import Source

__all__ = ["Catalogue"]

_REMEMBERED: Final = 1024


class Catalogue:
    """The publications of one server.

    Parameters
    ----------
    changed
        The server's condition, under which all changes happen, and which is notified of each.
    """

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._publications: dict[bytes, Publication] = {}
        self._most = _REMEMBERED

    def add(self, publication: Publication) -> None:
        """Offer a data set.

        Raises
        ------
        UsageError
            Its name is taken.
        """
        with self._changed:
            self.check_free(publication.name)
            self.enter(publication)

    def enter(self, publication: Publication) -> None:
        """Offer a data set whose name is known to be new."""
        with self._changed:
            self._publications[publication.ticket] = publication

    def check_free(self, name: str) -> None:
        """Refuse a name that a data set has which is offered."""
        with self._changed:
            if self._find(name) is not None:
                raise UsageError("the name is taken", found=repr(name), hint="Withdraw the other one first.")

    def named(self, name: str) -> Publication:
        """Return the data set of a name.

        Raises
        ------
        UnknownTicket
            None of that name is offered.
        """
        with self._changed:
            publication = self._find(name)
        if publication is None:
            raise _unknown(name)
        return publication

    def _find(self, name: str) -> Publication | None:
        for publication in self._publications.values():
            if publication.name == name and not (publication.withdrawn or publication.released):
                return publication
        return None

    def admit(self, ticket: bytes, role: Role) -> Publication:
        """Return the data set that a reader asks for, by ticket or by name, and count the reader in.

        Of two connections that carry one stream, the one with the bodies counts.
        """
        with self._changed:
            publication = self._publications.get(ticket)
            if publication is None:
                publication = self._find(ticket.decode(errors="replace"))
            if publication is None:
                raise UnknownTicket(
                    "no such data set",
                    found=repr(ticket[:80]),
                    hint="It may have been withdrawn; ask its producer.",
                )
            if role is not Role.BOTH and publication.source.charged:
                raise UsageError(
                    "a lazily produced data set goes over one connection", found=publication.name
                )
            if role is Role.METADATA:
                publication.check_offered()
            else:
                publication.enter()
            return publication

    def wait_released(self, name: str | None, seconds: float, closed: Callable[[], bool]) -> None:
        """Wait until a data set, or all of them, was read and freed: see :meth:`bowstring.Server.wait_released`."""
        with self._changed:
            waited = [each for each in self._publications.values() if name in (None, each.name)]
            if name is not None and not waited:
                raise _unknown(name)
            if not self._changed.wait_for(lambda: closed() or all(p.released for p in waited), seconds):
                raise DeadlineExceeded(
                    "data sets are still read, or wait for a reader",
                    found=", ".join(repr(each) for each in waited if not each.released),
                    hint="Data sets published without readers= are released when they are withdrawn.",
                )
            if closed():  # which withdraws them all, read or not
                raise ClosedError("the server was closed")

    def offered(self) -> list[Publication]:
        """Return the data sets that new readers may still ask for."""
        with self._changed:
            return [p for p in self._publications.values() if not (p.withdrawn or p.released)]

    def sources(self) -> list[Source]:
        """Return the sources of what is offered, or read still."""
        with self._changed:
            return [p.source for p in self._publications.values() if not p.released]

    def withdraw_all(self) -> None:
        """Offer nothing any more; those that read keep what they have."""
        with self._changed:
            publications = list(self._publications.values())
        for publication in publications:
            publication.withdraw()

    def forget(self) -> None:
        """Forget data sets that were released, but for some whose readers may still be told so."""
        with self._changed:
            if len(self._publications) <= self._most:
                return
            self._publications = {t: p for t, p in self._publications.items() if not p.released}
            # So many more may come before it is worth looking again.
            self._most = max(_REMEMBERED, 2 * len(self._publications))

    def __len__(self) -> int:
        return len(self._publications)


def _unknown(name: str) -> UnknownTicket:
    return UnknownTicket("no data set of that name is offered", found=repr(name))
