"""Example arguments for the kernels of Variant: right and broken values of every type, three kinds of metadata."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bowstring.kernels.signature import Kernel
from bowstring.kernels.variant import decimals, metadata, numbers, slots, write_objects
from bowstring.kernels.variant import validate as validation
from bowstring.kernels.variant import walk as locating

Array = np.ndarray[Any, Any]
Case = tuple[int, tuple[Any, ...]]
Cases = Callable[[np.random.Generator], Iterator[Case]]

NAMES = ("a", "b", "\U0001f3f9", "é")
DEPTH = 4
BLOCK = 7


def metadata_of(names: tuple[str, ...], flags: int = 0) -> bytes:
    texts = [name.encode() for name in names]
    ends = np.cumsum([0, *map(len, texts)]).astype(np.uint8)
    return bytes([1 | flags, len(names)]) + ends.tobytes() + b"".join(texts)


def primitive(kind: int, payload: bytes) -> bytes:
    return bytes([kind << 2]) + payload


def container(header: int, ids: list[int], values: list[bytes]) -> bytes:
    ends = np.cumsum([0, *map(len, values)]).astype(np.uint8)
    return bytes([header, len(values), *ids]) + ends.tobytes() + b"".join(values)


SORTED = metadata_of(tuple(sorted(NAMES, key=str.encode)), 0x10)
DICTIONARIES = [
    SORTED,
    metadata_of(("b", "a", "a", "\U0001f3f9")),
    b"\x01\x09\x00",
    b"",
    metadata_of(("b", "a"), 0x10),
]
SCALARS = [
    *(primitive(kind, b"") for kind in (0, 1, 2, 30)),
    *(primitive(3 + k, struct.pack(form, -5)) for k, form in enumerate("bhiq")),
    *(primitive(6, struct.pack("<q", number)) for number in (2**31, -(2**31), 2**62)),
    primitive(7, struct.pack("<d", 1.5)),
    *(primitive(kind, bytes([2]) + struct.pack(form, 12300)) for kind, form in ((8, "<i"), (9, "<q"))),
    *(
        primitive(10, bytes([2]) + number.to_bytes(16, "little", signed=True))
        for number in (-(10**20), 10**38)
    ),
    primitive(8, bytes([50]) + bytes(4)),
    primitive(11, struct.pack("<i", 20_000)),
    *(primitive(kind, struct.pack("<q", 1_744_821_296_780_000)) for kind in (12, 13, 18, 19)),
    primitive(14, struct.pack("<f", 0.25)),
    primitive(15, b"\x03\x00\x00\x00\xff\x00\x01"),
    *(primitive(16, b"\x02\x00\x00\x00" + text) for text in (b"hi", b"\xc3\x28")),
    *(primitive(17, struct.pack("<q", time)) for time in (5, -1)),
    primitive(20, bytes(range(16))),
    b"\x09hi",
    b"\x09\xff\xff",
]
INNER = container(0x02, [0, 1], [b"\x05x", b"\x00"])
VALUES = [
    *SCALARS,
    INNER,
    container(0x02, [1, 0], [b"\x05x", b"\x04"]),
    container(0x02, [0, 3], [INNER, container(0x03, [], [b"\x05y", INNER])]),
    container(0x03, [], [container(0x03, [], [container(0x03, [], [container(0x03, [], [])])])]),
    container(0x03, [], [b"\x0c\x01", b"\x09hi"]),
    bytes([0x02, 2, 0, 1, 0, 0, 1, 0x04]),  # both fields share one value
    bytes([0x02, 200, 0]),
    INNER[:-1],
    b"",
]


def laid_out(values: list[bytes], dtype: Any) -> tuple[Array, Array, Array]:
    ends = np.cumsum([0, *map(len, values)]).astype(dtype)
    return ends[:-1].copy(), ends[1:].copy(), np.frombuffer(b"".join(values), np.uint8)


def rows_of(dtype: Any = np.int64) -> tuple[Array, Array, Array, Array]:
    """Return every value with each of the dictionaries: starts, stops, bytes, and which dictionary."""
    starts, stops, data = laid_out(VALUES, dtype)
    count = len(DICTIONARIES)
    which = np.repeat(np.arange(count, dtype=np.int32), len(VALUES))
    which[-1] = 99
    starts, stops = np.tile(starts, count), np.tile(stops, count)
    stops[3] += np.array(100_000, dtype)
    return starts[::2].copy(), stops[::2].copy(), data, which[::2].copy()


def marks_of() -> Array:
    """Return what is right to say of the dictionaries."""
    return np.array([2 | 4, 4, 1, 1, 8], np.uint8)


def bits(rng: np.random.Generator, rows: int) -> Array:
    return np.packbits(rng.random(rows) < 0.9, bitorder="little")


def changes(rng: np.random.Generator) -> Iterator[Case]:
    for dtype in (np.int32, np.int64):
        for repeated in (1, 3):
            starts, stops, data = laid_out([each for each in DICTIONARIES for _ in range(repeated)], dtype)
            yield len(starts), (starts, stops, data, np.zeros(len(starts), np.uint8))


def inspected(rng: np.random.Generator) -> Iterator[Case]:
    for full in (0, 1):
        broken = [SORTED[:-1], SORTED[:2], bytes([0x11, 2, 0, 3, 2]) + b"abc", bytes([0x01, 1, 0, 1, 0xFF])]
        starts, stops, data = laid_out([*DICTIONARIES, *broken], np.int64)
        yield len(starts), (starts, stops, data, full, np.zeros(len(starts), np.uint8))


def texts() -> tuple[Array, Array]:
    names = [name.encode() for name in (*NAMES, "z", "")]
    return np.frombuffer(b"".join(names), np.uint8), np.cumsum([0, *map(len, names)])


# The whole value; a, b, the bow, and a as a number of each width; [1], [0] as a number; a.b; é[1].b is none.
FAMILIES = [-1, 0, 1, -1, 1, 8, -1, 2, 10, 1, 1, 11, 8, 2, 12]
OPERANDS = [0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 1, 0]
NAMED = int(metadata.NAMED)
INDICES = [0, *([NAMED] * 7), 1, 0, NAMED, -2]
KINDS = [0, 0, 0, 0, 1, 2, 4, 8, 0, 4, 0, 0]
NODES = len(KINDS)


def meanings_of() -> Array:
    """Return how nodes read headers: places, and whole numbers."""
    lengths = np.zeros((NODES, 256), np.uint16)
    lengths[:, :84:4] = 1 + np.array([0, 0, 0, 1, 2, 4, 8, 8, 5, 9, 17, 4, 8, 8, 4, -1, -1, 8, 8, 8, 16])
    lengths[:, 1::4] = np.arange(1, 65)
    readings = np.full((NODES, 256), 64 + 4, np.uint16)
    readings[:, 0] = 64 + 3
    readings[:, 4], readings[:, 8] = 64 + 32, 64
    for kind in range(4):
        readings[:, 3 + kind << 2] = 64 - (8 << kind)
        lengths[[1 << kind > each for each in KINDS], 3 + kind << 2] = 0
    for kind in (8, 9, 10):
        readings[:, kind << 2], lengths[:, kind << 2] = 127, 0
    readings[np.array(KINDS) == 0] = 0
    lengths[np.array(KINDS) == 0, 3 << 2 : 7 << 2 : 4] = 2, 3, 5, 9
    return (lengths << 8 | readings).reshape(-1)


def found_names(rng: np.random.Generator) -> Iterator[Case]:
    starts, stops, data = laid_out(DICTIONARIES, np.int64)
    items = len(starts) * (len(NAMES) + 3)
    operands, indices = np.array([*range(len(NAMES) + 2), 0]), np.array([NAMED] * (len(NAMES) + 1) + [-1, 7])
    yield (
        items,
        (starts, stops, data, marks_of(), *texts(), operands, indices, np.zeros(items, np.int64)),
    )


IDS = np.array([[0, 1, 3, 2, -1, -1], [-2, 0, 3, -1, -1, -1], *([[-1] * 6] * 2), [1, 0, -1, -1, -1, -1]])


def ids_of() -> Array:
    """Return what each node seeks in each dictionary."""
    return np.where(np.array(INDICES) == NAMED, IDS[:, OPERANDS], INDICES).reshape(-1)


def columns_of(rows: int) -> Array:
    """Return where the column of each node begins: places together, numbers by their width."""
    seen = [KINDS[:node].count(kind) for node, kind in enumerate(KINDS)]
    return np.array(seen, np.int64) * rows


def written_by(rows: int) -> tuple[Array, ...]:
    places = np.zeros(KINDS.count(0) * rows, np.uint64), np.zeros(NODES * rows, np.uint8)
    return *places, *(
        np.zeros(KINDS.count(np.dtype(each).itemsize) * rows, each)
        for each in (np.int8, np.int16, np.int32, np.int64)
    )


def read(rng: np.random.Generator) -> Iterator[Case]:
    for dtype in (np.int32, np.int64):
        for families in (FAMILIES, FAMILIES[3:]):  # the whole value is never plain; as a field, node 0 may be
            starts, stops, data, classes = rows_of(dtype)
            rows = len(starts)
            # As long as if the rows were; then those to come are looked at.
            data = np.append(data, np.zeros(200 * rows if families == FAMILIES else 9, np.uint8))
            yield (
                -(-rows // BLOCK),
                (
                    *(bits(rng, rows), bits(rng, rows), starts, stops, data, classes),
                    *(np.array([2, 4, 1, 1, 2], np.uint8), ids_of(), np.array(families)),
                    *(np.array(KINDS, np.uint8), columns_of(rows), meanings_of(), BLOCK, rows, rows),
                    *(np.zeros(rows, np.uint8), *written_by(rows)),
                ),
            )


def located(rng: np.random.Generator) -> Iterator[Case]:
    class_starts, class_stops, blobs = laid_out(DICTIONARIES, np.int64)
    for dtype in (np.int32, np.int64):
        for chosen in (np.zeros(0, np.int64), np.array([1, 5, 6, 7, 20, 31, 32])):
            starts, stops, data, classes = rows_of(dtype)
            rows = len(starts)
            yield (
                -(-(len(chosen) or rows) // BLOCK),
                (
                    *(bits(rng, rows), bits(rng, rows), starts, stops, data, classes),
                    *(class_starts, class_stops, blobs, marks_of(), *texts(), ids_of()),
                    *(np.array(FAMILIES), np.array(OPERANDS), np.array(KINDS, np.uint8), columns_of(rows)),
                    *(meanings_of(), BLOCK, rows, rows, chosen, *written_by(rows)),
                ),
            )


def validated(rng: np.random.Generator) -> Iterator[Case]:
    class_starts, class_stops, blobs = laid_out(DICTIONARIES, np.int64)
    for dtype in (np.int32, np.int64):
        for full in (0, 1):
            starts, stops, data, classes = rows_of(dtype)
            rows = len(starts)
            items = -(-rows // BLOCK)
            # What is left in the room is part of what must agree.
            room = np.zeros(items * DEPTH * int(validation.WORDS), np.uint64)
            yield (
                items,
                (
                    *(BLOCK, bits(rng, rows), bits(rng, rows), starts, stops, data, classes),
                    *(
                        class_starts,
                        class_stops,
                        blobs,
                        marks_of(),
                        full,
                        DEPTH,
                        room,
                        np.zeros(rows, np.uint8),
                    ),
                ),
            )


def objects(_: np.random.Generator) -> Iterator[Case]:
    for dtype in (np.int32, np.int64):
        for size in (20, 300, 2000):
            starts, stops, data, which = rows_of(dtype)
            class_starts, class_stops, blobs = laid_out(DICTIONARIES, np.int64)
            statuses = np.zeros(len(starts), np.uint8)
            statuses[1] = 1
            states = np.zeros(int(write_objects.STATES), np.uint64)
            room, named, odd = (
                np.zeros(words, np.uint64) for words in (DEPTH * int(write_objects.LEVEL), 6, 60)
            )
            values = statuses, starts, stops, data, which
            scratch = room, named, odd, np.zeros(size, np.uint8), states
            yield 1, (*values, class_starts, class_stops, blobs, DEPTH, *scratch)


def cast_rows() -> tuple[Array, Array, Array]:
    """Return bytes, places and statuses: every value, one far outside, some without a value."""
    starts, _, data = laid_out(VALUES, np.int64)
    places = np.append(starts, 1 << 40).astype(np.uint64)
    statuses = np.zeros(len(places), np.uint8)
    statuses[-3:-1] = 2, 3
    return data, places, statuses


def numbers_of(rng: np.random.Generator) -> Iterator[Case]:
    for dtype in (np.int8, np.int16, np.int32, np.int64):
        info = np.iinfo(dtype)
        for family in range(15):
            for unit in (1, 1_000_000_000):
                data, places, statuses = cast_rows()
                out = np.zeros(len(places), dtype)
                limits = int(info.min), int(info.max), unit, 64 - info.bits
                yield -(-len(places) // BLOCK), (data, places, family, *limits, BLOCK, statuses, out)


def exact_decimals(rng: np.random.Generator) -> Iterator[Case]:
    for scale, digits in ((0, 38), (5, 38), (2, 6), (38, 38)):
        bound = 10**digits
        for floats in (0, 1):
            data, places, statuses = cast_rows()
            what = scale, bound >> 64, bound & (2**64 - 1), floats
            yield len(places), (data, places, *what, statuses, np.zeros(2 * len(places), np.uint64))


def measured(rng: np.random.Generator) -> Iterator[Case]:
    for family in range(5):
        for wanted in (-1, 3, 16):
            data, places, statuses = cast_rows()
            yield len(places), (data, places, family, wanted, statuses, np.zeros(len(places), np.int64))


def copied(rng: np.random.Generator) -> Iterator[Case]:
    for family, room in ((0, 400), (3, 30)):
        data, places, statuses = cast_rows()
        offsets = np.cumsum([0, *rng.integers(0, 6, len(places))])
        for log in (0, 2):
            out = np.zeros(room, np.uint8)
            yield len(places) << log, (log, data, places, family, statuses, offsets, out)


def copied_fixed(rng: np.random.Generator) -> Iterator[Case]:
    data, places, statuses = cast_rows()
    for log in (0, 2):
        out = np.zeros(3 * len(places), np.uint8)
        yield len(places) << log, (log, data, places, 3, statuses, out)


def kinds(rng: np.random.Generator) -> Iterator[Case]:
    data, places, statuses = cast_rows()
    yield len(places), (data, places, statuses, np.zeros(len(places), np.int8))


CASES: dict[Kernel, Cases] = {
    metadata.mark_changes: changes,
    metadata.inspect_metadata: inspected,
    metadata.find_names: found_names,
    locating.read_plain: read,
    locating.locate: located,
    numbers.cast_numbers: numbers_of,
    decimals.cast_decimals: exact_decimals,
    slots.measure_bytes: measured,
    slots.copy_bytes: copied,
    slots.copy_fixed: copied_fixed,
    slots.name_kinds: kinds,
    validation.validate_values: validated,
    write_objects.write_objects: objects,
}
