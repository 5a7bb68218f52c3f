"""Example arguments for every kernel: what the compiled, the interpreted and the simulated run must agree on.

A kernel's cases hold what is right and what is wrong, so that both its ways are gone. They have few work items:
the CUDA simulator makes a thread of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bowstring.kernels import rearrange, validity
from bowstring.kernels.bitmap import with_words
from bowstring.kernels.signature import Kernel, match
from bowstring.kernels.validation import nested, text, values
from bowstring.kernels.validation.text import blocks_of
from tests.kernels import (
    geo_cases,
    ipc_cases,
    json_cases,
    parquet_cases,
    schema_cases,
    shredded_cases,
    variant_cases,
    variant_cast_cases,
    variant_text_cases,
    vortex_cases,
)

Array = np.ndarray[Any, Any]
Case = tuple[int, tuple[Any, ...]]

ROWS = 300
PIECES = ((0, 0), (3, 200), (5, 1), (7, 64), (0, 600), (13, 333))


def cases(kernel: Kernel) -> Iterator[Case]:
    """Yield numbers of work items, and arguments, the same ones every time."""
    yield from CASES[kernel](np.random.default_rng(7))


def written(kernel: Kernel, arguments: tuple[Any, ...]) -> list[Array]:
    """Return those of the arguments that the kernel writes."""
    signature, _ = match(kernel, arguments)
    return [each for each, kind in zip(arguments, signature.parameters, strict=True) if kind.written]


def some_bytes(rng: np.random.Generator, size: int) -> Array:
    return rng.integers(0, 256, size, np.uint8)


def some_bits(rng: np.random.Generator, bits: int) -> Array:
    return some_bytes(rng, -(-bits // 8))


def words_for(bits: int) -> Array:
    return np.zeros(-(-bits // 64), np.uint64)


def answers(rows: int = ROWS) -> Array:
    return np.zeros(blocks_of(rows), np.int64)


# Validity.


def bits_at(rng: np.random.Generator, bits: int) -> tuple[Array, Array, int]:
    """Return bits at an address of any kind, as a kernel takes them."""
    lead = int(rng.integers(0, 8))
    return with_words(some_bytes(rng, lead + -(-bits // 8))[lead:])


def one_bitmap(rng: np.random.Generator) -> Iterator[Case]:
    for start, length in PIECES:
        out = words_for(length)
        yield len(out), (*bits_at(rng, start + length), start, length, out)


def two_bitmaps(rng: np.random.Generator) -> Iterator[Case]:
    for start, length in PIECES:
        out = words_for(length)
        left, right = bits_at(rng, start + length), bits_at(rng, length + 1)
        yield len(out), (*left, start, *right, 1, length, out)


def counted_bitmap(rng: np.random.Generator) -> Iterator[Case]:
    lanes, counted = int(validity.LANES), int(validity.COUNTED)
    for start, length in (*PIECES, (2, 64 * lanes * counted + 65)):
        out = np.zeros(-(-length // (64 * lanes * counted)) * lanes, np.int64)
        yield len(out), (*bits_at(rng, start + length), start, length, out)


def expanded_bitmap(rng: np.random.Generator) -> Iterator[Case]:
    for start, length in PIECES:
        out = np.zeros(-(-length // 8), np.uint64)
        yield len(out), (some_bits(rng, start + length), start, out)


def flags(rng: np.random.Generator) -> Iterator[Case]:
    for _, length in PIECES:
        lead, out = int(rng.integers(0, 8)), np.zeros(-(-length // 32), np.uint32)
        yield len(out), (*with_words(rng.integers(0, 3, lead + length, np.uint8)[lead:]), out)


def rising(rng: np.random.Generator, count: int, dtype: Any) -> Array:
    return np.sort(rng.integers(0, 2000, count)).astype(dtype)


def broken(rng: np.random.Generator, array: Array, wrong: Any) -> Array:
    changed = array.copy()
    changed[rng.integers(1, len(array))] = wrong
    return changed


def some_offsets(rng: np.random.Generator) -> Iterator[Case]:
    for dtype in (np.int32, np.int64):
        right = rising(rng, ROWS + 1, dtype)
        for each in (right, broken(rng, right, -1), broken(rng, right, 5000), right[:1]):
            rows = len(each) - 1
            yield blocks_of(rows), (each, rows, 2000, answers(rows))


def list_views(rng: np.random.Generator) -> Iterator[Case]:
    for dtype in (np.int32, np.int64):
        starts, sizes = rng.integers(0, 1000, (2, ROWS)).astype(dtype)
        for one, other in (
            (starts, sizes),
            (broken(rng, starts, -1), sizes),
            (starts, broken(rng, sizes, 2000)),
        ):
            yield blocks_of(ROWS), (one, other, ROWS, 2000, answers())


def run_ends(rng: np.random.Generator) -> Iterator[Case]:
    for dtype in (np.int16, np.int32, np.int64):
        right = np.cumsum(rng.integers(1, 9, ROWS)).astype(dtype)
        for each in (right, broken(rng, right, 0)):
            yield blocks_of(ROWS), (each, ROWS, answers())


# Text.

WRITING = "plain, ägyptisch, 漢字, 🏹; "


def texts(rng: np.random.Generator) -> list[Array]:
    plain = np.frombuffer(b"bowstring" * 350, np.uint8)
    right = np.frombuffer((WRITING * 80).encode(), np.uint8)
    return [plain, right, broken(rng, right, 0xC0), some_bytes(rng, 1500)]


def whole_text(rng: np.random.Generator) -> Iterator[Case]:
    for data in texts(rng):
        for lead, start, stop in ((0, 0, len(data)), (0, 5, len(data) - 3), (3, 4, len(data))):
            room = np.zeros(len(data) + 16, np.uint8)
            moved = room[8 - lead :][: len(data)]  # so that whole words begin at `lead`
            moved[:] = data
            words = moved[lead : lead + (len(data) - lead) // 8 * 8].view(np.uint64)
            count = ((stop - lead) >> 3) + 1 - ((start - lead) >> 3)
            marks = np.zeros(-(-count // int(text.WORDS)), np.int64)
            yield len(marks), (moved, words, lead, start, stop, marks)


def text_starts(rng: np.random.Generator) -> Iterator[Case]:
    for dtype in (np.int32, np.int64):
        for data, worst in zip(texts(rng), (0, 1, 2, 2), strict=True):
            rows = rising(rng, ROWS + 1, dtype)
            yield blocks_of(ROWS), (rows, data, ROWS, len(data), np.array([worst]), answers())


def text_rows(rng: np.random.Generator) -> Iterator[Case]:
    for dtype in (np.int32, np.int64):
        for data in texts(rng):
            rows = rising(rng, ROWS + 1, dtype)
            yield blocks_of(ROWS), (rows, some_bits(rng, ROWS), data, ROWS, answers())


# Unions.


def children_of(count: int) -> Array:
    children = np.full(256, -1)
    children[np.arange(count) * 3] = np.arange(count)
    return children


def type_ids(rng: np.random.Generator) -> Iterator[Case]:
    right = rng.integers(0, 3, ROWS, np.uint8) * np.uint8(3)
    for ids in (right, broken(rng, right, 200)):
        yield blocks_of(ROWS), (ids, children_of(3), ROWS, answers())


def dense(rng: np.random.Generator) -> Iterator[Case]:
    ids = rng.integers(0, 3, ROWS, np.uint8) * np.uint8(3)
    right = np.arange(ROWS, dtype=np.int32)
    lengths = np.full(3, ROWS)
    for starts in (right, broken(rng, right, -1), broken(rng, right, 1)):
        firsts, lasts = np.zeros((2, 3 * blocks_of(ROWS)), np.int64)
        yield blocks_of(ROWS), (ids, starts, children_of(3), lengths, ROWS, firsts, lasts, answers())


def dense_order(rng: np.random.Generator) -> Iterator[Case]:
    ids = rng.integers(0, 3, ROWS, np.uint8) * np.uint8(3)
    right = np.arange(3 * blocks_of(ROWS))
    for firsts in (right, broken(rng, right, 0), broken(rng, right, -1)):
        yield 3, (ids, children_of(3), firsts, right, 3, ROWS, np.zeros(3, np.int64))


# Values.


def ranges(rng: np.random.Generator) -> Iterator[Case]:
    for dtype in (np.uint8, np.uint16, np.uint32, np.uint64):
        mask = int(np.iinfo(dtype).max)
        right = rng.integers(0, 100, ROWS).astype(dtype)
        for found in (right, broken(rng, right, 120)):
            for lowest in (0, mask - 3):
                yield blocks_of(ROWS), (found, some_bits(rng, ROWS), ROWS, lowest, mask, 104, answers())


def days(rng: np.random.Generator) -> Iterator[Case]:
    right = rng.integers(-9999, 9999, ROWS) * 86_400_000
    for found in (right, broken(rng, right, -1)):
        yield blocks_of(ROWS), (found, some_bits(rng, ROWS), ROWS, answers())


def wide_ranges(rng: np.random.Generator) -> Iterator[Case]:
    for limbs in (2, 4):
        right = rng.integers(0, 2**62, ROWS * limbs, np.uint64)
        right[limbs - 1 :: limbs] = 0
        bounds = np.full(2 * limbs, 2**64 - 1, np.uint64)
        bounds[:limbs] = 0
        bounds[0] = 5
        bounds[-1] = 0
        for words in (
            right,
            broken(rng, right, 2**64 - 1),
            rng.integers(0, 2**64 - 1, len(right), np.uint64),
        ):
            yield blocks_of(ROWS), (words, limbs, bounds.copy(), some_bits(rng, ROWS), ROWS, answers())


# Views.


def some_views(rng: np.random.Generator) -> Iterator[Case]:
    data = np.frombuffer((WRITING * 20).encode(), np.uint8)
    firsts, sizes = np.array([0, -1]), np.array([len(data), 50])
    right = np.zeros((ROWS, 4), np.uint32)
    for row in right:
        size, start = int(rng.integers(0, 30)), int(rng.integers(0, 300))
        row[0] = size
        if size <= 12:
            row[1:] = np.frombuffer(data[start : start + size].tobytes().ljust(12, b"\0"), np.uint32)
        else:
            row[1:] = (*np.frombuffer(data[start : start + 4].tobytes(), np.uint32), 0, start)
    for found in (right, np.where(rng.random(right.shape) < 0.01, np.uint32(1), right)):
        for is_text in (0, 1):
            parts = found.reshape(-1)
            bits = some_bits(rng, ROWS)
            broken = np.zeros(2, np.int64)
            yield (
                blocks_of(ROWS),
                (parts, bits, data, firsts, sizes, ROWS, is_text, broken, 0, answers()),
            )


# Bytes in the other order.


def elements(rng: np.random.Generator) -> Iterator[Case]:
    for width in (1, 2, 4, 8, 16, 32):
        data = some_bytes(rng, 7 * 32)
        yield -(-len(data) // int(rearrange.BLOCK)), (data, width - 1, np.zeros_like(data))


def slots(rng: np.random.Generator) -> Iterator[Case]:
    data = some_bytes(rng, 40 * int(rearrange.SLOT)).reshape(40, -1)
    data[::2, :3] = 0  # sizes of values that lie within a view, when read in the other order
    yield 40, (data.reshape(-1), np.zeros(data.size, np.uint8))


def some_pieces(rng: np.random.Generator) -> Iterator[Case]:
    source = rng.integers(0, 1 << 63, 150, np.uint64)
    for sizes in ((1,), (0, 256, 257), (40, 8, 7, 300), (1200,)):
        tiles = np.maximum(1, -(-np.array(sizes) // rearrange.TILE))
        begins = np.cumsum(tiles) - tiles
        at = rng.integers(0, 1200 - max(sizes) + 1, len(sizes))
        # They lie in the target in another order, with a tile that nobody writes at the end.
        table = np.concatenate([begins, tiles.sum() - begins - tiles, at, sizes]).astype(np.int64)
        out = rng.integers(0, 1 << 63, int(tiles.sum() + 1) * rearrange.TILE // 8, np.uint64)
        yield int(tiles.sum()) * rearrange.ITEMS_PER_TILE, (source, table, len(sizes), out)
    # Tables that say what is not so: nothing outside of the arrays is touched.
    for wrong in (
        [0, 0, -9, 64],
        [0, 0, 5000, 9],
        [0, 0, 1100, 900],
        [-3, 0, 0, 64],
        [0, -5, 0, 8],
        [0, 7, 0, 8],
        [0, 0, 0, -1],
    ):
        yield 16, (source, np.array(wrong, np.int64), 1, np.ones(32, np.uint64))
    yield 16, (source, np.zeros(3, np.int64), 1, np.ones(32, np.uint64))
    yield 16, (source, np.zeros(4, np.int64), 1, np.ones(3, np.uint64))


CASES: dict[Kernel, Callable[[np.random.Generator], Iterator[Case]]] = {
    validity.shift_bits: one_bitmap,
    validity.and_bits: two_bitmaps,
    validity.or_bits: two_bitmaps,
    validity.count_bits: counted_bitmap,
    validity.expand_bits: expanded_bitmap,
    validity.pack_flags: flags,
    nested.check_offsets: some_offsets,
    nested.check_list_views: list_views,
    nested.check_run_ends: run_ends,
    text.check_text: whole_text,
    text.check_starts: text_starts,
    text.check_text_rows: text_rows,
    nested.check_type_ids: type_ids,
    nested.check_dense: dense,
    nested.check_dense_order: dense_order,
    values.check_range: ranges,
    values.check_days: days,
    values.check_wide_range: wide_ranges,
    values.check_views: some_views,
    rearrange.swap_elements: elements,
    rearrange.swap_intervals: slots,
    rearrange.swap_views: slots,
    rearrange.gather_pieces: some_pieces,
}
CASES |= json_cases.CASES | variant_cases.CASES | variant_cast_cases.CASES | variant_text_cases.CASES
CASES |= shredded_cases.CASES | vortex_cases.CASES | geo_cases.CASES | parquet_cases.CASES
CASES |= ipc_cases.CASES | schema_cases.CASES
