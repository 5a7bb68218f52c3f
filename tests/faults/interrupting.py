"""An interrupt before any line of ours, as Ctrl-C or a handler of signals raises it."""

from __future__ import annotations

import ast
import functools
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, TypeVar

import bowstring as bow

_OURS: Final = str(Path(bow.__file__).parent)
_T = TypeVar("_T")
_OF_CONDITIONS: Final = {
    each.__code__
    for each in vars(threading)["Condition"].__dict__.values()
    if getattr(each, "__name__", "") in {"__enter__", "__exit__"}
}
_OF_LOCKS: Final = {"acquire", "release", "__enter__", "__exit__"}
_OPENING: Final = (os.eventfd, os.memfd_create, os.open, os.pidfd_open)
_LOCKS: Final = (type(threading.Lock()), type(threading.RLock()))
# Their bodies are clean-up, which nothing that runs in the same thread can guard against a second interrupt.
_ENDING: Final = frozenset({"close", "__exit__", "__del__", "abandon", "fail", "hang_up", "finish"})


class Interrupted(BaseException):
    """What a handler of signals may raise."""


def interrupted(
    call: Callable[[], _T], line: int, where: str = _OURS, but: str = ""
) -> tuple[_T | None, int]:
    """End a call before one of the lines of ours that it runs; return its result, and how many lines it has run.

    Or of those of another file, or folder, and not of a function that cleans up line by line.
    """
    seen = 0

    def on_line(_: FrameType, event: str, __: Any) -> Any:
        nonlocal seen
        seen += event == "line"
        if seen > line:
            sys.settrace(None)
            raise Interrupted
        return on_line

    before = sys.gettrace()
    sys.settrace(
        lambda frame, *_: (
            on_line if frame.f_code.co_filename.startswith(where) and frame.f_code.co_name != but else None
        )
    )
    try:
        return call(), seen
    except Interrupted:
        return None, seen
    finally:
        sys.settrace(before)


@functools.cache
def _cleaning(path: str) -> frozenset[int]:
    """Return the lines of a file that are clean-up, and those of ``try:``, where Python handles no signal."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(Path(path).read_text())):
        blocks: list[ast.AST] = []
        if isinstance(node, ast.Try):
            blocks = [*node.handlers, *node.finalbody]
            # Behind ``with lock:`` only a tracer could end a block there whose lock is not given back.
            lines.add(node.lineno)
        elif isinstance(node, ast.FunctionDef) and node.name in _ENDING:
            blocks = [node]
        for block in blocks:
            lines.update(range(block.lineno, (block.end_lineno or block.lineno) + 1))  # type: ignore[attr-defined]
    return frozenset(lines)


@functools.cache
def _blocks(path: str) -> dict[int, tuple[int, int]]:
    """Return the first and last line of each ``with`` block, whose own line comes again when it is left."""
    withs = [node for node in ast.walk(ast.parse(Path(path).read_text())) if isinstance(node, ast.With)]
    return {each.lineno: (each.body[0].lineno, each.body[-1].end_lineno or each.lineno) for each in withs}


class Interrupter:
    """Raises KeyboardInterrupt before the n-th line that a call runs, of ours or of ``Thread.start``."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._last: dict[FrameType, int] = {}
        self.lines = 0
        self.place = ""

    def run(self, call: Callable[[], object]) -> bool:
        """Return whether the call was interrupted."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
            self._last.clear()  # which holds frames
        return False

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        path = frame.f_code.co_filename
        in_start = path == threading.__file__ and frame.f_code.co_name == "start"
        if not in_start and not path.startswith(_OURS):
            return None
        outer = frame.f_back
        while outer is not None:
            path = outer.f_code.co_filename
            if path.startswith(_OURS) and outer.f_lineno in _cleaning(path):
                return None
            outer = outer.f_back
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event != "line":
            return self._line
        path, line = frame.f_code.co_filename, frame.f_lineno
        before = self._last.get(frame, 0)
        self._last[frame] = line
        if path.startswith(_OURS):
            first, last = _blocks(path).get(line, (1, 0))
            if line in _cleaning(path) or first <= before <= last:
                return self._line
        self.lines += 1
        if self.lines == self._number:
            self.place = f"{path}:{line} in {frame.f_code.co_name}"
            sys.settrace(None)
            raise KeyboardInterrupt
        return self._line


class InterrupterAtLocks:
    """Raises KeyboardInterrupt behind the n-th call of a lock's methods: there Python handles signals."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.lines = 0
        self.place = ""

    def run(self, call: Callable[[], object]) -> bool:
        """Return whether the call was interrupted."""
        before = sys.getprofile()
        sys.setprofile(self._event)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(before)
        return False

    def _is_place(self, code: CodeType, event: str, function: Any) -> bool:
        if event != "c_return":
            return event == "call" and code in _OF_CONDITIONS
        is_lock = isinstance(getattr(function, "__self__", None), _LOCKS)
        is_ours = code in _OF_CONDITIONS or code.co_filename.startswith(_OURS)
        return is_lock and is_ours and function.__name__ in _OF_LOCKS

    def _event(self, frame: FrameType, event: str, function: Any) -> None:
        code = frame.f_code
        if not self._is_place(code, event, function):
            return
        outer: FrameType | None = frame
        while outer is not None:
            path = outer.f_code.co_filename
            if path.startswith(_OURS) and outer.f_lineno in _cleaning(path):
                return
            outer = outer.f_back
        self.lines += 1
        if self.lines == self._number:
            self.place = f"{code.co_filename}:{frame.f_lineno} in {code.co_name}, at {event}"
            sys.setprofile(None)
            raise KeyboardInterrupt


class InterrupterAtDescriptors(InterrupterAtLocks):
    """Raises KeyboardInterrupt behind the n-th call of ours that opens a descriptor, or receives some."""

    def _is_place(self, code: CodeType, event: str, function: Any) -> bool:
        return (
            event == "c_return"
            and code.co_filename.startswith(_OURS)
            and (function in _OPENING or getattr(function, "__name__", "") == "recvmsg_into")
        )
