"""The GPUs of this machine as NVML describes them, and those that a process can use; ``None`` is unknown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from bowstring.errors import InvalidData


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
    ecc_errors: int | None  # uncorrected ones since the driver was loaded

    def uuids(self) -> Iterator[str]:
        """Yield the UUIDs of the devices that it is to CUDA: its own, or those of its instances."""
        for device in self.mig_instances if self.mig else (self,):
            if device.uuid is not None:
                yield device.uuid


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


@dataclasses.dataclass(frozen=True, slots=True)
class Visibility:
    """What CUDA shows to this process."""

    value: str | None  # of ``CUDA_VISIBLE_DEVICES``
    shown: tuple[str, ...]  # UUIDs of the devices, in CUDA's order
    hidden: tuple[str, ...]  # UUIDs of those that this process cannot use


@dataclasses.dataclass(frozen=True, slots=True)
class Topology:
    """GPUs, and what they can do with each other's memory."""

    why_not: str | None  # ``None`` if NVML answers
    driver: str | None = None  # version, as `cuda`, the newest that it supports
    cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    pairs: tuple[Pair, ...] = ()
    visible: Visibility | None = None
    untold: tuple[str, ...] = ()  # questions that NVML did not answer, each with its error

    def gpu_of(self, device: str) -> Gpu | None:
        """Return the GPU that has one of CUDA's numbers, such as ``"cuda:0"``."""
        number = int(device.partition(":")[2])
        if self.visible is None or number >= len(self.visible.shown):
            return None
        uuid = self.visible.shown[number]
        return next((gpu for gpu in self.gpus if uuid in gpu.uuids()), None)


def topology_of(facts: Any) -> Topology:
    """Return the topology that ``dataclasses.asdict`` made plain, such as for JSON."""
    try:
        gpus = tuple(
            Gpu(**gpu | {"mig_instances": tuple(MigInstance(**each) for each in gpu["mig_instances"])})
            for gpu in facts["gpus"]
        )
        pairs = tuple(Pair(**pair) for pair in facts["pairs"])
        visible = facts["visible"]
        if visible is not None:
            shown, hidden = tuple(visible["shown"]), tuple(visible["hidden"])
            visible = Visibility(visible["value"], shown, hidden)
        plain = {"gpus": gpus, "pairs": pairs, "visible": visible, "untold": tuple(facts["untold"])}
        return Topology(**facts | plain)
    except (TypeError, KeyError, AttributeError) as error:
        raise InvalidData("not a topology", found=repr(facts)[:80]) from error


def visibility(gpus: Sequence[Gpu], value: str | None, devices: Sequence[str]) -> Visibility:
    """Return which GPUs this process can use, from the UUIDs of CUDA's devices, which have no prefix."""
    known = {uuid.partition("-")[2]: uuid for gpu in gpus for uuid in gpu.uuids()}
    shown = tuple(known.get(device, f"GPU-{device}") for device in devices)
    return Visibility(value, shown, tuple(uuid for uuid in known.values() if uuid not in shown))
