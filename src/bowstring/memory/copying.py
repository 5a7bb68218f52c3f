"""Copying from one device to another: which road there is, and why."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, NamedTuple

from bowstring.errors import DeviceError, NotOnDevice, OutOfBudget
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory.cuda.driver_device import DriverDevice
from bowstring.memory.staging import CHUNK, Chunk, stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from bowstring.memory.buffer import Buffer
    from bowstring.memory.device import Device
    from bowstring.memory.region import Region

__all__ = ["Road", "Stretch", "carry", "forget_roads", "road_between"]

_SECONDS: Final = DEFAULT_LIMITS.device_timeout


class Road(NamedTuple):
    """How memory gets from one device to another."""

    name: str
    """``"none"``, ``"copy"``, ``"peer copy"``, ``"staged copy"``, ``"copy to the host"`` or ``"copy from the
    host"``."""
    why: str


class Stretch(NamedTuple):
    """Contiguous memory of the source, and where it goes."""

    start: int
    """In bytes of the target."""
    nbytes: int
    address: int
    """Where it lies on the source; of no meaning on the host."""
    load: Callable[[int, int, int], None] | None = None
    """On the host, which need not have it in one piece: puts its bytes from one to another at an address."""


_roads: dict[tuple[bytes, bytes], Road] = {}


def road_between(source: Device, target: Device) -> Road:
    """Return how memory gets from a device to another one; drivers are asked once for each pair.

    Examples
    --------
    >>> from bowstring.memory import cpu
    >>> road_between(cpu(), cpu()).name
    'none'
    """
    if source is target:
        return Road("none", f"the data are on {target.name}")
    if target.is_host:
        return Road("copy to the host", "the host was asked for")
    if source.is_host:
        return Road("copy from the host", f"{target.name} was asked for, and the data are on the host")
    # Without a lock, which a fork may leave taken for good: two that come together both ask.
    key = source.uuid, target.uuid
    road = _roads.get(key)
    return road if road is not None else _roads.setdefault(key, _probed(source, target))


def forget_roads() -> None:
    """Have the drivers asked again."""
    _roads.clear()


def _probed(source: Device, target: Device) -> Road:
    if not isinstance(source, DriverDevice) or not isinstance(target, DriverDevice):
        return Road("staged copy", "they have no driver in common")
    if source.driver is not target.driver:
        return Road("staged copy", f"{source.name} and {target.name} have different drivers")
    try:
        reach = target.driver.can_reach(target.ordinal, source.ordinal)
    except DeviceError as error:
        return Road("staged copy", f"whether {target.name} reaches {source.name} is not known: {error}")
    if reach:
        return Road("peer copy", f"{target.name} reaches the memory of {source.name}")
    return Road("staged copy", f"{target.name} cannot reach the memory of {source.name}")


def carry(
    stretches: Callable[[], Iterable[Stretch]],
    source: Device,
    into: Buffer,
    regions: Sequence[Region] = (),
    seconds: float = _SECONDS,
) -> Road:
    """Copy memory to another device, and wait until it is there; return the road that it took.

    What was queued on the current stream of the source is done first.

    Parameters
    ----------
    stretches
        What to copy; called again where a road turns out to be closed.
    source
        Where they are.
    into
        The target, on another device; one of the two may be the host. Where copying ends by an error, its region
        goes home when no copy can reach it any more.
    regions
        What the stretches lie in, as far as the target must be let in.
    seconds
        The most that each wait may take.

    Raises
    ------
    NotOnDevice
        There is no road, and why.
    DeviceError, DeadlineExceeded
        A device failed, or did not come to a copy in time.
    """
    road = road_between(source, into.device)
    if road.name != "peer copy":
        return _staged(road, stretches, source, into, seconds)
    assert isinstance(source, DriverDevice)
    try:
        try:
            _peer_copy(stretches(), source, into, regions)
        except DeviceError as error:
            # Such as memory that somebody else mapped for its own device alone.
            road = Road("staged copy", f"the peer copy was refused: {error}")
            return _staged(road, stretches, source, into, seconds)
        source.wait_stream(seconds)
    except BaseException:
        # Whoever uses the target's memory next waits for its own device, and the source is who writes there.
        source.later(functools.partial(_let_go, [into.region]))
        raise
    return road


def _let_go(kept: list[Region]) -> None:
    kept.clear()


def _staged(
    road: Road, stretches: Callable[[], Iterable[Stretch]], source: Device, into: Buffer, seconds: float
) -> Road:
    target = into.device
    chunks = (chunk for stretch in stretches() for chunk in _chunks(stretch, source))
    device = source if target.is_host else target
    if not isinstance(device, DriverDevice):
        raise NotOnDevice("there is no way to copy", expected=target.name, found=source.name)
    try:
        stage(chunks, source, target, into.address, device, seconds)
    except OutOfBudget as error:
        raise NotOnDevice(
            f"there is no way from {source.name} to {target.name}",
            found=f"{road.why}; no host memory can be pinned: {error}",
        ) from error
    return road


def _peer_copy(
    stretches: Iterable[Stretch],
    source: DriverDevice,
    into: Buffer,
    regions: Sequence[Region],
) -> None:
    target = into.device
    assert isinstance(target, DriverDevice)
    for region in regions:
        if region.slab is not None:
            source.let_in(region.slab, target)
    for stretch in stretches:
        source.copy_to_peer(target, into.address + stretch.start, stretch.address, stretch.nbytes)


def _chunks(stretch: Stretch, source: Device) -> Iterator[Chunk]:
    for first in range(0, stretch.nbytes, CHUNK):
        end = min(first + CHUNK, stretch.nbytes)
        load = functools.partial(_load, stretch, source, first, end)
        yield Chunk(stretch.start + first, end - first, load)


def _load(stretch: Stretch, source: Device, first: int, end: int, buffer: int) -> None:
    if stretch.load is not None:
        stretch.load(first, end, buffer)
    else:
        source.copy_out(buffer, stretch.address + first, end - first)
