"""Other people's readers read our bytes, and we read theirs: as recorded by scripts/record_variant_peers.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bowstring import variant
from tests.variant.decoding import decode
from tests.variant.documents import agree_with_duckdb

pytestmark = pytest.mark.filterwarnings("ignore:.* became null")  # that values are lost, is no matter here

PEERS: dict[str, Any] = json.loads((Path(__file__).parent.parent / "data" / "variant-peers.json").read_text())
DOCUMENTS = PEERS["documents"]


def test_we_write_the_bytes_that_the_peers_read() -> None:
    """The bytes of today are those that Spark's and DuckDB's readers read back to the documents when recorded."""
    rows = variant.from_json([each["json"] for each in DOCUMENTS], rules="spark").to_arrow()
    assert [entry.as_py().hex() for entry in rows.field("metadata").dictionary] == [PEERS["metadata"]]
    assert [value.as_py().hex() for value in rows.field("value")] == [each["value"] for each in DOCUMENTS]


@pytest.mark.parametrize("each", DOCUMENTS, ids=lambda each: each["json"][:30])
def test_we_read_what_spark_writes(each: dict[str, Any]) -> None:
    """Spark's bytes of a document decode to the same types and values as ours of its JSON."""
    metadata, value = map(bytes.fromhex, each["spark"])
    ours = variant.to_python(variant.from_json([each["json"]], rules="spark"), typed=True)
    assert [decode(metadata, value)] == ours


@pytest.mark.parametrize("each", PEERS["extracts"], ids=lambda each: f"{each['path']} {each['type']}")
def test_we_extract_what_duckdb_does(each: dict[str, Any]) -> None:
    """A value that is cast without loss is DuckDB's, and where there is none DuckDB has none."""
    column = variant.from_json([each["json"] for each in DOCUMENTS], rules="spark")
    values = [each["values"].get(str(row)) for row in range(len(DOCUMENTS))]
    agree_with_duckdb(column, each["path"], each["type"], values)
