"""What process B computes: flights, cancelled share and mean delay per carrier, from views alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from bowstring.columnar import Batch, Column

__all__ = ["COLUMNS", "Carrier", "report"]

COLUMNS = ("carrier", "dep_time", "dep_delay")


@dataclasses.dataclass(slots=True)
class Carrier:
    """One line of the report.

    Attributes
    ----------
    flights, departed
        Planned, and of these not cancelled.
    delay_minutes
        Sum over those that departed.
    """

    flights: int = 0
    departed: int = 0
    delay_minutes: int = 0

    @property
    def cancelled(self) -> float:
        """Share of the flights that never left."""
        return 1 - self.departed / self.flights

    @property
    def mean_delay(self) -> float | None:
        """Minutes, ``None`` where nothing departed."""
        return self.delay_minutes / self.departed if self.departed else None


def report(batches: Iterable[Batch]) -> dict[str, Carrier]:
    """Return a line for each carrier, sorted.

    The arrays stay where the batches are; a few numbers per carrier come to the host.

    Examples
    --------
    >>> import pyarrow as pa
    >>> codes = pa.array(["UA", "WN", "UA"]).dictionary_encode()
    >>> batch = Batch.from_arrow(
    ...     {"carrier": codes, "dep_time": pa.array([517, None, 533]), "dep_delay": pa.array([2, None, 4])}
    ... )
    >>> report([batch])["UA"], report([batch])["WN"].cancelled
    (Carrier(flights=2, departed=2, delay_minutes=6), 1.0)
    """
    found: dict[str, Carrier] = {}
    for batch in batches:
        dictionary = batch["carrier"].dictionary
        assert dictionary is not None
        names = dictionary.to_arrow().to_pylist()
        for name, *sums in zip(names, *_sums(batch, len(names)), strict=True):
            line = found.setdefault(name, Carrier())
            line.flights += sums[0]
            line.departed += sums[1]
            line.delay_minutes += sums[2]
    return {name: line for name, line in sorted(found.items()) if line.flights}


def _sums(batch: Batch, carriers: int) -> list[list[int]]:
    """Return, for each carrier, the number of flights, that of departures, and the sum of delays."""
    xp = batch.device.xp
    present = _valid(batch["carrier"], xp)
    # A null slot may hold anything: it counts as carrier 0, with weight 0.
    codes = xp.where(present, batch["carrier"].raw_values, 0)
    departed = present & _valid(batch["dep_time"], xp)
    delays = xp.where(present & _valid(batch["dep_delay"], xp), batch["dep_delay"].raw_values, 0)
    # Sums of whole minutes are exact in float64 far beyond 2013.
    counted = [
        xp.bincount(codes, weights=weights, minlength=carriers) for weights in (present, departed, delays)
    ]
    # Without any carrier, nulls are still counted somewhere.
    return [batch.device.to_host(each).astype("int64").tolist()[:carriers] for each in counted]


def _valid(column: Column, xp: Any) -> Any:
    """Return which slots hold a value, as booleans."""
    bits = column.validity
    if bits is None:
        return xp.ones(len(column), bool)
    return xp.unpackbits(bits, bitorder="little")[: len(column)].astype(bool)
