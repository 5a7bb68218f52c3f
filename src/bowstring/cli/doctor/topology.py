"""Topology: the GPUs of this machine and the roads between them, as facts; what nobody tells is ``None``."""

from __future__ import annotations

import dataclasses
from typing import Any

from bowstring.errors import InvalidData

__all__ = ["Gpu", "Link", "MigInstance", "Pair", "Topology", "Visibility", "topology_of"]


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """One active NVLink of a GPU.

    Attributes
    ----------
    number
        Which of the GPU's links.
    remote
        PCI address of what is at the other end.
    remote_kind
        ``"gpu"``, ``"switch"``, ``"cpu"`` or ``"unknown"``.
    """

    number: int
    remote: str | None
    remote_kind: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class MigInstance:
    """One MIG instance: a part of a GPU that processes take for a device of its own.

    Attributes
    ----------
    index
        Its slot on the GPU.
    uuid
        As ``CUDA_VISIBLE_DEVICES`` takes it: ``"MIG-…"``.
    gpu_instance, compute_instance
        Memory is shared between compute instances of one GPU instance, never between GPU instances.
    memory_total
        Bytes.
    """

    index: int
    uuid: str | None
    gpu_instance: int | None
    compute_instance: int | None
    memory_total: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, by NVML's number (``nvidia-smi`` shows the same; CUDA may number them otherwise).

    Attributes
    ----------
    index, name, uuid, bus_id
        Which.
    memory_total, memory_used
        Bytes.
    compute_mode
        ``"default"``, ``"exclusive process"`` or ``"prohibited"``.
    persistence
        Whether the driver stays loaded when nobody uses the GPU.
    mig
        Whether it is divided into MIG instances.
    mig_instances
        Those that were made.
    links
        Its active NVLinks.
    ecc_errors
        Uncorrected ones since the driver was loaded.
    """

    index: int
    name: str | None
    uuid: str | None
    bus_id: str | None
    memory_total: int | None
    memory_used: int | None
    compute_mode: str | None
    persistence: bool | None
    mig: bool | None
    mig_instances: tuple[MigInstance, ...]
    links: tuple[Link, ...]
    ecc_errors: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """What one GPU can do with the memory of another. ``"ok"``, or why not, in NVML's words.

    Attributes
    ----------
    first, second
        NVML's numbers.
    read, write, nvlink, atomics
        Status of peer access.
    ancestor
        The nearest thing that both hang on, such as ``"same PCIe switch"``.
    links
        How many NVLinks of the first end at the second. Behind a switch nobody tells.
    """

    first: int
    second: int
    read: str | None
    write: str | None
    nvlink: str | None
    atomics: str | None
    ancestor: str | None
    links: int


@dataclasses.dataclass(frozen=True, slots=True)
class Visibility:
    """What ``CUDA_VISIBLE_DEVICES`` shows to this process.

    Attributes
    ----------
    value
        The variable, ``None`` where it is not set.
    shown
        UUIDs of the devices, in CUDA's order as far as it can be known.
    hidden
        UUIDs of those that this process cannot use.
    wrong
        Values that name nothing, each with the reason.
    notes
        What else is worth knowing.
    """

    value: str | None
    shown: tuple[str, ...]
    hidden: tuple[str, ...]
    wrong: tuple[str, ...]
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Topology:
    """GPUs and the roads between them.

    Attributes
    ----------
    why_not
        Why nothing could be asked; ``None`` where NVML answers.
    driver, cuda
        Versions of the driver, and of CUDA as it knows it.
    gpus, pairs
        Devices, and each ordered pair of them.
    visible
        Which of them this process can use.
    untold
        Questions that NVML did not answer, each with its error.
    """

    why_not: str | None
    driver: str | None = None
    cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    pairs: tuple[Pair, ...] = ()
    visible: Visibility | None = None
    untold: tuple[str, ...] = ()

    def pair(self, first: int, second: int) -> Pair | None:
        """Return what is known of one GPU's way to the memory of another."""
        return next((each for each in self.pairs if (each.first, each.second) == (first, second)), None)


def topology_of(facts: Any) -> Topology:
    """Return the topology that ``dataclasses.asdict`` made plain, such as for JSON.

    Raises
    ------
    InvalidData
        It is none.

    Examples
    --------
    >>> topology_of(dataclasses.asdict(Topology("there is no driver"))).why_not
    'there is no driver'
    """
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
