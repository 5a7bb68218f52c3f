"""The devices of this process: how they are found, and the streams on which a thread queues work."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, TypeVar

from bowstring.errors import NotOnDevice
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory.device import CPU_DEVICE_TYPE, Device, cpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bowstring.memory.cuda.streams import NamedStream

# CU_STREAM_LEGACY, CU_STREAM_PER_THREAD
_LEGACY: Final = 1
_PER_THREAD: Final = 2
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_LAST_DEFAULT: Final = 2  # 0, 1 and 2 are default streams of whatever device is current


def settle_devices(devices: Iterable[Device], seconds: float = DEFAULT_LIMITS.device_timeout) -> None:
    """Wait until what is queued on the current streams of some devices is done."""
    for device in {each for each in devices if not each.is_host}:
        device.wait_stream(seconds)


class _Kind(NamedTuple):
    """How devices of one kind are found in this process."""

    by_uuid: Callable[[bytes], Device]
    by_number: Callable[[int], Device]
    in_use: Callable[[], Iterable[Device]]


_KINDS: dict[str, _Kind] = {}
_NAMES: dict[int, str] = {2: "cuda"}
# Modules that are imported on first use.
_MODULES: Final = {"cuda": "bowstring.memory.cuda.device"}


def register_devices(
    arrow_device_type: int,
    kind: str,
    by_uuid: Callable[[bytes], Device],
    by_number: Callable[[int], Device],
    in_use: Callable[[], Iterable[Device]] = tuple,
) -> None:
    """Register how devices of an Arrow device type are found: by UUID, by number (``"cuda:1"``), those in use."""
    _KINDS[kind] = _Kind(by_uuid, by_number, in_use)
    _NAMES[arrow_device_type] = kind


def _kind(name: str | None) -> _Kind | None:
    if name in _MODULES:
        importlib.import_module(_MODULES[name])
    return None if name is None else _KINDS.get(name)


def current_streams() -> dict[Device, NamedStream]:
    """Return the streams on which this thread queues work now, for another thread that works on its behalf."""
    streams: dict[Device, NamedStream] = {}
    if "cupy" in sys.modules:
        _kind("cuda")
    for device in [device for kind in list(_KINDS.values()) for device in kind.in_use()]:
        with contextlib.suppress(Exception):  # a GPU that failed, which data on the host need not care about
            stream = device.current()
            if stream is not None:
                # The default stream of each thread is another one, and the legacy one waits for all of them.
                legacy = stream.address == _PER_THREAD
                streams[device] = stream._replace(address=_LEGACY) if legacy else stream
    return streams


def with_current_streams(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Return a function for another thread, whose work goes to the streams current in this one now."""
    streams = current_streams()

    def call(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        with contextlib.ExitStack() as blocks:
            for device, stream in streams.items():
                if stream.address:  # the default one is current there, too
                    blocks.enter_context(device.on([stream]))
            return function(*arguments, **options)

    return call


def device_by_id(arrow_device_type: int, device_id: int) -> Device:
    """Return a device of this process by its type and number in the Arrow C Device interface.

    Raises
    ------
    NotOnDevice
        This process knows no such device.

    Examples
    --------
    >>> device_by_id(1, -1)
    <Device cpu>
    """
    if arrow_device_type == CPU_DEVICE_TYPE:
        return cpu()
    kind = _NAMES.get(arrow_device_type)
    if kind is None:
        raise NotOnDevice(
            "the data are on a device of an unknown type",
            expected="the host (1) or CUDA (2)",
            found=arrow_device_type,
            hint="Copy them to the host first.",
        )
    return device_by_name(f"{kind}:{device_id}")


def device_by_name(name: str) -> Device:
    """Return a device of this process.

    Parameters
    ----------
    name
        ``"cpu"``; ``"cuda:1"``, or ``"cuda"`` for the first.

    Raises
    ------
    NotOnDevice
        This process has no such device.

    Examples
    --------
    >>> device_by_name("cpu")
    <Device cpu>
    """
    if name == cpu().name:
        return cpu()
    word, _, number = str(name).partition(":")
    kind = _kind(word)
    if kind is None or not (number.isdecimal() or name == word):
        raise NotOnDevice("this process has no such device", expected="cpu, or cuda:N", found=repr(name))
    return kind.by_number(int(number or 0))


def device_named(device: Device | str) -> Device:
    """Return the device that a user means, who gave it or its name; what is neither names no device."""
    return device if isinstance(device, Device) else device_by_name(device)


def find_device(arrow_device_type: int, uuid: bytes) -> Device:
    """Return the device of this process with that type and UUID."""
    if arrow_device_type == CPU_DEVICE_TYPE:
        return cpu()
    kind = _kind(_NAMES.get(arrow_device_type))
    if kind is None:
        raise NotOnDevice(
            "the memory is on a device that this process cannot reach",
            found=f"Arrow device type {arrow_device_type}, UUID {uuid.hex()}",
            hint='The producer can publish it from the host: to_device("cpu").',
        )
    return kind.by_uuid(uuid)


def on_streams(device: Device, streams: Sequence[NamedStream]) -> contextlib.AbstractContextManager[None]:
    """Return a block whose work on data of a GPU is queued behind that of some streams, on the first one."""
    if not streams:
        return contextlib.nullcontext()
    address, owner = streams[0]
    numbers = (getattr(owner, name, None) for name in ("device_id", "device_index"))  # of CuPy, of torch
    ordinal = next((each for each in numbers if isinstance(each, int) and each >= 0), None)
    if ordinal is not None or device.is_host:
        device = device_by_name(f"cuda:{ordinal or 0}")
    # The object does not say where the stream is, or there is none but an address.
    if ordinal is None and address > _LAST_DEFAULT:
        known: Any = device
        number = known.driver.stream_device(known.ordinal, address)
        device = device if number == known.ordinal else device_by_id(device.arrow_device_type, number)
    return device.on(streams)
