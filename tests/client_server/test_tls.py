"""A server at ``tls:``: who may read, what must be said off loopback, and what a reader is told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.cli import main
from tests.client_server.conftest import PATIENCE, read
from tests.transport.certified import authority, serving, trusting

TABLE = pa.table({"n": np.arange(200_000), "s": pa.array(["x", None] * 100_000)})
SECRET = "a secret of 20 marks"
TLS = "tls://127.0.0.1:0"
ANYWHERE = "tls://0.0.0.0:0"

Serve = Callable[..., bow.Server]


def mutual() -> bow.TlsConfig:
    """Return what both ends may say: a certificate, and the authority that all are of."""
    return bow.TlsConfig(cert=authority().issue("127.0.0.1"), ca=authority().path)


def test_a_table(serve: Serve) -> None:
    """A table comes over TLS as over any connection, and the stream says how it came."""
    endpoint = serve(TLS, tls=serving()).publish("t", TABLE.combine_chunks(), readers=2)
    with bow.connect(endpoint, tls=trusting()) as stream:
        assert stream.stats.path == "tls: packed"
        assert stream.read_all().equals(TABLE)
    assert read(str(endpoint), tls=trusting(), columns=["s"]).equals(TABLE.select(["s"]))


def test_two_connections(serve: Serve) -> None:
    """Metadata and bodies may come over a connection each."""
    endpoint = serve(TLS, tls=serving()).publish("t", TABLE, separate=True)
    assert read(endpoint, tls=trusting()).equals(TABLE)


def test_many_at_once(serve: Serve) -> None:
    """Readers at the same time have a connection each, which keep nothing from each other."""
    endpoint = serve(TLS, tls=serving()).publish("t", lambda: iter(TABLE.to_batches(max_chunksize=5000)))
    found: list[pa.Table] = []
    threads = [
        threading.Thread(target=lambda: found.append(read(endpoint, tls=trusting()))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(each.equals(TABLE) for each in found)
    assert len(found) == len(threads)


def test_names_need_a_token_or_certificates(serve: Serve) -> None:
    """A client with the token, or with a certificate asked for, may ask by name and for a list; no other may."""
    for token, tls, client in ((SECRET, serving(), trusting()), (None, mutual(), mutual())):
        server = serve(TLS, tls=tls, token=token)
        endpoint = server.publish("t", TABLE)
        assert endpoint.ticket == b"t"
        assert read(server.address, name="t", tls=client, token=token).equals(TABLE)
        found = bow.list_datasets(server.address, tls=client, token=token)
        assert [each.name for each in found] == ["t"]
    server = serve(TLS, tls=serving())
    server.publish("t", TABLE)
    with pytest.raises(bow.AccessDenied):
        bow.list_datasets(server.address, tls=trusting())


def test_who_is_not_trusted(serve: Serve) -> None:
    """A reader that does not trust the server, and a server that does not trust the reader, say so, and go on."""
    server = serve(TLS, tls=mutual())
    endpoint = server.publish("t", TABLE)
    for tls, what in (
        (None, "certificate of the server"),
        (trusting(), "certificate of this end"),
        (
            bow.TlsConfig(cert=authority("another one").issue("x"), ca=authority().path),
            "certificate of this end",
        ),
    ):
        with pytest.raises(bow.AccessDenied, match=what):
            bow.connect(endpoint, tls=tls, limits=PATIENCE)
    assert read(endpoint, tls=mutual()).equals(TABLE)


@pytest.mark.parametrize(
    ("address", "options", "what"),
    [
        (ANYWHERE, {"tls": serving}, "token"),
        (ANYWHERE, {"tls": serving, "token": "short"}, "16 characters"),
        (ANYWHERE, {"token": SECRET}, "certificate"),
        ("tcp://0.0.0.0:0", {"token": SECRET}, "plaintext=True"),
        ("tcp://0.0.0.0:0", {"plaintext": True}, "token"),
        ("unix:", {"tls": serving}, "tls:"),
        ("tcp://127.0.0.1:0", {"tls": serving}, "tls:"),
    ],
)
def test_what_must_be_said(address: str, options: dict[str, Any], what: str) -> None:
    """Off loopback a server needs a token or its readers' certificates, and encryption or the word for none."""
    for name, value in options.items():
        options = {**options, name: value() if callable(value) else value}
    with pytest.raises(bow.UsageError, match=what):
        bow.Server(address, **options)


def test_what_is_enough() -> None:
    """TLS with a token, TLS with readers' certificates, and plain TCP with a token and the word, may listen."""
    bow.Server(ANYWHERE, tls=serving(), token=SECRET).close()
    bow.Server(ANYWHERE, tls=mutual()).close()
    bow.Server("tcp://0.0.0.0:0", token=SECRET, plaintext=True).close()
    with bow.Server(token=SECRET) as server:
        server.listen_too(ANYWHERE, tls=serving())
        endpoint = server.publish("t", TABLE)
        assert read(endpoint, tls=trusting()).equals(TABLE)


def test_a_reader_that_wants_tls_takes_nothing_else(serve: Serve) -> None:
    """An address of plain TCP off loopback is passed over by a reader with certificates, and the next is taken."""
    server = serve(TLS, tls=serving(), token=SECRET)
    endpoint = server.publish("t", TABLE)
    plain = endpoint.uri.replace(server.address, "tcp://192.0.2.1:4711")
    both = bow.Endpoint(plain, endpoint.ticket, elsewhere=endpoint.uri)
    with bow.connect(both, tls=trusting()) as stream:
        assert "not be encrypted" in stream.stats.why
        assert stream.read_all().equals(TABLE)
    with pytest.raises(bow.AccessDenied, match="not be encrypted"):
        bow.connect(bow.Endpoint(plain, endpoint.ticket), tls=trusting())


def test_a_host_by_name(serve: Serve) -> None:
    """The advertised host, and one that the address names, is the one that the certificate must name."""
    named = bow.TlsConfig(cert=authority().issue("localhost"))
    for address, options in (("tls://localhost:0", {}), (TLS, {"advertise": "localhost"})):
        endpoint = serve(address, tls=named, **options).publish("t", TABLE)
        assert endpoint.uri.startswith("tls://localhost:")
        assert read(endpoint, tls=trusting()).equals(TABLE)


def test_the_command_line(tmp_path: Path, serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command that reads takes certificates, and says by its own option's name what is missing."""
    server = serve(TLS, tls=mutual(), token=SECRET)
    server.publish("trips", TABLE)
    secret = tmp_path / "token"
    secret.write_text(SECRET)
    token = ["--token-file", str(secret)]
    both = mutual()
    tls = ["--tls-ca", str(both.ca), "--tls-cert", str(both.cert)]
    for command in (["list"], ["fetch", "--limit", "1"]):
        assert main([*command, server.address, *token, *tls]) == 0
        assert "trips" in capsys.readouterr().out or command[0] == "fetch"
        assert main([*command, server.address, *token]) == 1
        assert "--tls-ca" in capsys.readouterr().err
    uri = str(server.endpoints["trips"])
    assert main(["inspect", uri, *tls]) == 0
    assert main(["fetch", uri, *tls[:2]]) == 1
    assert "--tls-cert" in capsys.readouterr().err
    assert main(["list", server.address, "--tls-key", "key.pem"]) == 2


def test_serving_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``bowstring serve`` at ``tls:`` needs a certificate."""
    file = tmp_path / "t.arrow"
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, TABLE.schema) as writer:
        writer.write_table(TABLE)
    assert main(["serve", str(file), "--address", TLS]) == 2
    assert "--tls-cert" in capsys.readouterr().err
