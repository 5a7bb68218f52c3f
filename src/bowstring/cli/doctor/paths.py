"""Which paths the bytes can take here: each is tried, and a failure is explained by what is in the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final

from bowstring.cli.doctor.check import Check, State
from bowstring.cli.doctor.gpus import CUDA, VISIBLE, Facts, Seen, gpu_of
from bowstring.cli.doctor.packages import BINDINGS, CUPY, GPU_KERNELS, UCX
from bowstring.cli.doctor.trials import IN_PLACE, Outcome, Programs, Trial, run_trials

_HOST: Final = (
    Trial("unix: mapped", "unix", meaning="the producer's memory, mapped read-only"),
    Trial("unix: copied", "unix", "copy", meaning="the same, copied by the reader"),
    Trial("tcp: packed", "tcp", meaning="bytes through a socket, on this machine or another"),
    Trial("inproc:", "inproc", meaning="the buffers themselves, between threads"),
)
_UCX: Final = Trial("ucx:", "ucx", meaning="TCP, shared memory, RDMA or NVLink, as UCX chooses")
_HOST_CHECKS: Final = {
    "unix": (
        "sealed memfd",
        "read-only for readers",
        "folder for sockets",
        "Unix socket",
        "open files",
    ),
    "tcp": ("TCP loopback", "open files"),
    "inproc": (),
    "ucx": ("TCP loopback", "open files", UCX, "pid namespace"),
}
_GPU_CHECKS: Final = (
    CUDA,
    CUPY,
    BINDINGS,
    GPU_KERNELS,
    "address space",
    "GPU device nodes",
    VISIBLE,
)
_IN_PLACE_CHECKS: Final = (*_GPU_CHECKS, "pid namespace", "ipc namespace")
_UNEXPLAINED: Final = "Nothing that was looked at explains it: try `bowstring demo`, and dmesg after a crash."
# The stream's name of the path that the trial is of.
_WORDS: Final = {"unix": "mapped", "tcp": "packed", "inproc": "mapped", "ucx": "ucx:", IN_PLACE: "in place"}
_HOST_SECONDS: Final = 20.0
_GPU_SECONDS: Final = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Obstacle:
    """What keeps a path from being taken, and the setting or command that helps."""

    what: str
    hint: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Path:
    """One way from a producer to its reader."""

    name: str
    meaning: str
    tried: bool  # whether two processes tried it
    # Seconds from `connect` to the first batch; nothing was mapped before.
    first_view: float | None = None
    took: str | None = None
    in_the_way: tuple[Obstacle, ...] = ()  # why it cannot be taken

    @property
    def works(self) -> bool:
        """Whether it can be taken here."""
        return self.tried and not self.in_the_way


def default_path(found: Sequence[Path]) -> Path:
    """Return the path that a server and a reader take by default."""
    return next(path for path in found if path.name == _HOST[0].name)


def try_paths(checks: Iterable[Check], seen: Seen, programs: Programs) -> list[Path]:
    """Return all paths, each tried where that is possible."""
    by_name = {check.name: check for check in checks}
    ucx = by_name.get(UCX)
    host = [*_HOST, _UCX] if ucx is not None and ucx.state is State.OK else [*_HOST]
    outcomes = run_trials("cpu", host, _HOST_SECONDS, programs)
    paths = [
        _path(trial, outcome, _causes(by_name, _HOST_CHECKS[trial.way]))
        for trial, outcome in zip(host, outcomes, strict=True)
    ]
    missing = _causes(by_name, (CUDA, CUPY, BINDINGS))
    if seen.devices and not missing:
        for device in seen.devices:
            paths += _from_gpu(device, seen, by_name, programs)
    else:
        paths += _no_gpu(missing or _causes(by_name, _GPU_CHECKS) or (Obstacle("no GPU is visible"),))
    if _UCX not in host:
        paths.append(Path(_UCX.name, _UCX.meaning, tried=False, in_the_way=_causes(by_name, (UCX,))))
    return paths


def _path(trial: Trial, outcome: Outcome, causes: tuple[Obstacle, ...]) -> Path:
    obstacles: tuple[Obstacle, ...] = ()
    if outcome.failure is not None:
        hint = outcome.hint or (None if causes else _UNEXPLAINED)
        obstacles = (Obstacle(outcome.failure, hint), *causes)
    elif trial.mode == "map" and trial.device is None and _WORDS[trial.way] not in str(outcome.path):
        obstacles = (Obstacle(f"the bytes came otherwise: {outcome.took}"), *causes)
    tried = outcome.failure is None or not outcome.failure.startswith("not tried")
    return Path(trial.name, trial.meaning, tried, outcome.first_view, outcome.took, obstacles)


def _causes(by_name: dict[str, Check], names: Iterable[str]) -> tuple[Obstacle, ...]:
    return tuple(
        Obstacle(f"{name}: {by_name[name].detail}", by_name[name].hint)
        for name in names
        if name in by_name and by_name[name].state is not State.OK
    )


def _no_gpu(causes: tuple[Obstacle, ...]) -> list[Path]:
    meanings = {
        "unix: mapped CUDA memory": "the producer's memory on its GPU, as a file descriptor",
        "unix: CUDA memory in place": "memory of CuPy or RMM on a GPU, as a CUDA IPC handle",
        "GPU to GPU": "copied to another GPU, by a peer copy or through the host",
    }
    return [Path(name, meaning, tried=False, in_the_way=causes) for name, meaning in meanings.items()]


def _from_gpu(device: str, seen: Seen, by_name: dict[str, Check], programs: Programs) -> list[Path]:
    """Try every path that begins on a GPU."""
    peers = "to another GPU, by a peer copy or through the host"
    trials = [
        Trial(f"{device}: mapped", "unix", meaning="the producer's memory on its GPU, as a file descriptor"),
        Trial(f"{device}: copied", "unix", "copy", meaning="the same, copied on the GPU by the reader"),
        Trial(f"{device} → host", "unix", device="cpu", meaning="copied to the host by the reader"),
        Trial(f"{device}: in place", IN_PLACE, meaning="memory of CuPy or RMM, as a CUDA IPC handle"),
        *(
            Trial(f"{device} → {other}", "unix", device=other, meaning=peers)
            for other in seen.devices
            if other != device
        ),
    ]
    paths: list[Path] = []
    outcomes = run_trials(device, trials, _GPU_SECONDS, programs)
    for trial, outcome in zip(trials, outcomes, strict=True):
        causes = _causes(by_name, _IN_PLACE_CHECKS if trial.way == IN_PLACE else _GPU_CHECKS)
        if trial.device in seen.devices:
            causes = (*_between(device, str(trial.device), seen.topology), *causes)
        elif trial.way == IN_PLACE:
            causes = (*_divided(device, seen.topology), *causes)
        paths.append(_path(trial, outcome, causes))
    return paths


def _between(first: str, second: str, topology: Facts | None) -> tuple[Obstacle, ...]:
    here, there = gpu_of(topology, first), gpu_of(topology, second)
    if topology is None or here is None or there is None:
        return ()
    numbers = here["index"], there["index"]
    read = next(
        (pair["read"] for pair in topology["pairs"] if (pair["first"], pair["second"]) == numbers), None
    )
    if read in (None, "ok"):
        return ()
    hint = "Switch off the IOMMU's and PCIe's access control (ACS) for them; else it goes through the host."
    return (Obstacle(f"peer access of GPU {numbers[0]} and GPU {numbers[1]}: {read}", hint),)


def _divided(device: str, topology: Facts | None) -> tuple[Obstacle, ...]:
    gpu = gpu_of(topology, device)
    if gpu is None or not gpu["mig"]:
        return ()
    hint = "Let both processes use compute instances of one GPU instance, or do not share in place."
    return (Obstacle(f"GPU {gpu['index']} is divided (MIG): IPC does not cross GPU instances", hint),)
