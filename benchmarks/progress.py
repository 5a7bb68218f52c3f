"""One line on a terminal that says what is measured, how far it is, and about how long it still takes."""

from __future__ import annotations

import time
from typing import Final, TextIO

_CLEAR: Final = "\r\x1b[K"
_WIDTH: Final = 110


class Progress:
    """Draws the line, where `stream` is a terminal; elsewhere it is silent."""

    def __init__(self, stream: TextIO, cases: int) -> None:
        self._stream = stream if stream.isatty() else None
        self._cases = cases
        self._case = 0
        self._begun = time.monotonic()

    def next_case(self) -> None:
        """Count one more case."""
        self._case += 1

    def draw(self, case: str, line_up: str, done: int, of: int) -> None:
        """Show that so many rounds of a line-up are done; 0 of 0 while its data are made."""
        if self._stream is None:
            return
        if not done:
            self._begun = time.monotonic()
        how = f"round {done + 1} of {of}" if of else "preparing"
        if done and of:
            left = (time.monotonic() - self._begun) / done * (of - done)
            how += f", about {max(1, round(left))} s left"
        text = f"[{self._case}/{self._cases}] {case}: {line_up}: {how}"
        self._stream.write(_CLEAR + text[:_WIDTH])
        self._stream.flush()

    def clear(self) -> None:
        """Leave the line empty, for what is printed next."""
        if self._stream is not None:
            self._stream.write(_CLEAR)
            self._stream.flush()
