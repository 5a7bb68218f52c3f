"""``format("bowstring")``: data sets as a data source of Spark, which finds it through ``pyspark_bowstring``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from bowstring.errors import BowstringError, UsageError
from bowstring.spark.filters import Predicate, predicate
from bowstring.spark.options import ReadOptions
from bowstring.spark.schemas import published_schema, task_schema
from bowstring.spark.types import distinct_names, read_endpoint, to_spark_schema

__all__ = ["BowstringDataSource", "BowstringReader", "BowstringStreamReader"]

_COUNT: Final = "endpoints"


def _available_now() -> Any:
    """Return the class that marks streams that know where to stop, which Spark has since 4.2."""
    try:
        return importlib.import_module("pyspark.sql.streaming.datasource").SupportsTriggerAvailableNow
    except (ImportError, AttributeError):
        return object


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
        writers = importlib.import_module("bowstring.spark.writer")
        return writers.DatasetWriter(dict(self.options), published_schema(schema), overwrite=overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802  Spark's name
        """Return what publishes the batches of a stream under a name."""
        writers = importlib.import_module("bowstring.spark.writer")
        return writers.DatasetStreamWriter(dict(self.options), published_schema(schema), overwrite=overwrite)

    def _read_options(self) -> ReadOptions:
        return ReadOptions.of(dict(self.options))


class BowstringReader(DataSourceReader):  # type: ignore[misc]
    """Reads a data set: a partition for each endpoint."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._target = task_schema(schema)
        self._collated = [name for name, type_ in _leaves(schema) if _is_collated(type_)]
        self._predicates: list[Predicate] = []

    @property
    def pushFilters(self) -> Callable[[list[Any]], Iterable[Any]]:  # noqa: N802  Spark's name
        """Take the filters that Arrow answers as Spark does, and return the others, where the option allows it.

        Spark up to 4.3 uses the filters of a data frame's last query again for queries that push none, and so
        leaves rows out: hence the option. Spark refuses readers with this method where
        ``spark.sql.python.filterPushdown.enabled`` is false; it looks at ``__func__``. This one is the plain
        reader's, and Spark filters by itself.
        """
        return _Push(self) if self._options.push else super().pushFilters

    def take(self, filters: list[Any]) -> list[Any]:
        """Take filters; return those that are left to Spark."""
        rest = []
        for each in filters:
            name = getattr(getattr(each, "child", each), "attribute", ())
            found = None if tuple(name) in self._collated else predicate(each, self._target)
            if found is None:
                rest.append(each)
            else:
                self._predicates.append(found)
        return rest

    def partitions(self) -> list[InputPartition]:
        """Return the endpoints."""
        return [InputPartition(endpoint) for endpoint in self._options.endpoints()]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one endpoint."""
        if (
            partition is None or partition.value is None
        ):  # Spark 4.1's, and later ones', for no partitions at all
            return iter(())
        return read_endpoint(
            partition.value,
            self._target,
            columns=self._options.columns,
            truncate=self._options.truncate,
            predicates=self._predicates,
            validate=self._options.validate,
        )


class _Push:
    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: BowstringReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Any]) -> list[Any]:
        return self._reader.take(filters)


class BowstringStreamReader(DataSourceStreamReader, _available_now()):  # type: ignore[misc]
    """Reads a data set that may grow: an offset is how many of its endpoints were read."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._target = task_schema(schema)
        self._last: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  Spark's name
        """Begin before the first endpoint."""
        return {_COUNT: 0}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Return how many endpoints there are now, as far as the limit allows; Spark 4.1 gives no arguments."""
        there = len(self._options.endpoints()) if self._last is None else self._last
        begin = 0 if start is None else start[_COUNT]
        if there < begin:
            raise UsageError(
                "the data set has become shorter than what was read of it",
                expected=f"at least {begin} endpoints",
                found=there,
                hint="A new data set needs a new checkpoint.",
            )
        most = getattr(limit, "max_files", None)
        return {_COUNT: there if most is None else min(there, begin + most)}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802  Spark's name
        """Return the option ``maxEndpointsPerTrigger`` as Spark says it."""
        limits = importlib.import_module("pyspark.sql.streaming.datasource")
        most = self._options.most
        return limits.ReadAllAvailable() if most is None else limits.ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Let later endpoints be for another run."""
        self._last = len(self._options.endpoints())

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the endpoints from one offset to another."""
        endpoints = self._options.endpoints()[start[_COUNT] : end[_COUNT]]
        if len(endpoints) != end[_COUNT] - start[_COUNT]:
            raise BowstringError(
                "endpoints that were there are gone",
                expected=f"{end[_COUNT]} endpoints",
                found=start[_COUNT] + len(endpoints),
            )
        return [InputPartition(endpoint) for endpoint in endpoints]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one endpoint."""
        return read_endpoint(
            partition.value,
            self._target,
            columns=self._options.columns,
            truncate=self._options.truncate,
            validate=self._options.validate,
        )


def _leaves(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for field in schema.fields:
        inner = (*path, field.name)
        yield inner, field.dataType
        if hasattr(field.dataType, "fields"):
            yield from _leaves(field.dataType, inner)


def _is_collated(type_: Any) -> bool:
    """Whether texts of a type compare otherwise than by their bytes."""
    return str(getattr(type_, "collation", "UTF8_BINARY")) != "UTF8_BINARY"
