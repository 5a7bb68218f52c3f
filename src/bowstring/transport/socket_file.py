"""The file of a Unix socket: where it lies, who may reach it, and when it is ours to remove."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import secrets
import socket
import stat
import tempfile
import urllib.parse
from collections.abc import Iterator

from bowstring.errors import DeadlineExceeded, UsageError
from bowstring.kernels.trusted_folders import check_replaceable
from bowstring.memory.slab import needing_descriptor, opened
from bowstring.private_folders import lock, private_folder

# sun_path of Linux, less the terminating zero; and what a name in it has left behind /proc/self/fd/N/.
MOST_BYTES = 107
_MOST_NAME = 80
_DESCRIPTORS = "/proc/self/fd"
_LOCK_TIMEOUT = 5.0
# Unencoded in an address; anything that means something in a URI is percent-encoded.
_PLAIN = "/:@,+=~!$&'()*;"
_OURS = re.compile(r"(\d+)-[0-9a-f]{12}\.sock")


def address_of(path: str) -> str:
    """Return the address of a socket file."""
    return "unix:" + urllib.parse.quote(os.fsencode(path), safe=_PLAIN)


def path_of(address: str) -> str | None:
    """Return the absolute path that an address names, ``None`` when it names none."""
    path = _path_in(address)
    # Elsewhere it means another file when the process has changed its folder.
    return path if path is None or path.startswith("/") else _absolute(path)


@functools.lru_cache(64)
def _path_in(address: str) -> str | None:
    scheme, _, rest = address.partition(":")
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        rest = slash + rest if not host else "?"
    if scheme != "unix" or "?" in rest or "#" in rest:
        raise UsageError(
            "not an address of a Unix socket", expected="unix:/path/to.sock", found=repr(address)
        )
    if not rest:
        return None
    try:
        # A path that is not UTF-8 may stand there as the system calls give it, and as it is encoded.
        path = os.fsdecode(urllib.parse.unquote_to_bytes(os.fsencode(rest)))
    except UnicodeEncodeError as error:
        raise UsageError("no file can have that name", found=ascii(address)) from error
    if "\0" in path:
        raise UsageError("a path holds no zero byte", found=ascii(address))
    return _absolute(path) if path.startswith("/") else path


def _absolute(path: str) -> str:
    path = os.path.abspath(path)
    _check_length(path)
    return path


class SocketFile:
    """A socket file that this process made."""

    def __init__(self, path: str, identity: tuple[int, int], *, chosen: bool) -> None:
        self.path = path
        self._identity = identity  # device and inode: a later file of that name is another one
        self._chosen = chosen

    @classmethod
    def listen(cls, sock: socket.socket, path: str | None) -> SocketFile:
        """Bind ``sock`` to ``path`` (or to a new one in a private folder) with mode 0600, and listen.

        A file that an ended server left behind is replaced.
        """
        chosen = path is None
        if path is None:
            path = os.path.join(runtime_folder(), f"{os.getpid()}-{secrets.token_hex(6)}.sock")
            _check_length(path)
        # On Linux the file takes the mode of the socket, less the umask: never do others get in.
        os.fchmod(sock.fileno(), 0o600)
        with _folder_locked(os.path.dirname(path)) as folder:
            if chosen:
                _sweep(folder, os.path.dirname(path))
            _bind(sock, folder, path)
            name = os.path.basename(path)
            try:
                os.chmod(name, 0o600, dir_fd=folder)  # a umask may have taken rights from the owner
                sock.listen(socket.SOMAXCONN)
                return cls(path, _identity(name, folder), chosen=chosen)
            except BaseException:
                os.unlink(name, dir_fd=folder)
                raise

    @property
    def is_there(self) -> bool:
        """Whether the file that was made here still has its name."""
        try:
            return _identity(self.path) == self._identity
        except OSError:
            return False

    def made_anew(self, sock: socket.socket) -> SocketFile:
        """Bind another socket to the path, whose file somebody has removed, maybe with its folder."""
        folder = os.path.dirname(self.path)
        try:
            if self._chosen:
                private_folder(folder, "the folder for sockets", "Remove it.")
            elif not os.path.isdir(folder):
                os.mkdir(folder, 0o700)
        except OSError as error:
            raise UsageError(
                "the socket's folder cannot be made", found=error.strerror, where=folder
            ) from error
        file = SocketFile.listen(sock, self.path)
        file._chosen = self._chosen
        return file

    def remove(self) -> None:
        """Remove the file if it is still the one that was made here."""
        if self.is_there:
            with contextlib.suppress(OSError):
                os.unlink(self.path)


def runtime_folder() -> str:
    """Return a folder that only this user can enter, and make it where it is not there.

    It lies in ``$XDG_RUNTIME_DIR`` where that belongs to this user, else in the folder for temporary files.
    """
    uid = os.geteuid()
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    status = os.stat(runtime) if os.path.isabs(runtime) and os.path.isdir(runtime) else None
    if status is not None and status.st_uid == uid:
        check_replaceable(runtime, status, "chmod 0700, or let XDG_RUNTIME_DIR name another folder.")
        folder = os.path.join(runtime, "bowstring")
    else:
        folder = os.path.join(tempfile.gettempdir(), f"bowstring-{uid}")
    try:
        return private_folder(
            folder, "the folder for sockets", "Remove it, or name a socket of your own: unix:/path/to.sock"
        )
    except OSError as error:
        raise UsageError(
            "no folder for sockets can be made",
            found=error.strerror,
            where=folder,
            hint="Set XDG_RUNTIME_DIR to a folder of yours, or name a socket of your own: unix:/path/to.sock",
        ) from error


@contextlib.contextmanager
def connectable(path: str) -> Iterator[str]:
    """Give a short path to a socket whose own is too long, through its folder, for the time of a ``with`` block."""
    folder = opened(os.open, os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield _through(folder, path)
    finally:
        folder.close()


def _through(folder: int, path: str) -> str:
    return path if _fits(path) else f"{_DESCRIPTORS}/{folder}/{os.path.basename(path)}"


def _fits(path: str) -> bool:
    return len(os.fsencode(path)) <= MOST_BYTES


def _check_length(path: str) -> None:
    if _fits(path):
        return
    name = len(os.fsencode(os.path.basename(path)))
    if name > _MOST_NAME:
        raise UsageError(
            "the name of the Unix socket is too long",
            expected=f"at most {_MOST_NAME} bytes, in a path of more than {MOST_BYTES}",
            found=f"{name} bytes",
            where=path,
            hint="Name a shorter one.",
        )
    if not os.path.isdir(_DESCRIPTORS):
        raise UsageError(
            "the path is too long for a Unix socket",
            expected=f"at most {MOST_BYTES} bytes where there is no {_DESCRIPTORS}",
            found=f"{len(os.fsencode(path))} bytes",
            where=path,
            hint="Name a shorter one, or set XDG_RUNTIME_DIR to a short folder of yours.",
        )


@contextlib.contextmanager
def _folder_locked(folder: str) -> Iterator[int]:
    """Keep other servers from binding in the folder, whose descriptor is given.

    One of them could take ours for an abandoned socket.
    """
    try:
        with needing_descriptor("a lock of the socket's folder"):
            fd = opened(os.open, folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(
            "the socket's folder cannot be used",
            found=error.strerror,
            where=folder,
            hint="Make it, or name a socket in another folder: unix:/path/to.sock",
        ) from error
    try:
        if not lock(fd, _LOCK_TIMEOUT):
            raise DeadlineExceeded(f"{folder} was locked for {_LOCK_TIMEOUT:g} s")
        yield fd
    finally:
        fd.close()


def _bind(sock: socket.socket, folder: int, path: str) -> None:
    place = _through(folder, path)
    try:
        sock.bind(place)
        return
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise UsageError(f"cannot make the socket {path}", found=error.strerror) from error
    _remove_abandoned(folder, path)
    sock.bind(place)


def _remove_abandoned(folder: int, path: str) -> None:
    """Remove a socket file that nobody listens on."""
    name = os.path.basename(path)
    if not stat.S_ISSOCK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise UsageError("a file of another kind is in the way of the socket", where=path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        code = probe.connect_ex(_through(folder, path))
    if code != errno.ECONNREFUSED:
        raise UsageError(
            "a server is listening there already",
            where=path,
            hint="Stop it, or name another path.",
        )
    os.unlink(name, dir_fd=folder)


def _sweep(folder: int, path: str) -> None:
    """Remove what servers of ours that were killed left in the private folder."""
    for name in os.listdir(folder):
        process = _OURS.fullmatch(name)
        if process is None or os.path.exists(f"/proc/{process[1]}"):
            continue
        # A process that cannot be seen from here may still listen: it is asked before its file goes.
        with contextlib.suppress(UsageError, OSError):
            _remove_abandoned(folder, os.path.join(path, name))


def _identity(path: str, folder: int | None = None) -> tuple[int, int]:
    status = os.stat(path, dir_fd=folder, follow_symlinks=False)
    return status.st_dev, status.st_ino
