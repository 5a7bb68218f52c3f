"""Spark: sessions with the settings that matter, and Arrow batches into Spark and out of it.

Nothing here needs PySpark before it is called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bowstring.spark.java import use_java
    from bowstring.spark.progress import Progress
    from bowstring.spark.publishing import dataset, drop, publish
    from bowstring.spark.sessions import session, session_config
    from bowstring.spark.task import task_address, task_device
    from bowstring.spark.tickets import PublishedDataset

__all__ = [
    "Progress",
    "PublishedDataset",
    "dataset",
    "drop",
    "publish",
    "session",
    "session_config",
    "task_address",
    "task_device",
    "use_java",
]

# Every worker of Spark's imports this package, and most need only what a task does.
_HOMES = {
    "Progress": "bowstring.spark.progress",
    "PublishedDataset": "bowstring.spark.tickets",
    "dataset": "bowstring.spark.publishing",
    "drop": "bowstring.spark.publishing",
    "publish": "bowstring.spark.publishing",
    "session": "bowstring.spark.sessions",
    "session_config": "bowstring.spark.sessions",
    "task_address": "bowstring.spark.task",
    "task_device": "bowstring.spark.task",
    "use_java": "bowstring.spark.java",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bowstring.spark' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
