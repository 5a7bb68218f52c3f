"""Events: what a stream's reader is told of the messages that come in.

They are not frozen: one is made for each message, and to set a field of a frozen one takes ten times as long.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any

from bowstring.dissociated.wire import Welcome
from bowstring.errors import BowstringError
from bowstring.memory import EventHandle

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from bowstring.dissociated.wire import DeviceId
    from bowstring.ipc.flatbuf.message import Message
    from bowstring.memory import Handle, KeyedHandle, LentHandle


@dataclasses.dataclass(slots=True)
class Packed:
    """A body of type 0: the packed bytes."""

    body: Any


@dataclasses.dataclass(slots=True)
class Pointers:
    """A body of type 1: (address, length) of each buffer, shape ``(n, 2)``, and the sum of the lengths."""

    total: int
    pairs: npt.NDArray[np.uint64]

    @property
    def addresses(self) -> npt.NDArray[np.uint64]:
        """The addresses that are lent: all but 0 for an empty buffer. As an offset, 0 is as good as any."""
        pairs = self.pairs
        addresses: npt.NDArray[np.uint64] = pairs[(pairs != 0).any(axis=1), 0]
        return addresses


@dataclasses.dataclass(slots=True)
class Part:
    """The next part of the stream: decoded metadata and its body."""

    sequence: int
    message: Message
    body: Packed | Pointers | None  # None for the schema, and for 0 bytes that the server need not send


@dataclasses.dataclass(slots=True)
class Asked:
    """The server asks whether memory of these devices can be mapped here, and sends nothing before it knows."""

    devices: tuple[DeviceId, ...]


@dataclasses.dataclass(slots=True)
class Announced:
    """A region, its place in the stream's address space, and what travelled beside the message, if anything."""

    base: int
    handle: Handle | LentHandle | KeyedHandle
    attachment: Any


class Signal(enum.Enum):
    """What happens and says no more."""

    PARTITION = (
        "the parts that follow are of the next partition, and use dictionaries and regions that follow, too"
    )
    FORGET = "the server announces anew what it needs from now on of the regions that it announced before"
    STOPPED = "the server sends nothing more, because we asked it to stop"
    END = "every part was given out, and the stream said that these were all"


# WELCOME, the event that the data are ready after, and the error of a server stand for themselves.
Event = Part | Asked | Announced | Welcome | EventHandle | BowstringError | Signal
