"""Which namespaces this process lives in, and whether that is a container: two of them must share some."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bowstring.cli.doctor.check import Check, State

__all__ = ["find_namespaces"]

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
