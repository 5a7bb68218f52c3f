"""A parent of Pythons that tests start: it has imported Bowstring already, and forks them in a tenth of the time.

Inside `forked_pythons` whoever starts ``sys.executable`` by `subprocess` gets a process that a fresh interpreter
could be: its arguments, environment, folder, descriptors, session and parent are those that were asked for, and its
modules were imported, but not used. What cannot be had so is started anew: other flags, other variables that
an interpreter reads when it begins. Tests of imports, of flags and of what a process takes do not use it.

``BOWSTRING_TESTS_FRESH=1``, and a run that measures coverage, start every Python anew.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

_PYTHON: Final = sys.executable  # tests replace it
_HEAD: Final = struct.Struct("<I")
_REPLY: Final = struct.Struct("<q")
_HIGH: Final = 300  # above all descriptors that a child is given
_SUBREAPER: Final = 36  # PR_SET_CHILD_SUBREAPER
_PLAIN: Final = (-1, None, None, None, -1, None)  # no process group, group, groups, user, umask, function
# What an interpreter, or what it imports, reads once. That of the search path is handled.
_READ_ONCE: Final = ("PYTHON", "LD_", "LC_", "LANG", "NUMBA", "OMP_", "ARROW_", "MALLOC", "OPENSSL")
_HANDLED: Final = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
# No devices: a driver does not survive a fork.
_IMPORTED: Final = """
    bowstring bowstring.benchmarks.processes bowstring.benchmarks.profiling bowstring.cli bowstring.cli.doctor
    bowstring.depot.daemon bowstring.flight bowstring.ipc bowstring.parquet bowstring.server.server
    bowstring.transport.tls bowstring.variant bowstring.vortex argparse faulthandler numpy pyarrow.parquet
"""


class Zygote:
    """The process that forks, as the tests see it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, its = socket.socketpair()
        with its:
            command = [_PYTHON, "-P", __file__, str(its.fileno())]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(its.fileno(),))
        self._begun = dict(os.environ)

    def close(self) -> None:
        """End it; what it forked goes on."""
        self._socket.close()
        self._process.wait(30.0)

    def fork(self, asked: dict[str, Any], descriptors: dict[int, int]) -> int:
        """Return the number of a process, a child of this one, that has some descriptors by other numbers."""
        asked |= {"numbers": list(descriptors), "parent": os.getpid()}
        text = json.dumps(asked).encode()
        # It begins once nobody is adopted any more: what it starts and leaves behind is not to be ours.
        waits, goes = os.pipe()
        try:
            with self._lock, _adopting():
                given = [*descriptors.values(), waits]
                socket.send_fds(self._socket, [_HEAD.pack(len(text))], given)
                self._socket.sendall(text)
                reply = self._socket.recv(_REPLY.size, socket.MSG_WAITALL)
            os.write(goes, b"\0")
        finally:
            os.close(waits)
            os.close(goes)
        return int(_REPLY.unpack(reply)[0])

    def takes(self, environment: dict[str, str]) -> bool:
        """Whether a Python that begins with an environment would be as this one's children are."""
        return all(
            self._begun.get(name) == value
            for name, value in environment.items()
            if name.startswith(_READ_ONCE) and name not in _HANDLED
        )


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Let a process whose parent ends be a child of this one."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_SUBREAPER, 0, 0, 0, 0)


def can_fork() -> bool:
    """Whether Pythons may be forked in this run."""
    # Numba imports `coverage` without measuring anything.
    coverage = sys.modules.get("coverage")
    measured = any(name.startswith(("COVERAGE_", "COV_")) for name in os.environ)
    measured = measured or (coverage is not None and coverage.Coverage.current() is not None)
    return not (measured or os.environ.get("BOWSTRING_TESTS_FRESH"))


@contextlib.contextmanager
def forked_pythons(zygote: Zygote | None) -> Iterator[None]:
    """Let Pythons that this process starts be forked by another one, where that makes no difference."""
    if zygote is None:
        yield
        return
    module: Any = subprocess
    real = module._fork_exec

    def fork_exec(
        arguments: Sequence[Any],
        executables: Sequence[bytes],
        close: bool,
        kept: Sequence[int],
        folder: Any,
        environment: Sequence[bytes] | None,
        *others: Any,
    ) -> int:
        stdin, _, _, stdout, _, stderr, heard, told, restores, session = others[:10]
        words = [os.fsdecode(each) for each in arguments]
        given = dict(os.environ)
        if environment is not None:
            given = dict(os.fsdecode(each).split("=", 1) for each in environment)
        plain = words[0] == _PYTHON and close and restores and others[10:16] == _PLAIN
        way = _way_of(words[1:]) if plain and zygote.takes(given) else None
        if way is None:
            return int(real(arguments, executables, close, kept, folder, environment, *others))
        # `subprocess` hears of errors by a pipe of its own: there are none.
        descriptors = {each: each for each in kept if each not in (heard, told)}
        for number, fd in enumerate((stdin, stdout, stderr)):
            descriptors[number] = number if fd < 0 else fd
        asked = {
            "way": way,
            "environment": given,
            "folder": os.getcwd() if folder is None else os.fsdecode(folder),
            "session": bool(session),
        }
        return zygote.fork(asked, descriptors)

    module._fork_exec = fork_exec
    try:
        yield
    finally:
        module._fork_exec = real


def _way_of(words: list[str]) -> dict[str, Any] | None:
    """Return what the arguments of an interpreter ask for; nothing where they ask for more than we have."""
    way: dict[str, Any] = {"safe": False, "warnings": [], "faults": False}
    while words:
        word, *words = words
        if word == "-P":
            way["safe"] = True
        elif word == "-W" and words[:1] == ["error"]:
            way["warnings"] += words[:1]
            del words[0]
        elif word == "-X" and words[:1] == ["faulthandler"]:
            way["faults"] = True
            del words[0]
        elif word in ("-c", "-m") and words:
            return way | {"kind": word, "what": words[0], "arguments": words[1:]}
        elif not word.startswith("-"):
            return way | {"kind": "script", "what": word, "arguments": words}
        else:
            return None
    return None


# From here on: the zygote, and what it forks


def _serve(sock: socket.socket) -> dict[str, Any]:
    """Fork a process for each request; return in one of those, with what it is to do."""
    while True:
        head, descriptors, _, _ = socket.recv_fds(sock, _HEAD.size, 64)
        if not head:
            os._exit(0)
        (size,) = _HEAD.unpack(head)
        asked: dict[str, Any] = json.loads(sock.recv(size, socket.MSG_WAITALL))
        heard, told = os.pipe()
        middle = os.fork()
        if not middle:
            if child := os.fork():
                os.write(told, _REPLY.pack(child))
                os._exit(0)
            while os.getppid() != asked["parent"]:
                time.sleep(0.0002)
            os.read(descriptors[-1], 1)
            _take(asked["numbers"], descriptors[:-1])
            return asked
        os.waitpid(middle, 0)
        reply = os.read(heard, _REPLY.size)
        for each in (heard, told, *descriptors):
            os.close(each)
        sock.sendall(reply)


def _take(numbers: list[int], descriptors: list[int]) -> None:
    """Have these descriptors by these numbers, and no others."""
    import fcntl

    held = [fcntl.fcntl(each, fcntl.F_DUPFD, _HIGH) for each in descriptors]
    os.closerange(0, _HIGH)
    for number, each in zip(numbers, held, strict=True):
        os.dup2(each, number)
    os.closerange(_HIGH, _HIGH + 2 * len(held) + 64)


def _become(asked: dict[str, Any]) -> None:
    """Be the process that was asked for."""
    way = asked["way"]
    if asked["session"]:
        os.setsid()
    os.chdir(asked["folder"])
    before = os.environ.get("PYTHONPATH", "")
    os.environ.clear()
    os.environ.update(asked["environment"])
    path = os.environ.get("PYTHONPATH", "")
    if path != before:
        sys.path[:] = list(dict.fromkeys([*filter(None, path.split(os.pathsep)), *sys.path]))
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for fd, name, errors in (
        (0, "stdin", "strict"),
        (1, "stdout", "strict"),
        (2, "stderr", "backslashreplace"),
    ):
        made: Any = open(fd, "w" if fd else "r", encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115  as long as we live
        if fd:
            made.reconfigure(line_buffering=fd == 2 or made.isatty(), write_through=unbuffered)
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)
    for each in way["warnings"]:
        import warnings

        sys.warnoptions.append(each)
        warnings.simplefilter(each)
    if way["faults"]:
        import faulthandler

        faulthandler.enable()


def _run(asked: dict[str, Any]) -> None:
    """Run what was asked for as the main module."""
    import runpy
    import types

    way = asked["way"]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    kind, what = way["kind"], way["what"]
    first = {"-c": "", "-m": os.getcwd(), "script": os.path.dirname(os.path.abspath(what))}[kind]
    if not way["safe"]:
        sys.path.insert(0, first)
    sys.argv[:] = [{"-c": "-c", "-m": "-m", "script": what}[kind], *way["arguments"]]
    if kind == "-m":
        runner: Any = runpy
        runner._run_module_as_main(what)
        return
    code = what if kind == "-c" else Path(what).read_bytes()
    if kind == "script":
        main.__file__ = what
    exec(compile(code, "<string>" if kind == "-c" else what, "exec"), main.__dict__)


def _import_all() -> None:
    import gc
    import importlib
    import warnings

    # From Python 3.12 on; the threads are those of NumPy's and pyarrow's libraries, which survive a fork.
    warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
    for name in _IMPORTED.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as of_tests:
        _import_all()
        wanted = _serve(of_tests)
        of_tests.detach()
    _become(wanted)
    _run(wanted)
