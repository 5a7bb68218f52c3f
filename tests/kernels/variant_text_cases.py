"""Example arguments for the kernels that write Variants as JSON, and that compare them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bowstring.kernels.signature import Kernel
from bowstring.kernels.variant import equals as equality
from bowstring.kernels.variant.text import writer as text
from tests.kernels.variant_cases import BLOCK, DEPTH, DICTIONARIES, bits, laid_out, marks_of, rows_of

Case = tuple[int, tuple[Any, ...]]

# As they are written by `quote_names`: what the metadata of the cases hold.
NAMES = [
    [b"a", b"b", "é".encode(), "\U0001f3f9".encode()],
    [b"b", b"a", b"a", "\U0001f3f9".encode()],
    [],
    [],
    [b"b", b"a"],
]
COUNTS = np.array([4, 4, -1, -1, 2])


def quoted() -> tuple[np.ndarray[Any, Any], ...]:
    """Return bases, counts, ends and text of the names."""
    parts = [b',"' + name + b'":' for names in NAMES for name in names]
    bases = np.cumsum([0, *map(len, NAMES)])[:-1]
    ends = np.cumsum([0, *map(len, parts)])
    return bases, COUNTS.copy(), ends, np.frombuffer(b"".join(parts) + bytes(8), np.uint8)


def quoting(rng: np.random.Generator) -> Iterator[Case]:
    broken = [
        b'\x01\x01\x00\x03a"\x01',
        b"\x01\x01\x00\x01\xff",
        b"\x41\x01\x00\x00\x00\x0c\x00abcdefgh\n\\\x1fk",
    ]
    starts, stops, data = laid_out([*DICTIONARIES, *broken], np.int64)
    count = len(starts)
    for spark in (0, 1):
        for room in (0, 30):
            begins = np.arange(count) * room
            yield (
                count,
                (
                    *(starts, stops, data, spark, np.arange(count) * 3, begins, begins + room),
                    *(np.zeros(count, np.int64), np.zeros(count, np.int64)),
                    *(np.zeros(count * 2, np.int64), np.zeros(max(count * room - 3, 0), np.uint8)),
                ),
            )


def written(rng: np.random.Generator) -> Iterator[Case]:
    starts, stops, data, classes = rows_of()
    rows = len(starts)
    items = -(-rows // BLOCK)
    for spark, room in ((0, 0), (0, 60), (1, 1000)):
        begins = np.arange(items) * room
        yield (
            items,
            (
                *(
                    BLOCK,
                    bits(rng, rows),
                    starts,
                    stops,
                    data,
                    classes,
                    marks_of(),
                    *quoted(),
                ),
                *(DEPTH, spark, begins, begins + room),
                # What is left in the room is part of what must agree.
                np.zeros(items * (DEPTH + 1) * int(text.WORDS), np.uint64),
                *(np.zeros(rows, np.uint8), np.zeros(rows, np.int64), np.zeros(items * room, np.uint8)),
            ),
        )


def compared(rng: np.random.Generator) -> Iterator[Case]:
    starts, stops, data, classes = rows_of()
    rows = len(starts)
    bases, _, ends, names = quoted()
    items = -(-rows // BLOCK)
    for move in (0, 1, len(np.unique(starts))):
        sides: list[Any] = []
        for shift in (0, move):
            places = [np.roll(each, shift) for each in (starts, stops)]
            statuses = np.where(rng.random(rows) < 0.9, 0, 6).astype(np.uint8)
            sides += (*places, data, np.roll(classes, shift), bases, ends, names, statuses)
        room = np.zeros(items * DEPTH * int(equality.WORDS), np.uint64)
        yield items, (BLOCK, *sides, DEPTH, room, np.zeros(rows, np.uint8))


CASES: dict[Kernel, Callable[[np.random.Generator], Iterator[Case]]] = {
    text.quote_names: quoting,
    text.write_text: written,
    equality.compare_values: compared,
}
