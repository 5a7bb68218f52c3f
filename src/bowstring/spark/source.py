"""``format("bowstring")``: data sets as a data source of Spark, which finds it through ``pyspark_bowstring``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from bowstring.spark.batches import published_schema, to_spark_schema
from bowstring.spark.offsets import START, Listing, between, latest, of_offset, to_offset, wanted
from bowstring.spark.options import ReadOptions, distinct_names
from bowstring.spark.types import task_schema

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2
    SupportsTriggerAvailableNow = object


class BowstringDataSource(DataSource):  # type: ignore[misc]  # pyspark has no types here
    """The data source; see ``docs/spark/`` for its options."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format(…)`` is given."""
        return "bowstring"

    def schema(self) -> Any:
        """Return the schema of the data set in Spark's types."""
        return to_spark_schema(distinct_names(self._read_options().schema()))

    def reader(self, schema: Any) -> BowstringReader:
        """Return what reads the data set once."""
        return BowstringReader(self._read_options(), schema)

    def streamReader(self, schema: Any) -> BowstringStreamReader:  # noqa: N802  Spark's name
        """Return what reads a data set that may grow."""
        return BowstringStreamReader(self._read_options(), schema)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """Return what publishes a data frame under a name."""
        from bowstring.spark.writer import DatasetWriter

        return DatasetWriter(dict(self.options), published_schema(schema), overwrite=overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802  Spark's name
        """Return what publishes the batches of a stream under a name."""
        from bowstring.spark.writer import DatasetStreamWriter

        return DatasetStreamWriter(dict(self.options), published_schema(schema), overwrite=overwrite)

    def _read_options(self) -> ReadOptions:
        return ReadOptions.of(dict(self.options))


class BowstringReader(DataSourceReader):  # type: ignore[misc]
    """Reads a data set: a partition for each endpoint, or for several small neighbours."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._target = task_schema(schema)

    def partitions(self) -> list[InputPartition]:
        """Return what each task reads."""
        return [InputPartition(part) for part in self._options.parts()]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one partition."""
        if partition is None or partition.value is None:  # Spark's own, for no partitions at all
            return iter(())
        return self._options.read(partition.value, self._target)


class BowstringStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads a data set that may grow: an offset says which version, and how many of its endpoints were read."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._target = task_schema(schema)
        self._last: Listing | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Begin before the first endpoint."""
        return to_offset(START)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return up to where can be read now, as far as the limit allows; Spark 4.1 gives no arguments."""
        begin = START if start is None else of_offset(start)
        listing = self._options.listing() if self._last is None else self._last
        most = getattr(limit, "max_files", None)
        return to_offset(latest(listing, begin, most, reread=self._options.reread))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802  Spark's name
        """Return the option ``maxEndpointsPerTrigger`` as Spark says it."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

        most = self._options.most
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Let later endpoints be for another run."""
        self._last = self._options.listing()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the endpoints from one offset to another."""
        positions = of_offset(start), of_offset(end)
        endpoints = between(
            self._options.listing(*wanted(*positions)), *positions, reread=self._options.reread
        )
        return [InputPartition(endpoint) for endpoint in endpoints]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one endpoint."""
        return self._options.read(partition.value, self._target)
