"""The surroundings of this process: its namespaces and container, and limits of memory and files."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bowstring.cli.doctor.check import Check, State
from bowstring.cli.text import number, size
from bowstring.memory import default_budget

__all__ = ["find_limits", "find_namespaces"]

_ENOUGH_FILES: Final = 256
_ENOUGH_SHARED: Final = 1 << 30
_UNLIMITED_GROUP: Final = 1 << 60  # control groups of version 1 write a huge number where there is no limit


def find_limits(root: Path = Path("/")) -> list[Check]:
    """Return one check for each bound.

    Parameters
    ----------
    root
        Where ``/proc``, ``/sys`` and ``/dev`` are looked for.
    """
    return [
        Check("memory budget", State.OK, f"{size(default_budget())} (half of what this process may use)"),
        _control_group(root),
        _shared_folder(root),
        _open_files(),
        _locked(),
        _address_space(),
        _huge_pages(root),
    ]


def _control_group(root: Path) -> Check:
    found = _group_limit(root)
    if found is None:
        return Check("control group", State.OK, "no limit of memory")
    return Check("control group", State.OK, f"at most {size(found)} of memory; shared pages count, too")


def _group_limit(root: Path) -> int | None:
    limits: list[int] = []
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if not controllers:
                folder, name = root / "sys/fs/cgroup", "memory.max"
            elif "memory" in controllers.split(","):
                folder, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
            else:
                continue
            limits += _limits_above(folder, path, name)
    return min(limits, default=None)


def _limits_above(folder: Path, path: str, name: str) -> list[int]:
    """Return the limits of a group and of those that it lies in."""
    found: list[int] = []
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for count in range(len(parts) + 1):
        with contextlib.suppress(OSError, ValueError):
            limit = int(folder.joinpath(*parts[:count], name).read_text())
            if limit < _UNLIMITED_GROUP:
                found.append(limit)
    return found


def _shared_folder(root: Path) -> Check:
    hint = "docker run --shm-size 8g. Bowstring's memory is no file there, but that of other libraries is."
    name, folder = "shared memory files", root.joinpath("dev", "shm")
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return Check(name, State.ABSENT, f"{folder} cannot be used: {error.strerror}", hint)
    total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    state = State.OK if total >= _ENOUGH_SHARED else State.ABSENT
    return Check(name, state, f"{folder}: {size(free)} of {size(total)} are free", hint)


def _limit(which: int) -> tuple[int | None, str]:
    """Return a limit, and how it and the most that it can be raised to are written."""
    soft, hard = resource.getrlimit(which)
    texts = ["no limit" if each == resource.RLIM_INFINITY else number(each) for each in (soft, hard)]
    return None if soft == resource.RLIM_INFINITY else soft, f"{texts[0]} (at most {texts[1]})"


def _open_files() -> Check:
    soft, text = _limit(resource.RLIMIT_NOFILE)
    low = soft is not None and soft < _ENOUGH_FILES
    seen = f"{text}; each region and connection takes one"
    return Check("open files", State.BROKEN if low else State.OK, seen, f"ulimit -n {_ENOUGH_FILES * 4}")


def _locked() -> Check:
    soft, text = _limit(resource.RLIMIT_MEMLOCK)
    if soft is None:
        return Check("locked memory", State.OK, "no limit")
    return Check(
        "locked memory",
        State.ABSENT,
        f"{text} bytes; of concern to RDMA alone",
        "ulimit -l unlimited; docker run --ulimit memlock=-1",
    )


def _address_space() -> Check:
    soft, text = _limit(resource.RLIMIT_AS)
    if soft is None:
        return Check("address space", State.OK, "no limit")
    return Check(
        "address space",
        State.ABSENT,
        f"{text} bytes; CUDA reserves more than that, and cannot start",
        "ulimit -v unlimited; in Spark, leave spark.executor.pyspark.memory unset, which sets this limit",
    )


def _huge_pages(root: Path) -> Check:
    try:
        text = (root / "sys/kernel/mm/transparent_hugepage/shmem_enabled").read_text()
    except OSError:
        return Check("huge pages", State.ABSENT, "not told")
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
    "pid": "Descriptors cross it. CUDA IPC handles (share='in_place') do not: docker run --pid container:NAME",
    "ipc": "Descriptors cross it. CUDA IPC handles (share='in_place') do not: docker run --ipc container:NAME",
    "user": "The same user must have the same number in both containers, or readers are refused.",
    "net": "Loopback is its own: tcp:// works between containers that share it (--network container:NAME).",
    "mnt": "A reader must see the socket: mount one folder into both containers (-v run:/run/bowstring).",
}
_MARKS: Final = {
    "docker": "Docker",
    "kubepods": "Kubernetes",
    "libpod": "Podman",
    "containerd": "containerd",
    "lxc": "LXC",
}


def find_namespaces(root: Path = Path("/"), environment: Mapping[str, str] | None = None) -> list[Check]:
    """Return the kind of container, and one check for each namespace that a hand-over may cross.

    Parameters
    ----------
    root
        Where ``/proc`` and the files of container engines are looked for.
    environment
        Variables by which some engines are known; this process's by default.
    """
    kind = _container(root, os.environ if environment is None else environment)
    container = Check("container", State.OK, kind or "none that shows")
    return [container, *(_namespace(name, hint, root) for name, hint in _HINTS.items())]


def _container(root: Path, environment: Mapping[str, str]) -> str | None:
    if (root / ".dockerenv").exists():
        return "Docker (/.dockerenv)"
    if (root / "run/.containerenv").exists():
        return "Podman (/run/.containerenv)"
    for variable in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if variable in environment:
            return f"Apptainer ({variable})"
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "Kubernetes (KUBERNETES_SERVICE_HOST)"
    if environment.get("container"):
        return f"{environment['container']} (the variable `container`)"
    groups = _text(root / "proc/1/cgroup")
    for mark, name in _MARKS.items():
        if mark in groups:
            return f"{name} (/proc/1/cgroup)"
    for line in _text(root / "proc/self/mountinfo").splitlines():
        fields = line.split()
        if len(fields) > 4 and fields[4] == "/" and " - overlay " in line:
            return "of an unknown kind (the root is an overlay)"
    return None


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def _namespace(name: str, hint: str, root: Path) -> Check:
    title = f"{name} namespace"
    own = _number(root / f"proc/self/ns/{name}")
    if own is None:
        return Check(title, State.ABSENT, "not told (/proc is not mounted?)", hint)
    if own == _FIRST.get(name):
        return Check(title, State.OK, f"{own}, the host's")
    first = _number(root / f"proc/1/ns/{name}")
    if name in _FIRST:
        return Check(title, State.ABSENT, f"{own}, not the host's", hint)
    if first is None:
        return Check(title, State.OK, f"{own}", hint)
    same = first == own
    seen = f"{own}, {'the same as' if same else 'not that of'} process 1"
    return Check(title, State.OK if same else State.ABSENT, seen, hint)


def _number(link: Path) -> int | None:
    try:
        return int(os.readlink(link).rpartition("[")[2].rstrip("]"))
    except (OSError, ValueError):
        return None
