"""``CUDA_VISIBLE_DEVICES``: which devices a process may use, by the rules of CUDA's programming guide (§5.2.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from bowstring.cli.doctor.topology import Gpu, Visibility

__all__ = ["ORDER", "VISIBLE", "visible_devices"]

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER: Final = "CUDA_DEVICE_ORDER"
_BY_ADDRESS: Final = "PCI_BUS_ID"


def visible_devices(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> Visibility:
    """Return what a process with this environment sees.

    A list of numbers and UUIDs shows what it names, in its order, up to the first value that names nothing. A
    process sees one MIG instance at most.

    Parameters
    ----------
    gpus
        All GPUs, by their PCI addresses, as NVML has them.
    environment
        Where the variable may be set.

    Examples
    --------
    >>> visible_devices([], {"CUDA_VISIBLE_DEVICES": "3"}).wrong
    ("'3': there is no GPU 3",)
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
