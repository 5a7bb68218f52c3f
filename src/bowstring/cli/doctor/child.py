"""Children that may hang, crash or talk nonsense: each line has a deadline, and none of them outlives its block."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from types import TracebackType
from typing import Any, Final, Self

from bowstring.errors import BrokenError

_MOST: Final = 1 << 20
_TAIL: Final = 4096
_TICK: Final = 0.05
GRACE_SECONDS: Final = 1.0
# Of one that was killed: on a busy machine it takes its time to end.
_REAPING: Final = 10.0


class ChildFault(BrokenError):
    """A child did not do what it was started for; the message says what it did."""


class Child:
    """A Python process in a group of its own that takes one JSON line, its order, and prints JSON lines.

    Leaving the ``with`` block closes its input, waits a moment, kills its group and reaps it.
    """

    def __init__(self, code: str, order: Any = None) -> None:
        self._process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603  our own program
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._out, self._err = self._process.stdout, self._process.stderr
        self._ahead = self._said = b""
        self._selector = selectors.DefaultSelector()
        for pipe in (self._out, self._err):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ)
        os.set_blocking(self._process.stdin.fileno(), False)
        if order is not None:
            self.tell(order)

    @property
    def pid(self) -> int:
        """Its process number, and that of its group."""
        return self._process.pid

    def tell(self, order: Any) -> None:
        """Send its order, one line that fits into a pipe: this does not wait, even if the child never reads."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")

    def line(self, seconds: float) -> Any:
        """Return what the next line says."""
        end = time.monotonic() + seconds
        while b"\n" not in self._ahead:
            if len(self._ahead) > _MOST:
                raise ChildFault("printed no line, but more than 1 MiB")
            left = end - time.monotonic()
            if left <= 0:
                raise ChildFault(f"did not answer within {seconds:g} s")
            # A process that it started may hold its pipes open, so its end is watched, too.
            ended = self._has_ended()
            if not self._read(0.0 if ended else min(left, _TICK)) and ended:
                raise ChildFault(self._how_it_ended())
        line, _, self._ahead = self._ahead.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError as error:
            raise ChildFault(f"talked nonsense: {line[:60].decode(errors='replace')!r}") from error

    def _read(self, seconds: float) -> bool:
        """Read what is there, waiting at most that long; return whether there was anything."""
        anything = False
        for key, _ in self._selector.select(seconds):
            part = os.read(key.fd, 1 << 16)
            anything = anything or bool(part)
            if not part:
                self._selector.unregister(key.fileobj)
            elif key.fileobj is self._out:
                # A longer line is cut, so that a child that writes for ever does not fill our memory.
                self._ahead += part if len(self._ahead) <= _MOST else b""
            else:
                self._said = (self._said + part)[-_TAIL:]
        if not self._selector.get_map():
            time.sleep(seconds)
        return anything

    def _has_ended(self) -> bool:
        # It is not reaped yet, so that its number, and that of its group, stay its own.
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _how_it_ended(self) -> str:
        status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        assert status is not None
        if status.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
            how = "killed by" if status.si_status in (signal.SIGKILL, signal.SIGTERM) else "crashed with"
            return f"{how} signal {status.si_status} ({signal.Signals(status.si_status).name})"
        lines = self._said.decode(errors="replace").strip().splitlines()
        return f"ended with exit code {status.si_status}{': ' + lines[-1].strip() if lines else ''}"

    def fault(self, seconds: float = 0.0) -> str | None:
        """Return how it ended, ``None`` while it runs, after waiting for its end for so long."""
        end = time.monotonic() + seconds
        while not self._has_ended() and time.monotonic() < end:
            self._read(_TICK / 5)
        return self._how_it_ended() if self._has_ended() else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            assert self._process.stdin is not None
            self._process.stdin.close()
            end = time.monotonic() + (GRACE_SECONDS if kind is None else 0.0)
            while time.monotonic() < end and not self._has_ended():
                self._read(_TICK / 5)
        finally:
            self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_REAPING)
        self._selector.close()
        self._out.close()
        self._err.close()


def be_a_child() -> tuple[Any, Any]:
    """Return the order that a :class:`Child` was given, and a function that prints an answer.

    What libraries print goes where the errors go, so that it does not mix with the answers.
    """
    own = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(answer: Any) -> None:
        own.write(json.dumps(answer) + "\n")

    return json.loads(sys.stdin.readline()), say
