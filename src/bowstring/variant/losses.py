"""Values that are there and became null: counted by their statuses, where these are, and warned of once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bowstring.errors import warn_caller
from bowstring.variant.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bowstring.memory import Device


class _Loss(NamedTuple):
    """How many values became null, of how many, and where one of them is."""

    lost: int
    there: int
    example: str


class Losses:
    """What a call or a read has lost, by what was asked for. Threads may add to it."""

    def __init__(self, became: str = "became null") -> None:
        self._became = became
        self._by_name: dict[str, _Loss] = {}
        self._lock = threading.Lock()

    def add(self, name: str, lost: int, there: int, example: str) -> None:
        """Count values; `name` says which, and as what they were read, and `example` where one is that was lost."""
        with self._lock:
            known = self._by_name.get(name, _Loss(0, 0, ""))
            self._by_name[name] = _Loss(known.lost + lost, known.there + there, known.example or example)

    def warn(self, advice: str) -> None:
        """Warn of the losses counted so far, if any, and reset them."""
        if self._by_name:
            warn_caller(self.texts(advice))

    def texts(self, advice: str) -> list[str]:
        """Return the text of a warning of the losses counted so far, if any, and reset them."""
        with self._lock:
            found = [(name, loss) for name, loss in self._by_name.items() if loss.lost]
            self._by_name.clear()
        lines = [
            f"{loss.lost} of {loss.there} values {name} {self._became}, for example {loss.example}"
            for name, loss in found
        ]
        return [f"{'; '.join(lines)}. {advice}"] if lines else []


def counted(device: Device, statuses: Iterable[Any], holders: Iterable[Any] = ()) -> tuple[int, int]:
    """Return how many values became null, and of how many that are there.

    `statuses` are those of values; `holders` those of lists, structs and maps: these count where they are lost.
    """
    least = np.uint8(Status.VARIANT_NULL)
    lost = there = 0
    for each in statuses:
        xp = device.xp
        sums = xp.stack(
            [(each > least).sum(dtype=np.int64), (each == np.uint8(Status.OK)).sum(dtype=np.int64)]
        )
        bad, good = device.to_host(sums).tolist()
        lost, there = lost + bad, there + bad + good
    for each in holders:
        [bad] = device.to_host((each > least).sum(keepdims=True, dtype=np.int64)).tolist()
        lost, there = lost + bad, there + bad
    return lost, there


def first_lost(device: Device, statuses: Any) -> tuple[int, Status]:
    """Return the first row of which the status is an error, and that; there is one."""
    rows = device.xp.flatnonzero(statuses > np.uint8(Status.VARIANT_NULL))
    row = int(device.to_host(rows[:1])[0])
    return row, Status(int(device.to_host(statuses[row : row + 1])[0]))
