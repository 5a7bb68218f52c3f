"""``docs/protocol.md`` against the code: whoever writes a client from it must not be misled."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
from pathlib import Path

import pytest

from bowstring import errors
from bowstring.dissociated.failures import pack_error, unpack_error
from bowstring.dissociated.tags import Control, Want
from bowstring.dissociated.wire import Hello, Welcome
from bowstring.errors import BrokenError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.transport import Message, dial
from tests.peer.wire import listening

TEXT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("|")
]


def test_every_tag_is_written_down() -> None:
    """The tables of tags name each tag that the code has, and no other."""
    written = {int(number, 16) for number in re.findall(r"`0x([0-9A-F]{16})`", TEXT)}
    assert written == {*map(int, Want), *map(int, Control)}


@pytest.mark.parametrize("tag", list(Control), ids=lambda tag: tag.name)
def test_our_tags_have_their_names(tag: Control) -> None:
    """Each of our messages stands in the table with its own tag."""
    assert [row[0] for row in ROWS if len(row) == 4 and row[1] == f"`{tag:#018X}`".replace("0X", "0x")] == [
        tag.name
    ]


def test_every_error_code_is_written_down() -> None:
    """The table of errors names each code that travels, and as what it is raised."""
    section = TEXT[TEXT.index("## 10.") : TEXT.index("## 11.")]
    table = section[section.index("| code | raised as") :]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    found = {code: raised for codes, raised in rows for code in re.findall(r"`(\w+)`", codes)}
    for code, raised in found.items():
        name = type(unpack_error(json.dumps({"code": code, "what": "x"}).encode())).__name__
        of_its_name = "of these names" in raised and name.removesuffix("Error").lower() == code.replace(
            "_", ""
        )
        assert of_its_name or f"`{name}`" in raised, code
    kinds = [getattr(errors, name) for name in errors.__all__]
    assert {json.loads(pack_error(kind("x")))["code"] for kind in kinds} | {"closed"} == found.keys()


@pytest.mark.parametrize(
    "packed", [Hello().pack(), Welcome(charged=True, path="", why="").pack(), pack_error(BrokenError("x"))]
)
def test_every_key_is_written_down(packed: bytes) -> None:
    """Each key of our JSON messages stands in a table."""
    keys = {key for row in ROWS for key in re.findall(r"`(\w+)`", row[0])}
    assert set(re.findall(r'"(\w+)":', packed.decode())) <= keys


def test_the_limits_are_as_written() -> None:
    """Deadlines and bounds that the text gives in numbers are the defaults of ``Limits``."""
    seconds = re.findall(r"`(?:Limits\.)?(\w+_timeout|heartbeat)`,? \(?(\d+) s", TEXT)
    assert {name for name, _ in seconds} >= {
        "connect_timeout",
        "reply_timeout",
        "lease_timeout",
        "stall_timeout",
    }
    for name, value in seconds:
        assert getattr(DEFAULT_LIMITS, name) == float(value), name
    units = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
    sizes = re.findall(r"`Limits\.(\w+_bytes)` \((\d+) (.iB)\)", TEXT)
    assert {name for name, _, _ in sizes} >= {
        "metadata_bytes",
        "message_bytes",
        "control_bytes",
        "region_bytes",
    }
    for name, value, unit in sizes:
        assert getattr(DEFAULT_LIMITS, name) == int(value) * units[unit], name
    assert f"`Limits.regions` ({DEFAULT_LIMITS.regions})" in TEXT


def test_the_header_is_as_written() -> None:
    """The table of the framing adds up to the header that the code makes."""
    rows = [row for row in ROWS if len(row) == 4 and row[0].isdigit()]
    widths = {"3 bytes": 3, "u8": 1, "u16": 2, "u64": 8}
    assert [int(row[0]) for row in rows] == [
        sum(widths[row[1]] for row in rows[:count]) for count in range(len(rows))
    ]
    size = sum(widths[row[1]] for row in rows)
    listener, address = listening("unix")
    with listener, dial(address) as channel, open(os.devnull) as file:
        fd = file.fileno()
        channel.send([Message(7, [b"x" * 9], (fd, fd))], 10.0)
        peer, _ = listener.accept()
        with peer:
            data, fds, _, _ = socket.recv_fds(peer, 100, 2)
        for each in fds:
            os.close(each)
    assert data == b"BOW" + struct.pack("<BBBHQQ", 1, 1, 0, 2, 7, 9) + b"x" * 9
    assert len(data) == size + 9
