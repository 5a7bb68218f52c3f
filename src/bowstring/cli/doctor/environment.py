"""The surroundings of this process: namespaces, container, limits, and what the kernel shows of GPUs."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import Final

from bowstring.cli.doctor.check import Check, State
from bowstring.cli.terminal import number, size
from bowstring.memory import default_budget

# Where `/proc`, `/sys` and `/dev` are, and the files of container engines.
_ROOT: Final = Path("/")
_ENOUGH_FILES: Final = 256
_ENOUGH_SHARED: Final = 1 << 30
_UNLIMITED_GROUP: Final = 1 << 60  # control groups of version 1 write a huge number where there is no limit


def find_limits() -> list[Check]:
    """Return one check for each bound."""
    return [
        Check("memory budget", State.OK, f"{size(default_budget())} (half of what this process may use)"),
        _control_group(),
        _shared_folder(),
        _open_files(),
        _locked(),
        _address_space(),
        _huge_pages(),
    ]


def _control_group() -> Check:
    found = _group_limit()
    if found is None:
        return Check("control group", State.OK, "no limit of memory")
    return Check("control group", State.OK, f"at most {size(found)} of memory; shared pages count, too")


def _group_limit() -> int | None:
    limits: list[int] = []
    with contextlib.suppress(OSError):
        for line in (_ROOT / "proc/self/cgroup").read_text().splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if not controllers:
                folder, name = _ROOT / "sys/fs/cgroup", "memory.max"
            elif "memory" in controllers.split(","):
                folder, name = _ROOT / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
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


def _shared_folder() -> Check:
    hint = "docker run --shm-size 8g. Bowstring's memory is no file there, but that of other libraries is."
    name, folder = "shared memory files", _ROOT.joinpath("dev", "shm")
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


def _huge_pages() -> Check:
    try:
        text = (_ROOT / "sys/kernel/mm/transparent_hugepage/shmem_enabled").read_text()
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
    "pid": "Descriptors cross it. CUDA IPC handles (share='in_place', and those in URIs of ucx:) do not, and "
    "UCX uses no cma and no cuda_ipc (openucx/ucx #11978): docker run --pid container:NAME",
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


def find_namespaces() -> list[Check]:
    """Return the kind of container, and one check for each namespace that a hand-over may cross."""
    kind = _container()
    container = Check("container", State.OK, kind or "none that shows")
    return [container, *(_namespace(name, hint) for name, hint in _HINTS.items())]


def _container() -> str | None:
    if (_ROOT / ".dockerenv").exists():
        return "Docker (/.dockerenv)"
    if (_ROOT / "run/.containerenv").exists():
        return "Podman (/run/.containerenv)"
    for variable in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if variable in os.environ:
            return f"Apptainer ({variable})"
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "Kubernetes (KUBERNETES_SERVICE_HOST)"
    if os.environ.get("container"):  # noqa: SIM112  systemd and Podman write it so
        return f"{os.environ['container']} (the variable `container`)"  # noqa: SIM112
    groups = _text(_ROOT / "proc/1/cgroup")
    for mark, name in _MARKS.items():
        if mark in groups:
            return f"{name} (/proc/1/cgroup)"
    for line in _text(_ROOT / "proc/self/mountinfo").splitlines():
        fields = line.split()
        if len(fields) > 4 and fields[4] == "/" and " - overlay " in line:
            return "of an unknown kind (the root is an overlay)"
    return None


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def _namespace(name: str, hint: str) -> Check:
    title = f"{name} namespace"
    own = _number(_ROOT / f"proc/self/ns/{name}")
    if own is None:
        return Check(title, State.ABSENT, "not told (/proc is not mounted?)", hint)
    if own == _FIRST.get(name):
        return Check(title, State.OK, f"{own}, the host's")
    first = _number(_ROOT / f"proc/1/ns/{name}")
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


_NODES: Final = "GPU device nodes"
_GIVE: Final = "Start the container with its GPUs: docker run --gpus all"


def find_gpu_files() -> list[Check]:
    """Return one check for each; where nothing of a GPU is there, that is the one check."""
    gpus = sorted((_ROOT / "dev").glob("nvidia[0-9]*"), key=lambda path: (len(path.name), path.name))
    module = _read(_ROOT / "proc/driver/nvidia/version")
    if not gpus and module is None:
        return [Check(_NODES, State.ABSENT, "none (/dev/nvidia0), and no driver in the kernel", _GIVE)]
    return [
        _nodes(gpus),
        Check("kernel's driver", *_told(module)),
        _capabilities(),
        _channels(),
        _peer_memory(),
    ]


def _told(text: str | None) -> tuple[State, str]:
    return (State.ABSENT, "not told") if text is None else (State.OK, text)


def _read(path: Path) -> str | None:
    with contextlib.suppress(OSError):
        lines = path.read_text(errors="replace").splitlines()
        return " ".join(lines[0].removeprefix("NVRM version:").split()) if lines else None
    return None


def _nodes(gpus: list[Path]) -> Check:
    needed = [_ROOT / "dev" / name for name in ("nvidiactl", "nvidia-uvm")]
    missing = [path.name for path in needed if not path.exists()]
    forbidden = [
        path.name for path in (*gpus, *needed) if path.exists() and not os.access(path, os.R_OK | os.W_OK)
    ]
    if not gpus:
        return Check(_NODES, State.ABSENT, "the kernel has a driver, but /dev has no GPU", _GIVE)
    if forbidden:
        hint = "Give this user the right to read and write them (the group of /dev/nvidia*)."
        return Check(_NODES, State.BROKEN, f"may not be used: {', '.join(forbidden)}", hint)
    if missing:
        hint = f"{_GIVE}; on the host: nvidia-modprobe -u -c=0"
        return Check(_NODES, State.BROKEN, f"/dev lacks {', '.join(missing)}", hint)
    return Check(_NODES, State.OK, ", ".join(path.name for path in gpus))


def _capabilities() -> Check:
    found = sorted((_ROOT / "dev/nvidia-caps").glob("nvidia-cap*"))
    readable = [path.name for path in found if os.access(path, os.R_OK)]
    name, hint = "MIG capabilities", "Needed for MIG alone; a container gets those of its instances."
    if not found:
        return Check(name, State.ABSENT, "/dev/nvidia-caps is not there", hint)
    return Check(name, State.OK, f"{len(readable)} of {len(found)} in /dev/nvidia-caps may be read")


def _channels() -> Check:
    found = sorted((_ROOT / "dev/nvidia-caps-imex-channels").glob("channel*"))
    usable = [path.name for path in found if os.access(path, os.R_OK)]
    name = "IMEX channels"
    if usable:
        return Check(name, State.OK, ", ".join(usable))
    seen = "there, but may not be read" if found else "none"
    return Check(name, State.ABSENT, f"{seen}; fabric handles need one, Bowstring does not", None)


def _peer_memory() -> Check:
    name = "nvidia-peermem"
    if (_ROOT / "sys/module/nvidia_peermem").exists():
        return Check(name, State.OK, "loaded")
    return Check(name, State.ABSENT, "not loaded; for RDMA of a GPU's memory", "modprobe nvidia-peermem")
