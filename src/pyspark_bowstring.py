"""Spark finds ``format("bowstring")`` by the name of this module."""

from bowstring.spark.source import BowstringDataSource as DefaultSource

__all__ = ["DefaultSource"]
