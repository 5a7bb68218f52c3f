"""What tests of Parquet share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest


@pytest.fixture
def duck() -> Iterator[Any]:
    """Return a connection to a DuckDB of its own."""
    with duckdb.connect() as connection:
        yield connection
