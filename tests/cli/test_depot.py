"""``bowstring depot``: what it says of the depot, and that it ends one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pytest

import bowstring as bow
from bowstring.cli import main
from tests.peer.raw import RawReader
from tests.ucx import needs_ucx


@pytest.fixture
def folder() -> Iterator[str]:
    """Return a private folder with a short name."""
    made = tempfile.mkdtemp(prefix="bow-")
    yield made
    shutil.rmtree(made)


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must succeed; return what it prints."""
    assert main(["depot", *arguments]) == 0
    return capsys.readouterr().out


def test_it_is_shown_and_ended(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What it holds is printed for people and for programs; after `stop` there is none, which is no failure."""
    with bow.depot.connect(folder=folder) as depot:
        with depot.begin(application="app", dataset="app/\x1b[2J") as attempt:
            attempt.write({"n": list(range(1234))})
            attempt.commit()
        said = asked(capsys, "status", "--folder", folder)
        assert "1,234" in said
        assert "app" in said
        assert "\x1b" not in said
        facts = json.loads(asked(capsys, "status", "--folder", folder, "--json"))
        assert (facts["pid"], facts["datasets"][0]["num_rows"]) == (depot.status().pid, 1234)
        assert asked(capsys, "stop", "--folder", folder) == "the depot has ended\n"
    assert asked(capsys, "status", "--folder", folder) == "no depot runs\n"
    assert json.loads(asked(capsys, "status", "--folder", folder, "--json")) == {"running": False}
    assert json.loads(asked(capsys, "stop", "--folder", folder, "--json")) == {"running": False}


def until_released(depot: bow.depot.Depot) -> None:
    """Wait until the depot counts nothing as in use."""
    end = time.monotonic() + 20.0
    while depot.status().memory_in_use:
        assert time.monotonic() < end, depot.status()
        time.sleep(0.01)


def test_lost_slabs_are_told(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What somebody has mapped whom the depot lost sight of is told by count and bytes, while it is so."""
    with bow.depot.connect(folder=folder) as depot:
        with depot.begin(application="app", dataset="app/read") as attempt:
            attempt.write({"n": list(range(10))})
            endpoint = attempt.commit().endpoint
        with RawReader(endpoint) as reader:
            reader.hello(token=endpoint.locations[0].token)
            reader.want()
            fds = [os.dup(fd) for each in reader.hear_all() for fd in each.attachments if isinstance(fd, int)]
        depot.release("app/read")
        until_released(depot)
        said = asked(capsys, "status", "--folder", folder)
        assert "1 slab is lost, 4.0 KiB" in said
        facts = json.loads(asked(capsys, "status", "--folder", folder, "--json"))
        assert (facts["lost_slabs"], facts["memory_lost"], facts["disk_lost"]) == (1, 4 << 10, 0)
        for fd in fds:
            os.close(fd)
        assert "lost," not in asked(capsys, "status", "--folder", folder)
        assert json.loads(asked(capsys, "status", "--folder", folder, "--json"))["lost_slabs"] == 0
        depot.stop()


@pytest.mark.parametrize(
    ("number", "remote"),
    [
        (signal.SIGINT, ("--tcp", "tcp://127.0.0.1:0")),
        pytest.param(signal.SIGTERM, ("--remote", "ucx://127.0.0.1:0"), marks=needs_ucx),
    ],
    ids=["tcp", "ucx"],
)
def test_one_is_run(folder: str, start: Any, number: int, remote: tuple[str, str]) -> None:
    """`run` is a depot that clients find, with the budgets that were given, until it is told to end."""
    given = ["--memory", str(64 << 20), "--disk", "0", *remote, "--idle-seconds", "600"]
    program = start("depot", "run", "--folder", folder, "--json", *given)
    said = json.loads(program.line())
    with bow.depot.connect(start=False, folder=folder) as depot:
        status = depot.status()
        assert status.pid == program.process.pid
        assert (status.memory_budget, status.disk_budget) == (64 << 20, 0)
        assert (depot.address, depot.remote_address) == (said["address"], said["remote"])
        assert said["remote"].partition(":")[0] == remote[1].partition(":")[0]
    assert program.end(number)[0] == 0
    assert not [name for name in os.listdir(folder) if name.endswith(".sock")]


def test_a_second_one_is_not_run(folder: str, start: Any) -> None:
    """Where one lives, another one of its version ends with the reason."""
    with bow.depot.connect(folder=folder) as depot:
        code, _, said = start("depot", "run", "--folder", folder).end()
        assert code == 2
        assert "another depot of this version lives here" in said
        depot.stop()
