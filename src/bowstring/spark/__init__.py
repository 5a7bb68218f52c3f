"""Spark: sessions with the settings that matter, and Arrow batches into Spark and out of it.

- ``session`` starts a session with the settings that matter, or returns the running one; ``session_config`` are
  those settings, for a session of your own; ``use_java`` lets Spark use the Java that pip installed.
- ``publish`` runs a data frame and keeps its rows in shared memory for readers. It returns a ``PublishedDataset``,
  and tells a function its ``Progress``.
- ``dataset`` is the data set of a name; ``drop`` frees it. ``stop_depots`` ends a session's depots on all hosts.
- ``task_device`` is the GPU that Spark gave to the task that calls, ``task_address`` its address as Spark names it.
- ``format("bowstring")`` works with ``spark.read``, ``df.write``, ``readStream`` and ``writeStream``.

It keeps no durable catalogue, and a data set has one schema. Nothing here needs PySpark before it is called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bowstring.depot.publishing import drop
    from bowstring.spark.java import use_java
    from bowstring.spark.progress import Progress
    from bowstring.spark.published import PublishedDataset, RunningDataset
    from bowstring.spark.publishing import dataset, publish, stop_depots
    from bowstring.spark.sessions import session, session_config
    from bowstring.spark.task import task_address, task_device

__all__ = [
    "Progress",
    "PublishedDataset",
    "RunningDataset",
    "dataset",
    "drop",
    "publish",
    "session",
    "session_config",
    "stop_depots",
    "task_address",
    "task_device",
    "use_java",
]

# Every worker of Spark's imports this package, and most need only what a task does.
_HOMES = {
    "Progress": "bowstring.spark.progress",
    "PublishedDataset": "bowstring.spark.published",
    "RunningDataset": "bowstring.spark.published",
    "dataset": "bowstring.spark.publishing",
    "drop": "bowstring.depot.publishing",
    "publish": "bowstring.spark.publishing",
    "session": "bowstring.spark.sessions",
    "session_config": "bowstring.spark.sessions",
    "stop_depots": "bowstring.spark.publishing",
    "task_address": "bowstring.spark.task",
    "task_device": "bowstring.spark.task",
    "use_java": "bowstring.spark.java",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bowstring.spark' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
