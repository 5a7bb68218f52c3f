"""The GPUs of this machine, the links between them, and which of them a process sees; ``None`` is unknown."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bowstring.errors import InvalidData


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """One active NVLink of a GPU."""

    number: int
    remote: str | None  # PCI address of what is at the other end
    remote_kind: str | None  # ``"gpu"``, ``"switch"``, ``"cpu"`` or ``"unknown"``


@dataclasses.dataclass(frozen=True, slots=True)
class MigInstance:
    """One MIG instance: a part of a GPU that processes take for a device of its own."""

    index: int  # slot on the GPU
    uuid: str | None  # as ``CUDA_VISIBLE_DEVICES`` takes it: ``"MIG-…"``
    # Compute instances share memory within one GPU instance, never between GPU instances.
    gpu_instance: int | None
    compute_instance: int | None
    memory_total: int | None  # bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, by NVML's number (``nvidia-smi`` shows the same; CUDA may number them otherwise)."""

    index: int
    name: str | None
    uuid: str | None
    bus_id: str | None
    memory_total: int | None  # bytes
    memory_used: int | None
    compute_mode: str | None  # ``"default"``, ``"exclusive process"`` or ``"prohibited"``
    persistence: bool | None  # whether the driver stays loaded when no process uses the GPU
    mig: bool | None
    mig_instances: tuple[MigInstance, ...]
    links: tuple[Link, ...]
    ecc_errors: int | None  # uncorrected ones since the driver was loaded


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """What one GPU can do with the memory of another. ``"ok"``, or why not, in NVML's words."""

    first: int  # NVML's numbers, as `second`
    second: int
    read: str | None  # status of peer access, as the next three
    write: str | None
    nvlink: str | None
    atomics: str | None
    ancestor: str | None  # nearest common one, such as ``"same PCIe switch"``
    links: int  # NVLinks of the first that end at the second; unknown behind a switch


@dataclasses.dataclass(frozen=True, slots=True)
class Visibility:
    """What ``CUDA_VISIBLE_DEVICES`` shows to this process."""

    value: str | None
    shown: tuple[str, ...]  # UUIDs of the devices, in CUDA's order as far as it can be known
    hidden: tuple[str, ...]  # UUIDs of those that this process cannot use
    wrong: tuple[str, ...]  # values that name nothing, each with the reason
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Topology:
    """GPUs and the links between them."""

    why_not: str | None  # ``None`` if NVML answers
    driver: str | None = None  # version, as `cuda`, the newest that it supports
    cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    pairs: tuple[Pair, ...] = ()
    visible: Visibility | None = None
    untold: tuple[str, ...] = ()  # questions that NVML did not answer, each with its error

    def pair(self, first: int, second: int) -> Pair | None:
        """Return what is known of one GPU's way to the memory of another."""
        return next((each for each in self.pairs if (each.first, each.second) == (first, second)), None)


def topology_of(facts: Any) -> Topology:
    """Return the topology that ``dataclasses.asdict`` made plain, such as for JSON."""
    try:
        gpus = tuple(
            Gpu(
                **gpu
                | {
                    "mig_instances": _all(MigInstance, gpu["mig_instances"]),
                    "links": _all(Link, gpu["links"]),
                }
            )
            for gpu in facts["gpus"]
        )
        visible = None if facts["visible"] is None else _visibility(facts["visible"])
        pairs = _all(Pair, facts["pairs"])
        return Topology(
            **facts | {"gpus": gpus, "pairs": pairs, "visible": visible, "untold": tuple(facts["untold"])}
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise InvalidData("this is no topology", found=repr(facts)[:80]) from error


def _all(kind: Any, facts: list[dict[str, Any]]) -> tuple[Any, ...]:
    return tuple(kind(**each) for each in facts)


def _visibility(facts: dict[str, Any]) -> Visibility:
    parts = {name: tuple(facts[name]) for name in ("shown", "hidden", "wrong", "notes")}
    return Visibility(facts["value"], **parts)


VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER: Final = "CUDA_DEVICE_ORDER"
_BY_ADDRESS: Final = "PCI_BUS_ID"


def visible_devices(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> Visibility:
    """Return what a process with this environment sees.

    CUDA reads a list up to the first value that names nothing, and shows a process one MIG instance at most.
    """
    value = environment.get(VISIBLE)
    notes: list[str] = []
    wrong: list[str] = []
    if value is None:
        shown = [device for gpu in gpus for device in _of_gpu(gpu)]
    else:
        shown = _named(value, gpus, wrong)
        if not value.strip():
            notes.append(f"{VISIBLE} is empty: no GPU is visible")
        elif any(part.strip().isdecimal() for part in value.split(",")) and _ambiguous(gpus, environment):
            notes.append(f"the GPUs differ and {ORDER} is not {_BY_ADDRESS}: CUDA may number them otherwise")
    if wrong:
        notes.append("what stands behind a wrong value is not visible")
    instances = [device for device in shown if device.startswith("MIG-")]
    if instances:
        # Whole GPUs beside an instance are not enumerated, and no second instance.
        if len(shown) > 1:
            notes.append("a process sees one MIG instance at most")
        shown = instances[:1]
    everything = [device for gpu in gpus for device in _all_of(gpu)]
    hidden = tuple(device for device in everything if device not in shown)
    return Visibility(value, tuple(shown), hidden, tuple(wrong), tuple(notes))


def _named(value: str, gpus: Sequence[Gpu], wrong: list[str]) -> list[str]:
    shown: list[str] = []
    for part in value.split(",") if value.strip() else ():
        found = _one(part.strip(), gpus)
        if not isinstance(found, str) and found and found[0] not in shown:
            shown += found[:1]
            continue
        wrong.append(f"{part.strip()!r}: {found if isinstance(found, str) else 'named twice'}")
        break
    return shown


def _one(name: str, gpus: Sequence[Gpu]) -> list[str] | str:
    """Return the devices that one value names, or why it names none."""
    if re.fullmatch(r"[+-]?[0-9]+", name):
        known = {str(gpu.index): gpu for gpu in gpus}
        digits = name.lstrip("+0") or "0"
        return _of_gpu(known[digits]) if digits in known else f"there is no GPU {name}"
    if name.startswith("MIG-GPU-"):
        return _old_name(name, gpus)
    if not name.startswith(("GPU-", "MIG-")):
        return "neither a number nor a UUID (GPU-…, MIG-…)"
    found = [
        (gpu, device)
        for gpu in gpus
        for device in ((gpu.uuid,) if name.startswith("GPU-") else _instances(gpu))
        if device is not None and device.startswith(name)
    ]
    if len(found) != 1:
        return "several devices begin so" if found else "no device of this machine has this UUID"
    gpu, device = found[0]
    return _of_gpu(gpu) if device == gpu.uuid else [device]


def _old_name(name: str, gpus: Sequence[Gpu]) -> list[str] | str:
    """Find ``MIG-GPU-<uuid>/<GPU instance>/<compute instance>``, as drivers before 470 name instances."""
    uuid, *numbers = name.removeprefix("MIG-").split("/")
    for gpu in gpus:
        for each in gpu.mig_instances if gpu.uuid == uuid else ():
            if [str(each.gpu_instance), str(each.compute_instance)] == numbers and each.uuid is not None:
                return [each.uuid]
    return "no MIG instance of this machine has this name"


def _instances(gpu: Gpu) -> list[str]:
    return [each.uuid for each in gpu.mig_instances if each.uuid is not None]


def _of_gpu(gpu: Gpu) -> list[str]:
    """Return what a process sees of a GPU: the GPU, or where it is divided, its first instance."""
    return _instances(gpu)[:1] if gpu.mig else [gpu.uuid or f"GPU {gpu.index}"]


def _all_of(gpu: Gpu) -> list[str]:
    return _instances(gpu) if gpu.mig else [gpu.uuid or f"GPU {gpu.index}"]


def _ambiguous(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> bool:
    return environment.get(ORDER) != _BY_ADDRESS and len({gpu.name for gpu in gpus}) > 1
