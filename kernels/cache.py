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
        ``BOWSTRING_CACHE_DIR`` names a folder that cannot be made, or that everybody may write.

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


@functools.cache
def _root(chosen: str | None) -> str:
    """Return the root of the cache for this process and its forks."""
    if chosen:
        if not _usable(chosen, closed_to=stat.S_IWOTH):
            raise UsageError(
                "the folder for compiled kernels cannot be used",
                expected="a folder that you own, or root, and that not everybody may write",
                found=chosen,
                where=VARIABLE,
            )
        return chosen
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(home, "bowstring")
    closed_to = stat.S_IWOTH | stat.S_IWGRP
    if os.path.isabs(folder) and _usable(folder, closed_to=closed_to) and os.access(folder, os.W_OK):
        return folder
    folder = tempfile.mkdtemp(prefix="bowstring-kernels-")
    atexit.register(_remove, folder, os.getpid())
    return folder


def _usable(folder: str, *, closed_to: int) -> bool:
    """Whether the folder is there, or can be made, and holds only what its owner or root wrote: it is run."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        found = os.stat(folder)
    except OSError:
        return False
    trusted = found.st_uid in (os.geteuid(), 0) and not found.st_mode & closed_to
    return trusted and os.access(folder, os.R_OK | os.X_OK)


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
