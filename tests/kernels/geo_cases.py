"""Example arguments of the kernel of WKB: every type, both byte orders, and what is wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bowstring.kernels.geo import wkb
from bowstring.kernels.signature import Kernel

Case = tuple[int, tuple[Any, ...]]

DEPTH = 2
BLOCK = 4


def rows() -> list[bytes]:
    """Return geometries of all types, some of which are wrong."""
    found = []
    for order in "<>":
        for code in (1, 1001, 0xE0000001, 3001):
            z, m = code in (1001, 3001, 0xE0000001), code in (3001, 0xE0000001)
            srid = bytes(4) if code & 0x20000000 else b""
            head = struct.pack(f"{order}BI", order == "<", code) + srid
            found.append(
                head + struct.pack(f"{order}{2 + z + m}d", *(-1.5, 2.5, 1e300, float("nan"))[: 2 + z + m])
            )
        point = found[0]
        line = struct.pack(f"{order}BII4d", order == "<", 2, 2, 0.0, -0.0, 7.0, float("inf"))
        ring = struct.pack(f"{order}BIII2d", order == "<", 3, 1, 1, -4.0, 5.0)
        for kind, part in ((4, point), (5, line), (6, ring), (7, line), (4, line)):
            found += part, struct.pack(f"{order}BII", order == "<", kind, 2) + 2 * part
        found.append(struct.pack(f"{order}BII", order == "<", 7, 1) * 3 + point)
        found += (
            line[:-1],
            ring + b"\0",
            point[:4],
            b"",
            b"\x02" + point[1:],
            struct.pack(f"{order}BI", order == "<", 9),
        )
    return found


def arguments(given: list[bytes], dtype: Any, spread: int) -> tuple[Any, ...]:
    ends = np.cumsum([0, *map(len, given)]).astype(dtype)
    items = -(-len(given) // BLOCK)
    slots = len(given) if spread else items
    return (
        BLOCK,
        spread,
        np.array([0b11111101, 0xFF, 0xFF], np.uint8),
        ends[:-1],
        ends[1:],
        np.frombuffer(b"".join(given), np.uint8),
        DEPTH,
        np.zeros(items * DEPTH, np.uint64),
        np.zeros(slots * int(wkb.KEYS), np.int64),
        np.zeros(slots, np.uint64),
        np.zeros(len(given), np.uint8),
    )


def scanned(rng: np.random.Generator) -> Iterator[Case]:
    given = rows()
    points = [struct.pack("<BIdd", 1, 1, *rng.normal(0, 9, 2)) for _ in range(10)]
    for dtype in (np.int32, np.int64):
        for each in (given, points, [*points[:5], given[8], *points[5:]]):
            for spread in (0, 1):
                yield -(-len(each) // BLOCK), arguments(each, dtype, spread)


CASES: dict[Kernel, Callable[[np.random.Generator], Iterator[Case]]] = {wkb.scan_wkb: scanned}
