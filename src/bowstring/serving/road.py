"""The road that the bodies of a stream take to its reader, and the reason, in words."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from bowstring.dissociated.messages import Outgoing, Welcome
from bowstring.dissociated.tags import Control
from bowstring.memory import this_process

if TYPE_CHECKING:
    from bowstring.dissociated.messages import Hello
    from bowstring.dissociated.producer import ProducerProtocol
    from bowstring.serving.source import Source
    from bowstring.transport import Channel

__all__ = ["hands_over", "road", "welcome"]

_NOT_OPENED: Final = (
    "the producer lends its own memory, which a reader of another PID namespace, or one that did not say that it "
    "takes handles, cannot open: the bytes are sent"
)


def hands_over(channel: Channel, hello: Hello | None, source: Source) -> bool:
    """Whether memory of a data set can be handed to a reader, as far as its hello and the connection say."""
    return (
        hello is not None
        and hello.pointers
        and channel.carries in ("fds", "objects")
        and _can_open(channel, hello, source)
    )


def _can_open(channel: Channel, hello: Hello | None, source: Source) -> bool:
    """Whether the reader can open what a data set lends, if it lends anything."""
    lends = source.lending is not None and source.lending.nbytes > 0
    if not lends or channel.carries == "objects":
        return True
    return hello is not None and hello.ipc == this_process().place


def road(channel: Channel, protocol: ProducerProtocol, source: Source) -> tuple[str, str]:
    """Return which road the bodies take, and why, when it is known whether they go by pointers."""
    scheme, lending = channel.scheme, source.lending
    if protocol.pointers:
        means = "file descriptors" if channel.carries == "fds" else "references"
        path, why = "mapped", f"producer and reader share memory, handed over as {means}"
        if lending is not None and lending.nbytes:
            path, why = "in place", "the producer lends its own memory, which dies with it"
            if protocol.told_event:
                why += "; the reader's streams wait for the producer's work"
            elif protocol.why_wait:
                why += f"; the producer waited for its work: {protocol.why_wait}"
        copied = f"; {lending.why}" if lending is not None and lending.refused else ""
        return f"{scheme}: {path}", why + copied
    if channel.carries == "nothing":
        return f"{scheme}: packed", f"{scheme} cannot hand over memory, so the bytes are sent"
    if protocol.why_not:
        return f"{scheme}: packed", f"the bytes are sent: {protocol.why_not}"
    if not _can_open(channel, protocol.hello, source):
        return f"{scheme}: packed", _NOT_OPENED
    return f"{scheme}: packed", "the reader asked for the bytes"


def welcome(channel: Channel, protocol: ProducerProtocol, source: Source) -> Outgoing:
    """Return what a reader is told of its stream before the first message of it."""
    path, why = road(channel, protocol, source)
    charged = source.charged or not protocol.pointers
    limits = channel.limits
    patience = min(limits.lease_timeout, limits.stall_timeout)
    packed = _packed_welcome(charged, path, why, source.num_rows, source.num_batches, source.nbytes, patience)
    return Outgoing(Control.WELCOME, [packed])


@functools.lru_cache(64)
def _packed_welcome(*fields: Any) -> bytes:
    return Welcome(*fields).pack()
