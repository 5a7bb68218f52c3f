"""Addresses as users give them: paths without a scheme, all addresses of a machine, and empty names."""

from __future__ import annotations

import ipaddress
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.transport import dial, listen
from tests.client_server.conftest import until
from tests.transport.certified import authority, trusting
from tests.ucx import UCX

SECRET = "0123456789abcdef"
HOST = socket.gethostname()


def listen_too(address: Any) -> None:
    """Take readers at a second address."""
    with bow.Server() as server:
        server.listen_too(address)


TAKERS: dict[str, Callable[[Any], object]] = {
    "Server": bow.Server,
    "listen_too": listen_too,
    "connect": bow.connect,
    "connect by name": lambda address: bow.connect(address, "t"),
    "get": bow.get,
    "list_datasets": bow.list_datasets,
    "listen": listen,
    "dial": dial,
}


READERS = ("connect", "connect by name", "get")


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/tmp/x.sock", "unix:/tmp/x.sock"),
        ("tables.sock", "unix:tables.sock"),
        ("./a b.sock", "unix:./a%20b.sock"),
        (Path("/tmp/x"), "unix:/tmp/x"),
        ("/tmp/x.sock?token=secret", "unix:/tmp/x.sock"),
    ],
)
@pytest.mark.parametrize("taker", TAKERS)
def test_a_path_is_no_address(taker: str, path: str | Path, address: str) -> None:
    """What takes an address refuses the path of a socket, and says how that is written; readers take a `Path`."""
    if isinstance(path, Path) and taker in READERS:
        pytest.skip("tests/client_server/test_sources.py")
    with pytest.raises(bow.UsageError, match=f"begins with unix:, as in '{address}'"):
        TAKERS[taker](path)


@pytest.mark.parametrize("text", ["http://127.0.0.1/x", "fabric:/x", "tables", "", "grpc://x/y.sock"])
def test_what_is_no_path_is_not_taken_for_one(text: str) -> None:
    """Other wrong addresses are not called paths."""
    for server in (bow.Server, listen):
        with pytest.raises(bow.UsageError) as caught:
            server(text)
        assert "as in" not in str(caught.value)


ANYWHERE = ("tcp://0.0.0.0:0", "tcp://[::]:0", "tcp://0:0", "tls://0.0.0.0:0", "tls://[::]:0")


def host_of(endpoint: bow.Endpoint) -> str:
    return endpoint.uri.partition("://")[2].partition("?")[0].rpartition(":")[0].strip("[]")


@pytest.mark.parametrize("address", [*ANYWHERE, pytest.param("ucx://0.0.0.0:0", marks=UCX.marks)])
def test_no_endpoint_names_all_addresses(address: str) -> None:
    """An endpoint of a server at all addresses names one of this machine, or `advertise`, and can be read."""
    encrypted = address.startswith("tls")
    options: dict[str, Any] = {"token": SECRET, "plaintext": not encrypted}
    if ":]" in address and not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    if encrypted:
        options["tls"] = bow.TlsConfig(cert=authority().issue("127.0.0.1", "::1"))
    with bow.Server(address, **options) as server:
        endpoint = server.publish("t", {"n": [1, 2]})
        host = host_of(endpoint)
        assert not ipaddress.ip_address(host).is_unspecified
        with bow.connect(endpoint, tls=trusting() if encrypted else None) as stream:
            assert stream.read_all().num_rows == 2
    with bow.Server(address, advertise="tables.example.org", **options) as server:
        assert host_of(server.publish("t", {"n": [1]})) == "tables.example.org"


@pytest.mark.parametrize("as_context", [False, True])
@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("tables.example.org",), "tables.example.org"),
        (("localhost", "127.0.0.1", "tables.example.org"), "tables.example.org"),
        (("127.0.0.1", "localhost"), "127.0.0.1"),
        (("tables.example.org", f"{HOST}.example.org"), f"{HOST}.example.org"),
        (("tables.example.org", HOST), HOST),
        (("localhost", "*.example.org"), f"{HOST.partition('.')[0]}.example.org"),
        (("2001:db8::7",), "2001:db8::7"),
        (("localhost", "10.1.2.3"), "10.1.2.3"),
    ],
)
def test_a_name_of_the_certificate(names: tuple[str, ...], shown: str, as_context: bool) -> None:
    """A server of TLS at all addresses is called by a name that its certificate holds, nearest to its host's."""
    config = bow.TlsConfig(cert=authority().issue(*names))
    tls = config.for_server() if as_context else config
    with bow.Server("tls://0.0.0.0:0", tls=tls, token=SECRET) as server:
        assert host_of(server.publish("t", {"n": [1]})) == shown


def test_a_second_address() -> None:
    """The endpoints of a server name neither of its addresses as 0.0.0.0."""
    with bow.Server(token=SECRET) as server:
        server.listen_too("tcp://0.0.0.0:0", plaintext=True)
        assert "0.0.0.0" not in str(server.publish("t", {"n": [1]}))


def test_a_data_set_has_a_name() -> None:
    """No server, depot or Flight server takes an empty name."""
    with bow.Server() as server, pytest.raises(bow.UsageError, match="empty"):
        server.publish("", {"n": [1]})
    with pytest.raises(bow.UsageError, match="empty"):
        bow.flight.serve({"": bow.Dataset((), pa.schema([]))})
    with pytest.raises(bow.UsageError, match="name"):
        bow.flight.serve(bow.Dataset((), pa.schema([]), metadata={"name": ""}))


def test_readers_find_a_server_whose_folder_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server whose folder somebody removes is there again soon, at the same endpoint."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with bow.Server() as server:
        endpoint = server.publish("t", {"n": [1, 2]})
        assert bow.get(endpoint).num_rows == 2
        shutil.rmtree(tmp_path / "bowstring")
        until(lambda: "made anew" in caplog.text)
        assert bow.get(endpoint).num_rows == 2
