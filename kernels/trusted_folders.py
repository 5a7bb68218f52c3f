"""Folders that no other user can change, for code that is kept to be run.

``mkdir -p`` gives its mode to the last folder only, the others get what the umask leaves. So here every level is
made with mode 0700, and every level that is there already is checked.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Final

from bowstring.errors import UsageError

_PRIVATE: Final = 0o700
_WRITE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_ENTER_BY_OTHERS: Final = stat.S_IXGRP | stat.S_IXOTH
_ANOTHER: Final = "Name a folder elsewhere, such as one in your home."
_REMOVE: Final = "Remove it: what is in it may be another user's."


def trusted_folder(root: str, *names: str) -> str:
    """Make the folder ``root/name/…``, or check it: this user or root owns each level, and no other may write it.

    The files in the last level are checked, too. So what it holds may be run.
    """
    make_folders(root)
    folder = root
    found = _check_level(root)
    for name in names:
        folder = os.path.join(folder, name)
        make_folder(folder)
        found = _check_level(folder)
    # Of files that others cannot reach, only the owners count.
    writable = _WRITE_BY_OTHERS if found.st_mode & _ENTER_BY_OTHERS else 0
    for name in os.listdir(folder) if names else ():
        path = os.path.join(folder, name)
        with contextlib.suppress(FileNotFoundError):  # another process has just replaced it
            file = os.lstat(path)
            if file.st_uid not in _owners() or (stat.S_ISREG(file.st_mode) and file.st_mode & writable):
                raise _refusal("another user may have written this file", file, path)
    return folder


def check_above(folder: str) -> None:
    """Refuse a folder in whose place another user can put one of theirs, by a folder above it."""
    # A folder above may be writable for others if its sticky bit prevents renaming, as in /tmp, or if it lies in a
    # folder that others cannot enter.
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
    """Refuse a folder in which other users may rename what is not theirs."""
    if found.st_mode & _WRITE_BY_OTHERS and not found.st_mode & stat.S_ISVTX:
        raise _refusal("other users can replace what is in this folder", found, folder, hint)


def make_folders(folder: str) -> None:
    """Make a folder and what is missing above it, each with mode 0700."""
    missing = []
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for each in reversed(missing):
        make_folder(each)


def make_folder(folder: str) -> None:
    """Make a folder with mode 0700, unless it is there."""
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


def _refusal(text: str, found: os.stat_result, where: str, hint: str = _REMOVE) -> UsageError:
    return UsageError(
        text,
        expected=f"owned by uid {os.geteuid()} or root, not writable for group or others",
        found=owner_and_mode(found),
        where=where,
        hint=hint,
    )


def owner_and_mode(found: os.stat_result) -> str:
    """Return the owner and the mode of a file or folder, as errors name them."""
    return f"uid {found.st_uid}, mode {stat.filemode(found.st_mode)}"
