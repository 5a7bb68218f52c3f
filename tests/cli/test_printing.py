from __future__ import annotations

import contextlib
import io
import os
import pty
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.cli.terminal import Branch, clipped, print_table, print_tree, progress, shown


@given(st.text())
def test_foreign_text_cannot_command_the_terminal(text: str) -> None:
    """Whatever a peer calls its columns, only printable characters are printed."""
    assert shown(text).isprintable()


@given(st.text(), st.integers(1, 40))
def test_clipped_text_fits(text: str, width: int) -> None:
    """Clipped text is never longer than its place, and unchanged where it fits."""
    assert len(clipped(text, width)) <= width
    assert clipped(text, max(len(text), 1)) == text


@given(st.lists(st.lists(st.text(max_size=8), min_size=2, max_size=2), max_size=5))
def test_plain_tables_are_aligned(rows: list[list[str]]) -> None:
    """Every row of a table has a line, and numbers end in one column."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print_table(["name", "number"], rows, right=[1])
    lines = out.getvalue().removesuffix("\n").split("\n")
    assert len(lines) == len(rows) + 2
    assert max(map(len, lines)) == len(lines[1])


def test_a_tree_draws_every_branch() -> None:
    """Lines hang where they belong, and the last one of each branch closes it."""
    root = Branch("a")
    root.add("b").add("c\x1b")
    root.add("d")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print_tree(root)
    assert out.getvalue() == "a\n├── b\n│   └── c\\x1b\n└── d\n"


def test_no_progress_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to a stderr that is no terminal."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    with progress("fetch", 10) as advance:
        advance(10, 100)
    assert out.getvalue() == ""


@pytest.mark.parametrize("rows", [None, 0, 10])
def test_progress_on_a_terminal(rows: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the last state stands there at the end."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        with progress("fetch", rows) as advance:
            advance(6, 48)
            advance(4, 32)
    assert "10 rows, 80 bytes" in said_on(ours)


def said_on(terminal: int) -> str:
    """Read what was written on a terminal whose other end is closed."""
    parts = []
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 1 << 16):
            parts.append(part)
    os.close(terminal)
    return b"".join(parts).decode()
