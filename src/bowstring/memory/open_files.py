"""Open files: the error where this process, or the machine, can open no more of them."""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING, Final

from bowstring.errors import LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["opening"]

_NONE_LEFT: Final = (errno.EMFILE, errno.ENFILE)


@contextlib.contextmanager
def opening(what: str) -> Iterator[None]:
    """Raise :class:`~bowstring.errors.LimitExceeded` where there is no descriptor left for `what`.

    Examples
    --------
    >>> with opening("a region"):
    ...     raise OSError(errno.EMFILE, "Too many open files")
    Traceback (most recent call last):
    bowstring.errors.LimitExceeded: no descriptor is left for a region; found Too many open files...
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _NONE_LEFT:
            raise
        raise LimitExceeded(
            f"no descriptor is left for {what}",
            found=error.strerror,
            hint="Raise the limit of open files (ulimit -n).",
        ) from error
