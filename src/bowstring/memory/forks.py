"""Forks: who must do something before this process forks, and after, so that the child's views stay true.

A child inherits every view that is alive, and nothing tells us when it drops them. So what is lent or in use at a
fork is never used again.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Protocol

from bowstring.errors import BowstringError

__all__ = ["Forking", "watch_forks"]


class Forking(Protocol):
    """Something that takes part in forks. Neither method may wait long."""

    def before_fork(self) -> None:
        """Prepare; what changes until `after_fork` may or may not be seen by the child."""

    def after_fork(self) -> None:
        """Go on, in the parent."""


_watched: weakref.WeakSet[Forking] = weakref.WeakSet()
_prepared: list[Forking] = []
_one_at_a_time = threading.RLock()


def watch_forks(forking: Forking) -> None:
    """Let an object take part in forks for as long as it lives."""
    _watched.add(forking)


def _snapshot() -> list[Forking]:
    while True:
        try:
            return list(_watched)
        except RuntimeError:  # another thread entered one; look again
            continue


def _before() -> None:
    _one_at_a_time.acquire()
    for forking in _snapshot():
        _prepared.append(forking)
        with contextlib.suppress(BowstringError):
            forking.before_fork()


def _after_in_parent() -> None:
    while _prepared:
        with contextlib.suppress(BowstringError):
            _prepared.pop().after_fork()
    _one_at_a_time.release()


def _after_in_child() -> None:
    global _one_at_a_time  # noqa: PLW0603  a fork leaves locks as they happened to be
    _one_at_a_time = threading.RLock()
    _prepared.clear()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
