"""Whether memory can be shared: each step of it is tried for real."""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
from pathlib import Path

from bowstring.cli.doctor.check import Check, State, attempt
from bowstring.cli.text import number, size
from bowstring.errors import InvalidRegion
from bowstring.memory import cpu, default_budget
from bowstring.memory.slab import check_sealed, host_slab

__all__ = ["try_shared_memory"]

_BYTES = 1 << 20
_NOEXEC = "/proc/sys/vm/memfd_noexec"
_ENOUGH_FILES = 256


def try_shared_memory() -> list[Check]:
    """Return what came of making, sealing, opening again and mapping a region."""
    return [
        attempt(
            "sealed memfd",
            _sealed,
            f"A seccomp filter may forbid memfd_create; {_NOEXEC} must not be 2 (it is {_read(_NOEXEC)}).",
        ),
        attempt(
            "/proc", _proc, "Mount /proc: memory is handed over read-only by opening /proc/self/fd again."
        ),
        attempt(
            "read-only for readers", _read_only, "The kernel or its sandbox does not keep descriptors apart."
        ),
        Check("memory budget", State.OK, f"{size(default_budget())} (half of what this process may use)"),
        _open_files(),
    ]


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text().strip()
    return "not there"


def _sealed() -> str:
    slab = host_slab(cpu(), _BYTES)
    check_sealed(slab.fd, _BYTES)
    try:
        os.truncate(f"/proc/self/fd/{slab.fd}", 0)
    except PermissionError:
        return "made, sealed, cannot shrink or grow"
    raise InvalidRegion("a sealed memfd was cut short")


def _proc() -> str:
    os.stat("/proc/self/fd")
    return "mounted"


def _read_only() -> str:
    slab = host_slab(cpu(), _BYTES)
    mmap.mmap(slab.fd, _BYTES, mmap.MAP_SHARED, mmap.PROT_READ).close()
    again = os.open(f"/proc/self/fd/{slab.fd}", os.O_RDWR | os.O_CLOEXEC)
    try:
        for fd in (slab.fd, again):
            try:
                mmap.mmap(fd, _BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE).close()
            except PermissionError:
                continue
            raise InvalidRegion("a region was mapped for writing a second time")
    finally:
        os.close(again)
    return "maps for reading, refuses writing"


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = [("no limit" if limit == resource.RLIM_INFINITY else number(limit)) for limit in (soft, hard)]
    low = soft != resource.RLIM_INFINITY and soft < _ENOUGH_FILES
    return Check(
        "open files",
        State.BROKEN if low else State.OK,
        f"{limits[0]} (at most {limits[1]}); each region and connection takes one",
        f"ulimit -n {_ENOUGH_FILES * 4}",
    )
