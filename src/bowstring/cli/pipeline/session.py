"""Spark for the pipeline: a session of its own, whose words go to a file, and of which nothing stays."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any, Final

from bowstring.errors import BrokenError

__all__ = ["started"]

_MOST_CORES: Final = 8
_MEMORY: Final = "2g"
_PARTITION_BYTES: Final = "10m"
_END_SECONDS: Final = 20.0
_SHOWN: Final = 300


@contextlib.contextmanager
def started(folder: str) -> Iterator[Any]:
    """Start Spark for the time of a ``with`` block; when it has ended, its Java machine has.

    Parameters
    ----------
    folder
        Where Spark keeps its files, and what it has to say.

    Raises
    ------
    MissingDependency
        There is no PySpark, or no Java.
    BrokenError
        Spark failed.
    """
    from bowstring.spark import session

    # Of Ctrl-C in the middle of a call py4j tells the root of all logs, which prints it unless somebody listens.
    logging.getLogger().addHandler(logging.NullHandler())
    cores = min(len(os.sched_getaffinity(0)), _MOST_CORES)
    config = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": _MEMORY,
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": os.path.join(folder, "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.files.maxPartitionBytes": _PARTITION_BYTES,
        "spark.default.parallelism": str(cores),
    }
    log = os.path.join(folder, "spark.log")
    spark = None
    try:
        with _output_to(log):
            spark = session("bowstring demo", f"local[{cores}]", config)
        yield spark
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        # What it says is asked of the Java machine, which must still be there.
        raise _in_words(error, _last_line(log) if spark is None else None) from error
    finally:
        _end(spark)


@contextlib.contextmanager
def _output_to(file: str) -> Iterator[None]:
    """Let processes that are started within a ``with`` block write to a file instead of the terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    into = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.dup2(into, 1)
        os.dup2(into, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, before in zip((1, 2), kept, strict=True):
            os.dup2(before, descriptor)
            os.close(before)
        os.close(into)


def _end(spark: Any) -> None:
    """Stop Spark, and see that its Java machine ends; it would stay as long as this process does."""
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext

    # After Ctrl-C, or where Java died, there may be nobody to stop.
    with contextlib.suppress(Exception):
        spark.stop()
    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    java = gateway.proc
    try:
        java.stdin.close()
        java.wait(_END_SECONDS)
    except Exception:  # noqa: BLE001  it has to go, whatever is in the way
        java.kill()
        java.wait()


def _in_words(error: Exception, where: str | None = None) -> BrokenError:
    """Return what Spark raised as an error of ours."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Of an error in a Python worker, the end of its traceback says what it was.
    said = next(
        (line for line in reversed(lines) if line.startswith("bowstring.errors.")), (lines or [""])[0]
    )
    return BrokenError("Spark failed", found=said[:_SHOWN], where=where)


def _last_line(log: str) -> str | None:
    """Return the last thing that Spark said before it failed."""
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
    except OSError:
        return None
    return lines[-1][:_SHOWN] if lines else None
