"""Readiness: what a reader is asked before its stream begins, and work on the data that is waited for before."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

from bowstring.dissociated.devices import DeviceId
from bowstring.dissociated.producer import Role
from bowstring.errors import BowstringError, DeadlineExceeded

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from bowstring.dissociated.messages import Outgoing
    from bowstring.dissociated.producer import ProducerProtocol
    from bowstring.memory import EventHandle, Pending, Region
    from bowstring.serving.source import Source
    from bowstring.transport import Channel

__all__ = ["ahead", "awaited", "has_come", "question"]

# Messages: a reader may want no more than the first batch.
_FIRST: Final = 8
_SHORTEST_PAUSE: Final = 0.0005
_LONGEST_PAUSE: Final = 0.02


def question(protocol: ProducerProtocol, source: Source) -> list[Outgoing]:
    """Return what is asked of a reader before it is sent data of devices."""
    pending = source.pending
    event: EventHandle | None = None
    regions: list[Region] = []
    # Whatever is wrong shows again where the stream begins, and is told there.
    with contextlib.suppress(BowstringError):
        regions = regions_known(protocol, source)
        # The event lives with what is lent: a reader that is told of none of that could have it open for longer.
        if pending is not None and any(region.lent for region in regions) and not pending.done:
            event = pending.handle
    devices = [DeviceId(each.arrow_device_type, each.uuid) for each in source.devices]
    return protocol.ask(devices, regions, event)


def regions_known(protocol: ProducerProtocol, source: Source) -> list[Region]:
    """Return what a reader that does so shall try to open, before it answers."""
    hello = protocol.hello
    return source.regions(hello.columns) if hello is not None and hello.tries else []


def ahead(protocol: ProducerProtocol, source: Source, channel: Channel) -> list[Outgoing]:
    """Return what a reader can map while the beginning of its stream is made; nothing if it is not known yet."""
    takes = protocol.pointers and channel.carries == "fds" and protocol.role is not Role.METADATA
    hello = protocol.hello
    if not takes or source.charged or hello is None or not hello.tries:
        return []
    return protocol.announce(source.regions(hello.columns, first=_FIRST))


def awaited(protocol: ProducerProtocol, source: Source) -> Pending | None:
    """Return the work that must be done before a reader gets anything; none where its own streams wait for it."""
    pending = source.pending
    if pending is None or protocol.role is Role.METADATA or (protocol.pointers and protocol.told_event):
        return None
    return None if pending.done else pending


def has_come(
    pending: Pending, changed: threading.Condition, given_up: Callable[[], bool], seconds: float
) -> bool:
    """Wait until work is done; false where nobody waits for it any more.

    Raises
    ------
    DeadlineExceeded
        It is not done after `seconds`.
    DeviceError
        It failed.
    """
    deadline, pause = time.monotonic() + seconds, _SHORTEST_PAUSE
    while not pending.done:
        if time.monotonic() > deadline:
            raise DeadlineExceeded("a device is still at work on the data", expected=f"done in {seconds:g} s")
        with changed:
            if given_up():
                return False
            changed.wait(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return True
