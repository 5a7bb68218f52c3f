"""The host, as endpoints name it: who is on the same one can map what its producers publish."""

from __future__ import annotations

import functools
import hashlib
import os
import urllib.parse
from pathlib import Path
from typing import Final

__all__ = ["is_within_reach", "this_host"]

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def this_host() -> str:
    """Return an opaque name of this host, another one after each boot; ``BOWSTRING_HOST`` may set it.

    Examples
    --------
    >>> this_host() == this_host()
    True
    """
    return os.environ.get("BOWSTRING_HOST") or _of_boot()


def is_within_reach(address: str) -> bool:
    """Return whether an address of this host may be one of this process, too: containers see files of their own.

    Examples
    --------
    >>> is_within_reach("tcp://127.0.0.1:1"), is_within_reach("unix:/not/there.sock")
    (True, False)
    """
    scheme, _, path = address.partition(":")
    return scheme != "unix" or os.path.exists(urllib.parse.unquote_to_bytes(path))


@functools.cache
def _of_boot() -> str:
    try:
        known = _BOOT_ID.read_text().strip()
    except OSError:  # another kernel than Linux, or a closed /proc
        known = os.uname().nodename
    # Not the number itself, which programs are asked to keep to themselves (machine-id(5)).
    return hashlib.blake2b(f"bowstring host {known}".encode(), digest_size=8).hexdigest()
