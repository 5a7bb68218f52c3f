"""The surroundings of this process: namespaces, limits, and what the kernel shows of GPUs."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

from bowstring.cli.doctor.check import Check, State
from bowstring.cli.terminal import number, size
from bowstring.memory import default_budget

# The folder that holds proc, sys and dev.
ROOT: Final = Path("/")
_ENOUGH_FILES: Final = 256


def find_limits() -> list[Check]:
    """Return one check for each bound."""
    return [
        Check("memory budget", State.OK, f"{size(default_budget())} (half of what this process may use)"),
        _open_files(),
        _bytes_limited(
            "locked memory",
            resource.RLIMIT_MEMLOCK,
            "of concern to RDMA alone",
            "ulimit -l unlimited; docker run --ulimit memlock=-1",
        ),
        _bytes_limited(
            "address space",
            resource.RLIMIT_AS,
            "CUDA reserves more than that, and cannot start",
            "ulimit -v unlimited; in Spark, leave spark.executor.pyspark.memory unset, which sets this limit",
        ),
        _huge_pages(),
    ]


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = soft != resource.RLIM_INFINITY and soft < _ENOUGH_FILES
    most = "no limit" if hard == resource.RLIM_INFINITY else number(hard)
    limit = "no limit" if soft == resource.RLIM_INFINITY else f"{number(soft)} (at most {most})"
    detail = f"{limit}; each region and connection takes one"
    return Check("open files", State.BROKEN if low else State.OK, detail, f"ulimit -n {_ENOUGH_FILES * 4}")


def _bytes_limited(name: str, which: int, what: str, hint: str) -> Check:
    """Return a check of a limit that something beside Bowstring may exceed."""
    soft, _ = resource.getrlimit(which)
    if soft == resource.RLIM_INFINITY:
        return Check(name, State.OK, "no limit")
    return Check(name, State.ABSENT, f"{size(soft)}; {what}", hint)


def _huge_pages() -> Check:
    try:
        text = (ROOT / "sys/kernel/mm/transparent_hugepage/shmem_enabled").read_text()
    except OSError:
        return Check("huge pages", State.ABSENT, "unknown")
    chosen = text.partition("[")[2].partition("]")[0]
    on = chosen in ("always", "within_size", "force")
    return Check(
        "huge pages",
        State.OK if on else State.ABSENT,
        f"{chosen or '?'} for shared memory{'' if on else '; the first touch of each page costs more'}",
        "echo within_size >/sys/kernel/mm/transparent_hugepage/shmem_enabled",
    )


# The kernel numbers the first namespaces so (include/linux/proc_ns.h); the first mount and network ones vary.
_FIRST: Final = {"pid": 4026531836, "ipc": 4026531839, "user": 4026531837}
_HINTS: Final = {
    "pid": "Descriptors cross it. CUDA IPC handles (share='in_place', and those in URIs of ucx:) do not, and "
    "UCX uses no cma and no cuda_ipc (openucx/ucx #11978): docker run --pid container:NAME",
    "ipc": "Descriptors cross it. CUDA IPC handles (share='in_place') do not: docker run --ipc container:NAME",
    "user": "The same user must have the same number in both containers, or readers are refused.",
    "net": "Loopback is its own: tcp:// works between containers that share it (--network container:NAME).",
    "mnt": "A reader must see the socket: mount one folder into both containers (-v run:/run/bowstring).",
}


def find_namespaces() -> list[Check]:
    """Return one check for each namespace that a hand-over may cross."""
    return [_namespace(name, hint) for name, hint in _HINTS.items()]


def _namespace(name: str, hint: str) -> Check:
    title = f"{name} namespace"
    own = _number(ROOT / f"proc/self/ns/{name}")
    if own is None:
        return Check(title, State.ABSENT, "unknown (/proc is not mounted?)", hint)
    first = _FIRST.get(name) or _number(ROOT / f"proc/1/ns/{name}")
    if first is None:
        return Check(title, State.OK, f"{own}", hint)
    whose = "the host's" if name in _FIRST else "that of process 1"
    if own == first:
        return Check(title, State.OK, f"{own}, {whose}", hint)
    return Check(title, State.ABSENT, f"{own}, not {whose}", hint)


def _number(link: Path) -> int | None:
    try:
        return int(os.readlink(link).rpartition("[")[2].rstrip("]"))
    except (OSError, ValueError):
        return None


_NODES: Final = "GPU device nodes"
_GIVE: Final = "Start the container with its GPUs: docker run --gpus all"


def find_gpu_files() -> list[Check]:
    """Return checks of the device files and modules of the driver; where there are none of a GPU, one check."""
    gpus = sorted((ROOT / "dev").glob("nvidia[0-9]*"), key=lambda path: (len(path.name), path.name))
    module = ROOT / "proc/driver/nvidia/version"
    if not gpus and not module.exists():
        return [Check(_NODES, State.ABSENT, "none (/dev/nvidia0), and no driver in the kernel", _GIVE)]
    loaded = (ROOT / "sys/module/nvidia_peermem").exists()
    return [
        _nodes(gpus),
        Check(
            "nvidia-peermem",
            State.OK if loaded else State.ABSENT,
            "loaded" if loaded else "not loaded; for RDMA of a GPU's memory",
            "modprobe nvidia-peermem",
        ),
    ]


def _nodes(gpus: list[Path]) -> Check:
    needed = [ROOT / "dev" / name for name in ("nvidiactl", "nvidia-uvm")]
    present = [path for path in (*gpus, *needed) if path.exists()]
    forbidden = [path.name for path in present if not os.access(path, os.R_OK | os.W_OK)]
    missing = [path.name for path in needed if not path.exists()]
    if not gpus:
        return Check(_NODES, State.ABSENT, "the kernel has a driver, but /dev has no GPU", _GIVE)
    if forbidden:
        hint = "Give this user the right to read and write them (the group of /dev/nvidia*)."
        return Check(_NODES, State.BROKEN, f"may not be used: {', '.join(forbidden)}", hint)
    if missing:
        hint = f"{_GIVE}; on the host: nvidia-modprobe -u -c=0"
        return Check(_NODES, State.BROKEN, f"/dev lacks {', '.join(missing)}", hint)
    return Check(_NODES, State.OK, ", ".join(path.name for path in gpus))
