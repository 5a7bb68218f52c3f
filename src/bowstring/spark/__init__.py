"""Spark: sessions with the settings that matter, and Arrow batches into Spark and out of it.

Nothing here needs PySpark before it is called.
"""

from bowstring.spark.named import dataset
from bowstring.spark.publish import publish
from bowstring.spark.published import PublishedDataset
from bowstring.spark.scheduling import task_address, task_device
from bowstring.spark.session import session, session_config

__all__ = [
    "PublishedDataset",
    "dataset",
    "publish",
    "session",
    "session_config",
    "task_address",
    "task_device",
]
