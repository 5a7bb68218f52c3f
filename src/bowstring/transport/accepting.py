"""Accepting: whoever connects is welcomed, one after the other, until somebody says stop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from bowstring.errors import BowstringError, ClosedError, LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from bowstring.transport.channel import Channel, Listener

__all__ = ["accept_all", "accept_next"]

_ACCEPT_SECONDS: Final = 1.0
_PAUSE: Final = 0.01


def accept_all(
    listener: Listener,
    welcome: Callable[[Channel], object],
    turned_away: Callable[[], object],
    stopped: Callable[[], bool],
) -> None:
    """Welcome all who connect, until the listener is closed or it is told to stop.

    Parameters
    ----------
    listener
        Where they come.
    welcome
        Called with each connection, which is its own from then on.
    turned_away
        Called for each that was not let in. Who waits because no descriptor is left is not one of them: he is
        taken when there is.
    stopped
        Whether to stop; asked about once a second, and after each connection.
    """
    while not stopped():
        try:
            channel = accept_next(listener, turned_away)
        except ClosedError:
            return
        if channel is not None:
            welcome(channel)
        # Nothing here keeps the last one open.
        del channel


def accept_next(listener: Listener, turned_away: Callable[[], object]) -> Channel | None:
    """Return the next who connects; ``None`` where nobody came for a second, or who came must wait or go.

    Parameters
    ----------
    listener, turned_away
        As for :func:`accept_all`.

    Raises
    ------
    ClosedError
        The listener is closed: nobody comes any more.
    """
    try:
        return listener.accept(_ACCEPT_SECONDS)
    except ClosedError:
        raise
    except LimitExceeded:
        pass
    except (BowstringError, OSError):
        turned_away()
    # Where no descriptor is left the next one fails at once, too.
    time.sleep(_PAUSE)
    return None
