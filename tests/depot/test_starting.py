"""There is one depot of each version, it is found again, and it owes nothing to whoever started it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bow
from bowstring.depot.launch import Paths, found_or_started
from bowstring.depot.protocol import MESSAGES, VERSION, DepotConnection, Verb
from bowstring.dissociated.failures import unpack_error
from bowstring.dissociated.tags import Control
from bowstring.spark.application_lease import Application
from bowstring.spark.task import DepotTask, Order
from bowstring.transport import Message, dial, listen
from tests.depot.conftest import WAIT, Connect, Task, commit, runs, until, until_free

START = "depot = bow.depot.connect(folder=folder)\nsay(depot.status().pid)\n"


def test_many_starters_get_one(folder: str, task: Callable[..., Task]) -> None:
    """Twenty threads and four processes that need the same depot at once start one."""

    def started(_: int) -> int:
        with bow.depot.connect(folder=folder) as depot:
            return int(depot.status().pid or 0)

    tasks = [task('say("ready")\n' + START) for _ in range(4)]
    for each in tasks:
        each.hear()
        each.go_on()
    with concurrent.futures.ThreadPoolExecutor(20) as threads:
        found = {*threads.map(started, range(20)), *(int(each.hear()) for each in tasks)}
    assert len(found) == 1
    assert runs(found.pop())


BOUNDED = (
    "import resource\n"
    "hard = resource.getrlimit(resource.RLIMIT_AS)[1]\n"
    "resource.setrlimit(resource.RLIMIT_AS, (8 << 30, hard))\n"
)


def test_the_starters_bounds_are_not_the_depots(task: Callable[..., Task]) -> None:
    """A depot that a process with little address space starts, or with few descriptors, takes all it may."""
    pid = int(task(BOUNDED + START).hear())
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    for name in ("Max address space", "Max open files"):
        [line] = [each for each in limits if each.startswith(name)]
        soft, hard = line.removeprefix(name).split()[:2]
        assert soft == hard, line


def test_other_options_are_told(connect: Connect) -> None:
    """A depot with other budgets is replaced if it holds nothing, whoever is connected, and else warned of."""
    first = connect(options={"memory_budget": 1 << 25})
    first.hold("app")
    second = connect(options={"memory_budget": 1 << 26})
    assert second.status().memory_budget == 1 << 26
    assert first.status().applications == ("app",), "who held it holds the next one"
    commit(second, {"n": [1]})
    with pytest.warns(RuntimeWarning, match=f"memory_budget={1 << 26}, and holds data") as said:
        third = connect(options={"memory_budget": 1 << 25})
    assert said[0].filename.endswith("conftest.py"), "where Bowstring was called"
    assert third.status().pid == second.status().pid


def test_a_warning_names_the_line_that_asked(
    connect: Connect, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the caller's, however deep in the package options are compared; tasks, of which are many, are quiet."""
    monkeypatch.setenv("BOWSTRING_DEPOT", folder)
    commit(connect(), {"n": [1]})
    other = bow.depot.Options(memory_budget=1 << 25)
    application = Application("app", lambda: False)
    for ask in (lambda: bow.depot.connect(options=other), lambda: application.catalog(other, 60.0)):
        with pytest.warns(RuntimeWarning, match="too late") as caught:
            ask().close()  # type: ignore[no-untyped-call]
        assert [each.filename for each in caught] == [__file__]
    application.end()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DepotTask(Order("app", "data", options=other))._depot().close()


@pytest.mark.parametrize("how", ["other options", "stop"])
def test_one_that_is_read_is_not_ended(connect: Connect, how: str) -> None:
    """Who reads what was released reads it to the end: only then a depot without data makes room, or stops."""
    depot = connect()
    endpoint = commit(depot, ({"n": [number]} for number in range(300))).endpoint

    def ends() -> bool:
        if how == "stop":
            return depot.stop(application="app")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return connect(options={"memory_budget": 1 << 25}).pid != pid

    pid = depot.pid
    with bow.connect(endpoint) as stream:
        first = stream.read_next_batch()
        depot.release("data")
        assert not ends()
        assert sum(batch.num_rows for batch in stream) == 299
        assert first["n"].values.tolist() == [0]
        del first
    until_free(depot)
    assert ends()


def test_one_that_was_started_by_hand_is_not_replaced(
    connect: Connect, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not asked to make room, nor does a request end it that ends only depots without data of others."""
    run = [sys.executable, "-m", "bowstring", "depot", "run", "--folder", folder, "--memory", str(1 << 25)]
    with subprocess.Popen(run, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            asked: list[Verb] = []
            ask = DepotConnection.ask

            def noted(own: DepotConnection, verb: Verb, *rest: Any) -> Any:
                asked.append(verb)
                return ask(own, verb, *rest)

            monkeypatch.setattr(DepotConnection, "ask", noted)
            for start in (True, False):
                with pytest.warns(RuntimeWarning, match="started by hand"):
                    depot = connect(options={"memory_budget": 1 << 26}, start=start)
            assert Verb.STOP not in asked, "it has said that it stays"
            assert not depot.stop(application="app")
            assert depot.status().memory_budget == 1 << 25
        finally:
            process.terminate()


def test_a_limited_one_is_replaced_when_empty(connect: Connect, folder: str) -> None:
    """What a task of little address space started says why it has no room, and makes room for one that has all."""
    code = (
        "import resource, sys, bowstring as bow\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))\n"
        "bow.depot.connect(folder=sys.argv[1], options=bow.depot.Options(disk_budget=0)).close()\n"
    )
    # Without the right to raise what its starter had.
    before = ["setpriv", "--bounding-set", "-sys_resource"] if os.geteuid() == 0 else []
    if before and shutil.which("setpriv") is None:
        pytest.skip("there is no setpriv(1)")
    subprocess.run([*before, sys.executable, "-c", code, folder], check=True)
    with connect(start=False) as depot:
        pid = depot.status().pid
        with (
            depot.begin(application="app", dataset="data") as attempt,
            pytest.raises(bow.OutOfBudget) as full,
        ):
            attempt.write({"n": np.zeros(1 << 28, np.int64)})
        assert "limited address space (RLIMIT_AS" in str(full.value)
        depot.end("app")
    assert connect().status().pid != pid


def test_the_killed_one_is_replaced(connect: Connect, folder: str) -> None:
    """After a SIGKILL the next client starts another one in spite of the socket files, and old clients find it."""
    before = connect()
    pid = before.status().pid
    endpoint = commit(before, {"n": [1]}).endpoint
    os.kill(pid, signal.SIGKILL)
    until(lambda: not runs(pid), "it is killed")
    assert any(name.endswith(".sock") for name in os.listdir(folder)), "nothing was left to stumble over"
    after = connect()
    assert after.status().pid not in (pid, os.getpid())
    assert before.status().pid == after.status().pid
    assert commit(before, {"n": [2]}).num_rows == 1
    with pytest.raises(bow.BrokenError):
        bow.connect(endpoint)


def test_one_that_comes_up_just_then_is_taken(depot: bow.depot.Depot, folder: str) -> None:
    """Whoever starts a second one, because the first was not there a moment ago, gets the first."""
    looked = []

    def find(seconds: float) -> DepotConnection:
        looked.append(seconds)
        if len(looked) <= 2:
            raise bow.BrokenError("not yet")
        return DepotConnection(depot.address, seconds)

    found = found_or_started(Paths(folder), bow.depot.Options(), find, WAIT)
    assert found.pid == depot.status().pid
    assert len(looked) == 3
    found.close()


def test_without_start_there_must_be_one(folder: str) -> None:
    """Who only looks for a depot starts none."""
    with pytest.raises(bow.BrokenError):
        bow.depot.connect(start=False, folder=folder)
    assert os.listdir(folder) == []


@pytest.mark.parametrize("how", ["exit", "SIGKILL", "SIGHUP to its group"])
def test_it_outlives_its_starter(connect: Connect, task: Callable[..., Task], how: str) -> None:
    """Whatever becomes of whoever started it, the depot and what it holds stay."""
    # Tests that nohup started would hand on that the signal is ignored.
    heeding = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
    starter = task(
        heeding + START + "with depot.begin(application='app', dataset='data') as attempt:\n"
        "    attempt.write(table)\n    say(attempt.commit().endpoint)\n"
    )
    pid = int(starter.hear())
    starter.go_on()
    endpoint = bow.Endpoint.parse(starter.hear())
    if how == "exit":
        starter.go_on()
        assert starter.end() == 0
    elif how == "SIGKILL":
        starter.kill()
    else:
        os.killpg(starter.process.pid, signal.SIGHUP)
        starter.process.wait(WAIT)
    assert connect(start=False).status().pid == pid
    with bow.connect(endpoint) as stream:
        assert sum(batch.num_rows for batch in stream) == 1 << 17


def test_it_keeps_nothing_of_its_starter(task: Callable[..., Task]) -> None:
    """Neither folder, pipes, sockets, session, nor secrets of its starter are the depot's."""
    code = "import os\nfor fd in os.pipe(): os.set_inheritable(fd, True)\n" + START
    starter = task(code, env={"SECRET_OF_THE_STARTER": "x"})
    pid = int(starter.hear())
    process = Path(f"/proc/{pid}")
    assert "SECRET_OF_THE_STARTER" not in (process / "environ").read_text()
    assert str((process / "cwd").readlink()) == "/"
    assert os.getsid(pid) != os.getsid(starter.process.pid)
    opened = {fd.name: str(fd.readlink()) for fd in (process / "fd").iterdir()}
    assert opened["0"] == "/dev/null"
    assert opened["1"] == opened["2"]
    assert opened["1"].endswith(".log")
    theirs = {str(fd.readlink()) for fd in Path(f"/proc/{starter.process.pid}/fd").iterdir()}
    assert not {each for each in opened.values() if each.startswith("pipe:")} & theirs
    assert int((process / "stat").read_text().rpartition(")")[2].split()[1]) != starter.process.pid


def test_it_ends_when_nobody_needs_it(connect: Connect, folder: str) -> None:
    """It waits for a while, longer where something is held, and leaves locks and log only."""
    depot = connect(options={"idle_seconds": 0.2})
    pid = depot.status().pid
    committed = commit(depot, {"n": [1]})
    with pytest.raises(AssertionError):
        until(lambda: not runs(pid), "it ends", 0.8)
    with bow.connect(committed.endpoint) as stream:
        batch = stream.read_next_batch()
        depot.release("data")
        assert batch["n"].values.tolist() == [1]
        del batch
    until(lambda: not runs(pid), "it ends")
    assert sorted(os.listdir(folder)) == ["depot-5.life", "depot-5.log", "depot-5.start"]
    assert Path(folder, "depot-5.log").read_text() == ""
    assert depot.status().pid != pid, "the client does not find the next one"


@pytest.mark.parametrize("how", ["stop", "SIGTERM"])
def test_readers_keep_what_they_mapped_when_it_stops(connect: Connect, folder: str, how: str) -> None:
    """A batch that was read stays true when the depot ends; the rest of a stream is whole, or breaks."""
    depot = connect()
    pid = depot.status().pid
    endpoint = commit(depot, ({"n": [number]} for number in range(3000))).endpoint
    with bow.connect(endpoint) as stream:
        first = stream.read_next_batch()
        if how == "stop":
            depot.stop()
        else:
            os.kill(pid, signal.SIGTERM)
        until(lambda: not runs(pid), "it ends")
        assert first["n"].values.tolist() == [0]
        # What had come may be read: how much that is, the loop decides.
        with contextlib.suppress(bow.BrokenError):
            assert stream.read_all().num_rows == 2999
    assert not [name for name in os.listdir(folder) if name.endswith(".sock")]
    with pytest.raises(bow.BrokenError):
        bow.connect(endpoint)


def test_a_folder_that_others_may_enter_is_refused(folder: str) -> None:
    """Nobody else may put a depot in our way."""
    os.chmod(folder, 0o755)
    with pytest.raises(bow.UsageError, match="not private"):
        bow.depot.connect(folder=folder)
    os.chmod(folder, 0o700)


def test_why_it_cannot_be_started_is_said(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the depot stumbles over reaches whoever wanted it."""
    Path(folder, "depot-5.sock").write_text("in the way")
    with pytest.raises(bow.RefusedError, match="in the way of the socket"):
        bow.depot.connect(folder=folder)
    os.unlink(Path(folder, "depot-5.sock"))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(bow.RefusedError, match="/nowhere/python") as no_python:
        bow.depot.connect(folder=folder)
    os.unlink(Path(folder, "depot-5.log"))
    os.mkdir(Path(folder, "depot-5.log"))
    with pytest.raises(bow.RefusedError, match=r"directory.*depot-5\.log") as no_log:
        bow.depot.connect(folder=folder)
    assert len(os.listdir("/proc/self/fd")) == len(before), "errors that are kept keep no descriptor"
    del no_python, no_log


def test_one_that_says_nothing_is_not_waited_for(folder: str) -> None:
    """A depot that hangs costs its clients the time they gave, and no more."""
    with listen(f"unix:{folder}/depot-{VERSION}.sock"), pytest.raises(bow.DeadlineExceeded):
        bow.depot.connect(folder=folder, timeout=0.3)


# Versions.


def _ask(folder: str, verb: Verb, body: bytes) -> tuple[int | None, bytes]:
    with dial(f"unix:{folder}/depot-{VERSION}.sock") as channel:
        channel.send([Message(verb, [body])], WAIT)
        received = channel.receive(WAIT)
        assert received is not None
        return received.tag, bytes(received.body)


def test_another_version_is_refused(depot: bow.depot.Depot, folder: str) -> None:
    """A client of another version hears which one this is, and no more."""
    tag, said = _ask(folder, Verb.HELLO, MESSAGES[Verb.HELLO][0].pack({"version": VERSION + 1}))
    assert tag == Control.ERROR
    assert type(unpack_error(said)) is bow.RefusedError
    assert unpack_error(said).expected == f"version {VERSION}"
    assert depot.status().version == VERSION
