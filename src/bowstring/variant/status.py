"""The status of a row; results as columns; the error of a row; and values that became null, which calls warn of."""

from __future__ import annotations

import enum
import threading
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from bowstring.errors import BowstringError, InvalidBody, LimitExceeded, Unsupported, warn_caller
from bowstring.kernels import bitmap
from bowstring.variant.codec.decode import decode
from bowstring.variant.codec.rows import in_row, raw_row
from bowstring.variant.column import Gathered

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bowstring.limits import Limits
    from bowstring.memory import Device
    from bowstring.variant.column import VariantColumn


class Status(enum.IntEnum):
    """The status of a row of a Variant column.

    SQL NULL, missing and the Variant null are three different things, and none of them is an error.

    Examples
    --------
    >>> Status(2).name, Status.MALFORMED.is_error
    ('MISSING', True)
    """

    OK = 0
    """There is a value."""
    SQL_NULL = 1
    """The row itself is null."""
    MISSING = 2
    """The path leads nowhere: no such field, no such element, or nothing to step into."""
    VARIANT_NULL = 3
    """The path leads to a Variant null."""
    TYPE_MISMATCH = 4
    """The value is of another kind than the type that was asked for."""
    OVERFLOW = 5
    """The value is of the right kind, and the type cannot hold it without loss."""
    MALFORMED = 6
    """The bytes are not what the format says."""
    UNSUPPORTED = 7
    """The value is of a primitive type that the format has no name for yet, or one that the cast cannot do."""
    TOO_DEEP = 8
    """The value is nested deeper than allowed, or shares its children so often that the work has no bound."""

    @property
    def is_error(self) -> bool:
        """Whether ``on_error="raise"`` raises."""
        return self > Status.VARIANT_NULL


_MOST_READ: Final = 1 << 21
"""The most bytes of a row that are read once more, in Python, to say where in it the fault lies."""


def status_column(name: str, statuses: Any) -> Gathered:
    """Return the statuses as a column of uint8."""
    return Gathered(pa.field(name, pa.uint8(), nullable=False), [(len(statuses), 0)], [None, statuses])


def validity_of(statuses: Any) -> Any:
    """Return the bitmap of the rows with a value."""
    return bitmap.packed(statuses == np.uint8(Status.OK))


def any_of(flags: Any, device: Device) -> bool:
    """Return whether a flag is set: one read by the host."""
    return bool(len(flags)) and bool(device.to_host(flags.max(keepdims=True))[0])


def first_error(statuses: Any, device: Device) -> tuple[int, Status] | None:
    """Return the first row of which the status is an error, and that."""
    bad = statuses > np.uint8(Status.VARIANT_NULL)
    if not any_of(bad, device):
        return None
    row = int(device.to_host(device.xp.flatnonzero(bad)[:1])[0])
    return row, Status(int(device.to_host(statuses[row : row + 1])[0]))


def _nbytes(opened: VariantColumn, row: int) -> int:
    """Return how many bytes the value of a row and its metadata have."""
    device, place = opened.column.device, row
    if opened.indices is not None:
        place = max(int(device.to_host(opened.indices[row : row + 1])[0]), 0)
    nbytes = 0
    for slots, slot in ((opened.value, row), (opened.metadata, place)):
        for sign, bounds in ((-1, slots.starts), (1, slots.stops)):
            nbytes += sign * sum(device.to_host(bounds[slot : slot + 1]).tolist())
    return nbytes


def raise_error(opened: VariantColumn, row: int, status: Status, limits: Limits) -> NoReturn:
    """Raise the error of a row that has one: as decoding finds it, or by the status of a row that is too long to
    be read here.
    """
    if _nbytes(opened, row) <= _MOST_READ and (raw := raw_row(opened, row)) is not None:
        try:
            decode(*raw, limits=limits)
        except BowstringError as error:
            raise in_row(error, row) from error
    if status == Status.UNSUPPORTED:
        raise Unsupported("a Variant has a type that is not known", where=f"row {row}")
    if status == Status.TOO_DEEP:
        raise LimitExceeded(
            "a Variant is too deep, or an object has too many keys in no order",
            expected=f"at most {limits.depth} levels, and keys in the order of their UTF-8 bytes",
            where=f"row {row}",
        )
    raise InvalidBody("a Variant is not what the specification says", found=status.name, where=f"row {row}")


class Losses:
    """What a call or a read has lost, by what was asked for. Threads may add to it."""

    def __init__(self) -> None:
        # By what was asked for: how many values became null, of how many, and where one of them is.
        self._by_name: dict[str, tuple[int, int, str]] = {}
        self._lock = threading.Lock()

    def add(self, name: str, lost: int, there: int, example: str) -> None:
        """Count values; `name` says which, and as what they were read, and `example` where one is that was lost."""
        with self._lock:
            before = self._by_name.get(name, (0, 0, ""))
            self._by_name[name] = before[0] + lost, before[1] + there, before[2] or example

    def warn(self, advice: str) -> None:
        """Warn of the losses counted so far, if any, and reset them."""
        if self._by_name:
            warn_caller(self.texts(advice))

    def texts(self, advice: str) -> list[str]:
        """Return the text of a warning of the losses counted so far, if any, and reset them."""
        with self._lock:
            losses = self._by_name
            self._by_name = {}
        lines = [
            f"{lost} of {there} values {name}, for example {example}"
            for name, (lost, there, example) in losses.items()
            if lost
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
