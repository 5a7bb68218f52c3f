"""What a fork does to connections: the child lets go of its copies and may not use them.

A child that kept a copy of a socket would keep the connection alive after its parent's death, and the
parent's peer would wait for ever. So the child closes its copies at once, without shutting down the
connection, which is still the parent's.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from bowstring.errors import ForkedError

__all__ = ["Abandonable", "abandon_in_child", "forked"]


class Abandonable(Protocol):
    """What holds descriptors that a forked child must not keep."""

    def _abandon(self) -> None:
        """Close this process's copies; take no lock: the thread that held it does not exist here."""


_held: weakref.WeakSet[Abandonable] = weakref.WeakSet()


def abandon_in_child(thing: Abandonable) -> None:
    """Have ``thing._abandon()`` called in every child that this process forks."""
    _held.add(thing)


def forked(what: object) -> ForkedError:
    """Return the error for the use of ``what`` in a child of the process that made it."""
    return ForkedError(
        f"{what} was made before a fork and belongs to the parent process",
        hint="Make a connection of its own in each process, or start processes with 'spawn'.",
    )


def _abandon_all() -> None:
    for thing in list(_held):
        thing._abandon()
    _held.clear()


os.register_at_fork(after_in_child=_abandon_all)
