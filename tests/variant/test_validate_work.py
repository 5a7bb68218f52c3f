"""Validation's work is bounded by the length of what it looks at, whatever the offsets share."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from bowstring import variant
from bowstring.kernels import host
from bowstring.kernels.signature import Signature
from bowstring.kernels.types import i64
from tests.variant.encoding import array_bytes, metadata_bytes, object_bytes
from tests.variant.get_columns import column_of
from tests.variant.hostile import Pair
from tests.variant.test_validate import EMPTY, nested, shared_bomb, text_bomb

READS_A_BYTE = 20
"""So many elements may be read for each byte of metadata and value; shared text is read 16 times."""
READS_A_ROW = 100


class Counted:
    """An array that counts what is read of it."""

    reads = 0

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> Any:
        Counted.reads += 1
        return self.array[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[index] = value

    def __len__(self) -> int:
        return len(self.array)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpret kernels, and count what they read."""

    def run(signature: Signature, items: int, arguments: tuple[Any, ...]) -> None:
        wrapped = [Counted(each) if isinstance(each, np.ndarray) else each for each in arguments]
        with np.errstate(all="ignore"):
            for item in range(items):
                signature.kernel(i64(item), *wrapped)

    monkeypatch.setenv("BOWSTRING_KERNELS", "interpret")
    monkeypatch.setattr(host, "interpret", run)


def reads_of(row: Pair) -> int:
    """Return how many elements of all arrays a full validation reads."""
    Counted.reads = 0
    variant.validate(column_of([row], "binary"))
    return Counted.reads


def shared_objects(fields: int, levels: int) -> Pair:
    """Return objects in objects, all of whose fields are one and the same child."""
    metadata = metadata_bytes([f"{number:04}" for number in range(fields)])
    value = b"\x04"
    for _ in range(levels):
        own = object_bytes([(number, b"") for number in range(fields - 1)] + [(fields - 1, value)])
        value = own  # every field but the last begins where the last one does
    return metadata, value


def wandering_arrays(size: int, drawn: random.Random) -> Pair:
    """Return an array of arrays whose offsets lead to any value behind them, and many to the same."""
    inner = array_bytes([b"\x04"] * 40)
    bodies = [bytearray(array_bytes([inner] * 6)) for _ in range(size)]
    starts = [6 * len(inner) - 1, *range(0, 6 * len(inner), len(inner))]
    for body in bodies:
        width = (body[0] >> 2 & 3) + 1
        for place in range(2, 2 + 6 * width, width):
            body[place : place + width] = drawn.choice(starts).to_bytes(width, "little")
    return EMPTY, array_bytes([bytes(each) for each in bodies])


HOSTILE: dict[str, Pair] = {
    "children shared on every level": (EMPTY, shared_bomb(60)),
    "a text shared by thousands": (EMPTY, text_bomb(2000)),
    "deep": (EMPTY, nested(60)),
    "wide": (EMPTY, array_bytes([b"\x04"] * 3000)),
    "objects of shared fields": shared_objects(40, 12),
    "offsets that lead anywhere": wandering_arrays(20, random.Random(1)),
    "long names that differ late": (
        metadata_bytes(["x" * 3000 + "b", "x" * 3000 + "a"], sorted_flag=False),
        array_bytes([object_bytes([(1, b"\x04"), (0, b"\x04")])] * 50),
    ),
    "many names in no order": (
        metadata_bytes([f"{number:05}" for number in range(2000, 0, -1)], sorted_flag=False),
        object_bytes([(number, b"\x04") for number in range(1999, -1, -1)]),
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_reads_are_bounded_by_the_length(name: str, counted: None) -> None:
    """However children, texts and names are shared, so many reads for each byte are enough."""
    metadata, value = HOSTILE[name]
    assert reads_of(HOSTILE[name]) <= READS_A_BYTE * (len(metadata) + len(value)) + READS_A_ROW


def test_the_count_counts(counted: None) -> None:
    """Twice the elements take about twice the reads: the bound is one that work can pass."""
    once, twice = (reads_of((EMPTY, array_bytes([b"\x04"] * count))) for count in (300, 600))
    assert 1.8 < twice / once < 2.2
