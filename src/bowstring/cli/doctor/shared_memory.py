"""Whether memory can be shared: each step of it is tried for real."""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path

from bowstring.cli.doctor.check import Check, State, attempt
from bowstring.errors import InvalidRegion
from bowstring.memory import cpu, fork_sentinel
from bowstring.memory.slab import check_sealed, host_slab

__all__ = ["try_shared_memory"]

_BYTES = 1 << 20
_NOEXEC = "/proc/sys/vm/memfd_noexec"


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
        _forks_by_c_code(),
        _peer_descriptors(),
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
        return f"made, sealed, cannot shrink or grow (vm.memfd_noexec is {_read(_NOEXEC)})"
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


def _forks_by_c_code() -> Check:
    """Say whether forks are noticed that run no Python; without that, a child of one may see its views change."""
    works = fork_sentinel().works
    return Check(
        "forks by C code",
        State.OK if works else State.ABSENT,
        f"{'noticed' if works else 'not noticed'}, by a segment of System V shared memory",
        "shmget must be allowed and find room (kernel.shmmni), for children of C code that keep views.",
    )


def _peer_descriptors() -> Check:
    """Say what Yama allows: some libraries fetch descriptors out of other processes, we send them."""
    scope = _read("/proc/sys/kernel/yama/ptrace_scope")
    known = {"not there": "no Yama", "0": "any process of this user"}
    seen = known.get(scope, f"restricted (ptrace_scope {scope})")
    return Check(
        "pidfd_getfd",
        State.OK if scope in ("0", "not there") else State.ABSENT,
        f"{seen}; UCX takes descriptors by it, Bowstring sends them",
        "sysctl kernel.yama.ptrace_scope=0, for UCX alone",
    )
