"""Process B: has no Spark, opens what Spark published, and takes typed columns out of its Variants."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from typing import Any, Final

import pyarrow as pa

from bowstring import variant
from bowstring.cli.pipeline.countries import countries
from bowstring.cli.pipeline.facts import FACTS
from bowstring.client import connect
from bowstring.columnar import Batch
from bowstring.dissociated.uri import Dataset
from bowstring.server import Server

__all__ = ["Consumer", "extract"]

_WANTED: Final = {name: (fact.path, fact.arrow) for name, fact in FACTS.items()}


def extract(places: Any) -> pa.RecordBatch:
    """Return typed columns of a Variant column of places, on the host; the Variants stay where they are.

    Examples
    --------
    >>> place = {"geonameid": 1, "name": "Wien", "alternatenames": ["Vienna", "Bécs"]}
    >>> extract(variant.from_python([place])).to_pylist()[0]["names"]
    ['Vienna', 'Bécs']
    """
    return variant.get_many(places, _WANTED).to_device("cpu").to_arrow()


class Consumer:
    """What process B does, call by call (:class:`bowstring.benchmarks.processes.Child`).

    Parameters
    ----------
    device
        Where it takes the data; ``None``: wherever they are.
    """

    def __init__(self, device: str | None = None) -> None:
        self._device = device
        self._batches: list[Batch] = []
        self._found: list[pa.RecordBatch] = []
        self._server: Server | None = None

    def warm(self) -> None:
        """Compile the kernels, or load them: what every process does once."""
        extract(variant.from_json(["{}"]))

    def open(self, dataset: str) -> dict[str, Any]:
        """Open a data set; return how long it took until all batches were there, and how they came.

        What was open before is let go of.
        """
        self._batches.clear()
        began = time.perf_counter()
        with connect(Dataset.from_json(dataset), device=self._device) as stream:
            self._batches.extend(stream)
            seconds = time.perf_counter() - began
            stats = stream.stats
        return {
            "seconds": seconds,
            "rows": stats.rows,
            "batches": stats.batches,
            "bytes": stats.nbytes,
            "device": stats.device,
            "path": stats.path,
            "why": stats.why,
            "pid": os.getpid(),
            "has_pyspark": "pyspark" in sys.modules,
        }

    def take(self, number: int) -> dict[str, Any]:
        """Take the typed columns out of one batch; return how long it took."""
        batch = self._batches[number]
        began = time.perf_counter()
        found = extract(batch["place"])
        seconds = time.perf_counter() - began
        beside = batch.select(["country", "km"]).to_device("cpu").to_arrow()
        for name in ("country", "km"):
            found = found.append_column(name, beside[name])
        self._found.append(found)
        return {"seconds": seconds, "rows": len(batch)}

    def report(self) -> list[dict[str, Any]]:
        """Return the lines of the report."""
        return [dataclasses.asdict(line) for line in countries(self._table())]

    def offer(self) -> str:
        """Publish the typed columns; return where."""
        self._server = Server("unix:")
        return str(self._server.publish("typed", self._table().select(list(FACTS))))

    def _table(self) -> pa.Table:
        return pa.Table.from_batches(self._found)

    def close(self) -> None:
        """Let go of everything."""
        self._batches.clear()
        self._found.clear()
        if self._server is not None:
            self._server.close()
