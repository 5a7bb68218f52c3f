"""A publication: one data set that a server offers, and who reads it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from bowstring.errors import UnknownTicket

if TYPE_CHECKING:
    import threading

    from bowstring.serving.source import Source

__all__ = ["Publication"]


class Publication:
    """One data set of a server: its source, its tickets, its readers.

    All changes happen under the server's condition, which is notified of each.

    Parameters
    ----------
    name
        What the producer calls it.
    source
        Where its items come from.
    readers
        How many readers read it before it is released; ``None`` for any number.
    changed
        The server's condition.
    """

    def __init__(self, name: str, source: Source, readers: int | None, changed: threading.Condition) -> None:
        self.name = name
        self.ticket = f"{name}#{secrets.token_hex(8)}".encode()
        self.source = source
        self.readers = readers
        self.completed = 0
        self.active = 0
        self.withdrawn = False
        self.released = False
        self._changed = changed

    def enter(self) -> None:
        """Let a reader in.

        Raises
        ------
        UnknownTicket
            The data set was withdrawn, or has all its readers.
        """
        with self._changed:
            self.check_offered()
            if self.readers is not None and self.completed + self.active >= self.readers:
                raise UnknownTicket(
                    "the data set has all its readers",
                    expected=f"at most {self.readers} (publish(…, readers=…))",
                    found=f"{self.completed} done, {self.active} reading",
                )
            self.active += 1

    def check_offered(self) -> None:
        """Refuse whoever comes too late.

        Raises
        ------
        UnknownTicket
            The data set was withdrawn or released.
        """
        if self.withdrawn or self.released:
            raise UnknownTicket("the data set is no longer offered", found=self.name)

    def leave(self, *, completed: bool) -> None:
        """Count a reader out; `completed` if it read to the end and gave everything back."""
        with self._changed:
            self.active -= 1
            self.completed += completed
            self._settle()
            self._changed.notify_all()

    def withdraw(self) -> None:
        """Let no new reader in; those that read keep what they have."""
        with self._changed:
            self.withdrawn = True
            self._settle()
            self._changed.notify_all()

    def _settle(self) -> None:
        satisfied = self.readers is not None and self.completed >= self.readers
        if self.active == 0 and (self.withdrawn or satisfied):
            self.released = True
            self.source.release()

    def __repr__(self) -> str:
        state = "released" if self.released else "withdrawn" if self.withdrawn else "offered"
        wanted = "any" if self.readers is None else self.readers
        return (
            f"<Publication {self.name!r} {state}, {self.active} reading, {self.completed} of {wanted} done>"
        )
