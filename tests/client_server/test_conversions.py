"""A stream read to its end as a table of Arrow, pandas or polars, and what a notebook shows."""

from __future__ import annotations

import datetime as dt

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.errors import UsageError

TABLE = pa.table(
    {
        "number": pa.chunked_array([[1, None], [3]]),
        "city": pa.chunked_array([["a", None], ["b"]]).dictionary_encode(),
        "at": pa.chunked_array(
            [[dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None], [dt.datetime(2026, 7, 1, tzinfo=dt.UTC)]],
            pa.timestamp("us", "Europe/Berlin"),
        ),
    }
)


def test_a_stream_becomes_what_pyarrow_makes_of_it() -> None:
    """Nulls, categories and time zones are those of pyarrow's own conversions."""
    with bow.Server() as server:
        endpoint = server.publish("t", TABLE)
        with bow.connect(endpoint) as stream:
            assert stream.to_arrow().equals(TABLE)
        with bow.connect(endpoint) as stream:
            pd.testing.assert_frame_equal(stream.to_pandas(), TABLE.to_pandas())
        with bow.connect(endpoint) as stream:
            expected = pl.from_arrow(TABLE)
            assert isinstance(expected, pl.DataFrame)
            assert stream.to_polars().equals(expected)
        with bow.connect(endpoint) as stream:
            assert stream.to_pylist() == TABLE.to_pylist()
            with pytest.raises(UsageError):
                stream.to_pandas()


def test_notebooks_show_columns_and_first_rows() -> None:
    """Text is escaped, and long batches and long texts are cut."""
    batch = bow.Batch.from_arrow({"<x>": ["<script>", "y" * 1000] * 100, "n": list(range(200))})
    shown = batch._repr_html_()
    assert "<script>" not in shown
    assert "&lt;x&gt;" in shown
    assert shown.count("<tr>") == 11
    assert "200 rows" in shown
    assert len(shown) < 5000
    column = batch["<x>"]
    batch.release()
    assert "released" in batch._repr_html_()
    assert "released" in repr(column)
    assert "&lt;x&gt;" in column._repr_html_()
