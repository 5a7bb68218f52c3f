"""Bounds that the system sets to this process: memory, descriptors, locked pages, address space."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import Final

from bowstring.cli.doctor.check import Check, State
from bowstring.cli.text import number, size
from bowstring.memory import default_budget

__all__ = ["find_limits"]

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
