"""Which GPUs there are. A child process looks, since a driver may hang or crash; nothing of CUDA is loaded here."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
from collections.abc import Iterator
from typing import Any, Final

from bowstring.cli.doctor.check import Check, State
from bowstring.cli.doctor.child import Child, ChildFault, be_a_child
from bowstring.cli.doctor.nvml import read_topology
from bowstring.cli.doctor.topology import Gpu, Topology, Visibility, topology_of
from bowstring.cli.text import size
from bowstring.errors import InvalidData
from bowstring.memory.cuda.driver import why_no_start

__all__ = ["CUDA", "LOOK", "NVML", "Look", "Seen", "look", "say_what_is_there"]

CUDA: Final = "CUDA driver"
NVML: Final = "NVML"
LOOK: Final = "from bowstring.cli.doctor.devices import look; look()"
_BROKEN: Final = "Run nvidia-smi; if it does not answer either, reload the driver or reboot."
_ATTRIBUTES: Final = {"VMM": 102, "POSIX descriptors": 103}


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What the look found.

    Attributes
    ----------
    checks
        Of the driver, NVML, each GPU, and what this process may use of them.
    devices
        Names of the GPUs that this process can use: ``"cuda:0"``.
    topology
        What NVML tells; ``None`` where the look failed.
    """

    checks: tuple[Check, ...]
    devices: tuple[str, ...] = ()
    topology: Topology | None = None


class Look:
    """A look that is under way, so that it takes no time of its own.

    Parameters
    ----------
    child
        Who looks.
    """

    def __init__(self, child: Child) -> None:
        self._child = child

    @classmethod
    @contextlib.contextmanager
    def begin(cls, program: str = LOOK) -> Iterator[Look]:
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
        hint = (
            "pip install 'bowstring[cuda13]' (or cuda12)" if missing else "NVML comes with NVIDIA's driver."
        )
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
