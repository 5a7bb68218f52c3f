"""Which GPUs there are. A child process asks CUDA and NVML, since a driver may hang or crash.

What NVML answers is kept as the plain values that doctor prints as JSON (docs/doctor.md names them); ``None`` is
unknown.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from bowstring.cli.doctor.check import Check, State
from bowstring.cli.doctor.child import Child, ChildFault, be_a_child
from bowstring.cli.terminal import size
from bowstring.memory.cuda.driver import why_no_start

CUDA: Final = "CUDA driver"
NVML: Final = "NVML"
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
LOOK: Final = "from bowstring.cli.doctor.gpus import look; look()"
_BROKEN: Final = "Run nvidia-smi; if it does not answer either, reload the driver or reboot."
Facts = dict[str, Any]
_ATTRIBUTES: Final = {"VMM": 102, "POSIX descriptors": 103, "GPUDirect RDMA": 110}


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What the look found."""

    checks: tuple[Check, ...]  # driver, NVML, each GPU, and what this process may use
    devices: tuple[str, ...] = ()  # that this process can use, such as ``"cuda:0"``
    topology: Facts | None = None  # from NVML; ``None`` where the look failed


def gpus_seen(child: Child, seconds: float) -> Seen:
    """Return what a child that looks has seen; one that fails is a driver that does."""
    try:
        facts = child.line(seconds)
    except ChildFault as fault:
        return Seen((Check(CUDA, State.BROKEN, f"the process that asks it {fault}", _BROKEN),))
    try:
        driver = Check(CUDA, State(facts["state"]), str(facts["detail"]), facts["hint"])
        topology = {name: facts["topology"][name] for name in ("why_not", *NOTHING_KNOWN)}
        return Seen((driver, *describe(topology)), tuple(map(str, facts["devices"])), topology)
    except (AttributeError, TypeError, KeyError, ValueError):
        detail = f"the process that asks it printed nonsense: {facts!r:.60}"
        return Seen((Check(CUDA, State.BROKEN, detail, _BROKEN),))


def describe(topology: Facts) -> Iterator[Check]:
    """Yield the checks of NVML, of each GPU, and of what this process may use."""
    if topology["why_not"] is not None:
        missing = "not installed" in topology["why_not"]
        hint = "pip install nvidia-ml-py" if missing else "NVML comes with NVIDIA's driver."
        yield Check(NVML, State.ABSENT, f"{topology['why_not']}; for facts about GPUs", hint)
        return
    driver, cuda, gpus = topology["driver"], topology["cuda"], topology["gpus"]
    yield Check(NVML, State.OK, f"driver {driver or '?'}, CUDA {cuda or '?'}, {len(gpus)} GPUs")
    yield from map(_gpu, gpus)
    visible = topology["visible"]
    value = "not set" if visible["value"] is None else repr(visible["value"])
    shown, hidden = len(visible["shown"]), len(visible["hidden"])
    yield Check(
        VISIBLE,
        State.ABSENT if hidden else State.OK,
        f"{value}; {shown} of {shown + hidden} devices are visible",
        "CUDA reads the list up to the first value that names no device, and shows one MIG instance at most. "
        "Both processes must see the GPU: unset it, or name the same one, best by its UUID.",
    )


def _gpu(gpu: Facts) -> Check:
    index, instances = gpu["index"], gpu["mig_instances"]
    hint = None
    if gpu["compute_mode"] not in (None, "default"):
        hint = f"nvidia-smi -i {index} -c DEFAULT, so that two processes may use it"
    elif gpu["ecc_errors"]:
        hint = "Memory has failed: nvidia-smi -q -d ECC"
    elif gpu["mig"] and not instances:
        hint = f"nvidia-smi mig -i {index} -cgi … -C makes instances; without one nobody can use it"
    memory = [None if each is None else size(each) for each in (gpu["memory_used"], gpu["memory_total"])]
    parts = [
        gpu["name"] or "name unknown",
        gpu["uuid"] or "UUID unknown",
        "memory unknown" if None in memory else f"{memory[0]} of {memory[1]} in use",
        f"compute mode {gpu['compute_mode'] or 'unknown'}",
    ]
    if gpu["mig"]:
        parts.append(f"MIG, {len(instances)} instances")
    if gpu["ecc_errors"]:
        parts.append(f"{gpu['ecc_errors']} ECC errors")
    return Check(f"GPU {index}", State.OK if hint is None else State.ABSENT, ", ".join(parts), hint)


def _uuids(gpu: Facts) -> list[str]:
    """Return the UUIDs of the devices that a GPU is to CUDA: its own, or those of its instances."""
    return [each["uuid"] for each in (gpu["mig_instances"] if gpu["mig"] else [gpu]) if each["uuid"]]


def gpu_of(topology: Facts | None, device: str) -> Facts | None:
    """Return the GPU that has one of CUDA's numbers, such as ``"cuda:0"``."""
    number = int(device.partition(":")[2])
    shown = topology["visible"]["shown"] if topology and topology["visible"] else []
    if topology is None or number >= len(shown):
        return None
    return next((gpu for gpu in topology["gpus"] if shown[number] in _uuids(gpu)), None)


def look() -> None:
    """Be the child: look, and print what is there."""
    _, say = be_a_child()
    driver, uuids = _driver()
    devices = [f"cuda:{index}" for index in range(len(uuids))]
    facts = {"state": driver.state.value, "detail": driver.detail, "hint": driver.hint}
    say(facts | {"devices": devices, "topology": read_topology(uuids)})


def _driver() -> tuple[Check, list[str]]:
    """Return what CUDA's driver says, and the UUIDs of its devices, in its order."""
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
    devices = [_device(library, index) for index in range(count.value)]
    names = "; ".join(name for name, _ in devices) or "no device"
    state = State.OK if devices else State.ABSENT
    return Check(CUDA, state, f"CUDA {_cuda_version(version)}: {names}"), [uuid for _, uuid in devices]


def _device(library: ctypes.CDLL, index: int) -> tuple[str, str]:
    """Return the name of a device, with what it lacks, and its UUID."""
    device, value = ctypes.c_int(), ctypes.c_int()
    name, identity = ctypes.create_string_buffer(128), ctypes.create_string_buffer(16)
    library.cuDeviceGet(ctypes.byref(device), index)
    library.cuDeviceGetName(name, len(name), device)
    # The second version, of CUDA 11.4, tells MIG instances apart.
    get_uuid = getattr(library, "cuDeviceGetUuid_v2", None) or library.cuDeviceGetUuid
    get_uuid(identity, device)
    lacks: list[str] = []
    for what, attribute in _ATTRIBUTES.items():
        code = library.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        if code or not value.value:
            lacks.append(what)
    described = name.value.decode(errors="replace") + (f" (without {', '.join(lacks)})" if lacks else "")
    return described, str(uuid.UUID(bytes=identity.raw))


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
_MOST_INSTANCES: Final = 64
_UNCORRECTED, _SINCE_LOADED = 1, 0


NOTHING_KNOWN: Final[Facts] = dict.fromkeys(("driver", "cuda", "visible")) | {
    name: [] for name in ("gpus", "pairs", "untold")
}


def read_topology(uuids: Sequence[str] = ()) -> Facts:
    """Ask NVML for the GPUs of this machine, and find those that CUDA shows by their UUIDs, which have no prefix.

    Never raises: what cannot be known is ``None``, and among the "untold". A broken driver may hang or crash.
    """
    try:
        # Without a driver nvidia-ml-py can be imported, and `nvmlInit` fails.
        module = importlib.import_module("pynvml")
        module.nvmlInit()
    except ImportError:
        return {"why_not": "nvidia-ml-py is not installed", **NOTHING_KNOWN}
    except Exception as error:  # noqa: BLE001  NVML's errors have no root that is there without NVML
        return {"why_not": f"NVML cannot be used: {_text_of(error)}", **NOTHING_KNOWN}
    nvml = _Nvml(module)
    try:
        return nvml.topology(uuids)
    finally:
        nvml.ask("nvmlShutdown")


def _text_of(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _number(value: Any) -> int:
    # Some versions of the module return the ctypes object.
    return int(getattr(value, "value", value))


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class _Nvml:
    """NVML, and the questions that it did not answer."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._untold: dict[str, None] = {}

    def ask(
        self,
        call: str,
        *arguments: Any,
        read: Callable[[Any], Any] = lambda value: value,
        quiet: bool = False,
    ) -> Any:
        """Return the answer to one question, ``None`` where there is none; noted, unless that is to be expected."""
        try:
            return read(getattr(self._module, call)(*arguments))
        except Exception as error:  # noqa: BLE001  as above; and an answer may be of an unknown form
            if not quiet:
                self._untold.setdefault(f"{call}: {_text_of(error)}")
            return None

    def topology(self, uuids: Sequence[str]) -> Facts:
        """Ask everything."""
        count = self.ask("nvmlDeviceGetCount", read=_number) or 0
        handles = [self.ask("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
        # One GPU that was lost, or that is not for us, does not hide the others.
        known = {index: handle for index, handle in enumerate(handles) if handle is not None}
        gpus = [self._gpu(index, handle) for index, handle in known.items()]
        by_bare = {uuid.partition("-")[2]: uuid for gpu in gpus for uuid in _uuids(gpu)}
        shown = [by_bare.get(each, f"GPU-{each}") for each in uuids]
        hidden = [each for each in by_bare.values() if each not in shown]
        return {
            "why_not": None,
            "driver": self.ask("nvmlSystemGetDriverVersion", read=_text),
            "cuda": self.ask("nvmlSystemGetCudaDriverVersion", read=_cuda_version),
            "gpus": gpus,
            "pairs": [
                self._pair(first, second, known) for first in known for second in known if first != second
            ],
            "visible": {"value": os.environ.get(VISIBLE), "shown": shown, "hidden": hidden},
            "untold": list(self._untold),
        }

    def _gpu(self, index: int, handle: Any) -> Facts:
        total, used = self.ask(
            "nvmlDeviceGetMemoryInfo", handle, read=lambda info: (_number(info.total), _number(info.used))
        ) or (None, None)
        mig = self.ask("nvmlDeviceGetMigMode", handle, read=lambda modes: bool(_number(modes[0])))
        return {
            "index": index,
            "name": self.ask("nvmlDeviceGetName", handle, read=_text),
            "uuid": self.ask("nvmlDeviceGetUUID", handle, read=_text),
            "bus_id": self.ask("nvmlDeviceGetPciInfo", handle, read=lambda info: _text(info.busId).upper()),
            "memory_total": total,
            "memory_used": used,
            "compute_mode": self.ask(
                "nvmlDeviceGetComputeMode", handle, read=lambda mode: _MODES.get(_number(mode))
            ),
            "persistence": self.ask(
                "nvmlDeviceGetPersistenceMode", handle, read=lambda mode: bool(_number(mode))
            ),
            "mig": mig,
            "mig_instances": list(self._instances(handle)) if mig else [],
            "ecc_errors": self.ask(
                "nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _SINCE_LOADED, read=_number
            ),
        }

    def _instances(self, handle: Any) -> Iterator[Facts]:
        most = self.ask("nvmlDeviceGetMaxMigDeviceCount", handle, read=_number) or 0
        for slot in range(min(most, _MOST_INSTANCES)):
            # NVML reports an empty slot as an error.
            part = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot, quiet=True)
            if part is not None:
                yield {
                    "index": slot,
                    "uuid": self.ask("nvmlDeviceGetUUID", part, read=_text),
                    "gpu_instance": self.ask("nvmlDeviceGetGpuInstanceId", part, read=_number),
                    "compute_instance": self.ask("nvmlDeviceGetComputeInstanceId", part, read=_number),
                    "memory_total": self.ask(
                        "nvmlDeviceGetMemoryInfo", part, read=lambda memory: _number(memory.total)
                    ),
                }

    def _pair(self, first: int, second: int, handles: dict[int, Any]) -> Facts:
        both = handles[first], handles[second]
        status = {
            name: self.ask(
                "nvmlDeviceGetP2PStatus",
                *both,
                number,
                read=lambda code: _STATUS.get(_number(code), "unknown"),
            )
            for name, number in _CAPABILITIES.items()
        }
        ancestor = self.ask(
            "nvmlDeviceGetTopologyCommonAncestor", *both, read=lambda code: _ANCESTORS.get(_number(code))
        )
        return {"first": first, "second": second, **status, "ancestor": ancestor}


def _cuda_version(value: Any) -> str:
    version = _number(value)
    return f"{version // 1000}.{version % 1000 // 10}"
