"""Whether sockets work, and whether a peer's end can be seen."""

from __future__ import annotations

import os
import socket
import stat

from bowstring.cli.doctor.check import Check, State, attempt
from bowstring.errors import BrokenError
from bowstring.transport.peer import Peer
from bowstring.transport.socket_file import private_folder

__all__ = ["try_connections"]

_SECONDS = 5.0


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
        attempt(
            "peer's pidfd",
            _pidfd,
            "Linux 5.3, for SO_PEERPIDFD 6.5; a seccomp filter may forbid pidfd_open. Without it a peer's death is "
            "seen by its socket alone.",
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
    return Check("XDG_RUNTIME_DIR", State.OK, folder)


def _folder() -> str:
    folder = private_folder()
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


def _pidfd() -> str:
    os.close(os.pidfd_open(os.getpid()))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = Peer.of_socket(ours)
        if peer.pidfd is None:
            raise BrokenError("a connected process cannot be watched")
    return "a peer's death is seen at once"


def _tcp() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_SECONDS)
        with socket.create_connection(server.getsockname(), timeout=_SECONDS):
            connection, _ = server.accept()
            connection.close()
    return "connected on 127.0.0.1"
