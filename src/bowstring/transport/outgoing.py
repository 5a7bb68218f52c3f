"""Outgoing: what a state machine of the protocol wants sent becomes what a channel sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bowstring.dissociated.messages import Outgoing
from bowstring.transport.channel import Channel, Message
from bowstring.transport.gathering import Prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.dissociated.items import Said

__all__ = ["as_messages"]


def as_messages(outgoing: Sequence[Said], channel: Channel) -> list[Message | Prepared]:
    """Return messages for a channel; a region goes as the channel can carry it."""
    messages: list[Message | Prepared] = []
    for each in outgoing:
        if isinstance(each, Outgoing):
            messages.append(_message(each, channel))
        elif channel.takes_prepared:
            if each.made is None:
                each.made = Prepared(_message(one, channel) for one in each.messages())
            messages.append(each.made)
        else:
            messages += [_message(one, channel) for one in each.messages()]
    return messages


def _message(outgoing: Outgoing, channel: Channel) -> Message:
    if outgoing.attachment is None:
        return Message(outgoing.tag, outgoing.pieces)
    return Message(outgoing.tag, outgoing.pieces, _attachments(outgoing.attachment, channel.carries))


def _attachments(region: Any, carries: str) -> tuple[object, ...]:
    if carries != "fds":
        return (region,)
    # Lent memory is opened by what the message says of it.
    return () if region.lent else (region.slab.fd,)
