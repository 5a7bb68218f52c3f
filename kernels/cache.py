"""Where compiled kernels are kept between processes: a folder of ours, never the package's.

The root is ``BOWSTRING_CACHE_DIR``; else ``bowstring`` in the user's cache folder (``XDG_CACHE_HOME``,
``~/.cache``); else a temporary folder that ends with the process. In it, one folder holds what was compiled from
one state of all kernel sources, so no change of a kernel meets old code. Any of them may be deleted at any time.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import shutil
import stat
import sys
import tempfile

from bowstring.errors import UsageError

__all__ = ["cache_folder", "source_hash", "store"]

VARIABLE = "BOWSTRING_CACHE_DIR"


def cache_folder(*environment: object) -> str:
    """Return the folder for code compiled from the present sources in an environment: versions, processor.

    Raises
    ------
    UsageError
        ``BOWSTRING_CACHE_DIR`` names a folder that cannot be made, or that others may write.

    Examples
    --------
    >>> cache_folder("host", "0.68") == cache_folder("host", "0.69")
    False
    """
    key = repr((source_hash(), sys.implementation.cache_tag, *environment))
    name = f"kernels-{hashlib.sha256(key.encode()).hexdigest()[:20]}"
    return os.path.join(_root(os.environ.get(VARIABLE)), name)


@functools.cache
def source_hash() -> str:
    """Return a hash of the sources of all kernels, and of what compiles them.

    Examples
    --------
    >>> len(source_hash())
    64
    """
    folder = os.path.dirname(__file__)
    total = hashlib.sha256()
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py"):
            with open(os.path.join(folder, name), "rb") as source:
                total.update(f"{name} {hashlib.sha256(source.read()).hexdigest()}\n".encode())
    return total.hexdigest()


def store(path: str, content: bytes) -> None:
    """Write a file of the cache, whole or not at all; a cache that cannot be written is no error."""
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=os.path.dirname(path))
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.replace(name, path)
        except OSError:
            os.unlink(name)


def _root(chosen: str | None) -> str:
    """Return the root of the cache, without links: whoever owns a link may turn it to another folder."""
    if chosen:
        folder = os.path.realpath(chosen)
        if not _usable(folder):
            raise UsageError(
                "the folder for compiled kernels cannot be used",
                expected="a folder that you own, or root, and that nobody else may write",
                found=chosen,
                where=VARIABLE,
                hint="What is in it is run. For a folder that is yours: chmod go-w.",
            )
        return folder
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if os.path.isabs(home):
        folder = os.path.realpath(os.path.join(home, "bowstring"))
        if _usable(folder) and os.access(folder, os.W_OK):
            return folder
    if not _usable(_temporary_folder()):  # of a parent that has ended, and somebody else's since
        _temporary_folder.cache_clear()
    return _temporary_folder()


def _usable(folder: str) -> bool:
    """Whether the folder is there, or can be made, and holds only what its owner or root wrote: it is run."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        found = os.stat(folder)
    except OSError:
        return False
    trusted = found.st_uid in (os.geteuid(), 0) and not found.st_mode & (stat.S_IWOTH | stat.S_IWGRP)
    return trusted and os.access(folder, os.R_OK | os.X_OK)


@functools.cache
def _temporary_folder() -> str:
    """Return a new folder that ends with this process; its forks use it too."""
    folder = os.path.realpath(tempfile.mkdtemp(prefix="bowstring-kernels-"))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
