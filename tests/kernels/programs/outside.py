"""Kernels that read and write behind their arrays, by way of functions: prints what becomes of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from bowstring.kernels.launch import launch
from bowstring.kernels.types import i64

ONE = i64(1)


def at(data: Any, place: Any) -> Any:
    """Return one of the numbers."""
    return i64(data[place])


def store(out: Any, place: Any, number: Any) -> None:
    """Write one of the numbers."""
    out[place] = number


def read_ahead(i: Any, data: Any, out: Any) -> None:
    """Read the number behind."""
    out[i] = at(data, i + ONE)


def write_ahead(i: Any, data: Any, out: Any) -> None:
    """Write the number behind."""
    store(out, i + ONE, i64(data[i]))


SIGNATURES = {read_ahead: ("i64[], i64[]!",), write_ahead: ("i64[], i64[]!",)}


def main() -> None:
    """Launch them: over items whose reads and writes are inside, and over one more."""
    room = np.zeros(9, np.int64)  # what lies behind the arrays is ours too: unchecked, nothing breaks
    for kernel in (read_ahead, write_ahead):
        for items in (3, 4):
            try:
                launch(kernel, items, room[:4], room[4:8])
                print("done")
            except IndexError:
                print("refused")


if __name__ == "__main__":
    from tests.kernels.programs import outside

    outside.main()
