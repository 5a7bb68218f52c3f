"""What the command line does when something goes wrong: one paragraph, and an exit code."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING

from bowstring.errors import BowstringError, MissingDependency, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["FAILED", "INTERRUPTED", "USAGE", "report", "terminable"]

FAILED = 1
USAGE = 2
INTERRUPTED = 130


def report(error: BowstringError | OSError, arguments: argparse.Namespace) -> int:
    """Say what went wrong on stderr, and on stdout as JSON where a program reads that; return the exit code.

    Examples
    --------
    >>> import argparse
    >>> report(UsageError("no such file", found="'x'"), argparse.Namespace(command="serve", json=True))
    {"error": {"kind": "UsageError", "message": "no such file; found 'x'", "hint": null}}
    2
    """
    if getattr(arguments, "debug", False):
        traceback.print_exception(error, file=sys.stderr)
    print(f"bowstring {arguments.command}: {_paragraph(error)}", file=sys.stderr)
    if getattr(arguments, "json", False):
        print(json.dumps({"error": as_json(error)}), flush=True)
    wrong_call = isinstance(error, UsageError) and not isinstance(error, MissingDependency)
    return USAGE if wrong_call else FAILED


def as_json(error: BaseException) -> dict[str, str | None]:
    """Return an error as a program would like to read it."""
    return {
        "kind": type(error).__name__,
        "message": str(error),
        "hint": getattr(error, "hint", None),
    }


def _paragraph(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if text.endswith((".", "!", "?")) else f"{text}."


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does, with everything cleaned up, for the time of a ``with`` block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
