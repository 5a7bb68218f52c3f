"""Readers and drivers on other hosts: another road to the same data, for whoever has the token."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.dissociated.endpoint import this_host
from tests.depot.conftest import APP, Connect, commit, read, runs, until, until_free
from tests.transport.certified import serving, trusting
from tests.ucx import UCX

TABLE = pa.table({"n": np.arange(1000), "s": pa.array(["x", None] * 500).dictionary_encode()})
REMOTE = "tcp://127.0.0.1:0"


@pytest.fixture(params=[pytest.param(REMOTE, id="tcp"), UCX])
def depot(connect: Connect, request: pytest.FixtureRequest) -> bow.depot.Depot:
    """Return a depot that listens for other hosts."""
    return connect(tcp=str(request.param))


def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be on another host from now on."""
    monkeypatch.setenv("BOWSTRING_HOST", "another")


def test_each_takes_its_road(depot: bow.depot.Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the depot's host memory is mapped; on others the bytes are sent; both read the same."""
    endpoint = bow.Endpoint.parse(str(commit(depot, [TABLE, TABLE]).endpoint))
    assert endpoint.host == this_host()
    assert endpoint.is_here
    paths = []
    for _ in range(2):
        with bow.connect(endpoint, columns=["s", "n"]) as stream:
            paths.append(stream.stats.path)
        assert read(endpoint).equals(pa.concat_tables([TABLE, TABLE]))
        elsewhere(monkeypatch)
    assert paths[0] == "unix: mapped"
    assert paths[1] in ("tcp: packed", "ucx: read", "ucx: packed")
    assert not endpoint.is_here


def test_the_token_decides(depot: bow.depot.Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has not the whole URI gets neither data nor a word with the depot."""
    endpoint = commit(depot, TABLE).endpoint
    assert endpoint.elsewhere is not None
    elsewhere(monkeypatch)
    head, _, token = endpoint.elsewhere.rpartition("token=")
    for wrong in (f"{head}token={token[1:]}{token[0]}x", head.rstrip("&")):
        stranger = bow.Endpoint(endpoint.uri, endpoint.ticket, elsewhere=wrong, host=endpoint.host)
        with pytest.raises(bow.AccessDenied):
            bow.connect(stranger)
    assert depot.remote_address is not None
    for wrong in (depot.remote_address[:-1], depot.remote_address.partition("?")[0]):
        with pytest.raises(bow.AccessDenied):
            bow.depot.connect(address=wrong)
    assert token not in repr(endpoint)


def test_without_a_road_it_is_said(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader on another host of a depot that listens for nobody there hears what is missing."""
    endpoint = commit(connect(), TABLE).endpoint
    elsewhere(monkeypatch)
    with pytest.raises(bow.BrokenError, match="another host"):
        bow.connect(endpoint)


def test_a_driver_on_another_host(depot: bow.depot.Depot) -> None:
    """It settles, asks, releases and ends the depot; what needs memory of the depot's host is refused."""
    first, second = (commit(depot, TABLE, attempt=number) for number in range(2))
    with bow.depot.connect(address=depot.remote_address) as driver:
        driver.hold(APP)
        assert driver.offered("data") == (first, second)
        assert driver.settle("data", [second.endpoint]) == 1
        for refused in (
            lambda: driver.begin(application=APP, dataset="data"),
            lambda: driver.hold(APP, watch_pid=1),
        ):
            with pytest.raises((bow.AccessDenied, bow.UsageError)):
                refused()
        assert driver.status().pid == depot.status().pid
        assert driver.release("data")
        until_free(depot)
        pid = depot.status().pid
        assert driver.stop()
    until(lambda: not runs(pid), "it ends")


def test_it_listens_once(depot: bow.depot.Depot, connect: Connect) -> None:
    """Whoever asks for an address for other hosts again is told the one that there is."""
    assert connect(tcp=REMOTE).remote_address == depot.remote_address
    assert connect().remote_address == depot.remote_address


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:0", "tcp://[::]:0", "unix:", "nonsense", "tcp://"])
def test_an_address_for_others_says_which(connect: Connect, address: Any) -> None:
    """An address that nobody could dial from elsewhere is refused."""
    with pytest.raises(bow.UsageError):
        connect(tcp=address)


def test_over_tls(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A depot that was started with a certificate serves readers and drivers of other hosts by TLS, and only so."""
    depot = connect(options={"tls": serving()})
    with pytest.raises(bow.UsageError, match="tls://"):
        connect(tcp=REMOTE)
    there = connect(tcp="tls://127.0.0.1:0")
    endpoint = commit(depot, [TABLE]).endpoint
    elsewhere(monkeypatch)
    with bow.connect(endpoint, tls=trusting()) as stream:
        assert stream.stats.path == "tls: packed"
        assert stream.read_all().to_pydict() == TABLE.to_pydict()
    assert there.remote_address is not None
    with pytest.raises(bow.AccessDenied, match="certificate"):
        bow.depot.connect(address=there.remote_address)
    with bow.depot.connect(address=there.remote_address, tls=trusting()) as driver:
        assert driver.status().pid == depot.status().pid
        assert driver.release("data")
    until_free(depot)


def test_releases_elsewhere_follow_the_certificates(connect: Connect) -> None:
    """A dropped name frees what another depot holds at ``tls:`` where the client says whom to trust, else not."""
    with tempfile.TemporaryDirectory(prefix="bow-") as folder:
        far = connect(folder=folder, options={"tls": serving()}, tcp="tls://127.0.0.1:0")
        try:
            for trusted in (False, True):
                catalog = connect(tls=trusting() if trusted else None)
                found = bow.Dataset((commit(far, TABLE).endpoint,), TABLE.schema)
                where = [far.remote_address or ""]
                catalog.announce("n", found, application=APP, part="data", depots=where)
                catalog.drop("n")
                assert bool(far.offered("data")) is not trusted
        finally:
            far.stop()


def test_a_depot_is_known_by_its_token(depot: bow.depot.Depot, connect: Connect) -> None:
    """Another depot that answers at a depot's path, as in another container, is never taken for it."""
    with tempfile.TemporaryDirectory(prefix="bow-") as folder:
        other = connect(folder=folder)
        own, remote = depot.addresses
        there = own.replace(depot.address, other.address)
        with bow.depot.connect(address=(there, remote)) as found:
            assert found.pid == depot.pid
        with pytest.raises(bow.BrokenError, match="another one has its address"):
            bow.depot.connect(address=there)
        with pytest.raises(bow.AccessDenied) as refused:
            bow.depot.connect(address=(there, remote[:-1]))
        assert "another one has its address" in str(refused.value)
        other.stop()
        with bow.depot.connect(address=(there, remote)) as found:
            assert found.pid == depot.pid
    with pytest.raises(bow.UsageError):
        bow.depot.connect(address=())


def test_readers_and_clients_have_one_port_of_choice(folder: str) -> None:
    """A depot that was started by hand listens for readers and for drivers at the port that was named."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "bowstring", "depot", "run", "--folder", folder, "--json"]
    command += ["--remote", f"tcp://127.0.0.1:{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            remote = json.loads(process.stdout.readline())["remote"]
            with bow.depot.connect(folder=folder, start=False) as depot:
                endpoint = commit(depot, TABLE).endpoint
        finally:
            process.terminate()
    assert remote.startswith(f"tcp://127.0.0.1:{port}?token=")
    assert str(endpoint.elsewhere).startswith(f"tcp://127.0.0.1:{port}?")


def test_nothing_is_started_that_may_not_listen(connect: Connect, folder: str) -> None:
    """Without encryption off loopback, where nobody said plaintext, no depot is started; with the word one is."""
    address = f"tcp://{_own_address()}:0"
    with pytest.raises(bow.UsageError, match="plaintext=True"):
        connect(tcp=address)
    assert os.listdir(folder) == ["depot-5.start"]
    assert connect(options={"plaintext": True}, tcp=address).remote_address is not None


def test_one_with_other_encryption_is_replaced_when_empty(connect: Connect) -> None:
    """A depot that cannot listen as asked makes room for one that can, or says so where it holds data."""
    address, plain = f"tcp://{_own_address()}:0", {"plaintext": True}
    depot = connect()
    commit(depot, TABLE)
    with pytest.raises(bow.UsageError, match=r"holds data.*depot stop"):
        connect(options=plain, tcp=address)
    depot.release("data")
    opened = connect(options=plain, tcp=address)
    assert opened.status().pid == depot.status().pid
    commit(opened, TABLE)
    with pytest.raises(bow.UsageError, match="other encryption"):
        connect(options={"tls": serving()}, tcp="tls://127.0.0.1:0")
    opened.release("data")
    assert connect(tcp=REMOTE).remote_address == opened.remote_address
    secure = connect(options={"tls": serving()}, tcp="tls://127.0.0.1:0")
    assert str(secure.remote_address).startswith("tls:")


@pytest.mark.parametrize("asked", [{"plaintext": True}, {"tls": serving()}, {}])
@pytest.mark.parametrize("holds", [False, True])
def test_one_that_only_its_host_reaches_is_not_taken_for_others(
    connect: Connect, asked: dict[str, Any], holds: bool
) -> None:
    """A depot that listens on loopback makes room for one that other hosts reach, or it is said why not."""
    near = connect(tcp=REMOTE)
    if holds:
        commit(near, TABLE)
    address = f"{'tls' if 'tls' in asked else 'tcp'}://{_own_address()}:0"
    if holds or not asked:
        with pytest.raises(bow.UsageError, match="where only this one reaches it"):
            connect(options=asked, tcp=address)
        assert near.pid == near.status().pid
        return
    far = connect(options=asked, tcp=address)
    assert str(far.remote_address).startswith(address[:-1])
    assert near.status().pid == far.pid


@pytest.mark.parametrize("asked", [{"plaintext": True}, {"tls": serving()}, {"lease_seconds": 7.0}])
def test_every_option_counts(connect: Connect, asked: dict[str, Any]) -> None:
    """A depot that lacks any option asked for is replaced if it holds nothing, and else warned of."""
    first = connect()
    commit(first, TABLE)
    [name] = asked
    with pytest.warns(RuntimeWarning, match=f"too late.*{name}="):
        assert connect(options=asked).pid == first.pid
    first.release("data")
    second = connect(options=asked)
    assert second.pid != first.pid
    assert connect(options=asked).pid == second.pid


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_client_and_its_attempts_are_at_one_depot(connect: Connect, used: bool, how: str) -> None:
    """Its addresses lead to the depot that has what it committed, also where that is another than before."""
    depot = connect(tcp=REMOTE)
    depot.hold("held")
    if used:
        commit(depot, TABLE, "before")
    pid, before = depot.status().pid, depot.addresses
    if how == "killed":
        os.kill(pid, signal.SIGKILL)
    else:
        connect().stop()
    until(lambda: not runs(pid), "it ends")
    committed = commit(depot, TABLE)
    assert len(depot.addresses) == 2
    assert not set(depot.addresses) & set(before)
    for address in depot.addresses:
        with bow.depot.connect(address=address) as found:
            assert found.offered("data") == (committed,)
            assert "held" in found.status().applications


def _own_address() -> str:
    """Return an address of this host that others could reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this host has no address but its own")
        found = str(probe.getsockname()[0])
    if found.startswith("127."):
        pytest.skip("this host has no address but its own")
    return found
