"""Spark: sessions with the settings that matter, and Arrow batches into Spark and out of it.

Nothing here needs PySpark before it is called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bowstring.spark.named import dataset
    from bowstring.spark.published import PublishedDataset
    from bowstring.spark.publishing import publish
    from bowstring.spark.scheduling import task_address, task_device
    from bowstring.spark.sessions import session, session_config

__all__ = [
    "PublishedDataset",
    "dataset",
    "publish",
    "session",
    "session_config",
    "task_address",
    "task_device",
]

# Every worker of Spark's imports this package, and most need only what a task does.
_HOMES = {
    "PublishedDataset": "bowstring.spark.published",
    "dataset": "bowstring.spark.named",
    "publish": "bowstring.spark.publishing",
    "session": "bowstring.spark.sessions",
    "session_config": "bowstring.spark.sessions",
    "task_address": "bowstring.spark.scheduling",
    "task_device": "bowstring.spark.scheduling",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bowstring.spark' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
