"""Whether sockets work, and whether a peer's end can be seen."""

from __future__ import annotations

import os
import socket
import stat

from bowstring.cli.doctor.check import Check, State, attempt
from bowstring.errors import BrokenError, UsageError
from bowstring.private_folders import check_replaceable
from bowstring.transport.peer import Peer
from bowstring.transport.socket_file import runtime_folder

__all__ = ["try_connections"]

_SECONDS = 5.0
_SO_PEERPIDFD = 77  # <asm-generic/socket.h>


def try_connections() -> list[Check]:
    """Return what came of binding and connecting sockets."""
    return [
        _runtime_folder(),
        attempt(
            "folder for sockets",
            _folder,
            "Set XDG_RUNTIME_DIR to a folder of yours, or name a socket: unix:/path.",
        ),
        attempt("Unix socket", _unix, "The folder's file system, or a sandbox, does not allow sockets."),
        attempt("SO_PEERCRED", _peer_user, "A sandbox hides who a peer is: others cannot be refused."),
        attempt(
            "pidfd_open",
            _pidfd_open,
            "Linux 5.3; a seccomp filter may forbid it. Without it a peer's death is seen by its socket alone.",
            needed=False,
        ),
        attempt(
            "SO_PEERPIDFD",
            _peer_pidfd,
            "Linux 6.5; without it pidfd_open is used, where both processes are in one pid namespace.",
            needed=False,
        ),
        attempt("TCP loopback", _tcp, "Bring up the loopback interface: ip link set lo up"),
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
            raise BrokenError("nobody was let in")
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


def _pidfd_open() -> str:
    os.close(os.pidfd_open(os.getpid()))
    return "a process that ends is seen at once"


def _peer_pidfd() -> str:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        os.close(ours.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD))
    return "also across pid namespaces"


def _tcp() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_SECONDS)
        with socket.create_connection(server.getsockname(), timeout=_SECONDS):
            connection, _ = server.accept()
            connection.close()
    return "connected on 127.0.0.1"
