"""Names and places that are unusual work end to end, and those that cannot be are refused in words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.memory import Pool
from bowstring.transport import dial
from tests.client_server.conftest import PATIENCE

TABLE = pa.table({"a": [1, 2, 3]})
READ = "import sys, bowstring as bow; print(bow.connect(sys.argv[1]).read_all().num_rows)"


@pytest.mark.parametrize("how", ["as it is", "encoded"])
def test_sockets_whose_paths_are_not_utf_8(tmp_path: Path, how: str) -> None:
    """A socket may lie at a path of any bytes; its URI is ASCII, and is read by another process."""
    raw = os.fsencode(tmp_path) + b"/\xff\xfe.sock"
    path = os.fsdecode(raw)
    address = f"unix:{path}" if how == "as it is" else f"unix:{tmp_path}/%FF%FE.sock"
    with bow.Server(address, limits=PATIENCE) as server:
        assert os.path.exists(raw)
        endpoint = server.publish("t", TABLE)
        assert str(endpoint).isascii()
        query = str(endpoint).partition("?")[2]
        for uri in (str(endpoint), f"{address}?{query}"):
            with bow.connect(uri, limits=PATIENCE) as stream:
                assert stream.read_all().equals(TABLE)
            found = subprocess.run([sys.executable, "-c", READ, uri], capture_output=True, timeout=60)
            assert found.stdout == b"3\n", found.stderr
    assert not os.path.exists(raw)


@pytest.mark.parametrize(
    "address", ["unix:/tmp/\ud800", "unix:/tmp/a%00b", "inproc:\ud800", "tcp://\ud800:0"], ids=ascii
)
def test_addresses_that_cannot_be(address: str) -> None:
    """Half a character and a zero byte name no place, for servers and for readers."""
    with pytest.raises(bow.UsageError):
        bow.Server(address)
    with pytest.raises(bow.UsageError):
        bow.connect(f"{address}?want_data=1&ticket=dA")


@pytest.mark.parametrize("name", ["a\ud800", 5, b"x", None, "x" * 1025], ids=lambda name: ascii(name)[:9])
def test_names_of_data_sets(server: bow.Server, name: Any) -> None:
    """A data set is called by text that UTF-8 can spell, and not too much of it."""
    with pytest.raises(bow.UsageError, match="name"):
        server.publish(name, TABLE)
    assert server.endpoints == {}


@pytest.mark.parametrize("deadline", ["3", -1, float("nan"), float("inf")], ids=repr)
def test_deadlines(server: bow.Server, deadline: Any) -> None:
    """A deadline of a connection is a time that ends."""
    with pytest.raises(bow.UsageError, match="finite number of seconds"):
        dial(server.address, deadline=deadline)


def test_without_proc(monkeypatch: pytest.MonkeyPatch, no_leaks: None) -> None:
    """Where /proc is not mounted no memory can be shared, and the error says so."""
    really = os.open

    def without(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).startswith("/proc/self/fd/"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return really(path, *arguments, **options)

    monkeypatch.setattr(os, "open", without)
    pool = Pool(budget=64 << 20)
    with pytest.raises(bow.Unsupported, match=r"/proc, which is not mounted.*Mount it"):
        pool.allocate(1000)
    pool.close()
