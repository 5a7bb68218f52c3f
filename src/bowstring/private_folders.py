"""Folders that only one user can enter, for sockets; and locks in them."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from typing import Final

from bowstring.errors import UsageError
from bowstring.kernels.trusted_folders import make_folder, owner_and_mode

_ANY_OTHER: Final = 0o077
_PAUSE: Final = 0.005


def lock(fd: int, seconds: float) -> bool:
    """Take the lock of an open file or folder; return false if another process holds it for so many seconds."""
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(_PAUSE)
        else:
            return True


def private_folder(folder: str, what: str, hint: str) -> str:
    """Make a folder that only this user can enter, or check that it is one; its parent is there.

    `what` is what it is for, as an error calls it, and `hint` what to do where it is not private.
    """
    make_folder(folder)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & _ANY_OTHER:
        raise UsageError(
            f"{what} is not private",
            expected=f"a folder of uid {os.geteuid()} with mode 0700",
            found=owner_and_mode(status),
            where=folder,
            hint=hint,
        )
    return folder
