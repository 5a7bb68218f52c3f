"""Example arguments for the kernels that cast Variants as Spark does, or into lists, structs and maps."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from bowstring.kernels.signature import Kernel
from bowstring.kernels.variant import decimals, numbers, slots
from bowstring.kernels.variant.spark import decimals as spark_decimals
from bowstring.kernels.variant.spark import numbers as spark_numbers
from bowstring.kernels.variant.spark import parse as spark_texts
from bowstring.kernels.variant.spark import strings as spark_strings
from bowstring.kernels.variant.spark import times as spark_times
from tests.kernels.variant_cases import (
    DICTIONARIES,
    SCALARS,
    Array,
    Case,
    Cases,
    container,
    laid_out,
    primitive,
)

_REALS = (
    "0 -0 1.5 -127.9 1e-300 5e-324 1e300 9.3e18 9223372036854775808 inf nan 3.5e38 1e-40 0.1 9223372036854 "
    "-1.4e-45 7e-46 16777217"
)
REALS = [float(each) for each in _REALS.split()]
NUMBERS = [
    *SCALARS,
    *(primitive(7, struct.pack("<d", each)) for each in REALS),
    *(primitive(14, np.float32(each).tobytes()) for each in REALS if not abs(each) > 3.4e38),
    *(primitive(10, bytes([scale]) + (10**38 - 1).to_bytes(16, "little")) for scale in (0, 6, 20, 38)),
    *(primitive(12, struct.pack("<q", each)) for each in (-1, 2**63 - 1, -(2**63))),
    primitive(11, struct.pack("<i", 2**31 - 1)),
]
_WORDS = (
    "| |yes| FALSE\t|n|0|12|+7|-9223372036854775808|9223372036854775808|1.9|-|1e3|"
    "NaN|nan|-NAN|-inf|Infinity|.5e-3d|1e400|0x1.8p3|0x.p1|3.4028236e38|16777217|"
    "9007199254740993.00000000000000000001|1e-46|1e|x|1.0.0|"
    "2024-02-29|2023-02-29|2024-1|10000-01-01|-0001-12-31|5881580-07-12|2024-01-02T|2024-01-02x|"
    "2024-01-02 03:04:05.1234567|2024-01-02 03:04:05Z|2024-01-02 3:4+01:30|2024-01-02 03:04:05 UTC-0130|"
    "2024-01-02 03:04:05 Europe/Berlin|T12:00|12:00|2024-01-02 24:00|294247-01-10T04:00:54.775807Z|"
    "294247-01-10T04:00:54.775808Z|-290308-12-21 19:59:05.224192|2024-01-02 03:04:05+19|2024-01-02 03+1:2:3|"
    "2024-01-02 03:04:05-010203|2024-01-02 03:04:05 +01:02:03|2024-01-02 03:04:05 x"
)
WORDS = _WORDS.split("|")


def text(word: str) -> bytes:
    encoded = word.encode()
    return bytes([len(encoded) << 2 | 1]) + encoded


CONTAINERS = [
    *(container(0x03, [], [b"\x0c\x01"] * count) for count in (0, 1, 3)),
    container(0x03, [], [container(0x03, [], [b"\x00"]), primitive(40, b""), b"\x09hi"]),
    container(0x02, [0, 1], [b"\x05x", b"\x00"]),
    container(0x02, [1, 1], [b"\x05x", b"\x04"]),
    container(0x02, [3], [b"\x05x"]),
    container(0x02, [77], [b"\x05x"]),
    bytes([0x03, 3, 0, 0, 0, 3, 0x09, 104, 105]),  # shared, and small
    bytes([0x03, 4, 0, 0, 0, 0, 20]) + text("x" * 19),  # shared, and too much
    bytes([0x03, 1, 9, 2, 0x0C, 1]),
    bytes([0x03, 200, 0]),
    b"\x00",
    b"\x0c\x01",
    b"",
]


def valued(values: list[bytes], status: int = 0) -> tuple[Array, Array, Array]:
    """Return bytes, places and statuses of values."""
    starts, _, data = laid_out(values, np.int64)
    statuses = np.full(len(values), status, np.uint8)
    statuses[-1] = 2
    return data, starts.astype(np.uint64), statuses


def bounds(family: int) -> tuple[int, ...]:
    low, high = ((-128, 127), (-(2**63), 2**63 - 1))[family != 1]
    return family, low, high


def number_cases(rng: np.random.Generator) -> Iterator[Case]:
    for family in (0, 1, 2, 3, 4, 6, 7):
        data, places, statuses = valued([*NUMBERS, *map(text, WORDS[:2]), b""])
        yield len(places), (data, places, *bounds(family), statuses, np.zeros(len(places), np.int64))
    data, places, statuses = valued([*NUMBERS, b""])
    yield len(places), (data, places, 1, -(2**63), 2**63 - 1, statuses, np.zeros(len(places), np.int64))


def words() -> tuple[Array, Array, Array]:
    long = [primitive(16, struct.pack("<I", 3) + b"1e3"), primitive(16, struct.pack("<I", 30) + b"1e3")]
    return valued([*map(text, WORDS), *long, b"\x01"], 255)


def text_numbers(rng: np.random.Generator) -> Iterator[Case]:
    for family in (0, 1):
        data, places, statuses = words()
        yield len(places), (data, places, *bounds(family), statuses, np.zeros(len(places), np.int64))


def texts_of(*families: int) -> Cases:
    def found(rng: np.random.Generator) -> Iterator[Case]:
        for family in families:
            data, places, statuses = words()
            yield len(places), (data, places, family, statuses, np.zeros(len(places), np.int64))

    return found


def timed_texts(rng: np.random.Generator) -> Iterator[Case]:
    for family in (4, 6, 7):
        data, places, statuses = words()
        found = statuses, *(np.zeros(len(places), np.int64) for _ in range(2))
        yield len(places), (data, places, family, 1_700_000_000, *found)


def zone_names(rng: np.random.Generator) -> Iterator[Case]:
    data = np.frombuffer(b"x Europe/Berlin America/Argentina/ComodRivadavia_", np.uint8)
    zones = np.array([2 << 6 | 13, 16 << 6 | 33, 40 << 6 | 63, 1 << 50, 0], np.int64)
    yield len(zones), (data, zones, np.ones(40 * len(zones), np.uint8))


def counted(rng: np.random.Generator) -> Iterator[Case]:
    for basic in (2, 3):
        for wanted in (-2, -1, 3):
            data, places, statuses = valued(CONTAINERS)
            yield len(places), (data, places, basic, wanted, statuses, np.zeros(len(places), np.int64))


def offsets_of(rng: np.random.Generator, rows: int) -> Array:
    return np.cumsum([0, *rng.integers(0, 5, rows)])


def placed(rng: np.random.Generator) -> Iterator[Case]:
    data, places, statuses = valued(CONTAINERS)
    rows = len(places)
    for room in (0, 1):
        offsets = offsets_of(rng, rows)
        total = int(offsets[-1]) - room
        classes = np.arange(rows * room, dtype=np.int32)
        inside = np.zeros(total, np.uint64), np.zeros(total, np.uint8), np.zeros(total * room, np.int32)
        yield rows, (data, places, statuses, classes, offsets, *inside)


def named(rng: np.random.Generator) -> tuple[Any, ...]:
    data, places, statuses = valued(CONTAINERS)
    classes = rng.integers(-1, len(DICTIONARIES) + 1, len(places)).astype(np.int32)
    return data, places, classes, *laid_out(DICTIONARIES, np.int64), statuses


def measured_keys(rng: np.random.Generator) -> Iterator[Case]:
    for _ in range(6):
        *arguments, statuses = named(rng)
        rows = len(statuses)
        marks = rng.choice([0, 2, 8, 1], len(DICTIONARIES), p=[0.4, 0.4, 0.1, 0.1]).astype(np.uint8)
        yield rows, (*arguments, marks, statuses, np.ones(rows, np.int64))


def placed_keys(rng: np.random.Generator) -> Iterator[Case]:
    for _ in range(6):
        arguments = named(rng)
        offsets = offsets_of(rng, len(arguments[1]))
        room = np.zeros(int(offsets[-1]), np.int64)
        yield len(arguments[1]), (*arguments, offsets, room, room.copy())


def copied_slots(rng: np.random.Generator) -> Iterator[Case]:
    starts, stops, data = laid_out(DICTIONARIES, np.int64)
    offsets = np.concatenate([[0], np.cumsum(stops - starts)])
    for log in (0, 2):
        yield len(starts) << log, (log, starts, stops, data, offsets, np.zeros(int(offsets[-1]), np.uint8))
        yield len(starts) << log, (log, stops, stops + 3, data, offsets, np.zeros(9, np.uint8))


def disorder(rng: np.random.Generator) -> Iterator[Case]:
    starts, stops, data = laid_out([b"a", b"b", b"", b"a", b"aa", b"ab", b"b", b"b"], np.int64)
    for bounds in ([0, 2, 2, 3, 6, 7, 8], [0, 0, 5, 8, 9], [-3, 4, 99]):
        rows = len(bounds) - 1
        yield rows, (np.array(bounds, np.int64), starts, stops, data, np.full(rows, 9, np.uint8))


def worst(rng: np.random.Generator) -> Iterator[Case]:
    offsets = offsets_of(rng, 40)
    inside = rng.integers(0, 9, int(offsets[-1])).astype(np.uint8)
    yield 40, (offsets, inside, rng.integers(0, 2, 40).astype(np.uint8))


def wide_decimals(rng: np.random.Generator) -> Iterator[Case]:
    for scale, digits, floats in ((0, 76, 0), (2, 40, 1), (76, 76, 0), (40, 76, 1)):
        data, places, statuses = valued([*NUMBERS, b""])
        bounds = np.array([10**digits >> 64 * k & (2**64 - 1) for k in range(4)], np.uint64)
        what = scale, floats, bounds
        yield len(places), (data, places, *what, statuses, np.zeros(4 * len(places), np.uint64))


def located_numbers(rng: np.random.Generator) -> Iterator[Case]:
    exact = [0.0, -0.0, 1.5, 65504.0, 65536.0, 2.0**-24, 3 * 2.0**-24, 2.0**-25, 1.0 + 2.0**-11, 1e-40]
    floats = [primitive(14, np.float32(each).tobytes()) for each in (*exact, float("inf"), float("nan"))]
    for family, dtype in (
        (1, np.int64),
        (6, np.int64),
        (8, np.int32),
        (12, np.int32),
        (13, np.int64),
        (14, np.int32),
    ):
        data, places, statuses = valued([*floats, *NUMBERS, b""], 255)
        info = np.iinfo(dtype)
        what = family, int(info.min), int(info.max), 1_000_000, 64 - info.bits, 5
        yield -(-len(places) // 5), (data, *what, statuses, places.astype(dtype))


def views(rng: np.random.Generator) -> Iterator[Case]:
    sizes = np.array([0, 1, 4, 5, 8, 11, 12, 13, 30])
    data = rng.integers(0, 256, int(sizes.sum())).astype(np.uint8)
    yield len(sizes), (np.cumsum([0, *sizes]), data, np.zeros(4 * len(sizes), np.uint32))


DECIMAL_WORDS = (
    "|.|1.|.5|-1.50|1e3|1e|1E-40|0e37|0e38|99999999999999999999999999999999999999|0.00000000000000000000000000000000000001|"
    "123456789012345678901234567890123456789|1e99999999999|1e-2147483648|\uff12|1.\u0665e\u0662|2x|\u00bd|1.005|+4.5|1e-4294967297"
)


def decimal_cases(rng: np.random.Generator) -> Iterator[Case]:
    for scale, digits in ((0, 38), (2, 6), (38, 38), (9, 9)):
        data, places, statuses = valued([*NUMBERS, *map(text, WORDS[:2]), b""])
        bound = 10**digits
        out = np.zeros(2 * len(places), np.uint64)
        yield len(places), (data, places, scale, bound >> 64, bound & (2**64 - 1), statuses, out)


def text_decimals(rng: np.random.Generator) -> Iterator[Case]:
    for scale, digits in ((0, 38), (2, 6), (38, 38)):
        data, places, statuses = valued(
            [text(each) for each in (*DECIMAL_WORDS.split("|"), *WORDS[:30])], 255
        )
        bound = 10**digits
        out = np.zeros(2 * len(places), np.uint64)
        yield len(places), (data, places, scale, bound >> 64, bound & (2**64 - 1), statuses, out)


def written_values() -> list[bytes]:
    days = [primitive(11, struct.pack("<i", each)) for each in (-719529, -719162, 2932897, -(2**31))]
    times = [primitive(13, struct.pack("<q", each)) for each in (-1, 500_000, 86_400_000_000, -(2**63))]
    return [
        *NUMBERS,
        *days,
        *times,
        *CONTAINERS[:3],
        text("é"),
        primitive(15, b"\x02\x00\x00\x00\xc3\xa9"),
        b"",
    ]


def measured_strings(rng: np.random.Generator) -> Iterator[Case]:
    data, places, statuses = valued(written_values())
    yield len(places), (data, places, statuses, np.zeros(1, np.uint8), np.zeros(len(places), np.int64))


def written_strings(rng: np.random.Generator) -> Iterator[Case]:
    for width in (50, 7):
        data, places, statuses = valued(written_values())
        offsets = np.arange(len(places) + 1, dtype=np.int64) * width
        yield len(places), (data, places, statuses, offsets, np.zeros(width * len(places) - 3, np.uint8))


CASES: dict[Kernel, Cases] = {
    spark_decimals.spark_decimals: decimal_cases,
    spark_decimals.spark_text_decimals: text_decimals,
    spark_strings.measure_spark_strings: measured_strings,
    spark_strings.write_spark_strings: written_strings,
    decimals.cast_decimals_256: wide_decimals,
    numbers.read_located: located_numbers,
    slots.write_views: views,
    spark_numbers.spark_numbers: number_cases,
    spark_texts.spark_text_numbers: text_numbers,
    spark_texts.spark_text_reals: texts_of(2, 3),
    spark_times.spark_text_times: timed_texts,
    spark_times.copy_zone_names: zone_names,
    slots.count_children: counted,
    slots.place_children: placed,
    slots.measure_keys: measured_keys,
    slots.place_keys: placed_keys,
    slots.note_disorder: disorder,
    slots.copy_slots: copied_slots,
    slots.worst_of: worst,
}
