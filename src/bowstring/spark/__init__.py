"""Spark: sessions with the settings that matter, and Arrow batches into Spark and out of it.

Nothing here needs PySpark before it is called.
"""

from bowstring.spark.session import session, session_config

__all__ = ["session", "session_config"]
