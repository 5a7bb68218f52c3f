"""from_json by the rules of Spark reads random texts into what Spark itself reads them into."""

from __future__ import annotations

import json
import warnings

import pyarrow as pa
import pytest

from bowstring.variant import Value, from_json
from bowstring.variant.python_objects import to_python
from tests.variant import json_texts
from tests.variant.decoding import decode
from tests.variant.spark_peer import WANTED, spark_session

pytestmark = [pytest.mark.slow, pytest.mark.peers]

COLUMNS = 12
ROWS = 400


def is_followed(text: str) -> bool:
    """Return whether there is something behind the value, which Spark does not look at."""
    whole = text.strip(" \n\r\t")
    try:
        _, end = json.JSONDecoder().raw_decode(whole)
    except ValueError:
        return False
    return end < len(whole)


def ordered(value: Value) -> object:
    """Return a tree with keys in one order: Spark's is that of UTF-16."""
    if value.type == "object":
        return sorted((key, ordered(child)) for key, child in value.value.items())
    if value.type == "array":
        return [ordered(child) for child in value.value]
    return repr(value)


def test_random_texts() -> None:
    """The same texts are accepted, and every value has the type and the value that Spark gives it."""
    pytest.importorskip("pyspark", reason=f"Spark itself is not installed: {WANTED}")
    rows = [each for seed in range(COLUMNS) for each in json_texts.column(seed, ROWS) if each is not None]
    decoded = [row.decode(errors="replace") for row in rows]
    texts = [text for text in decoded if "\ufffd" not in text and not is_followed(text)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark's own are none of ours
        spark = spark_session()
        table = pa.table({"row": pa.array(range(len(texts)), pa.int64()), "text": pa.array(texts)})
        spark.createDataFrame(table).createOrReplaceTempView("texts")
        theirs = spark.sql("SELECT try_parse_json(text) v FROM texts ORDER BY row").collect()
    ours = to_python(from_json(texts, rules="spark", on_error="null"), typed=True)
    for text, mine, row in zip(texts, ours, theirs, strict=True):
        found = None if row.v is None else decode(bytes(row.v.metadata), bytes(row.v.value))
        if mine is None or found is None:
            assert mine is found, text
        else:
            assert ordered(mine) == ordered(found), text
