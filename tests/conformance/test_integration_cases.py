"""The cases of Arrow's integration tests, drawn anew: JSON, pyarrow and Bowstring say the same of each."""

from __future__ import annotations

import functools
import io
import json
from typing import Any, Final

import pyarrow as pa
import pytest

from bowstring import ipc
from tests.conformance.integration_cases import CASES, Drawn
from tests.conformance.integration_json import read_document
from tests.ipc.big_endian import big_endian_file, big_endian_stream
from tests.ipc.files import by_pyarrow

V4: Final = pa.ipc.MetadataVersion.V4
WAYS: Final[dict[str, dict[str, Any]]] = {
    "today": {},
    "1.0.0": {"metadata_version": V4},
    "0.14.1": {"metadata_version": V4, "use_legacy_format": True},
    "lz4": {"compression": "lz4"},
    "zstd": {"compression": "zstd"},
}


@functools.cache
def case(name: str) -> tuple[Drawn, pa.Table]:
    """Return a case and what its JSON says."""
    drawn = Drawn(7, *CASES[name])
    return drawn, read_document(json.loads(json.dumps(drawn.document)))


@pytest.mark.parametrize("name", CASES)
def test_json_says_the_values_that_were_drawn(name: str) -> None:
    """What the reader of the JSON gives is valid, and has the values that the JSON was made of."""
    drawn, table = case(name)
    table.validate(full=True)
    found = [[_python(column) for column in batch.columns] for batch in _batches(table)]
    assert found == [[_pairs(values) for values in batch] for batch in drawn.values]


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    """Return the batches of a table, those without rows, too."""
    chunks = zip(*(column.chunks for column in table.columns), strict=True)
    return [pa.RecordBatch.from_arrays(list(each), schema=table.schema) for each in chunks]


def _python(column: pa.Array) -> Any:
    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    if not pa.types.is_struct(column.type):
        return _pairs(column.to_pylist())
    # pyarrow makes no dict of names that come twice, and nothing else.
    names = [field.name for field in column.type]
    rows = zip(*(_python(column.field(index)) for index in range(len(names))), strict=True)
    pairs = [tuple(zip(names, row, strict=True)) for row in rows]
    return [row if valid else None for row, valid in zip(pairs, column.is_valid().to_pylist(), strict=True)]


def _pairs(values: Any) -> Any:
    """Return values with pairs in place of what pyarrow may say as a dict."""
    if isinstance(values, dict):
        return tuple((name, _pairs(each)) for name, each in values.items())
    if isinstance(values, tuple):
        return tuple(map(_pairs, values))
    return [_pairs(each) for each in values] if isinstance(values, list) else values


@pytest.mark.parametrize("kind", ["stream", "file"])
@pytest.mark.parametrize("name", CASES)
def test_cases_are_read_and_written_as_pyarrow_does(name: str, kind: str) -> None:
    """A case that pyarrow wrote, by today's format or an old one, is read as its JSON says, and written back."""
    _, table = case(name)
    ours, theirs = (getattr(module, f"open_{kind}") for module in (ipc, pa.ipc))
    for way, options in WAYS.items():
        written = by_pyarrow(_batches(table) or table, kind=kind, **options)
        assert _same(ours(written).read_all(), table), way
        sink = io.BytesIO()
        with getattr(ipc, f"new_{kind}")(
            sink, table.schema, options=ipc.IpcWriteOptions(**options)
        ) as writer:
            for batch in ours(written):
                writer.write_batch(batch)
        assert _same(theirs(sink.getvalue()).read_all(), table), way
        assert _same(ours(sink.getvalue()).read_all(), table), way


@pytest.mark.parametrize("name", CASES)
def test_cases_of_a_big_endian_machine_are_read(name: str) -> None:
    """A case as a machine of the other byte order writes it is read as its JSON says."""
    _, table = case(name)
    batches = _batches(table) or table
    stream = big_endian_stream(by_pyarrow(batches, kind="stream"))
    assert _same(ipc.open_stream(stream).read_all(), table)
    assert _same(ipc.open_file(big_endian_file(by_pyarrow(batches))).read_all(), table)


def _same(found: pa.Table, expected: pa.Table) -> bool:
    return bool(
        found.schema.equals(expected.schema, check_metadata=True)
        and found.equals(expected)
        and list(map(len, _batches(found))) == list(map(len, _batches(expected)))
    )
