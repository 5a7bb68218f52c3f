"""The current fake device of each thread: arrays of a GPU are computed with on the current one, theirs or not."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from bowstring.errors import NotOnDevice

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["OnlyCurrent", "check_current", "using"]

_local = threading.local()


@contextlib.contextmanager
def using(device: Any) -> Iterator[None]:
    """Make a device the current one of this thread, for the time of a ``with`` block."""
    before = getattr(_local, "device", None)
    _local.device = device
    try:
        yield
    finally:
        _local.device = before


class OnlyCurrent:
    """A ``with`` block in which arrays of a fake device can be computed with only while it is the current one.

    With CuPy, what is computed while another GPU is current runs there, or fails; so code that works on a device
    has to make it the current one. The block holds for all threads.

    Examples
    --------
    >>> from bowstring.testing import fake_device
    >>> array = fake_device(1).xp.arange(3)
    >>> with OnlyCurrent():
    ...     with fake_device(1).use():
    ...         doubled = array + array
    ...     array + array
    Traceback (most recent call last):
      ...
    bowstring.errors.NotOnDevice: an array is used while another device is the current one; ...
    """

    _wanted = 0

    def __enter__(self) -> None:
        OnlyCurrent._wanted += 1

    def __exit__(self, *_: object) -> None:
        OnlyCurrent._wanted -= 1

    @classmethod
    def is_wanted(cls) -> bool:
        """Whether some block is entered."""
        return cls._wanted > 0


def check_current(device: Any) -> None:
    """Refuse to compute on a device that is not the current one, where somebody wants to know.

    Raises
    ------
    NotOnDevice
        It is not, inside an :class:`OnlyCurrent` block.
    """
    if OnlyCurrent.is_wanted() and getattr(_local, "device", None) is not device:
        raise NotOnDevice(
            "an array is used while another device is the current one",
            expected=device.name,
            found=getattr(getattr(_local, "device", None), "name", "none"),
            hint="Work on it inside `with device.use():`.",
        )
