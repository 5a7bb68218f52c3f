"""The road that the bodies of a stream take to its reader, and the reason, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bowstring.memory import this_process

if TYPE_CHECKING:
    from bowstring.dissociated.messages import Hello
    from bowstring.dissociated.producer import ProducerProtocol
    from bowstring.serving.source import Source
    from bowstring.transport import Channel

__all__ = ["hands_over", "road"]

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
        copied = f"; {lending.why}" if lending is not None and lending.refused else ""
        return f"{scheme}: {path}", why + copied
    if channel.carries == "nothing":
        return f"{scheme}: packed", f"{scheme} cannot hand over memory, so the bytes are sent"
    if protocol.why_not:
        return f"{scheme}: packed", f"the bytes are sent: {protocol.why_not}"
    if not _can_open(channel, protocol.hello, source):
        return f"{scheme}: packed", _NOT_OPENED
    return f"{scheme}: packed", "the reader asked for the bytes"
