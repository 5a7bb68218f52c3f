"""The reader of the integration JSON is itself held to what it reads."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.conformance.golden import FOLDERS, cases
from tests.conformance.integration_json import read_json


@pytest.mark.parametrize("folder", FOLDERS)
def test_json_says_what_pyarrow_reads(arrow_test_data: Path, folder: str) -> None:
    """JSON and pyarrow agree on schema, batches and values of every golden stream: the oracles are sound."""
    for case in cases(arrow_test_data, folder):
        said, read = read_json(case.json), pa.ipc.open_stream(case.stream).read_all()
        assert said.schema.equals(read.schema, check_metadata=True), case
        assert said.equals(read), case
        assert [len(batch) for batch in said.to_batches()] == [len(batch) for batch in read.to_batches()], (
            case
        )


def _integers(valid: int, hidden: int) -> dict[str, Any]:
    field = {"name": "a", "type": {"name": "int", "bitWidth": 64, "isSigned": True}, "nullable": True}
    column = {"name": "a", "count": 2, "VALIDITY": [1, 0], "DATA": [str(valid), str(hidden)]}
    return {"schema": {"fields": [field]}, "batches": [{"count": 2, "columns": [column]}]}


def test_only_what_is_valid_counts(tmp_path: Path) -> None:
    """Another value is another table; another value under a null is not."""

    def read(valid: int, hidden: int) -> pa.Table:
        path = tmp_path / "case.json.gz"
        path.write_bytes(gzip.compress(json.dumps(_integers(valid, hidden)).encode()))
        return read_json(path)

    biggest = 2**63 - 1
    assert read(biggest, 7).equals(read(biggest, 8))
    assert read(biggest, 7).to_pydict() == {"a": [biggest, None]}
    assert not read(biggest, 7).equals(read(biggest - 1, 7))
