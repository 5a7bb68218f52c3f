"""Where a depot of this user listens, and the locks by which there is one of each version."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import time
from typing import TYPE_CHECKING, Final

from bowstring.depot.protocol import VERSION
from bowstring.errors import DeadlineExceeded
from bowstring.private_folders import private_folder
from bowstring.transport.socket_file import address_of, runtime_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Paths", "locked", "try_lock"]

_CONTROL: Final = re.compile(r"depot-(\d+)\.sock")
_DATA: Final = re.compile(rf"depot-{VERSION}-[0-9a-f]{{12}}\.sock")
_PAUSE: Final = 0.005


class Paths:
    """The files of the depots of one user, in a folder that nobody else can enter.

    Parameters
    ----------
    folder
        Another one than the private runtime folder; ``BOWSTRING_DEPOT`` in the environment names one, too.

    Raises
    ------
    UsageError
        The folder is not private.
    """

    def __init__(self, folder: str | None = None) -> None:
        named = folder or os.environ.get("BOWSTRING_DEPOT") or None
        if named is None:
            self.folder = runtime_folder()
        else:
            hint = "Name another folder, or remove it."
            self.folder = private_folder(os.path.abspath(named), "the folder of a depot", hint)

    def _file(self, suffix: str) -> str:
        return os.path.join(self.folder, f"depot-{VERSION}{suffix}")

    @property
    def control(self) -> str:
        """The address at which clients find the depot."""
        return address_of(self._file(".sock"))

    def new_data(self) -> str:
        """Return an address for readers that no depot had before: who looks for an earlier one finds nobody.

        What earlier ones left is removed: only whoever holds `life_lock` may call this.
        """
        for name in os.listdir(self.folder):
            if _DATA.fullmatch(name):
                os.unlink(os.path.join(self.folder, name))
        return address_of(self._file(f"-{secrets.token_hex(6)}.sock"))

    @property
    def start_lock(self) -> str:
        """Who starts a depot, or ends one, holds this."""
        return self._file(".start")

    @property
    def life_lock(self) -> str:
        """A depot holds this as long as it lives."""
        return self._file(".life")

    @property
    def log(self) -> str:
        """What a depot has to say when nobody listens."""
        return self._file(".log")

    def older(self) -> list[str]:
        """Return the addresses of depots of older versions, whether they live or not."""
        found = []
        for name in sorted(os.listdir(self.folder)):
            match = _CONTROL.fullmatch(name)
            if match is not None and int(match[1]) < VERSION:
                found.append(address_of(os.path.join(self.folder, name)))
        return found


def try_lock(path: str) -> int | None:
    """Return a descriptor that holds the lock of a file until it is closed; ``None`` where somebody else does."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextlib.contextmanager
def locked(path: str, seconds: float) -> Iterator[None]:
    """Hold the lock of a file for the time of a ``with`` block.

    Raises
    ------
    DeadlineExceeded
        Somebody else held it for all the time.
    """
    end = time.monotonic() + seconds
    while (fd := try_lock(path)) is None:
        if time.monotonic() >= end:
            raise DeadlineExceeded(f"another process starts a depot, for more than {seconds:g} s", where=path)
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        # Not by closing it alone: a child of a fork in another thread has it open, too.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)
