"""Example arguments for the kernels of Vortex: right data, and data that point outside of their arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bowstring.kernels.signature import Kernel
from bowstring.kernels.vortex import encode, gather, numbers, pack, program, strings, unpack
from bowstring.vortex.message import Piece, array_message

Array = np.ndarray[Any, Any]
Case = tuple[int, tuple[Any, ...]]
Rng = np.random.Generator

ONES = {8: 0x0101010101010101, 16: 0x0001000100010001, 32: 0x100000001, 64: 1}
WIDTHS = (np.uint8, np.uint16, np.uint32, np.uint64)
SIGNED = (np.int8, np.int16, np.int32, np.int64)
NOTHING = np.zeros(0, np.uint8)
ROWS = 200


def any_numbers(rng: Rng, count: int, dtype: Any) -> Array:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, count, dtype, endpoint=True)


def faults() -> Array:
    return np.zeros(8, np.int64)


def packed_words(rng: Rng) -> Iterator[Case]:
    no_starts, none = np.zeros(0, np.int64), np.zeros(0, np.uint64)
    for bits, widths in ((8, (0, 3, 8)), (16, (5, 16)), (32, (7, 31)), (64, (13, 63, 64))):
        for width in widths:
            words = any_numbers(rng, 2 * 16 * width, np.uint64)
            both = np.array([3, 2**bits - 1], np.uint64)
            for references, zigzag, parts in ((none, 0, 0), (both[:1], 1, 0), (both, 0, 4), (none, 1, 4)):
                out = np.ones(2 * 16 * bits, np.uint64)
                arguments = (words, no_starts, references, width, bits.bit_length() - 1, ONES[bits])
                yield 2 << parts, (*arguments, zigzag, parts, out, faults())
    words = any_numbers(rng, 16 * 9, np.uint64)
    for starts in ([0, 16 * 2, 16 * 9], [0, 16 * 2, 16 * 10], [-16, 16, 5], [0, 160], [16, 16, 0]):
        out = np.ones(2 * 16 * 8, np.uint64)
        yield 2, (words, np.array(starts), none, 99, 3, ONES[8], 0, 0, out, faults())
    for width, room in ((5, 256), (1, 100), (-1, 256), (9, 256)):
        yield 2, (words, no_starts, none, width, 3, ONES[8], 0, 0, np.ones(room, np.uint64), faults())


def packed_floats(dtype: Any, bits: int) -> Callable[[Rng], Iterator[Case]]:
    def found(rng: Rng) -> Iterator[Case]:
        scale, inverse = dtype(1e3), dtype("1e-5")
        shared = 4 if bits == 64 else 5
        for width in (0, 7, bits - 1, bits):
            words = any_numbers(rng, 16 * width, np.uint64)
            for reference, zigzag, parts in (([], 0, 0), ([2**bits - 9], 1, 0), ([77], 0, shared)):
                references = np.array(reference, np.uint64)
                out = np.ones(1024, dtype)
                arguments = words, references, width, zigzag, scale, inverse, parts
                yield 1 << parts, (*arguments, out, faults())
                yield 2 << parts, (*arguments, out.copy(), faults())

    return found


def scattered(rng: Rng) -> Iterator[Case]:
    for dtype in WIDTHS:
        values = any_numbers(rng, 20, dtype)
        right = rng.permutation(100)[:20].astype(np.uint64) + np.uint64(7)
        for indices in (right, any_numbers(rng, 21, np.uint64)):
            yield len(indices), (indices, 7, values, np.zeros(100, dtype), faults())


def scattered_words(rng: Rng) -> Iterator[Case]:
    values = any_numbers(rng, 40, np.uint64)
    right = rng.permutation(50)[:20].astype(np.uint64) + np.uint64(7)
    for indices in (right, any_numbers(rng, 21, np.uint64)):
        yield len(indices), (indices, 7, values, 2, np.zeros(101, np.uint64), faults())


def some_codes(rng: Rng, dtype: Any, count: int) -> Iterator[tuple[Array, Array]]:
    bits = rng.integers(0, 256, ROWS // 8 + 2, np.uint8)
    yield rng.integers(0, count, ROWS).astype(dtype), NOTHING
    yield any_numbers(rng, ROWS, dtype), bits
    yield np.where(np.unpackbits(bits, bitorder="little")[3 : 3 + ROWS], 1, 255).astype(dtype), bits


def taken(rng: Rng) -> Iterator[Case]:
    for dtype in WIDTHS[:3]:
        for kind in WIDTHS:
            for codes, bits in some_codes(rng, dtype, 30):
                yield ROWS, (codes, any_numbers(rng, 30, kind), bits, 3, np.ones(ROWS, kind), faults())


def taken_words(rng: Rng) -> Iterator[Case]:
    for dtype in WIDTHS[:3]:
        values = any_numbers(rng, 61, np.uint64)
        for codes, bits in some_codes(rng, dtype, 30):
            yield ROWS, (codes, values, 2, bits, 3, np.ones(2 * ROWS, np.uint64), faults())


def taken_bits(rng: Rng) -> Iterator[Case]:
    for dtype in WIDTHS[:3]:
        for codes, bits in some_codes(rng, dtype, 30):
            out = np.ones(-(-ROWS // 32), np.uint32)
            yield len(out), (codes, bits, 5, 30, out)


def some_runs(rng: Rng) -> Iterator[Case]:
    for dtype in WIDTHS[2:]:
        right = np.cumsum(rng.integers(1, 9, 60)).astype(dtype)
        falling = right.copy()
        falling[20] = 3
        rows = int(right[-1]) - 5
        for kind in WIDTHS:
            values = any_numbers(rng, 60, kind)
            for ends, step in ((right, 64), (right[:40], 2), (falling, 64), (right[:0], 64)):
                out = np.ones(rows, kind)
                yield -(-rows // step), (ends, values, 5, rows, step, out, faults())


def some_blocks(rng: Rng) -> Iterator[Case]:
    indices = rng.integers(0, 9, 2048).astype(np.uint16)
    for kind in WIDTHS:
        values = any_numbers(rng, 12, kind)
        for starts in ([40, 45], [0, -3], [0, 12], [0], [0, 13], []):
            arguments = (
                indices,
                values,
                np.array(starts, np.int64),
                1000,
                rng.integers(0, 256, 5, np.uint8),
                2,
            )
            yield ROWS, (*arguments, np.ones(ROWS, kind), faults())
    yield 40, (indices[:1020], values, np.array([0]), 1000, NOTHING, 0, np.ones(40, np.uint64), faults())


def adjusted(rng: Rng) -> Iterator[Case]:
    for kind in SIGNED:
        up = 64 - 8 * np.dtype(kind).itemsize
        for references, zigzag in (([], 1), ([2**64 - 5], 0), ([17], 1)):
            values, added = any_numbers(rng, ROWS, kind), np.array(references, np.uint64)
            yield ROWS, (values, up, zigzag, added, np.ones(ROWS, kind))


def scaled(kind: Any, dtype: Any) -> Callable[[Rng], Iterator[Case]]:
    def found(rng: Rng) -> Iterator[Case]:
        for values in (any_numbers(rng, ROWS, kind), np.arange(ROWS, dtype=kind)):
            yield ROWS, (values, dtype("1e4"), dtype("1e-7"), np.ones(ROWS, dtype))

    return found


def joined(kind: Any, right_bits: int) -> Callable[[Rng], Iterator[Case]]:
    def found(rng: Rng) -> Iterator[Case]:
        lefts = any_numbers(rng, 5, np.uint16).astype(np.uint64)
        for codes, bits in some_codes(rng, np.uint16, 5):
            rights = any_numbers(rng, ROWS, kind) >> kind(16)
            yield ROWS, (codes, rights, lefts, right_bits, bits, np.ones(ROWS, kind), faults())

    return found


def left_patches(kind: Any, right_bits: int) -> Callable[[Rng], Iterator[Case]]:
    def found(rng: Rng) -> Iterator[Case]:
        lefts = any_numbers(rng, 20, np.uint16).astype(np.uint64)
        right = rng.permutation(100)[:20].astype(np.uint64) + np.uint64(7)
        for indices in (right, any_numbers(rng, 21, np.uint64)):
            yield len(indices), (indices, 7, lefts, right_bits, any_numbers(rng, 100, kind), faults())

    return found


def counted(rng: Rng) -> Iterator[Case]:
    for kind in SIGNED:
        up = 64 - 8 * np.dtype(kind).itemsize
        base, step = any_numbers(rng, 2, np.uint64)
        yield ROWS, (base, step, up, np.ones(ROWS, kind))


def deltas(rng: Rng) -> Iterator[Case]:
    for kind in SIGNED:
        size = np.dtype(kind).itemsize
        lanes = 128 // size
        bases, differences = any_numbers(rng, lanes, kind), any_numbers(rng, 1024, kind)
        for held, room in ((1024, 1024), (1000, 1024), (1024, 1000)):
            log = (8 * size).bit_length() - 1
            arguments = bases, differences[:held], log, 64 - 8 * size
            yield min(2 * lanes, 256), (*arguments, np.ones(room, kind), faults())


def parts(rng: Rng) -> Iterator[Case]:
    for kind in (*SIGNED, *WIDTHS[:3]):
        yield ROWS, (any_numbers(rng, ROWS, kind), 86_400_000_000, any_numbers(rng, ROWS, np.int64))


def widened(rng: Rng) -> Iterator[Case]:
    for kind in SIGNED:
        for words in (1, 2, 4):
            yield ROWS, (any_numbers(rng, ROWS, kind), words, np.ones(ROWS * words, np.uint64))


SYMBOLS = np.frombuffer(
    b"".join(each.ljust(8, b"\0") for each in (b"bow", b"string", b"x", b"eightlet")), np.uint8
)
LENGTHS = np.array([3, 6, 1, 8, 0, 9], np.uint8)


STEPS = (1, 4, 1024)


def fsst(rng: Rng) -> Iterator[Case]:
    rows = [bytes([0, 1]), b"", bytes([3, 3, 3, 2]), bytes([255, 200, 0]), bytes([2] * 11), bytes([1, 1, 1])]
    sizes = [9, 0, 25, 4, 11, 18]
    symbols, lengths = np.zeros(256, np.uint64), np.zeros(256, np.uint8)
    symbols[: len(SYMBOLS) // 8], lengths[: len(LENGTHS)] = SYMBOLS.view(np.uint64), LENGTHS
    ends = np.concatenate([[0], np.cumsum([len(each) for each in rows])])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    codes = np.frombuffer(b"".join(rows), np.uint8)
    for wrong in (None, 77, 4, 5, 255):
        changed = codes.copy()
        if wrong is not None:
            changed[[0, 5, -1]] = wrong
        out = np.ones(offsets[-1], np.uint8)
        for step in STEPS:
            yield (
                -(-len(rows) // step),
                (
                    *(changed, ends, symbols, lengths),
                    *(offsets, step, out.copy(), faults()),
                ),
            )
    for one, other in ((ends[::-1].copy(), offsets), (ends, offsets[::-1].copy()), (ends + 20, offsets)):
        out = np.ones(offsets[-1], np.uint8)
        for step in STEPS:
            yield (
                -(-len(rows) // step),
                (
                    *(codes, one, symbols, lengths),
                    *(other, step, out.copy(), faults()),
                ),
            )
    yield 1, (codes, ends, symbols[:9], lengths, offsets, 6, out, faults())


def onpair(rng: Rng) -> Iterator[Case]:
    tokens = np.frombuffer(b"bowstringx" + b"a much longer token" + bytes(16), np.uint8)
    starts = np.array([0, 3, 9, 10, 29])
    rows = [[0, 1], [], [2] * 30, [3, 3, 0], [1]]
    sizes = [9, 0, 30, 41, 6]
    ends = np.concatenate([[0], np.cumsum([len(each) for each in rows])])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    for kind in (np.uint16, np.uint32):
        codes = np.array([code for row in rows for code in row], kind)
        bad = codes.copy()
        bad[[0, -1]] = 4
        for each, places in (
            (codes, starts),
            (bad, starts),
            (codes, starts[::-1].copy()),
            (codes, starts + 40),
        ):
            out = np.ones(offsets[-1], np.uint8)
            for step in STEPS:
                yield -(-len(rows) // step), (each, ends, tokens, places, offsets, step, out.copy(), faults())
        out = np.ones(offsets[-1], np.uint8)
        yield len(rows), (codes, ends, tokens, starts, offsets + 9, 1, out, faults())


def views(rng: Rng) -> Iterator[Case]:
    data = any_numbers(rng, 300, np.uint8)
    for kind in (np.int32, np.int64):
        right = np.sort(rng.integers(0, 300, 41)).astype(kind)
        right[:14] = np.arange(14) * np.arange(14)
        wild = any_numbers(rng, 41, kind)
        for offsets in (np.sort(right), right[::-1].copy(), wild, (right + 250).astype(kind)):
            bits = rng.integers(0, 256, 6, np.uint8)
            yield 40, (offsets, data, 3, bits, 2, np.ones(80, np.uint64), faults())


def prefixed_views(rng: Rng) -> Iterator[Case]:
    sizes = [*range(16), 300, 0]
    values = [size.to_bytes(4, "little") + rng.bytes(size) for size in sizes]
    data = np.frombuffer(b"".join(values), np.uint8)
    wild = any_numbers(rng, 300, np.uint8)
    nulls = np.packbits(np.arange(40) % 3 > 0, bitorder="little")
    for each, bits, rows in (
        (data, nulls[:0], len(sizes)),
        (data, nulls, 20),
        (data, nulls, 40),
        (data[:-3], nulls[:0], len(sizes)),
        (data[:300], nulls[:0], len(sizes)),
        (wild, nulls, 20),
        (data[:0], nulls[:0], 0),
    ):
        yield 1, (each, bits, rows, np.ones(2 * rows, np.uint64), faults())


def converted(rng: Rng) -> Iterator[Case]:
    for kind in (*SIGNED[:3], *WIDTHS[:3]):
        yield ROWS, (any_numbers(rng, ROWS, kind), np.ones(ROWS, np.int64))
    for kind in WIDTHS[:2]:
        yield ROWS, (any_numbers(rng, ROWS, kind), np.ones(ROWS, np.int32))
    yield ROWS, (any_numbers(rng, ROWS, np.uint8), np.ones(ROWS, np.int16))


def orders(rng: Rng) -> Iterator[Case]:
    for kind in WIDTHS[2:]:
        for ends in (np.arange(9), np.array([3, 4, 4]), np.array([5, 2])):
            yield len(ends) - 1, (ends.astype(kind), faults())


def copied(rng: Rng) -> Iterator[Case]:
    for size, room in ((10_000, 10_000), (5, 3), (4096, 9000)):
        yield -(-size // 4096), (any_numbers(rng, size, np.uint8), np.ones(room, np.uint8))


def added(rng: Rng) -> Iterator[Case]:
    for kind in WIDTHS:
        for lengths in (any_numbers(rng, 20, kind), np.arange(9, dtype=kind), np.zeros(0, kind)):
            yield 1, (lengths, np.ones(len(lengths) + 1, np.int64))


def symbols(rng: Rng) -> Iterator[Case]:
    for held in (SYMBOLS, SYMBOLS[:17]):
        yield 256, (held, LENGTHS, np.ones(256, np.uint64), np.ones(256, np.uint8))


def body_of(*columns: Piece) -> Array:
    """Return the body of an array."""
    _, *parts = array_message(Piece("vortex.struct", children=columns), 5)
    return np.frombuffer(b"".join(map(bytes, parts)), np.uint8)


def some_bodies() -> Iterator[Array]:
    plain = Piece("vortex.primitive", b"", ((b"abcdefgh", 8),))
    packed = Piece("fastlanes.bitpacked", b"\x08\x03\x10\x02", ((bytes(384), 4), (b"xy", 1)), (plain, plain))
    yield body_of()
    yield body_of(plain, Piece("fastlanes.for", b"\x18\x05", (), (packed,)), plain)
    yield body_of(packed)


def trees(rng: Rng) -> Iterator[Case]:
    for body in some_bodies():
        for mutation in range(20):
            changed = body.copy()
            if mutation:
                at = rng.integers(max(len(body) - 200, 0), len(body), 2)
                changed[at] = rng.integers(0, 256, 2)
            for room in (100, 3):
                tables = [np.zeros(each, np.int64) for each in (40, 9, room, 60, 20, 4)]
                yield 1, (changed, 4096, len(body), *tables)


BODY = bytes([8, 200, 1, 0x1D, 1, 0, 0, 0, 0x12, 3, 7, 130, 1, 0x21, 9, 0, 0, 0, 0, 0, 0, 0, 8, 3])
"""A message: 1 twice, 3 as fixed32, 2 as packed numbers, 4 as fixed64."""


def code_of(*rows: tuple[Any, ...]) -> Array:
    return np.array(rows, np.int64).reshape(-1)


def computations(rng: Rng) -> Iterator[Case]:
    base = 1 << 20
    registers = np.zeros(60, np.int64)
    registers[:14] = 7, 3, -9, 1 << 40, 64, 128, 0, 1, base, len(BODY), 100, base + 3, 2**62, base + 9
    extra = [
        (program.FIELD, 3 << 8 | 6),
        (program.FIELD, 2 << 8 | 3),
        (program.FIELD, 4 << 8 | 2),
        (program.FIELD, 9 << 8),
        (program.FIELD, 1 << 8 | 1),
        (program.LAST, 1 << 8 | 1),
        (program.LAST, 2 << 8 | 1),
    ]
    rows: list[tuple[Any, ...]] = [(0, operation, 20, 8, 0, each) for operation, each in extra]
    pairs = ((0, 1), (2, 0), (3, 3), (12, 0))
    rows += [(0, operation, 21, *pair, 0) for operation in range(11) for pair in pairs]
    rows += [(0, program.ALLOCATE, 22, size, 0, arena) for size in (0, 2, 10) for arena in (0, 1)]
    rows += [(0, program.ALIGN, 24, address, 10, size << 8 | 1) for address in (11, 8) for size in (2, 8)]
    rows += [
        (0, program.ELEMENT, 26, at, 0, which << 8 | count)
        for at in (13, 8)
        for which, count in ((0, 2), (1, 2), (1, 3))
    ]
    body = np.frombuffer(BODY[:-2], np.uint8)
    for data in (body, body[:-1], body[:5], np.frombuffer(BODY, np.uint8)):
        for row in rows:
            changed = registers.copy()
            changed[9] = len(data)
            if row[1] == program.ELEMENT and row[3] == 13:
                changed[14] = 3
            yield 1, (data, base, np.array([0, 1, 0]), code_of(row), 0, np.ones(3, np.int64), changed)
    links = np.array([0, 2, 0, 2, 1, 30])
    code = code_of(
        (0, program.ALLOCATE, 22, 10, 0, 1), (1, program.ADD, 23, 0, 1, 0), (0, program.COPY, 20, 3, 0, 0)
    )
    for stage in (0, 1):
        yield 2, (body, base, links, code, stage, np.ones(6, np.int64), registers.copy())


CASES: dict[Kernel, Callable[[Rng], Iterator[Case]]] = {
    unpack.unpack_words: packed_words,
    unpack.unpack_doubles: packed_floats(np.float64, 64),
    unpack.unpack_singles: packed_floats(np.float32, 32),
    gather.scatter: scattered,
    gather.scatter_words: scattered_words,
    gather.gather: taken,
    gather.gather_words: taken_words,
    gather.gather_bits: taken_bits,
    gather.expand_runs: some_runs,
    gather.expand_blocks: some_blocks,
    numbers.adjust: adjusted,
    numbers.scale_doubles: scaled(np.int64, np.float64),
    numbers.scale_singles: scaled(np.int32, np.float32),
    numbers.join_doubles: joined(np.uint64, 48),
    numbers.join_singles: joined(np.uint32, 16),
    numbers.patch_doubles: left_patches(np.uint64, 48),
    numbers.patch_singles: left_patches(np.uint32, 16),
    numbers.count_up: counted,
    numbers.add_deltas: deltas,
    numbers.add_part: parts,
    numbers.widen: widened,
    numbers.convert: converted,
    gather.note_order: orders,
    gather.copy_bytes: copied,
    strings.add_lengths: added,
    strings.fill_symbol: symbols,
    program.read_nodes: trees,
    program.evaluate: computations,
    strings.decode_fsst: fsst,
    strings.decode_onpair: onpair,
    strings.make_views: views,
    strings.make_views_of_prefixed: prefixed_views,
}


def to_pack(rng: Rng) -> Iterator[Case]:
    for bits, width in ((8, 3), (8, 8), (16, 5), (32, 31), (64, 1), (64, 50)):
        log = bits.bit_length() - 1
        values = any_numbers(rng, 2 * 16 * bits, np.uint64)
        for zigzag, reference, room in (
            (0, 0, 2 * 16 * width),
            (1, 3 * ONES[bits], 2 * 16 * width),
            (0, 0, 20),
        ):
            out = np.ones(room, np.uint64)
            yield 2, (values, width, log, ONES[bits], zigzag, reference, out)


def texts_to_code() -> tuple[Any, ...]:
    rows = [b"bowstring bow", b"", b"x", b"strings of bows\0", b"\xff\xfe", b"bo", b"bow"]
    sample = np.frombuffer(b"bowstring bow of strings" * 5, np.uint8)
    table = encode.train_fsst(sample, np.arange(0, len(sample) + 1, len(sample) // 5))
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in rows])])
    return np.frombuffer(b"".join(rows), np.uint8), offsets, *table[2:]


def trained_symbols(rng: Rng) -> Iterator[Case]:
    """Texts of few words, of all bytes, and of none; rows, rooms and tables that do not fit."""

    def arguments(text: Any, offsets: Any, slots: int, room: int, symbols: int = 255) -> Case:
        tables = np.ones(256, np.uint16), np.ones(65536, np.uint16), *np.ones((2, pack.SLOTS), np.uint64)
        found = np.zeros(symbols, np.uint64), np.zeros(255, np.uint8)
        scratch = np.zeros(room, np.uint64), np.zeros(room, np.int64), any_numbers(rng, slots, np.int64)
        counted = np.ones(pack.SLOTS, np.uint16), np.ones(1, np.int64)
        return 1, (text, offsets, *scratch, np.zeros(255, np.int64), *found, *tables, *counted)

    words = np.frombuffer(b"bowstring bow of strings\0\0" * 6, np.uint8)
    for text in (words, any_numbers(rng, 200, np.uint8), words[:0]):
        rows = np.sort(rng.integers(0, len(text) + 1, 9))
        slots, room = 2 << (4 * len(text)).bit_length(), 2 * len(text)
        yield arguments(text, rows, slots, room)
        yield arguments(text, rows[::-1].copy(), slots, room)
        yield arguments(text, rows + 200, slots, room)
    for slots, room, symbols in ((1024, 320, 255), (600, 324, 255), (512, 324, 255), (1024, 324, 254)):
        yield arguments(words, np.array([0, 156]), slots, room, symbols)


def coded_text(_: Rng) -> Iterator[Case]:
    text, offsets, *tables = texts_to_code()
    rows = len(offsets) - 1
    for each, room in ((offsets, 2 * len(text)), (offsets, 9), (offsets[::-1].copy(), 9), (offsets + 9, 99)):
        yield rows, (text, each, *tables, np.ones(rows, np.int64), np.ones(room, np.uint8))
    shorter = *tables[:4], tables[4][:99]
    yield rows, (text, offsets, *shorter, np.ones(rows, np.int64), np.ones(2 * len(text), np.uint8))


def joined_rows(rng: Rng) -> Iterator[Case]:
    codes, offsets = any_numbers(rng, 80, np.uint8), np.array([0, 3, 3, 20, 40])
    for places, room in ((offsets * 2, 80), (offsets, 30), (offsets[::-1].copy(), 40), (offsets - 3, 40)):
        for each in (offsets, offsets[::-1].copy(), offsets + 20):
            yield 4, (codes, each, places, np.ones(room, np.uint8))


CASES |= {pack.pack_words: to_pack, pack.write_fsst: coded_text, pack.join_rows: joined_rows}
CASES |= {pack.train_symbols: trained_symbols}
