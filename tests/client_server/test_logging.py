"""A server logs what its author should know under the logger ``bowstring``, and prints nothing by itself."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from urllib import parse

import pyarrow as pa
import pytest

import bowstring as bow
from tests.client_server.conftest import read, until

SCHEMA = pa.schema({"n": pa.int64()})


def of_level(caplog: pytest.LogCaptureFixture, level: int) -> list[logging.LogRecord]:
    """Return the records of one level."""
    return [each for each in caplog.records if each.levelno == level and each.name == "bowstring"]


def test_a_generator_that_raises(server: bow.Server, caplog: pytest.LogCaptureFixture) -> None:
    """An error in the code that makes the batches is logged at ERROR with its traceback, as text."""

    def produce() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [1]})
        raise KeyError("no such file")

    endpoint = server.publish("broken", produce(), schema=SCHEMA)
    with pytest.raises(bow.ProducerFailed):
        read(endpoint)
    until(lambda: bool(of_level(caplog, logging.ERROR)))
    [record] = of_level(caplog, logging.ERROR)
    assert "'broken'" in record.getMessage()
    assert "Traceback (most recent call last)" in record.getMessage()
    assert "KeyError: 'no such file'" in record.getMessage()


def test_the_life_of_a_data_set(server: bow.Server, caplog: pytest.LogCaptureFixture) -> None:
    """What is published, replaced and released is logged at INFO."""
    caplog.set_level(logging.INFO, "bowstring")
    server.publish("t", {"n": [1, 2]})
    server.publish("t", {"n": [1]}, replace=True)
    server.withdraw("t")
    texts = [record.getMessage() for record in of_level(caplog, logging.INFO)]
    assert texts == ["published 't': 2 rows", "released 't'", "replaced 't': 1 rows", "released 't'"]


def test_readers_that_are_refused(serve: Callable[..., bow.Server], caplog: pytest.LogCaptureFixture) -> None:
    """A reader with a wrong token, and one that asks for what is not there, are logged at WARNING."""
    server = serve("tcp://127.0.0.1:0", token="0123456789abcdef")
    endpoint = server.publish("t", {"n": [1]})
    with pytest.raises(bow.AccessDenied):
        read(endpoint.with_token("wrong"))
    with pytest.raises(bow.UnknownTicket):
        read(endpoint.uri, name="other")
    until(lambda: len(of_level(caplog, logging.WARNING)) == 2)
    texts = [record.getMessage() for record in of_level(caplog, logging.WARNING)]
    assert all(text.startswith("refused a reader (") for text in texts)
    assert "token is wrong" in texts[0]
    assert "0123456789abcdef" not in str(texts)


def test_silence_by_default() -> None:
    """Without a configuration of logging nothing is printed, whatever happens."""
    code = (
        "import bowstring as bow\n"
        "with bow.Server() as server:\n"
        "    endpoint = server.publish('t', (1 / 0 for _ in [1]), schema=__import__('pyarrow').schema({}))\n"
        "    try:\n"
        "        bow.connect(endpoint).read_all()\n"
        "    except bow.ProducerFailed:\n"
        "        pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == done.stderr == ""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_handler_that_raises(serve: Callable[..., bow.Server], monkeypatch: pytest.MonkeyPatch) -> None:
    """Handlers of the user's that raise keep no reader out, and no reader in."""

    def raises(record: logging.LogRecord) -> None:
        raise RuntimeError(record.getMessage())

    server = serve("unix:")
    endpoint = server.publish("t", {"n": [1]})
    uri = parse.urlsplit(endpoint.uri)
    logger = logging.getLogger("bowstring")
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", raises)
    logger.addHandler(handler)
    try:
        for _ in range(20):  # most have spoken before they are accepted
            with socket.socket(socket.AF_UNIX) as noise:
                noise.connect(uri.path)
                noise.sendall(b"no message of the protocol")
        until(lambda: server.stats.connections == 0)
        assert read(endpoint).num_rows == 1
    finally:
        logger.removeHandler(handler)


def test_a_handler_that_raises_where_data_are_released(
    serve: Callable[..., bow.Server], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was read is freed, and its reader is counted out of all that it read, whatever a handler raises."""
    caplog.set_level(logging.INFO, "bowstring")

    def raises(record: logging.LogRecord) -> None:
        if record.getMessage().startswith("released"):
            raise RuntimeError(record.getMessage())

    server = serve("unix:")
    endpoints = tuple(server.publish(name, {"n": [1]}, readers=1) for name in "ab")
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", raises)
    logger = logging.getLogger("bowstring")
    logger.addHandler(handler)
    try:
        with bow.connect(bow.Dataset(endpoints, SCHEMA)) as stream:
            assert stream.read_all().num_rows == 2
        server.wait_released(timeout=10.0)
        until(lambda: server.stats.connections == server.pool.stats.in_use == 0)
    finally:
        logger.removeHandler(handler)
