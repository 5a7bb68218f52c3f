"""What a server says never moves the cursor of the terminal: not in tables, and not in errors."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.cli import main

# All controls of ASCII and Latin-1, and those that turn the direction of text; a row holds no zero byte.
CONTROLS = (
    "".join(each for each in map(chr, range(1, 256)) if unicodedata.category(each) == "Cc")
    + "\u202e\u2066\u2028"
)
HOSTILE = f"\x1b]0;owned\x07{CONTROLS}\x1b[2J"
SCHEMA = pa.schema({"n": pa.int64()})


def failing() -> Iterator[pa.RecordBatch]:
    """Make one batch, and fail with text of the server's choice."""
    yield pa.record_batch({"n": [1]})
    raise ValueError(HOSTILE)


@pytest.fixture
def address() -> Iterator[str]:
    """Return the address of a server with a data set that fails, and one whose name and columns are hostile."""
    with bow.Server() as server:
        server.publish("failing", failing, schema=SCHEMA)
        server.publish(HOSTILE, {HOSTILE: [HOSTILE]})
        yield server.address


COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "list": lambda address: ["list", address],
    "fetch a failing one": lambda address: ["fetch", address, "failing"],
    "fetch": lambda address: ["fetch", address, HOSTILE],
    "fetch an unknown one": lambda address: ["fetch", address, "failin"],
    "fetch an unknown name": lambda address: ["fetch", address, HOSTILE[:-1]],
    "fetch an unknown column": lambda address: ["fetch", address, HOSTILE, "--columns", HOSTILE[:-1]],
    "fetch a hostile address": lambda address: ["fetch", f"{address}{HOSTILE}", "t"],
    "inspect a hostile path": lambda address: ["inspect", f"/nowhere/{address}{HOSTILE}"],
}


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_but_text_is_printed(
    command: str,
    debug: bool,
    address: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever a server calls its data, and however it fails, a command prints printable text and ends of lines."""
    arguments = COMMANDS[command](address)
    main([*arguments, "--debug"] if debug else arguments)
    printed = capsys.readouterr()
    assert printed.out or printed.err
    strange = {each for each in printed.out + printed.err if not (each.isprintable() or each == "\n")}
    assert not strange
