"""The handshake: what server and reader exchange before a stream begins, and how bodies reach the reader."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from bowstring.dissociated.items import regions_of
from bowstring.dissociated.opening import MOST_REGIONS, Answer
from bowstring.dissociated.producer import Role
from bowstring.dissociated.wire import DeviceId, Outgoing, Welcome
from bowstring.errors import BowstringError, DeadlineExceeded
from bowstring.memory.handle import this_place
from bowstring.server.materialized import MaterializedSource
from bowstring.transport.framing import as_messages, gathered
from bowstring.transport.sockets import StreamChannel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bowstring.dissociated.items import IpcMessage
    from bowstring.dissociated.producer import ProducerProtocol
    from bowstring.dissociated.wire import Hello, Outgoing
    from bowstring.locks import Condition
    from bowstring.memory import EventHandle, Pending, Region
    from bowstring.server.following import Followed
    from bowstring.server.partitions import PartitionedSource
    from bowstring.server.sources import Source
    from bowstring.transport import Channel

    _Source = Source | PartitionedSource | Followed

# Messages: a reader may want no more than the first batch.
_FIRST: Final = 8
_SHORTEST_PAUSE: Final = 0.0005
_LONGEST_PAUSE: Final = 0.02


def question(protocol: ProducerProtocol, source: _Source) -> list[Outgoing]:
    """Return what is asked of a reader before it is sent data of devices."""
    pending, hello = source.pending, protocol.hello
    event: EventHandle | None = None
    regions: list[Region] = []
    # Whatever is wrong shows again where the stream begins, and is told there.
    with contextlib.suppress(BowstringError):
        if hello is not None and hello.tries:  # to open them, before it answers
            regions = source.regions(hello.columns)
        # The event lives with what is lent: a reader that is told of none of that could have it open for longer.
        if pending is not None and any(region.lent for region in regions) and not pending.done:
            event = pending.handle
    devices = [DeviceId(each.arrow_device_type, each.uuid) for each in source.devices]
    return protocol.ask(devices, regions, event)


def ahead(protocol: ProducerProtocol, source: _Source, channel: Channel) -> list[Outgoing]:
    """Return what a reader can map while the beginning of its stream is made; nothing if it is not known yet."""
    takes = protocol.pointers and channel.passes_memory == "fd" and protocol.role is not Role.METADATA
    hello = protocol.hello
    if not takes or source.charged or hello is None or not hello.tries:
        return []
    return protocol.announce(source.regions(hello.columns, first=_FIRST))


class Prepared(NamedTuple):
    """An answer, and what is sent of it and after it."""

    answer: Answer  # without its messages
    runs: list[tuple[bytes, tuple[object, ...]]]  # sent in one call each: bytes, and descriptors beside them
    regions: list[Region]  # own these descriptors, which stay open as long as the regions are kept
    following: Sequence[IpcMessage]  # what follows the answer's items in the list that it was made of


def prepared(protocol: ProducerProtocol, source: _Source, channel: Channel, ticket: bytes) -> Prepared | None:
    """Return the first messages for an ordinary reader, made once for all with the same request; else ``None``.

    They depend on what the welcome contains: transport, deadlines and version, besides the columns.
    """
    hello = protocol.hello
    if (
        not (protocol.pointers and channel.passes_memory == "fd" and isinstance(channel, StreamChannel))
        or not (protocol.role is Role.BOTH and protocol.request is None and not protocol.sequence)
        or not (hello is not None and hello.tries and isinstance(source, MaterializedSource))
        or source.devices
        or source.lending is not None
        or source.pending is not None
    ):
        return None
    columns = hello.columns

    def make(items: Sequence[IpcMessage]) -> Prepared | None:
        regions = regions_of(items[:_FIRST])
        if len(regions) > MOST_REGIONS:
            return None
        welcome = welcome_to(channel, protocol, source, ticket)
        answer = Answer.of(hello, regions, welcome, items, channel.limits)
        runs = gathered(as_messages(answer.outgoing, channel), lambda _: None)
        sent = [(b"".join(run.views), run.attachments) for run in runs]
        return Prepared(answer._replace(outgoing=()), sent, regions, items[answer.items :])

    patience = channel.limits.lease_timeout, channel.limits.stall_timeout
    return source.answer(columns, (channel.scheme, patience, ticket), make)


def awaited(protocol: ProducerProtocol, source: _Source) -> Pending | None:
    """Return the work that must be done before a reader gets anything; none where its own streams wait for it."""
    pending = source.pending
    if pending is None or protocol.role is Role.METADATA or (protocol.pointers and protocol.told_event):
        return None
    return None if pending.done else pending


def has_come(pending: Pending, changed: Condition, given_up: Callable[[], bool], seconds: float) -> bool:
    """Wait until work is done; false if it is not waited for any more."""
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


_NOT_OPENED: Final = (
    "the producer lends its own memory, which a reader of another PID namespace, or one that did not say that it "
    "takes handles, cannot open: the bytes are sent"
)


_NOT_EXPORTED: Final = (
    "the GPU, or its driver, cannot export memory to another process (WSL2, virtual GPUs): the bytes are sent"
)
_STAGED: Final = (
    "memory of a GPU is copied to the host through two pinned buffers, and sent: UCX has no CUDA here"
)
_AS_IT_LIES: Final = (
    "memory of a GPU is packed there and sent as CUDA memory, or through the host where the GPU has no room"
)


def _apart(hello: Hello | None) -> str:
    """Say where a reader is on this machine and in another PID namespace, so far as its hello tells."""
    here, there = this_place().split(":"), (hello.ipc or "" if hello is not None else "").split(":")
    apart = here[0] == there[0] and here != there
    return "; the reader is in another PID namespace, across which UCX has no cuda_ipc" if apart else ""


def hands_over(channel: Channel, hello: Hello | None, source: _Source) -> bool:
    """Whether memory of a data set can be handed to a reader, as far as its hello and the connection say."""
    return (
        hello is not None
        and hello.pointers
        and channel.passes_memory is not None
        and channel.hands_over
        and not (channel.passes_memory == "rkey" and source.devices)
        and (not (source.devices or source.lending) or _can_open(channel, hello, source))
    )


def _can_open(channel: Channel, hello: Hello | None, source: _Source) -> bool:
    """Whether the reader can open what a data set has on devices, or lends, if that is anything."""
    if channel.passes_memory != "object" and not all(device.exports for device in source.devices):
        return False
    lends = source.lending is not None and source.lending.nbytes > 0 and source.lending.handles
    if not lends or channel.passes_memory == "object":
        return True
    return hello is not None and hello.ipc == this_place()


def road(channel: Channel, protocol: ProducerProtocol, source: _Source) -> tuple[str, str]:
    """Return the path that the bodies take, and why, when it is known whether they go by pointers."""
    scheme, lending = channel.scheme, source.lending
    if protocol.copied:
        return f"{scheme}: read", "the reader reads the producer's memory with keys"
    if protocol.pointers:
        means = "file descriptors" if channel.passes_memory == "fd" else "references"
        path, why = "mapped", f"producer and reader share memory, handed over as {means}"
        if lending is not None and lending.nbytes:
            path, why = "in place", "the producer lends memory of its pool, which it may write still"
            if lending.handles:
                why = "the producer lends its own memory, which dies with it"
            if protocol.told_event:
                why += "; the reader's streams wait for the producer's work"
            elif protocol.why_wait:
                why += f"; the producer waited for its work: {protocol.why_wait}"
        copied = f"; {lending.why}" if lending is not None and lending.refused else ""
        return f"{scheme}: {path}", why + copied
    if channel.passes_memory == "rkey" and source.devices:
        sent = _AS_IT_LIES if all(map(channel.reaches, source.devices)) else _STAGED
        return f"{scheme}: packed", sent + _apart(protocol.hello)
    if channel.passes_memory is None or not channel.hands_over:
        return f"{scheme}: packed", f"{scheme} cannot hand over memory, so the bytes are sent"
    if protocol.why_not:
        return f"{scheme}: packed", f"the bytes are sent: {protocol.why_not}"
    if not _can_open(channel, protocol.hello, source):
        exports = all(device.exports for device in source.devices)
        return f"{scheme}: packed", _NOT_OPENED if exports else _NOT_EXPORTED
    return f"{scheme}: packed", "the reader asked for the bytes"


def welcome_to(channel: Channel, protocol: ProducerProtocol, source: _Source, ticket: bytes) -> Welcome:
    """Return the welcome that a reader gets before the first message of its stream; `ticket` is of the version."""
    path, why = road(channel, protocol, source)
    charged = source.charged or protocol.copied or not protocol.pointers
    limits = channel.limits
    patience = min(limits.lease_timeout, limits.stall_timeout)
    return Welcome(
        charged,
        path,
        why,
        source.num_rows,
        source.num_batches,
        source.nbytes,
        patience,
        ticket=ticket.decode(),
        begins=source.begins or None,
    )
