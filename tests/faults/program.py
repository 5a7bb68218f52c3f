"""A program in a process of its own, that a test talks to line by line, stops and kills."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent / "programs"
_WAIT: Final = 30.0


class Program:
    """A started program of the folder ``programs``.

    Parameters
    ----------
    name
        Its file, without ``.py``.
    arguments
        What it is called with.
    """

    def __init__(self, name: str, *arguments: str) -> None:
        self._name = " ".join((name, *arguments))
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the program
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-W", "error", str(_FOLDER / f"{name}.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._heard = b""
        self._reaped = False

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    def say(self, line: str = "") -> None:
        """Write a line to its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def hear(self, seconds: float = _WAIT) -> str:
        """Return the next line of its output; fail where none comes."""
        assert self._process.stdout is not None
        end = time.monotonic() + seconds
        while b"\n" not in self._heard:
            left = end - time.monotonic()
            if left <= 0:
                raise AssertionError(f"{self._name} says nothing more. {self._stacks()}")
            if select.select([self._process.stdout], [], [], left)[0]:
                part = os.read(self._process.stdout.fileno(), 65536)
                if not part:
                    raise AssertionError(f"{self._name} ended. {self._errors_so_far()}")
                self._heard += part
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()

    def stop(self) -> None:
        """Stop it, until `go_on`."""
        os.kill(self.pid, signal.SIGSTOP)
        end = time.monotonic() + _WAIT
        while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < end, "it does not stop"
            time.sleep(0.001)

    def go_on(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill it, and what it forked, and reap it."""
        if self._reaped:
            return
        self._reaped = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._close()

    def end(self, seconds: float = _WAIT) -> None:
        """Wait until it ends by itself; fail where it does not, or not with 0, or with words of complaint."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self._name} does not end. {self._stacks()}") from None
        complaint = self._errors_so_far()
        assert (code, complaint) == (0, ""), f"{self._name}: {code}\n{complaint}"
        self.kill()

    def _stacks(self) -> str:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        return self._errors_so_far()

    def _errors_so_far(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def _close(self) -> None:
        self._process.wait(_WAIT)
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
