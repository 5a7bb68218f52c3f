"""PySpark's daemon of Python workers (``spark.python.daemon.module``), without a traceback for each ``limit``.

Where Spark has seen enough rows, as for ``show()``, it closes the socket that a worker still writes to. PySpark's
daemon prints a traceback then, and the worker ends; here it only ends.
"""

from __future__ import annotations

import importlib
from typing import Any


def main() -> None:
    """Be the daemon."""
    daemon: Any = importlib.import_module("pyspark.daemon")
    work = daemon.worker

    def worker(sock: Any, authenticated: bool) -> int:
        try:
            code: int = work(sock, authenticated)
        except ConnectionError:
            return 1  # Spark has hung up, and uses this worker no more
        return code

    daemon.worker = worker
    daemon.manager()


if __name__ == "__main__":
    main()
