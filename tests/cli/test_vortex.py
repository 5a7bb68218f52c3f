"""The command line takes streams of Vortex: inspected, served and fetched."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.cli import main


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a stream of two batches."""
    found = tmp_path / "in.vortex"
    with bow.vortex.new_stream(str(found), pa.schema({"a": pa.int64(), "b": pa.string()})) as writer:
        for _ in range(2):
            writer.write_batch(pa.record_batch({"a": [1, None], "b": ["x", "yz"]}))
    return found


def test_inspect_shows_the_tree_of_encodings(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the size of each node, as a tree and as JSON."""
    assert main(["inspect", str(path)]) == 0
    assert "vortex.varbin" in capsys.readouterr().out
    assert main(["inspect", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["format"], facts["rows"], facts["batches"]) == ("Vortex IPC stream", 4, 2)
    column = facts["messages"][0]["columns"][0]
    assert column["children"] == [
        {"name": "vortex.primitive", "bytes": 17, "children": [{"name": "vortex.bool", "bytes": 1}]}
    ]


def test_inspect_says_where_a_stream_is_cut_off(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What came before is shown."""
    path.write_bytes(path.read_bytes()[:-5])
    assert main(["inspect", str(path), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["batches"] == 1
    assert facts["error"]["kind"] == "Truncated"


@pytest.mark.parametrize("encoded", [False, True])
def test_fetch_writes_a_stream(path: Path, tmp_path: Path, encoded: bool) -> None:
    """Of a table, or of encoded batches as they come."""
    stream = bow.vortex.open_stream(str(path))
    target = tmp_path / "out.vortex"
    with bow.Server(f"unix:{tmp_path}/s.sock") as server:
        data = bow.vortex.to_messages(stream) if encoded else stream.read_all()
        endpoint = server.publish("t", data)
        assert main(["fetch", str(endpoint), "--to", str(target)]) == 0
    expected = bow.vortex.open_stream(str(path)).read_all()
    assert bow.vortex.open_stream(str(target)).read_all().equals(expected)


def test_fetch_compresses_a_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With `--compress` it is smaller, and holds the same; no other format takes the option."""
    table = pa.table({"a": [each % 7 for each in range(5000)]})
    plain, small = (str(tmp_path / name) for name in ("plain.vortex", "small.vortex"))
    with bow.Server(f"unix:{tmp_path}/s.sock") as server:
        endpoint = str(server.publish("t", table))
        assert main(["fetch", endpoint, "--to", plain]) == 0
        assert main(["fetch", endpoint, "--to", small, "--compress"]) == 0
        for other in ([], ["--to", str(tmp_path / "a.parquet")]):
            assert main(["fetch", endpoint, *other, "--compress"]) == 2
    assert "--to FILE.vortex" in capsys.readouterr().err
    assert 10 * Path(small).stat().st_size < Path(plain).stat().st_size
    assert bow.vortex.open_stream(small).read_all().equals(table)
