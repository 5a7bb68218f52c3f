"""What two processes of this machine can share: memory and sockets. Each step of it is tried for real."""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import stat
from pathlib import Path

from bowstring.cli.doctor.check import Check, State, attempt
from bowstring.errors import BrokenError, InvalidRegion, UsageError
from bowstring.kernels.trusted_folders import check_replaceable
from bowstring.memory import cpu, fork_sentinel
from bowstring.memory.device import host_slab
from bowstring.memory.slab import check_sealed
from bowstring.transport.peer import Peer
from bowstring.transport.socket_file import runtime_folder

_BYTES = 1 << 20
_NOEXEC = "/proc/sys/vm/memfd_noexec"


def try_shared_memory() -> list[Check]:
    """Return what came of making, sealing, opening again and mapping a region."""
    seccomp = f"A seccomp filter may forbid memfd_create; {_NOEXEC} must not be 2 (it is {_read(_NOEXEC)})."
    mount = "Mount /proc: memory is handed over read-only by opening /proc/self/fd again."
    apart = "The kernel or its sandbox does not keep descriptors apart."
    return [
        attempt("sealed memfd", _sealed, seccomp),
        attempt("/proc", _proc, mount),
        attempt("read-only for readers", _read_only, apart),
        _forks_by_c_code(),
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


_SECONDS = 5.0


def try_connections() -> list[Check]:
    """Return what came of binding and connecting sockets."""
    folder = "Set XDG_RUNTIME_DIR to a folder of yours, or name a socket: unix:/path."
    sandbox = "The folder's file system, or a sandbox, does not allow sockets."
    unknown = "A sandbox hides who a peer is: others cannot be refused."
    loopback = "Bring up the loopback interface: ip link set lo up"
    return [
        _runtime_folder(),
        attempt("folder for sockets", _folder, folder),
        attempt("Unix socket", _unix, sandbox),
        attempt("SO_PEERCRED", _peer_user, unknown),
        attempt("TCP loopback", _tcp, loopback),
    ]


def _runtime_folder() -> Check:
    folder = os.environ.get("XDG_RUNTIME_DIR")
    if not folder:
        return Check("XDG_RUNTIME_DIR", State.ABSENT, "not set; the folder for temporary files is used")
    try:
        status = os.stat(folder)
    except OSError as error:
        return Check("XDG_RUNTIME_DIR", State.ABSENT, f"{folder}: {error.strerror}", "Make it, or unset it.")
    if status.st_uid != os.geteuid() or not os.access(folder, os.W_OK | os.X_OK):
        seen = f"{folder}: uid {status.st_uid}, {stat.filemode(status.st_mode)}"
        return Check("XDG_RUNTIME_DIR", State.ABSENT, seen, "It must belong to you, and be writable.")
    try:
        check_replaceable(folder, status, "chmod 0700, or let it name another folder.")
    except UsageError as refused:
        return Check("XDG_RUNTIME_DIR", State.BROKEN, f"{folder}: {refused.found}", refused.hint)
    return Check("XDG_RUNTIME_DIR", State.OK, folder)


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
            return f"connected; the peer is seen as {here.peer.description}"


def _peer_user() -> str:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = Peer.of_socket(ours)
        peer.close()
        if peer.uid != os.geteuid():
            raise BrokenError("a peer of the same user is seen as another one", found=peer.description)
    return "a peer's user is known"


def _tcp() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_SECONDS)
        with socket.create_connection(server.getsockname(), timeout=_SECONDS):
            connection, _ = server.accept()
            connection.close()
    return "connected on 127.0.0.1"
