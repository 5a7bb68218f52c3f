"""Folders that no other user can change, for code that is kept to be run and for sockets; and locks in them.

``mkdir -p`` gives its mode to the last folder only, the others get what the umask leaves. So here every level is
made with mode 0700, and every level that is there already is checked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from typing import Final

from bowstring.errors import UsageError

__all__ = ["check_above", "check_replaceable", "lock", "make_folders", "private_folder", "trusted_folder"]

_PRIVATE: Final = 0o700
_ANY_OTHER: Final = 0o077
_WRITE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_ENTER_BY_OTHERS: Final = stat.S_IXGRP | stat.S_IXOTH
_ANOTHER: Final = "Name a folder elsewhere, such as one in your home."
_REMOVE: Final = "Remove it: what is in it may be another user's."
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

    Parameters
    ----------
    folder
        Its path.
    what
        What the folder is for, as an error calls it.
    hint
        What to do where it is not private.

    Raises
    ------
    UsageError
        It is not a folder, belongs to another user, or others may enter it.
    OSError
        It cannot be made.

    Examples
    --------
    >>> import tempfile
    >>> made = private_folder(
    ...     os.path.join(tempfile.mkdtemp(), "sockets"), "the folder for sockets", "Remove it."
    ... )
    >>> stat.filemode(os.stat(made).st_mode)
    'drwx------'
    """
    _make(folder)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & _ANY_OTHER:
        raise UsageError(
            f"{what} is not private",
            expected=f"a folder of uid {os.geteuid()} with mode 0700",
            found=_seen(found),
            where=folder,
            hint=hint,
        )
    return folder


def trusted_folder(root: str, *names: str) -> str:
    """Make the folder ``root/name/…``, or check it: this user or root owns each level, and no other may write it.

    The files in the last level are checked, too. So what it holds may be run.

    Parameters
    ----------
    root
        Where to begin, absolute and without links; levels above it that are missing are made (see `check_above`).
    names
        The levels below it.

    Raises
    ------
    UsageError
        A level is not like that; ``where`` is its path.
    OSError
        A level cannot be made or seen.

    Examples
    --------
    >>> import tempfile
    >>> root = os.path.realpath(tempfile.mkdtemp())
    >>> trusted_folder(root, "kernels", "validity") == os.path.join(root, "kernels", "validity")
    True
    >>> os.chmod(os.path.join(root, "kernels"), 0o770)
    >>> trusted_folder(root, "kernels", "validity")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    bowstring.errors.UsageError: another user may have written this folder; expected ...
    """
    make_folders(root)
    folder = root
    found = _check_level(root)
    for name in names:
        folder = os.path.join(folder, name)
        _make(folder)
        found = _check_level(folder)
    if names:
        _check_files(folder, reachable=bool(found.st_mode & _ENTER_BY_OTHERS))
    return folder


def check_above(folder: str) -> None:
    """Refuse a folder in whose place another user can put one of theirs, by a folder above it.

    Folders above may be writable for others where the sticky bit keeps them from renaming what is not theirs, as in
    ``/tmp``, and where they lie in a folder that others cannot enter.

    Raises
    ------
    UsageError
        A folder above is another user's, or others may rename what is in it; ``where`` is its path.
    OSError
        A folder above cannot be seen.
    """
    levels = []
    while folder != (above := os.path.dirname(folder)):
        folder = above
        levels.append(folder)
    closed = False
    for level in reversed(levels):
        try:
            found = os.lstat(level)
        except FileNotFoundError:
            return  # it will be made here, in one that was checked
        if found.st_uid not in _owners():
            raise _refusal("a folder above belongs to another user", found, level, _ANOTHER)
        if not closed:
            check_replaceable(level, found, f"chmod go-w, or: {_ANOTHER}")
        closed = closed or not found.st_mode & _ENTER_BY_OTHERS


def check_replaceable(folder: str, found: os.stat_result, hint: str) -> None:
    """Refuse a folder in which other users may rename what is not theirs.

    Raises
    ------
    UsageError
        Its group or all users may write it, and it has no sticky bit.
    """
    if found.st_mode & _WRITE_BY_OTHERS and not found.st_mode & stat.S_ISVTX:
        raise _refusal("other users can replace what is in this folder", found, folder, hint)


def make_folders(folder: str) -> None:
    """Make a folder and what is missing above it, each with mode 0700.

    Raises
    ------
    OSError
        One cannot be made.
    """
    missing = []
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for each in reversed(missing):
        _make(each)


def _make(folder: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, _PRIVATE)


def _owners() -> tuple[int, int]:
    return os.geteuid(), 0


def _check_level(folder: str) -> os.stat_result:
    found = os.lstat(folder)
    trusted = stat.S_ISDIR(found.st_mode) and found.st_uid in _owners()
    if not trusted or found.st_mode & _WRITE_BY_OTHERS:
        raise _refusal("another user may have written this folder", found, folder)
    return found


def _check_files(folder: str, *, reachable: bool) -> None:
    """Check the files in a folder; only their owners where others cannot reach them."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with contextlib.suppress(FileNotFoundError):  # another process has just replaced it
            found = os.lstat(path)
            writable = reachable and stat.S_ISREG(found.st_mode) and found.st_mode & _WRITE_BY_OTHERS
            if found.st_uid not in _owners() or writable:
                raise _refusal("another user may have written this file", found, path)


def _refusal(text: str, found: os.stat_result, where: str, hint: str = _REMOVE) -> UsageError:
    return UsageError(
        text,
        expected=f"owned by uid {os.geteuid()} or root, not writable for group or others",
        found=_seen(found),
        where=where,
        hint=hint,
    )


def _seen(found: os.stat_result) -> str:
    return f"uid {found.st_uid}, mode {stat.filemode(found.st_mode)}"
