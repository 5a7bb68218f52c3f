"""Gathering: the pieces of many messages as they go out, many in one system call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from bowstring.transport.channel import Message
from bowstring.transport.framing import HEADER_BYTES, pack_header

__all__ = ["Prepared", "Run", "Views", "advance", "gathered"]

# In larger calls the kernel's two ends wait for each other: 128 MiB took a tenth longer in calls of 8 MiB.
_MOST_BYTES = 1 << 20

# Up to here a piece is copied to go with its neighbours, where it is sent many times.
_SMALL = 4096

Views = list[bytes | memoryview]


@dataclasses.dataclass(slots=True)
class Run:
    """What goes out in one call: the bytes, how many they are, and what travels beside them."""

    views: Views
    nbytes: int
    attachments: tuple[object, ...] = ()


class Prepared:
    """Messages that are sent together, as they are, many times: what it takes to send them is done once.

    Parameters
    ----------
    messages
        In order, without attachments. Their pieces are read in place each time.

    Examples
    --------
    >>> prepared = Prepared([Message(None, [b"ab", b"c"]), Message(7, [memoryview(b"cd")])])
    >>> [len(view) for view in prepared.views]
    [51, 2]
    """

    __slots__ = ("nbytes", "views")

    def __init__(self, messages: Iterable[Message]) -> None:
        self.views: Views = []
        small: list[bytes] = []  # headers, metadata, padding: each costs a call as much as a body does
        for view in (view for message in messages for view in _framed(message).views):
            if isinstance(view, bytes) and len(view) <= _SMALL:
                small.append(view)
                continue
            self.views += [b"".join(small)] if small else []
            self.views.append(view)
            small.clear()
        self.views += [b"".join(small)] if small else []
        self.nbytes = sum(map(len, self.views))


def _framed(message: Message) -> Run:
    views = message.views()
    length = sum(map(len, views))
    header = pack_header(message.tag, len(message.attachments), length)
    return Run([header, *views], HEADER_BYTES + length, message.attachments)


def gathered(
    messages: Sequence[Message | Prepared], check: Callable[[tuple[object, ...]], None]
) -> list[Run]:
    """Return what goes out in one call each: a message with descriptors begins a run of its own.

    Parameters
    ----------
    messages
        In order.
    check
        Refuses attachments.
    """
    runs: list[Run] = []
    joins = False  # whether the next one can go with the last
    for message in messages:
        if isinstance(message, Prepared):
            runs.append(Run(message.views.copy(), message.nbytes))
            joins = False
            continue
        if message.attachments:
            check(message.attachments)
        framed = _framed(message)
        if joins and not framed.attachments:
            runs[-1].views += framed.views
            runs[-1].nbytes += framed.nbytes
        else:
            runs.append(framed)
        joins = runs[-1].nbytes < _MOST_BYTES
    return runs


def advance(views: Views, at: int, sent: int) -> int:
    """Return the first view that is not wholly sent, cut down to what is left of it."""
    while at < len(views) and sent >= len(views[at]):
        sent -= len(views[at])
        at += 1
    if sent:
        views[at] = memoryview(views[at])[sent:]
    return at
