"""Where compiled kernels are kept between processes: a folder of ours, never the package's.

The root is ``BOWSTRING_CACHE_DIR``; else ``bowstring`` in the user's cache folder; else a temporary folder. One
folder for each state of all kernel sources, so a changed kernel never meets old code. What is kept is run: so every
level has mode 0700 and is checked before anything is loaded (:mod:`bowstring.kernels.trusted_folders`).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import shutil
import sys
import tempfile
import warnings

from bowstring.errors import UsageError
from bowstring.kernels.library import compiled_sources
from bowstring.kernels.trusted_folders import check_above, make_folders, trusted_folder

VARIABLE = "BOWSTRING_CACHE_DIR"


def cache_folder(*environment: object, module: str = "") -> str:
    """Return the folder for code compiled from the present sources in an environment: versions, processor."""
    key = repr((compiled_sources(), sys.implementation.cache_tag, *environment))
    name = f"kernels-{hashlib.sha256(key.encode()).hexdigest()[:20]}"
    return kept_folder(name, *([module] if module else []))


def kept_folder(*names: str) -> str:
    """Return a folder of the cache from which code may be run, made if it is missing.
    Where others may have written a level (with a warning), or it cannot be made, it is a temporary folder.
    """
    chosen = os.environ.get(VARIABLE)
    root = _root(chosen)
    try:
        if root is not None:
            check_above(root)
            return trusted_folder(root, *names)
    except OSError:
        pass
    except UsageError as refused:
        _warn(str(refused))
    return _temporary(*names)


def store(path: str, content: bytes) -> None:
    """Write a file of the cache, whole or not at all; a cache that cannot be written is no error."""
    with contextlib.suppress(OSError):
        make_folders(os.path.dirname(path))
        descriptor, name = tempfile.mkstemp(dir=os.path.dirname(path))
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.replace(name, path)
        except OSError:
            os.unlink(name)


def _root(chosen: str | None) -> str | None:
    """Return the root of the cache, if any, without links: the owner of a link may turn it to another folder."""
    if chosen:
        root = os.path.realpath(chosen)
        try:
            trusted_folder(root)
            if os.access(root, os.R_OK | os.X_OK):
                return root
            found = "it cannot be read"
        except (OSError, UsageError) as error:
            found = str(error)
        raise UsageError(
            "the folder for compiled kernels cannot be used",
            expected="a folder that you own, or root, and that nobody else may write",
            found=f"{chosen}: {found}",
            where=VARIABLE,
            hint="What is in it is run. Name a folder of yours with mode 0700.",
        )
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(home):
        return None
    root = os.path.realpath(os.path.join(home, "bowstring"))
    with contextlib.suppress(OSError):
        make_folders(root)
    return root if os.access(root, os.R_OK | os.W_OK | os.X_OK) else None


@functools.cache
def _warn(refused: str) -> None:
    """Warn once of what keeps the cache from being used."""
    warnings.warn(
        f"the cache of compiled code is not used, each process compiles anew: {refused}",
        RuntimeWarning,
        stacklevel=4,
    )


def _temporary(*names: str) -> str:
    """Return a folder in the temporary one of this process."""
    with contextlib.suppress(OSError, UsageError):
        return trusted_folder(_temporary_folder(), *names)
    # It was the parent's, which has ended, and somebody else took its name.
    _temporary_folder.cache_clear()
    return trusted_folder(_temporary_folder(), *names)


@functools.cache
def _temporary_folder() -> str:
    """Return a new folder that ends with this process; its forks use it too."""
    folder = os.path.realpath(tempfile.mkdtemp(prefix="bowstring-kernels-"))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
