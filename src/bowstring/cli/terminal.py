"""What is written on the terminal: numbers, tables, trees, progress bars and errors."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from bowstring.errors import BowstringError, MissingDependency, UsageError

if TYPE_CHECKING:
    import argparse
    from types import FrameType

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_STEP = 1024


def size(nbytes: float) -> str:
    """Write a number of bytes."""
    if nbytes < _STEP:
        return f"{nbytes:,.0f} byte{'' if nbytes == 1 else 's'}"
    value = float(nbytes)
    for unit in _UNITS:
        value /= _STEP
        if value < _STEP or unit == _UNITS[-1]:
            break
    return f"{value:,.1f} {unit}"


def duration(seconds: float) -> str:
    """Write a time."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.2f} ms" if seconds < 1e-2 else f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.2f} s"


def number(value: int | None) -> str:
    """Write a count, ``?`` where nobody knows it."""
    return "?" if value is None else f"{value:,}"


def shown(text: object) -> str:
    """Return text as it may be printed: what a terminal would take as a command is spelled out."""
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in plain)


def clipped(text: str, width: int) -> str:
    """Return text that takes at most `width` places."""
    return text if len(text) <= width else text[: width - 1] + "…"


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: Sequence[int] = (),
) -> None:
    """Print a table to standard output."""
    cells = [[shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    lines = [_line(row, widths, right) for row in cells]
    if any(headings):
        heading = _line(headings, widths, right)
        rule = "─" * max(sum(widths) + 2 * (len(widths) - 1), 0)
        lines = [heading, rule, *lines]
    print("\n".join(lines))


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    aligned = [
        cell.rjust(width) if index in right else cell.ljust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(aligned).rstrip()


@dataclasses.dataclass(slots=True)
class Branch:
    """One line of a tree, and what hangs on it."""

    label: str
    branches: list[Branch] = dataclasses.field(default_factory=list)

    def add(self, label: str) -> Branch:
        """Hang a line on this one; return it."""
        branch = Branch(label)
        self.branches.append(branch)
        return branch


def print_tree(root: Branch) -> None:
    """Print a tree to standard output."""
    print(shown(root.label))
    for line in _tree_lines(root, ""):
        print(line)


def _tree_lines(branch: Branch, indent: str) -> Iterator[str]:
    for each in branch.branches:
        last = each is branch.branches[-1]
        yield f"{indent}{'└── ' if last else '├── '}{shown(each.label)}"
        yield from _tree_lines(each, indent + ("    " if last else "│   "))


Advance = Callable[[int, int], None]
"""Takes the rows and the bytes that came since the last time."""

_REDRAW_SECONDS = 0.1
_BAR_WIDTH = 30


def write_over(text: str) -> None:
    """Write a line on the terminal in the place of the one that was written before."""
    sys.stderr.write(f"\r{text}\x1b[K")
    sys.stderr.flush()


@contextlib.contextmanager
def progress(what: str, total: int | None) -> Iterator[Advance]:
    """Show on stderr how far the reading is, in one line that is written over, for the time of a ``with`` block."""
    if not sys.stderr.isatty():
        yield lambda _rows, _nbytes: None
        return
    began, drawn, all_rows, all_bytes = time.monotonic(), 0.0, 0, 0

    def draw() -> None:
        nonlocal drawn
        drawn = time.monotonic()
        done = f"{number(all_rows)} rows, {size(all_bytes)}, {duration(drawn - began)}"
        if total:
            filled = min(all_rows * _BAR_WIDTH // total, _BAR_WIDTH)
            done = f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {done}"
        write_over(f"{what} {done}")

    def advance(rows: int, nbytes: int) -> None:
        nonlocal all_rows, all_bytes
        all_rows, all_bytes = all_rows + rows, all_bytes + nbytes
        if time.monotonic() - drawn >= _REDRAW_SECONDS:
            draw()

    try:
        yield advance
    finally:
        draw()
        sys.stderr.write("\n")


FAILED = 1
USAGE = 2
INTERRUPTED = 130


def report(error: BowstringError | OSError, arguments: argparse.Namespace) -> int:
    """Say what went wrong on stderr, and on stdout as JSON where a program reads that; return the exit code.

    Text of a server that would move the cursor is spelled out.
    """
    if getattr(arguments, "debug", False):
        lines = "".join(traceback.format_exception(error)).splitlines()
        print("\n".join(map(shown, lines)), file=sys.stderr)
    paragraph = in_options(shown(" ".join(str(error).split())), arguments.command)
    stop = "" if paragraph.endswith((".", "!", "?")) else "."
    print(f"bowstring {arguments.command}: {paragraph}{stop}", file=sys.stderr)
    if getattr(arguments, "json", False):
        print(json.dumps({"error": as_json(error, arguments.command)}), flush=True)
    wrong_call = isinstance(error, UsageError) and not isinstance(error, MissingDependency)
    return USAGE if wrong_call else FAILED


def as_json(error: BaseException, command: str = "fetch") -> dict[str, str | None]:
    """Return an error as a program would like to read it; `command` is the one that failed."""
    hint = getattr(error, "hint", None)
    return {
        "kind": type(error).__name__,
        "message": in_options(str(error), command),
        "hint": None if hint is None else in_options(hint, command),
    }


# What errors say of Python's calls, and what that is on the command line.
_IN_OPTIONS: Final = tuple(
    (re.compile(pattern), option)
    for pattern, option in (
        (r"connect\(address, name\)", "bowstring COMMAND ADDRESS NAME"),
        (r"connect by the endpoint that publish\(\) returned", "give the whole URI that the server printed"),
        (r"token=secrets\.token_urlsafe\(\)", "--token auto"),
        (r"Give the server a token", "Start the server with --token auto"),
        (r"say plaintext=True", "give --plaintext"),
        (r"Say unbounded_requests=True", "Give --unbounded-requests"),
        (r"(give|Give) connect\(uri, name\)", r"\1 NAME"),
        (r"connect\(…, token=…\)|Endpoint\.with_token\(\)", "--token-file or BOWSTRING_TOKEN"),
        (r"connect\(tls=bow\.TlsConfig\(ca=…\)\)", "--tls-ca"),
        (r"(connect\(tls=bow\.)?TlsConfig\(cert=…, key=…\)\)?", "--tls-cert and --tls-key"),
        (r"found tls=… for", "found --tls-ca or --tls-cert for"),
        (r"connect\(\) again", "the command again"),
    )
)


def in_options(text: str, command: str = "fetch") -> str:
    """Return what an error says, with options of the command line where it names calls of Python."""
    for pattern, option in _IN_OPTIONS:
        text = pattern.sub(option.replace("COMMAND", command), text)
    return text


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
