"""What two processes of this machine can share: memory and sockets. Each step of it is tried for real."""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
from pathlib import Path

from bowstring.cli.doctor.check import Check, State, attempt
from bowstring.errors import BrokenError, InvalidRegion
from bowstring.memory import cpu, fork_sentinel
from bowstring.memory.slab import check_sealed
from bowstring.transport.socket_file import runtime_folder

_BYTES = 1 << 20
_NOEXEC = "/proc/sys/vm/memfd_noexec"


def try_shared_memory() -> list[Check]:
    """Return what came of making, sealing, opening again and mapping a region."""
    seccomp = f"A seccomp filter may forbid memfd_create; {_NOEXEC} must not be 2 (it is {_read(_NOEXEC)})."
    apart = "Mount /proc, by which memory is handed over read-only; or a sandbox mixes up descriptors."
    return [
        attempt("sealed memfd", _sealed, seccomp),
        attempt("read-only for readers", _read_only, apart),
        _forks_by_c_code(),
    ]


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text().strip()
    return "not there"


def _sealed() -> str:
    slab = cpu().make_slab(_BYTES)
    check_sealed(slab.fd, _BYTES)
    try:
        os.truncate(f"/proc/self/fd/{slab.fd}", 0)
    except PermissionError:
        return f"made, sealed, cannot shrink or grow (vm.memfd_noexec is {_read(_NOEXEC)})"
    raise InvalidRegion("a sealed memfd was cut short")


def _read_only() -> str:
    slab = cpu().make_slab(_BYTES)
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


_SECONDS = 5.0


def try_connections() -> list[Check]:
    """Return what came of binding and connecting sockets."""
    folder = "Set XDG_RUNTIME_DIR to a folder of yours, or name a socket: unix:/path."
    sandbox = "The folder's file system, or a sandbox, does not allow sockets, or hides who a peer is."
    loopback = "Bring up the loopback interface: ip link set lo up"
    return [
        attempt("folder for sockets", _folder, folder),
        attempt("Unix socket", _unix, sandbox),
        attempt("TCP loopback", _tcp, loopback),
    ]


def _folder() -> str:
    folder = runtime_folder()
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} cannot be written")
    return folder


def _unix() -> str:
    from bowstring.transport import dial, listen

    with listen("unix:") as listener, dial(listener.uri, deadline=_SECONDS) as here:
        there = listener.accept(_SECONDS)
        if there is None:
            raise BrokenError("no connection was accepted")
        with there:
            if here.peer.uid != os.geteuid():
                raise BrokenError("a peer of this user is seen as another one", found=here.peer.description)
            return f"connected; the peer is seen as {here.peer.description}"


def _tcp() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_SECONDS)
        with socket.create_connection(server.getsockname(), timeout=_SECONDS):
            connection, _ = server.accept()
            connection.close()
    return "connected on 127.0.0.1"
