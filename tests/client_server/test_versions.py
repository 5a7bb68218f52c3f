"""A name stands for the newest version of a data set; versions never mix, and end one by one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from tests.client_server.conftest import read, until


def table_of(version: int, rows: int = 1000) -> pa.Table:
    """Return a table of which every cell says its version."""
    return pa.table({"version": np.full(rows, version), "text": [str(version)] * rows})


def version_of(table: pa.Table) -> int:
    """Return the version that all cells of a table say."""
    [version] = set(table["version"].to_pylist())
    assert set(table["text"].to_pylist()) == {str(version)}
    return int(version)


@pytest.mark.parametrize("token", [None, "0123456789abcdef"])
def test_readers_of_a_data_set_that_is_replaced(
    serve: Callable[..., bow.Server], address: str, token: str | None
) -> None:
    """While a data set is replaced a thousand times, each read is of one version, and never an older one."""
    if address.startswith(("tcp:", "ucx:")) and token is None:
        pytest.skip("without a token an endpoint over a network stands for one version")
    server = serve(address, token=token)
    endpoint = server.publish("t", table_of(0))
    found: list[int] = []
    failed: list[BaseException] = []
    ended = threading.Event()

    def read_on() -> None:
        try:
            while not ended.is_set():
                found.append(version_of(read(endpoint)))
            found.append(version_of(read(endpoint)))
        except BaseException as error:  # noqa: BLE001  whatever it is, the main thread judges it
            failed.append(error)

    reader = threading.Thread(target=read_on)
    reader.start()
    for version in range(1, 1001):
        assert server.publish("t", table_of(version, rows=100), replace=True) == endpoint
    ended.set()
    reader.join()
    assert not failed
    assert found == sorted(found)
    assert found[-1] == 1000
    until(lambda: server.stats.bytes_lent == 0)
    assert len(server.endpoints) == 1


def test_a_reader_keeps_the_version_that_it_began(serve: Callable[..., bow.Server], address: str) -> None:
    """A stream that is open when its data set is replaced goes on with the version that it began."""
    server = serve(address, token="0123456789abcdef")
    endpoint = server.publish("t", [pa.record_batch({"n": [number]}) for number in range(3)])
    with bow.connect(endpoint) as stream:
        first = stream.read_next_batch()
        server.publish("t", pa.table({"other": ["x"]}), replace=True)
        rest = stream.read_all()
    assert [first["n"][0].as_py(), *rest["n"].to_pylist()] == [0, 1, 2]
    assert read(endpoint).column_names == ["other"]


def test_readers_count_for_each_version(server: bow.Server) -> None:
    """`readers` counts for a version by itself, and `wait_released` waits for all versions of a name."""
    first = server.publish("t", table_of(1), readers=2)
    read(first)
    stream = bow.connect(first)
    second = server.publish("t", table_of(2), readers=1, replace=True)
    assert version_of(read(second)) == 2
    with pytest.raises(bow.DeadlineExceeded):
        server.wait_released("t", timeout=0.01)
    assert version_of(stream.read_all()) == 1
    stream.close()
    server.wait_released("t")


def test_a_name_is_replaced_only_on_request(server: bow.Server) -> None:
    """Without `replace` a taken name is an error, and the former data set stays; with it a new name is no error."""
    endpoint = server.publish("t", table_of(1), replace=True)
    with pytest.raises(bow.UsageError, match="replace=True"):
        server.publish("t", table_of(2))
    assert version_of(read(endpoint)) == 1


def test_a_data_set_ends_with_its_time(server: bow.Server) -> None:
    """A data set with a `ttl` is found until that is over, and then is not; who reads it keeps it."""
    read(server.publish("stays", table_of(1), ttl=1000))  # a transport's first connection may take long
    endpoint = server.publish("t", table_of(1), ttl=1.0)
    stream = bow.connect(endpoint)
    until(lambda: "t" not in server.endpoints)
    with pytest.raises(bow.UnknownTicket):
        bow.connect(endpoint)
    assert version_of(stream.read_all()) == 1
    stream.close()
    assert list(server.endpoints) == ["stays"]


@pytest.mark.parametrize("ttl", [-1, float("nan"), float("inf"), "1"])
def test_a_time_that_means_nothing_is_refused(server: bow.Server, ttl: object) -> None:
    """A `ttl` is a finite number of seconds."""
    with pytest.raises(bow.UsageError, match="ttl is a finite number"):
        server.publish("t", table_of(1), ttl=ttl)  # type: ignore[arg-type]


def test_an_endpoint_follows_a_server_that_starts_again(tmp_path: Path) -> None:
    """An endpoint of a server's address and a name reads what the next server there publishes under that name."""
    address = f"unix:{tmp_path}/tables.sock"
    with bow.Server(address) as server:
        endpoint = server.publish("t", table_of(1))
        assert version_of(read(endpoint)) == 1
    with bow.Server(address) as server:
        server.publish("t", table_of(2))
        assert version_of(read(str(endpoint))) == 2


def test_waiting_ends_when_the_server_is_closed(server: bow.Server) -> None:
    """`wait` says false when its time is over, and true when another thread has closed the server."""
    assert not server.wait(timeout=0.01)
    threading.Timer(0.05, server.close).start()
    assert server.wait(timeout=30)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_waiting_ends_with_a_signal(number: int) -> None:
    """A process that waits in `Server.wait` closes its server and ends orderly when it is asked to end."""
    code = (
        "import signal, threading, time\n"
        "import bowstring as bow\n"
        "def tell():\n"
        "    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:\n"
        "        time.sleep(0.001)\n"
        "    print('waits', flush=True)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # what runs the tests may ignore it
        "with bow.Server() as server:\n"
        "    threading.Thread(target=tell).start()\n"
        "    print(server.wait(), flush=True)\n"
        "print('closed')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        os.kill(process.pid, number)
        assert process.stdout.read() == "True\nclosed\n"
    assert process.returncode == 0
