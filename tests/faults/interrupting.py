"""An interrupt before any line of ours, as Ctrl-C or a handler of signals raises it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

import bowstring as bow

_OURS: Final = str(Path(bow.__file__).parent)
_T = TypeVar("_T")


class Interrupted(BaseException):
    """What a handler of signals may raise."""


def interrupted(call: Callable[[], _T], line: int, where: str = _OURS) -> tuple[_T | None, int]:
    """End a call before one of the lines of ours that it runs; return its result, and how many lines it has run.

    Or of those of another file, or folder.
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
    sys.settrace(lambda frame, *_: on_line if frame.f_code.co_filename.startswith(where) else None)
    try:
        return call(), seen
    except Interrupted:
        return None, seen
    finally:
        sys.settrace(before)
