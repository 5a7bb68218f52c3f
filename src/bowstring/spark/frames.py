"""What is published of a data frame: its columns, and how many tasks it takes where its partitions are small."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

from bowstring.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


def frame_of(source: Any) -> Any:
    """Return the data frame of Spark that a data frame or series of pandas-on-Spark is, without its index."""
    if not hasattr(source, "mapInArrow") and type(source).__module__.startswith("pyspark.pandas"):
        frame = source if hasattr(source, "to_spark") else source.to_frame()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the index is lost is what the documentation says
            return frame.to_spark()
    return source


def with_lists_of_vectors(df: Any) -> Any:
    """Return a data frame whose columns of ML vectors, dense and sparse, are ``array<double>``.

    Vectors within structs and lists stay what Spark stores them as: a struct of type, size, indices and values.
    """
    vectors = [type(field.dataType).__name__ == "VectorUDT" for field in df.schema.fields]
    if not any(vectors):
        return df
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql.functions import when

    plain, names = with_plain_names(df)
    columns = [
        # vector_to_array takes no null.
        when(plain[name].isNotNull(), vector_to_array(plain[name])).alias(name) if is_vector else plain[name]
        for name, is_vector in zip(plain.columns, vectors, strict=True)
    ]
    converted = plain.select(*columns)
    return converted if names is None else converted.toDF(*names)


def with_plain_names(df: Any) -> tuple[Any, tuple[str, ...] | None]:
    """Return a data frame whose columns ``mapInArrow`` finds by their names, and the names that they had.

    Spark looks for ``a.b`` in a struct, and finds two columns where a name is repeated. There, columns are renamed
    by their position; ``None`` where nothing was renamed.
    """
    names = tuple(df.columns)
    distinct = {name.lower() for name in names}
    if len(distinct) == len(names) and not any("." in name or "`" in name for name in names):
        return df, None
    return df.toDF(*(f"c{index}" for index in range(len(names)))), names


# Partitions of this many bytes and more are left as they are.
_ENOUGH: Final = 1 << 20
# Tasks for each core: those that take longer than others keep the rest busy.
_WAVES: Final = 2
# Asking where each partition would rather run takes a call to Java; more of them are not asked about.
_MOST_ASKED: Final = 20_000
# How many rows come out of these, and how large, no estimate of Spark's tells.
_UNKNOWN: Final = (
    "ArrowEvalPython", "FlatMapGroupsInPandas", "FlatMapGroupsInArrow", "Generate", "LogicalRDD", "MapElements",
    "MapInArrow", "MapInPandas", "MapPartitions", "PythonMapInArrow", "SerializeFromObject",
)  # fmt: skip


def coalesced(df: Any, how: Any) -> Any:
    """Return a data frame whose small partitions are joined, in their order; or as it is.

    With ``"auto"`` partitions that Spark estimates below 1 MiB are, to no fewer than two for each core, where the
    result has the same order of rows or no order at all; a number is at most so many partitions.
    """
    if how is None:
        return df
    if how != "auto":
        if not isinstance(how, int) or isinstance(how, bool) or how < 1:
            raise UsageError("coalesce is a number, 'auto' or None", found=repr(how))
        return df.coalesce(how)
    few = _enough_partitions(df)
    if few is None:
        return df
    # Planned anew: what `df` knows of itself may be older than what was cached since.
    joined = df.coalesce(few)
    return joined if _keeps_order(joined, few) else df


def _enough_partitions(df: Any) -> int | None:
    """Return how many partitions are enough for the bytes that Spark estimates; ``None`` where that says little."""
    if not hasattr(df, "_jdf"):
        return None  # the plan is on a server of Spark Connect
    plan = df._jdf.queryExecution().optimizedPlan()
    if any(node.nodeName() in _UNKNOWN for node in _nodes(plan)):
        return None
    estimated = int(str(plan.stats().sizeInBytes()))
    cores = int(df.sparkSession.sparkContext.defaultParallelism)
    return max(_WAVES * cores, -(-estimated // _ENOUGH))


def _keeps_order(joined: Any, few: int) -> bool:
    """Whether rows keep their order, where they have one, in what `coalesce` made; and whether it joins any."""
    query = joined._jdf.queryExecution()
    if any(node.nodeName() == "Sort" and getattr(node, "global")() for node in _nodes(query.optimizedPlan())):
        return False
    # To make the RDD of a plan that adapts itself would run its stages. Behind a shuffle rows have no order.
    plan = query.executedPlan()
    text = plan.toString()
    if "AdaptiveSparkPlan" in text or "Exchange" in text:
        return True
    if plan.nodeName() != "Coalesce":
        return False
    rdd = plan.children().apply(0).execute()
    count = rdd.getNumPartitions()
    if not few < count <= _MOST_ASKED:
        return False
    # Spark joins neighbours, but where some partitions would rather run on certain hosts.
    context = joined.sparkSession.sparkContext._jsc.sc()
    return all(context.getPreferredLocs(rdd, index).isEmpty() for index in range(count))


def _nodes(plan: Any) -> Iterator[Any]:
    """Yield the nodes of a plan."""
    yield plan
    for child in listed(plan.children()):
        yield from _nodes(child)


def listed(sequence: Any) -> list[Any]:
    """Return a sequence of Scala's as a list."""
    return [sequence.apply(index) for index in range(sequence.size())]
