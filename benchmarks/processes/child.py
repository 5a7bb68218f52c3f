"""Processes that a case starts: always by a fresh interpreter, always with deadlines, always reaped."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from types import TracebackType
from typing import Any, Self

_START_SECONDS = 60.0
_CALL_SECONDS = 120.0
_END_SECONDS = 10.0
_SHOWN = 2000


class ChildFailed(Exception):
    """A started process raised, ended, or did not answer in time."""


class Child:
    """An object in a process of its own. Use it in a ``with`` block."""

    def __init__(self, role: type | str, **arguments: Any) -> None:
        self._name = role if isinstance(role, str) else f"{role.__module__}:{role.__qualname__}"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the child
        self._pending = b""
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "bowstring.benchmarks.processes.role",
                    self._name,
                    json.dumps(arguments),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                # An interrupt of the terminal reaches the harness alone, which then ends its children.
                start_new_session=True,
            )
        except BaseException:
            self._errors.close()
            raise
        try:
            self.finish(_START_SECONDS)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def call(self, method: str, *, deadline: float = _CALL_SECONDS, **arguments: Any) -> Any:
        """Call a method of the object and return its result."""
        self.begin(method, **arguments)
        return self.finish(deadline)

    def begin(self, method: str, **arguments: Any) -> None:
        """Start a call; `finish` returns its result. One call at a time."""
        line = json.dumps({"method": method, "arguments": arguments}) + "\n"
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except OSError as error:
            raise ChildFailed(f"{self._name} ended: {self._said()}") from error

    def finish(self, deadline: float = _CALL_SECONDS) -> Any:
        """Return the result of the call that was begun."""
        answer = json.loads(self._line(time.monotonic() + deadline, deadline))
        if "error" in answer:
            raise ChildFailed(f"{self._name} raised {answer['error']}\n{self._said()}")
        return answer["result"]

    def _line(self, end: float, deadline: float) -> bytes:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while b"\n" not in self._pending:
            left = end - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise ChildFailed(f"{self._name} did not answer within {deadline:g} s: {self._said()}")
            read = os.read(fd, 1 << 16)
            if not read:
                raise ChildFailed(f"{self._name} ended without an answer: {self._said()}")
            self._pending += read
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _said(self) -> str:
        """Return the end of what the child wrote to standard error."""
        fd = self._errors.fileno()
        # The child writes through the same file position: it must not move.
        said = os.pread(fd, _SHOWN, max(0, os.fstat(fd).st_size - _SHOWN))
        return said.decode(errors="replace").strip()

    def close(self) -> None:
        """End the process: by asking, then by force. Idempotent."""
        if self._process.poll() is None:
            self._end()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._errors.close()

    def _end(self) -> None:
        assert self._process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._process.kill()  # it may be in the middle of something that nobody waits for any more
        self.close()
