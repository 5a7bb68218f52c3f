"""The result of a DuckDB query in another process, asked there again: python examples/duckdb_result.py.

The result is published as Arrow; the reader's DuckDB scans the shared memory.
"""

from __future__ import annotations

from multiprocessing import get_context

import duckdb

import bowstring as bow


def largest(uri: str) -> None:
    """Ask the result that another process has."""
    database = duckdb.connect()
    database.register("totals", bow.get(uri))  # mapped: it can be asked any number of times
    print(database.sql("SELECT count(*) FROM totals").fetchall())
    print(database.sql("SELECT city, total FROM totals ORDER BY total DESC, city LIMIT 2").fetchall())


def main() -> None:
    """Ask DuckDB, publish the result, and let another process go on with it."""
    totals = duckdb.sql(
        "SELECT 'city ' || (i % 1000) AS city, sum(i % 7)::BIGINT AS total "
        "FROM range(2_000_000) AS t(i) GROUP BY city"
    )
    with bow.Server() as server:
        uri = str(server.publish("totals", totals))
        reader = get_context("spawn").Process(target=largest, args=(uri,))
        reader.start()
        reader.join()


if __name__ == "__main__":
    main()
