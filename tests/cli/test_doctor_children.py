from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bowstring.cli.doctor import child as child_module
from bowstring.cli.doctor.child import Child, ChildFault
from bowstring.cli.doctor.trials import Outcome, Programs, Trial, run_trials
from bowstring.transport.socket_file import runtime_folder

HANG = "import time; time.sleep(600)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
SEGFAULT = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
NONSENSE = "print('nonsense', flush=True); import time; time.sleep(600)"
FLOOD = "print('x' * (3 << 20), flush=True); import time; time.sleep(600)"
LISTS = "while True: print('[1, 2]', flush=True)"
FAILS = "raise SystemExit('no such thing')"
LOUD = "import sys; sys.stderr.write('x' * (3 << 20)); sys.exit(3)"

FAULTS = {
    HANG: "did not answer within",
    DEAF: "did not answer within",
    SEGFAULT: "crashed with signal 11 (SIGSEGV)",
    KILLED: "killed by signal 9 (SIGKILL)",
    NONSENSE: "talked nonsense: 'nonsense'",
    FLOOD: "more than 1 MiB",
    FAILS: "ended with exit code 1: no such thing",
    LOUD: "ended with exit code 3: xxx",
}

# A producer that is there at once, and has nothing.
OFFERS = """
import json, sys
print(json.dumps({way: {"uri": "unix:/nowhere"} for way in ("unix", "tcp")}), flush=True)
sys.stdin.read()
"""

# Of these a consumer hangs, and no producer must be quick.
WITHOUT_PRODUCER = [Trial(str(number), "inproc") for number in range(9)]
ROADS = (Trial("mapped", "unix"), Trial("copied", "unix", "copy"), Trial("tcp", "tcp"), Trial("in", "inproc"))


def children() -> set[str]:
    """Return the numbers of our children, zombies included."""
    found: set[str] = set()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            found |= set((thread / "children").read_text().split())
    return found


@pytest.fixture(autouse=True)
def nothing_is_left(forked: None, no_leaks: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process, zombie, descriptor or socket is left behind a test; and nobody is waited for long."""
    monkeypatch.setattr(child_module, "GRACE_SECONDS", 0.2)
    with tempfile.TemporaryDirectory() as folder:  # one of its own: the path of a socket must be short
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        before = children()
        yield
        assert children() <= before
        assert os.listdir(runtime_folder()) == []


@pytest.mark.parametrize("code", FAULTS)
def test_a_child_that_fails(code: str) -> None:
    """Whatever a child does instead of answering is told, within the deadline."""
    with pytest.raises(ChildFault) as caught, Child(code, {}) as child:
        child.line(1.0 if "within" in FAULTS[code] else 10.0)
    assert FAULTS[code] in str(caught.value)


def test_a_child_answers() -> None:
    """An order comes in, answers come out line by line, and what a library prints does not mix with them."""
    code = (
        "from bowstring.cli.doctor.child import be_a_child\n"
        "order, say = be_a_child()\n"
        "say(order); print('a library says hello'); say({'n': 2})\n"
    )
    with Child(code, {"a": ["→", None]}) as child:
        assert child.line(10.0) == {"a": ["→", None]}
        assert child.line(10.0) == {"n": 2}
        with pytest.raises(ChildFault, match="ended with exit code 0: a library says hello"):
            child.line(10.0)


def test_grandchildren_go_too() -> None:
    """A process that a child started ends with it, and one that holds its pipes open keeps nobody waiting."""
    code = (
        "import os, subprocess; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); os._exit(4)"
    )
    with Child(code) as child:
        grandchild = child.line(10.0)
        started = time.monotonic()
        with pytest.raises(ChildFault, match="ended with exit code 4"):
            child.line(60.0)
        assert time.monotonic() - started < 30.0
    end = time.monotonic() + 10.0
    while Path(f"/proc/{grandchild}").exists() and state(grandchild) != "Z" and time.monotonic() < end:
        time.sleep(0.01)
    assert not Path(f"/proc/{grandchild}").exists() or state(grandchild) == "Z"  # somebody else's to reap


def state(pid: int) -> str:
    """Return the letter of a process's state."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def test_all_roads() -> None:
    """Every road of a host works, its bytes were looked at, and the stream says which one it was."""
    found = run_trials("cpu", ROADS, 30.0)
    assert [outcome.failure for outcome in found] == [None] * 4
    assert [outcome.path for outcome in found] == [
        "unix: mapped",
        "unix: mapped",
        "tcp: packed",
        "inproc: mapped",
    ]
    assert all(outcome.first_view is not None and outcome.first_view > 0 for outcome in found)
    assert {outcome.nbytes for outcome in found} == {found[0].nbytes}


@pytest.mark.parametrize("code", [*FAULTS, LISTS])
@pytest.mark.parametrize("side", ["producer", "consumer"])
def test_a_side_that_fails(side: str, code: str) -> None:
    """Whichever side hangs, crashes or talks nonsense, every trial has an outcome that names the side."""
    programs = Programs(producer=code) if side == "producer" else Programs(OFFERS, code)
    said = FAULTS.get(code, "talked nonsense")
    trials = WITHOUT_PRODUCER[:3] if "within" in said and side == "consumer" else ROADS[:3]
    found = run_trials("cpu", trials, 1.0 if "within" in said else 30.0, programs)
    first = found[0].failure
    assert first is not None
    assert first.startswith(f"the {side} ")
    assert said in first
    assert len(found) == 3
    assert all(outcome.failure for outcome in found)


DIES = """
import os, signal
from bowstring.cli.doctor import trials
take = trials._take
def dies(uri, mode, **options):
    if mode == "copy": os.kill(os.getpid(), signal.{signal})
    return take(uri, mode, **options)
trials._take = dies
trials.consume()
"""


@pytest.mark.parametrize("number", ["SIGSEGV", "SIGKILL"])
def test_a_road_that_kills(number: str) -> None:
    """A road that takes the consumer down is told so, and those behind it are tried all the same."""
    found = run_trials("cpu", ROADS, 30.0, Programs(consumer=DIES.format(signal=number)))
    assert [outcome.failure is None for outcome in found] == [True, False, True, True]
    assert number in str(found[1].failure)


KILLS = """
import os, signal
from bowstring.cli.doctor import trials
begin = trials.be_a_child
def dying():
    order, say = begin()
    def say_and_die(answer):
        say(answer)
        os.kill(os.getpid(), signal.SIGKILL)
    return order, say_and_die
trials.be_a_child = dying
trials.produce()
"""


# It might be quicker than the signal: it waits until nobody answers at the producer's socket.
WAITS = """
import socket, time
from bowstring.cli.doctor import trials
take = trials._take
def takes_late(uri, mode, **options):
    path = uri.partition("?")[0].removeprefix("unix:")
    answered, end = True, time.monotonic() + 20
    while answered and time.monotonic() < end:
        with socket.socket(socket.AF_UNIX) as probe:
            answered = probe.connect_ex(path) == 0
        time.sleep(0.01)
    return take(uri, mode, **options)
trials._take = takes_late
trials.consume()
"""


def test_a_producer_that_dies_later() -> None:
    """A producer that is killed after it offered its table is what failed, not its consumer."""
    found = run_trials("cpu", ROADS[:1], 30.0, Programs(KILLS, WAITS))
    assert found[0].failure == "the producer killed by signal 9 (SIGKILL)"


LIES = """
import pyarrow as pa
from bowstring.cli.doctor import trials
trials.sample = lambda: pa.table({"n": pa.array([1, 2, 3])})
trials.produce()
"""


def test_other_bytes() -> None:
    """A road that delivers something else than was sent does not work."""
    [found] = run_trials("cpu", ROADS[:1], 30.0, Programs(producer=LIES))
    assert "other bytes came than were sent" in str(found.failure)


def test_no_folder_for_sockets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where no socket can be made that is the outcome, with its hint, and nothing was started."""
    monkeypatch.setattr("bowstring.cli.doctor.trials.runtime_folder", lambda: str(tmp_path / "missing"))
    found = run_trials("cpu", ROADS[:2], 30.0)
    assert all(str(outcome.failure).startswith("UsageError: the socket's folder cannot") for outcome in found)
    assert all("name a socket in another folder" in str(outcome.hint) for outcome in found)
    assert all(str(outcome.hint) not in str(outcome.failure) for outcome in found)


def test_time_is_bounded() -> None:
    """Roads behind several that hang are not tried, and that is said."""
    found = run_trials("cpu", WITHOUT_PRODUCER, 0.3, Programs(OFFERS, HANG))
    assert found[-1] == Outcome("not tried: the paths before it took too long")


INTERRUPTED = """
import os, sys
from bowstring.cli import doctor, main
doctor.LOOK = f"import os, time; open({sys.argv[1]!r}, 'w').write(f'{{os.getpid()}}.'); time.sleep(600)"
sys.exit(main(["doctor"]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_doctor(number: signal.Signals, tmp_path: Path) -> None:
    """A doctor that is interrupted while somebody hangs ends at once, and takes everybody with it."""
    file = tmp_path / "pid"
    started = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(file)], stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + 60.0
        while not (file.exists() and file.read_text().endswith(".")) and time.monotonic() < end:
            time.sleep(0.01)
        hanging = int(file.read_text().rstrip("."))
        started.send_signal(number)
        _, said = started.communicate(timeout=60)
        assert started.returncode == 130, said.decode()
        assert state(hanging) == "Z" or not Path(f"/proc/{hanging}").exists()
    finally:
        started.kill()
        started.communicate()
