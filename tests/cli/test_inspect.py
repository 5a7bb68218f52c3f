from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring as bow
from bowstring.cli import main


def inspected(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["inspect", *arguments, "--json"]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    return facts


@pytest.mark.parametrize("extension", [".arrows", ".zstd.arrows"])
def test_messages_of_a_stream(
    extension: str, files: dict[str, Path], table: pa.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every message of a stream is told as pyarrow's message reader sees it."""
    facts = inspected(capsys, str(files[extension]))
    with pa.memory_map(str(files[extension])) as mapped:
        expected = [
            (message.type.replace("dictionary", "dictionary batch"), len(message.metadata), message.body.size)
            for message in pa.ipc.MessageReader.open_stream(mapped)
        ]
    found = [(each["kind"], each["metadata_bytes"], each["body_bytes"]) for each in facts["messages"]]
    assert found == expected
    assert facts["rows"] == table.num_rows
    assert facts["bytes_read"] == facts["bytes"] == files[extension].stat().st_size


def test_buffers_of_a_stream(
    files: dict[str, Path], table: pa.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lengths, null counts and buffers of the columns are those of the batches that were written."""
    facts = inspected(capsys, str(files[".arrows"]))
    batches = [message for message in facts["messages"] if message["kind"] == "record batch"]
    for message, batch in zip(batches, table.to_batches(), strict=True):
        for column, array in zip(message["columns"], batch.columns, strict=True):
            assert (column["length"], column["nulls"]) == (len(array), array.null_count)
            assert bool(column["buffers"][0]["bytes"]) == bool(array.null_count)
    legs = batches[0]["columns"][5]
    assert [buffer["kind"] for buffer in legs["buffers"]] == ["validity", "offsets32"]
    assert legs["children"][0]["buffers"][1] == {"kind": "data", "bytes": 4 * legs["children"][0]["length"]}


def test_an_arrow_file(files: dict[str, Path], table: pa.Table, capsys: pytest.CaptureFixture[str]) -> None:
    """A file is told by its schema and its batches; ``--most`` says how many are opened."""
    facts = inspected(capsys, str(files[".arrow"]), "--most", "2")
    assert facts["format"] == "Arrow IPC file"
    assert facts["batches"] == 3
    assert [batch["rows"] for batch in facts["opened_batches"]] == [1024, 1024]
    assert [column["name"] for column in facts["schema"]] == table.schema.names


def test_a_parquet_file(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Row groups and column chunks are told as the footer has them."""
    facts = inspected(capsys, str(files[".parquet"]))
    footer = pq.read_metadata(files[".parquet"])
    assert len(facts["row_groups"]) == footer.num_row_groups
    chunk = footer.row_group(1).column(1)
    found = facts["row_groups"][1]["columns"][1]
    assert (found["name"], found["compressed_bytes"]) == (chunk.path_in_schema, chunk.total_compressed_size)
    assert found["nulls"] == chunk.statistics.null_count
    leaves = [each["name"] for each in facts["stored_columns"]]
    assert leaves == [footer.schema.column(index).path for index in range(footer.num_columns)]
    assert facts["stored_columns"][0]["type"] == footer.schema.column(0).physical_type


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize(
    ("address", "owner"), [("unix:", "the producer"), ("tcp://127.0.0.1:0", "this process")]
)
def test_a_data_set(
    address: str, owner: str, separate: bool, table: pa.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    """A data set is told by its URI, its server's words, and the batches and regions that come."""
    with bow.Server(address, token="secret") as server:
        uri = str(server.publish("trips", table, separate=separate))
        facts = inspected(capsys, uri)
    assert len(facts["connections"]) == 1 + separate
    assert facts["connections"][0]["extensions"] is facts["connections"][0]["token"] is True
    assert "secret" not in json.dumps(facts)
    assert (facts["rows"], facts["batches"]) == (table.num_rows, 3)
    assert [batch["rows"] for batch in facts["fetched_batches"]] == [1024, 1024, 952]
    assert {region["memory_of"] for region in facts["regions"]} == {owner}


def test_looking_takes_no_reader_away(table: pa.Table, capsys: pytest.CaptureFixture[str]) -> None:
    """A look at the first batches does not count as one of the readers that a data set waits for."""
    with bow.Server() as server:
        uri = str(server.publish("trips", table, readers=1))
        inspected(capsys, uri, "--most", "1")
        with once_let_in(uri) as stream:
            assert stream.read_all().equals(table)
        server.wait_released(timeout=30)


def once_let_in(uri: str) -> Any:
    """Connect as soon as the server has heard that the one before has left."""
    end = time.monotonic() + 30
    while True:
        try:
            return bow.connect(uri)
        except bow.UnknownTicket:
            assert time.monotonic() < end
            time.sleep(0.01)


@pytest.mark.parametrize("extension", [".arrows", ".arrow", ".parquet"])
def test_a_tree_is_drawn(extension: str, files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Without ``--json`` the same is drawn as a tree that names every column."""
    assert main(["inspect", str(files[extension])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(files[extension])
    assert "├── schema: 7" in lines
    assert "│   ├── city: string" in lines
    assert lines[-1].lstrip(" ").startswith("└── ")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_was_seen_before_the_damage(
    form: list[str], files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a stream that ends too early the whole messages are shown, then the error; the exit code is 1."""
    content = files[".arrows"].read_bytes()
    broken = tmp_path / "cut.arrows"
    broken.write_bytes(content[: len(content) // 2])
    assert main(["inspect", str(broken), *form]) == 1
    said = capsys.readouterr()
    assert "the stream ends within the body" in said.err
    if form:
        facts = json.loads(said.out)
        assert facts["error"]["kind"] == "Truncated"
        assert len(facts["messages"]) >= 3
    else:
        assert "dictionary batch, at byte" in said.out


def test_golden_streams_are_told(arrow_test_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each golden stream is told to its end, with the rows that pyarrow reads."""
    folder = arrow_test_data / "arrow-ipc-stream" / "integration"
    paths = sorted(folder.rglob("*.stream"))
    assert paths
    for path in paths:
        if "bigendian" in str(path) or "extension" in path.name:
            continue
        with pa.memory_map(str(path)) as mapped, pa.ipc.open_stream(mapped) as reader:
            rows = sum(batch.num_rows for batch in reader)
        assert inspected(capsys, str(path))["rows"] == rows, path


def test_a_server_that_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a data set whose server is gone the URI is told, then the error."""
    assert main(["inspect", "unix:/nowhere/bow.sock?want_data=7&bow=1&hello=8&ticket=dA", "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["connections"][0]["want_data"] == 7
    assert facts["ticket"] == "t"
    assert facts["error"]["kind"] == "BrokenError"
