"""What the pipeline found out."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["Outcome"]


@dataclasses.dataclass(slots=True)
class Outcome:
    """Facts and figures; all times are in seconds, and where there are several, the first one was cold.

    Attributes
    ----------
    spark
        Its ``version``, ``cores``, and the ``seconds_to_start`` and ``seconds_to_load``.
    rows, nbytes, partitions
        Of the data set, as published.
    read
        How process B got it (:meth:`bowstring.cli.pipeline.consumer.Consumer.open`), the last time.
    published
        To the tickets in this process: the data are in the depot.
    connected
        From ``connect`` to all batches in process B.
    handed_over
        Both, and what lies between.
    to_arrow, to_arrow_bytes
        ``toArrow()`` of the same data frame, to a table in this process.
    extracted
        Typed columns of all batches.
    countries
        The report.
    read_back
        Of the typed columns into Spark, to its checksum of them.
    checksums
        ``spark``: its own answer; ``read_back``: that over what it read back.
    """

    spark: dict[str, Any] = dataclasses.field(default_factory=dict)
    rows: int = 0
    nbytes: int = 0
    partitions: int = 0
    read: dict[str, Any] = dataclasses.field(default_factory=dict)
    published: list[float] = dataclasses.field(default_factory=list)
    connected: list[float] = dataclasses.field(default_factory=list)
    handed_over: list[float] = dataclasses.field(default_factory=list)
    to_arrow: list[float] = dataclasses.field(default_factory=list)
    to_arrow_bytes: int = 0
    extracted: float = 0.0
    countries: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    read_back: float = 0.0
    checksums: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def verified(self) -> bool:
        """Whether Spark read back what it computes itself.

        Examples
        --------
        >>> Outcome(checksums={"spark": {"rows": 1}, "read_back": {"rows": 2}}).verified
        False
        """
        return bool(self.checksums) and self.checksums["spark"] == self.checksums["read_back"]

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return {"verified": self.verified, **dataclasses.asdict(self)}
