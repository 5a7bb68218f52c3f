"""``wait_for``: waits until a data set has something new, without reading it."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring import errors
from bowstring.client.async_stream import connect_async
from bowstring.client.opening import InsideOptions, Source, checked_seconds, connect
from bowstring.dissociated.position import checked_position, place_of, position_at
from bowstring.transport.awaiting import in_thread

if TYPE_CHECKING:
    import ssl

    from bowstring.dissociated.position import Position
    from bowstring.limits import Limits
    from bowstring.transport.certificates import TlsConfig

# How often a name is asked for again that does not stand for anything, or for something that is finished.
_PAUSE: Final = 0.05


def wait_for(
    source: Source,
    name: str | None = None,
    *,
    newer_than: Position | str | None = None,
    timeout: float | None = None,
    token: str | None = None,
    tls: TlsConfig | ssl.SSLContext | None = None,
    limits: Limits | None = None,
) -> Position:
    """Wait until a data set has more than at a position, or was replaced; return the position behind it.

    Parameters
    ----------
    source, name, token, tls, limits
        As in :func:`bowstring.connect`.
    newer_than
        A position, or its text. Without it, this waits until there is a data set of that name.
    timeout
        Seconds; by default it waits for as long as the server is there.

    Returns
    -------
    Position
        For the next call, or for ``connect(since=…)``.

    Raises
    ------
    DeadlineExceeded
        Nothing new came in time.
    BowstringError
        What :func:`bowstring.connect` raises, except for a name that is not offered: that is waited for.

    Examples
    --------
    >>> import bowstring as bow
    >>> with bow.Server() as server:
    ...     first = server.append("ticks", {"price": [1.0]})
    ...     second = server.append("ticks", {"price": [2.0]})
    ...     bow.wait_for(server, "ticks", newer_than=first) == second
    True
    """
    wait = _Wait(source, name, newer_than, timeout, token=token, tls=tls, limits=limits)
    while True:
        try:
            if wait.since is not None:
                with connect(*wait.place, **wait.following) as stream:
                    stream.read_next_batch()
            return wait.end()
        except (errors.DatasetReplaced, errors.PositionExpired):
            wait.since = None  # whatever is there now is newer
        except (errors.UnknownTicket, errors.EndOfStream):
            time.sleep(wait.pause())


async def wait_for_async(
    source: Source,
    name: str | None = None,
    *,
    newer_than: Position | str | None = None,
    timeout: float | None = None,  # noqa: ASYNC109  that of `wait_for`, with the error of `wait_for`
    token: str | None = None,
    tls: TlsConfig | ssl.SSLContext | None = None,
    limits: Limits | None = None,
) -> Position:
    """Do what :func:`bowstring.wait_for` does, for a program on asyncio.

    Parameters
    ----------
    source, name, newer_than, timeout, token, tls, limits
        As in :func:`bowstring.wait_for`, which says what is raised, too.

    Examples
    --------
    >>> import asyncio, bowstring as bow
    >>> with bow.Server() as server:
    ...     first = server.append("ticks", {"price": [1.0]})
    ...     second = server.append("ticks", {"price": [2.0]})
    ...     asyncio.run(bow.wait_for_async(server, "ticks", newer_than=first)) == second
    True
    """
    wait = _Wait(source, name, newer_than, timeout, token=token, tls=tls, limits=limits)
    while True:
        try:
            if wait.since is not None:
                async with connect_async(*wait.place, **wait.following) as stream:
                    if await anext(stream, None) is None:
                        await asyncio.sleep(wait.pause())
                        continue
            return await in_thread(wait.end)
        except (errors.DatasetReplaced, errors.PositionExpired):
            wait.since = None  # whatever is there now is newer
        except errors.UnknownTicket:
            await asyncio.sleep(wait.pause())


class _Wait:
    """What is waited for, and until when."""

    def __init__(
        self, source: Source, name: str | None, newer_than: Any, timeout: float | None, **options: Any
    ) -> None:
        self.place = source, name
        self.since = None if newer_than is None else checked_position(newer_than)
        self._seconds = timeout
        self._end = math.inf if timeout is None else time.monotonic() + checked_seconds(timeout)
        self._options = {"columns": (), **options}

    @property
    def following(self) -> dict[str, Any]:
        """How the data set is followed, of which nothing is read but that a batch is there."""
        left = max(0.0, self._end - time.monotonic())
        seconds = None if left == math.inf else left
        return {**self._options, "follow": True, "since": self.since, "timeout": seconds}

    def end(self) -> Position:
        with connect(*self.place, **self._options, options=InsideOptions(looks=True)) as stream:
            position, count = stream.position, stream.num_batches
        if position is None or count is None:
            raise errors.UsageError(
                "the data set has no positions", hint="It is made as it is read, or of another server."
            )
        version, begins = place_of(position)
        return position_at(version, begins + count)

    def pause(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise errors.DeadlineExceeded("nothing new came in time", expected=f"within {self._seconds:g} s")
        return min(_PAUSE, left)
