"""Outgoing: what a state machine of the protocol wants sent becomes what a channel sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bowstring.transport.channel import Channel, Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.dissociated.messages import Outgoing

__all__ = ["as_messages"]


def as_messages(outgoing: Sequence[Outgoing], channel: Channel) -> list[Message]:
    """Return messages for a channel; a region goes as the channel can carry it."""
    return [
        Message(each.tag, each.pieces)
        if each.attachment is None
        else Message(each.tag, each.pieces, _attachments(each.attachment, channel.carries))
        for each in outgoing
    ]


def _attachments(region: Any, carries: str) -> tuple[object, ...]:
    if carries != "fds":
        return (region,)
    # Lent memory is opened by what the message says of it.
    return () if region.lent else (region.slab.fd,)
