"""Which GPUs there are. A child process asks CUDA and NVML, since a driver may hang or crash."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from bowstring.cli.doctor.check import Check, State
from bowstring.cli.doctor.child import Child, ChildFault, be_a_child
from bowstring.cli.doctor.topology import (
    Gpu,
    Link,
    MigInstance,
    Pair,
    Topology,
    Visibility,
    topology_of,
    visible_devices,
)
from bowstring.cli.terminal import size
from bowstring.errors import InvalidData
from bowstring.memory.cuda.driver import why_no_start

CUDA: Final = "CUDA driver"
NVML: Final = "NVML"
LOOK: Final = "from bowstring.cli.doctor.gpus import look; look()"
_BROKEN: Final = "Run nvidia-smi; if it does not answer either, reload the driver or reboot."
_ATTRIBUTES: Final = {"VMM": 102, "POSIX descriptors": 103, "GPUDirect RDMA": 110}


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What the look found."""

    checks: tuple[Check, ...]  # driver, NVML, each GPU, and what this process may use
    devices: tuple[str, ...] = ()  # that this process can use, such as ``"cuda:0"``
    topology: Topology | None = None  # from NVML; ``None`` where the look failed


class Look:
    """A look that is under way, so that it takes no time of its own."""

    def __init__(self, child: Child) -> None:
        self._child = child

    @classmethod
    @contextlib.contextmanager
    def begin(cls, program: str) -> Iterator[Look]:
        """Start to look."""
        with Child(program, {}) as child:
            yield cls(child)

    def end(self, seconds: float) -> Seen:
        """Return what was seen; a child that fails is a driver that does."""
        try:
            facts = self._child.line(seconds)
        except ChildFault as fault:
            return Seen((Check(CUDA, State.BROKEN, f"whoever asks the driver {fault}", _BROKEN),))
        try:
            driver = Check(CUDA, State(facts["state"]), str(facts["detail"]), facts["hint"])
            topology = topology_of(facts["topology"])
            devices = tuple(map(str, facts["devices"]))
        except (InvalidData, TypeError, KeyError, ValueError):
            return Seen(
                (Check(CUDA, State.BROKEN, f"whoever asks it talks nonsense: {facts!r:.60}", _BROKEN),)
            )
        return Seen((driver, *_described(topology)), devices, topology)


def _described(topology: Topology) -> Iterator[Check]:
    if topology.why_not is not None:
        missing = "not installed" in topology.why_not
        hint = "pip install nvidia-ml-py" if missing else "NVML comes with NVIDIA's driver."
        yield Check(NVML, State.ABSENT, f"{topology.why_not}; for facts about GPUs", hint)
        return
    seen = f"driver {topology.driver or '?'}, CUDA {topology.cuda or '?'}, {len(topology.gpus)} GPUs"
    yield Check(NVML, State.OK, seen)
    for gpu in topology.gpus:
        yield _gpu(gpu)
    if topology.visible is not None:
        yield _visible(topology.visible)


def _gpu(gpu: Gpu) -> Check:
    hint = None
    if gpu.compute_mode not in (None, "default"):
        hint = f"nvidia-smi -i {gpu.index} -c DEFAULT, so that two processes may use it"
    elif gpu.ecc_errors:
        hint = "Memory has failed: nvidia-smi -q -d ECC"
    elif gpu.mig and not gpu.mig_instances:
        hint = f"nvidia-smi mig -i {gpu.index} -cgi … -C makes instances; without one nobody can use it"
    parts = [
        gpu.name or "name not told",
        "memory not told" if gpu.memory_total is None else f"{size(gpu.memory_total)}",
        f"compute mode {gpu.compute_mode or 'not told'}",
    ]
    if gpu.mig:
        parts.append(f"MIG, {len(gpu.mig_instances)} instances")
    if gpu.ecc_errors:
        parts.append(f"{gpu.ecc_errors} ECC errors")
    return Check(f"GPU {gpu.index}", State.OK if hint is None else State.ABSENT, ", ".join(parts), hint)


def _visible(visible: Visibility) -> Check:
    name = "CUDA_VISIBLE_DEVICES"
    set_to = "not set" if visible.value is None else repr(visible.value)
    count = f"{len(visible.shown)} of {len(visible.shown) + len(visible.hidden)} devices are visible"
    seen = "; ".join((set_to, count, *visible.wrong, *visible.notes))
    hint = "Both processes must see the GPU: unset it, or name the same one, best by its UUID."
    state = State.BROKEN if visible.wrong else State.ABSENT if visible.hidden else State.OK
    return Check(name, state, seen, hint)


def look() -> None:
    """Be the child: look, and say what is there."""
    _, say = be_a_child()
    say_what_is_there(say, *_driver(), read_topology())


def say_what_is_there(say: Any, driver: Check, devices: list[str], topology: Topology) -> None:
    """Print what :meth:`Look.end` reads."""
    say(
        {
            "state": driver.state.value,
            "detail": driver.detail,
            "hint": driver.hint,
            "devices": devices,
            "topology": dataclasses.asdict(topology),
        }
    )


def _driver() -> tuple[Check, list[str]]:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        if "cannot open shared object file: No such file" not in str(error):
            return Check(CUDA, State.BROKEN, str(error), _BROKEN), []
        hint = "Install NVIDIA's driver, if there is a GPU; in a container: docker run --gpus all"
        return Check(CUDA, State.ABSENT, "not there (libcuda.so.1)", hint), []
    code = library.cuInit(0)
    if code:
        return Check(CUDA, State.ABSENT, f"cuInit returns {code}", why_no_start(code)), []
    version, count = ctypes.c_int(), ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    library.cuDeviceGetCount(ctypes.byref(count))
    found = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    names = [_device(library, index) for index in range(count.value)]
    check = Check(CUDA, State.OK if names else State.ABSENT, f"{found}: {'; '.join(names) or 'no device'}")
    return check, [f"cuda:{index}" for index in range(count.value)]


def _device(library: ctypes.CDLL, index: int) -> str:
    device, name, value = ctypes.c_int(), ctypes.create_string_buffer(128), ctypes.c_int()
    library.cuDeviceGet(ctypes.byref(device), index)
    library.cuDeviceGetName(name, len(name), device)
    lacks: list[str] = []
    for what, attribute in _ATTRIBUTES.items():
        code = library.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        if code or not value.value:
            lacks.append(what)
    return name.value.decode(errors="replace") + (f" (without {', '.join(lacks)})" if lacks else "")


_T = TypeVar("_T")

# Numbers of nvml.h. Not those of the module: its NVML_P2P_CAPS_INDEX_READ is a tuple, by a comma too many.
_CAPABILITIES: Final = {"read": 0, "write": 1, "nvlink": 2, "atomics": 3}
_STATUS: Final = {
    0: "ok",
    1: "chipset not supported",
    2: "GPU not supported",
    3: "IOH topology not supported",
    4: "disabled by a setting of the driver",
    5: "not supported",
    6: "unknown",
}
_ANCESTORS: Final = {
    0: "same board",
    10: "same PCIe switch",
    20: "several PCIe switches",
    30: "same host bridge",
    40: "same NUMA node",
    50: "across NUMA nodes",
}
_MODES: Final = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_ENDS: Final = {0: "gpu", 1: "cpu", 2: "switch", 255: "unknown"}
_MOST_LINKS: Final = 18
_MOST_INSTANCES: Final = 64
_UNCORRECTED, _SINCE_LOADED = 1, 0


def read_topology() -> Topology:
    """Ask NVML for the GPUs of this machine. Never raises: what cannot be known is ``None``, and in `untold`.

    A broken driver may hang or crash the process that asks: ask in a child where that must not be.
    """
    try:
        # nvidia-ml-py tells nothing but how to install it where there is no driver: `nvmlInit` says so.
        module = importlib.import_module("pynvml")
        module.nvmlInit()
    except ImportError:
        return Topology("nvidia-ml-py is not installed")
    except Exception as error:  # noqa: BLE001  NVML's errors have no root that is there without NVML
        return Topology(f"NVML cannot be used: {_said(error)}")
    asked = _Asked(module)
    try:
        return asked.topology(os.environ)
    finally:
        asked.ask("nvmlShutdown", read=_anything)


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _number(value: Any) -> int:
    # Some versions of the module return the ctypes object.
    return int(getattr(value, "value", value))


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _anything(value: Any) -> Any:
    return value


class _Asked:
    """NVML, and the questions that it did not answer."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._untold: dict[str, None] = {}

    def ask(self, call: str, *arguments: Any, read: Callable[[Any], _T], quiet: bool = False) -> _T | None:
        """Return the answer to one question, ``None`` where there is none; noted, unless that is to be expected."""
        try:
            return read(getattr(self._module, call)(*arguments))
        except Exception as error:  # noqa: BLE001  as above; and an answer may be of an unknown form
            if not quiet:
                self._untold.setdefault(f"{call}: {_said(error)}")
            return None

    def topology(self, environment: Mapping[str, str]) -> Topology:
        """Ask everything."""
        count = self.ask("nvmlDeviceGetCount", read=_number) or 0
        handles = {
            index: self.ask("nvmlDeviceGetHandleByIndex", index, read=_anything) for index in range(count)
        }
        # One GPU that was lost, or that is not for us, does not hide the others.
        known = {index: handle for index, handle in handles.items() if handle is not None}
        gpus = tuple(self._gpu(index, handle) for index, handle in known.items())
        pairs = tuple(
            self._pair(first, second, known)
            for first in gpus
            for second in gpus
            if first.index != second.index
        )
        return Topology(
            None,
            self.ask("nvmlSystemGetDriverVersion", read=_text),
            self.ask("nvmlSystemGetCudaDriverVersion", read=_cuda_version),
            gpus,
            pairs,
            visible_devices(gpus, environment),
            tuple(self._untold),
        )

    def _gpu(self, index: int, handle: Any) -> Gpu:
        memory = self.ask("nvmlDeviceGetMemoryInfo", handle, read=_total_and_used)
        mig = self.ask("nvmlDeviceGetMigMode", handle, read=lambda modes: bool(_number(modes[0])))
        return Gpu(
            index,
            self.ask("nvmlDeviceGetName", handle, read=_text),
            self.ask("nvmlDeviceGetUUID", handle, read=_text),
            self._bus("nvmlDeviceGetPciInfo", handle),
            None if memory is None else memory[0],
            None if memory is None else memory[1],
            self.ask("nvmlDeviceGetComputeMode", handle, read=lambda found: _MODES.get(_number(found))),
            self.ask("nvmlDeviceGetPersistenceMode", handle, read=lambda found: bool(_number(found))),
            mig,
            tuple(self._instances(handle)) if mig else (),
            tuple(self._links(handle)),
            self.ask("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _SINCE_LOADED, read=_number),
        )

    def _bus(self, call: str, *arguments: Any) -> str | None:
        return self.ask(call, *arguments, read=lambda found: _text(found.busId).upper())

    def _instances(self, handle: Any) -> list[MigInstance]:
        most = self.ask("nvmlDeviceGetMaxMigDeviceCount", handle, read=_number) or 0
        found: list[MigInstance] = []
        for slot in range(min(most, _MOST_INSTANCES)):
            # An empty slot is an error to NVML, and none to us.
            each = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot, read=_anything, quiet=True)
            if each is None:
                continue
            found.append(
                MigInstance(
                    slot,
                    self.ask("nvmlDeviceGetUUID", each, read=_text),
                    self.ask("nvmlDeviceGetGpuInstanceId", each, read=_number),
                    self.ask("nvmlDeviceGetComputeInstanceId", each, read=_number),
                    self.ask("nvmlDeviceGetMemoryInfo", each, read=lambda memory: _number(memory.total)),
                )
            )
        return found

    def _links(self, handle: Any) -> list[Link]:
        found: list[Link] = []
        for number in range(_MOST_LINKS):
            # A GPU without NVLink, and the first number that it does not have, are errors to NVML.
            active = self.ask("nvmlDeviceGetNvLinkState", handle, number, read=_number, quiet=True)
            if active is None:
                break
            if active:
                kind = self.ask(
                    "nvmlDeviceGetNvLinkRemoteDeviceType",
                    handle,
                    number,
                    read=lambda found: _ENDS.get(_number(found), "unknown"),
                )
                remote = self._bus("nvmlDeviceGetNvLinkRemotePciInfo", handle, number)
                found.append(Link(number, remote, kind))
        return found

    def _pair(self, first: Gpu, second: Gpu, handles: Mapping[int, Any]) -> Pair:
        both = handles[first.index], handles[second.index]
        status = {
            name: self.ask("nvmlDeviceGetP2PStatus", *both, number, read=_status)
            for name, number in _CAPABILITIES.items()
        }
        return Pair(
            first.index,
            second.index,
            **status,
            ancestor=self.ask(
                "nvmlDeviceGetTopologyCommonAncestor",
                *both,
                read=lambda found: _ANCESTORS.get(_number(found)),
            ),
            links=sum(link.remote is not None and link.remote == second.bus_id for link in first.links),
        )


def _status(value: Any) -> str:
    return _STATUS.get(_number(value), "unknown")


def _total_and_used(memory: Any) -> tuple[int, int]:
    return _number(memory.total), _number(memory.used)


def _cuda_version(value: Any) -> str:
    version = _number(value)
    return f"{version // 1000}.{version % 1000 // 10}"
