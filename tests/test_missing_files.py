"""A file that is not there is a `FileNotFoundError` of every call that opens one; the command line says which."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bowstring as bow
from bowstring.cli import main
from bowstring.errors import MissingFile

OPENERS: dict[str, Callable[[Any], Any]] = {
    "ipc.open_file": bow.ipc.open_file,
    "ipc.open_stream": bow.ipc.open_stream,
    "ipc.read_message": bow.ipc.read_message,
    "ipc.read_schema": bow.ipc.read_schema,
    "ipc.MessageReader": bow.ipc.MessageReader.open_stream,
    "ipc.read_tensor": bow.ipc.read_tensor,
    "ipc.read_sparse_tensor": bow.ipc.read_sparse_tensor,
    "parquet.read": bow.parquet.read,
    "parquet.read of several": lambda path: bow.parquet.read([path]),
    "parquet.read of a URL": lambda path: bow.parquet.read(f"file://{path}"),
    "parquet.read_schema": bow.parquet.read_schema,
    "vortex.open_stream": bow.vortex.open_stream,
    "variant.from_json": lambda path: bow.variant.from_json(path=path),
    "a certificate": lambda path: bow.Server("tls://127.0.0.1:0", tls=bow.TlsConfig(cert=path)),
    "authorities": lambda path: bow.connect("tls://127.0.0.1:1", "t", tls=bow.TlsConfig(ca=path)),
}
COMMANDS = {
    "serve": ["serve", "PATH"],
    "inspect": ["inspect", "PATH"],
    "a token": ["list", "tcp://127.0.0.1:1", "--token-file", "PATH"],
    "authorities": ["fetch", "tls://127.0.0.1:1", "t", "--tls-ca", "PATH"],
}


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("where", [0, 1], ids=["missing", "in a missing folder"])
@pytest.mark.parametrize("kind", [str, Path])
def test_a_missing_file_is_not_found(tmp_path: Path, opener: str, where: int, kind: type[Any]) -> None:
    """The error is Python's own and one of ours, says which file, and has the number of the system."""
    path = tmp_path / "none" if where else tmp_path
    path = path / "missing"
    with pytest.raises(FileNotFoundError, match="missing") as caught:
        OPENERS[opener](kind(path))
    assert isinstance(caught.value, MissingFile)
    assert caught.value.errno == errno.ENOENT
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_line_names_a_missing_file(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is a wrong call: the exit code is 2, and the message is one paragraph with the path."""
    path = str(tmp_path / "missing")
    assert main([path if each == "PATH" else each for each in COMMANDS[command]]) == 2
    text = capsys.readouterr().err
    assert path in text
    assert len(text.splitlines()) == 1
