"""Servers and depots in folders whose paths are longer than the name of a Unix socket may be."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import bowstring as bow


@pytest.fixture
def deep(no_leaks: None) -> Iterator[Path]:
    """Return a private folder with a path of more than 300 bytes."""
    with tempfile.TemporaryDirectory(prefix="bow") as folder:
        made = Path(folder, "x" * 150, "y z" * 50)
        made.mkdir(parents=True, mode=0o700)
        made.chmod(0o700)
        yield made


def rows(endpoint: bow.Endpoint | str) -> int:
    with bow.connect(endpoint) as stream:
        return stream.read_all().num_rows


def test_a_relative_address(deep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative address means the folder of the moment: endpoints work after another chdir, and in children."""
    monkeypatch.chdir(deep)
    with bow.Server("unix:tables.sock") as server:
        endpoint = server.publish("t", {"n": [1, 2, 3]})
        monkeypatch.chdir("/")
        assert rows(endpoint) == rows(str(endpoint)) == 3
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.apply(rows, (str(endpoint),)) == 3
        assert rows(endpoint) == 3
    assert os.listdir(deep) == []


def test_a_renamed_folder(deep: Path) -> None:
    """A server whose folder gets another name serves whoever dials that, and closes."""
    with bow.Server(f"unix:{deep.as_posix().replace(' ', '%20')}/tables.sock") as server:
        endpoint = str(server.publish("t", {"n": [1]}))
        with bow.connect(endpoint) as stream:
            deep.rename(deep.with_name("renamed" * 20))
            assert stream.read_all().num_rows == 1
        with pytest.raises(bow.BrokenError, match="nobody listens"):
            rows(endpoint)
        assert rows(endpoint.replace("y%20z" * 50, "renamed" * 20)) == 1


@pytest.mark.parametrize("variable", ["TMPDIR", "XDG_RUNTIME_DIR"])
def test_a_long_default_folder(deep: Path, variable: str) -> None:
    """A server without an address, and a depot, work where the folder for their sockets has a long path."""
    code = (
        "import bowstring as bow, pyarrow as pa\n"
        "with bow.Server() as server:\n"
        "    print(bow.get(server.publish('t', {'n': [1]})).num_rows)\n"
        "with bow.depot.connect() as depot:\n"
        "    with depot.begin(application='a', dataset='a/t') as attempt:\n"
        "        attempt.write(pa.record_batch({'n': [1, 2]}))\n"
        "        endpoint = attempt.commit().endpoint\n"
        "    with bow.connect(endpoint) as stream:\n"
        "        print(stream.read_all().num_rows)\n"
        "    depot.stop()\n"
    )
    variables = {**os.environ, "XDG_RUNTIME_DIR": "", "BOWSTRING_DEPOT": "", variable: str(deep)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("1\n2\n", "")
