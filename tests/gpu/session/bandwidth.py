"""Kernels on a device beside a copy, by the device's own clock; each result must be the CPU's, bit by bit."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pyarrow as pa

from bowstring import Batch
from bowstring.benchmarks.gpu.device import Clock, made_ready
from bowstring.kernels import bitmap
from bowstring.kernels.vortex import decode_numbers, decode_rows
from bowstring.kernels.vortex.faults import new_faults
from bowstring.memory import Device
from bowstring.testing import FakeDevice
from bowstring.variant import from_json, get

__all__ = ["checks"]

_ROWS, _FEW = 1 << 28, 1 << 14
_ROUNDS = 5
_START = 13  # of a bitmap: no whole byte
_WIDTH = 13  # bits of a packed integer
_DOCUMENTS = 1 << 10

Work = tuple[Callable[[], Any], Any, int]
Found = tuple[bool, dict[str, Any]]


def _bits(rows: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(7).integers(0, 256, (rows + _START + 7) // 8, np.uint8)


def copy(device: Device, rows: int) -> Work:
    """Return the floor of all: bytes copied."""
    data = _bits(8 * rows)
    source, target = device.from_host(data), device.xp.empty(len(data), np.uint8)

    def work() -> Any:
        target[:] = source
        return target

    return work, data, 2 * len(data)


def expand(device: Device, rows: int) -> Work:
    """Return bits expanded to flags, from a bit in the middle of a byte on."""
    bits = _bits(rows)
    there = device.from_host(bits)
    return lambda: bitmap.expanded(there, _START, rows), bitmap.expanded(bits, _START, rows), rows * 9 // 8


def pack(device: Device, rows: int) -> Work:
    """Return flags packed to bits."""
    flags = bitmap.expanded(_bits(rows), 0, rows)
    there = device.from_host(flags)
    return lambda: bitmap.packed(there), bitmap.packed(flags), rows * 9 // 8


def count(device: Device, rows: int) -> Work:
    """Return bits counted."""
    bits = _bits(8 * rows)
    there = device.from_host(bits)
    return lambda: bitmap.count_set(there, _START, 8 * rows), bitmap.count_set(bits, _START, 8 * rows), rows


def unpack(device: Device, rows: int) -> Work:
    """Return bit-packed integers as floats."""
    packed = _bits(rows // 1024 * 1024 * _WIDTH)[: rows // 1024 * 128 * _WIDTH]
    there, given = device.from_host(packed), decode_numbers.Adjustment(zigzag=True, exponents=(3, 1))
    rows = rows // 1024 * 1024

    def of(data: Any) -> Any:
        return decode_numbers.unpack(data, _WIDTH, np.int32, rows, adjustment=given, faults=new_faults(data))

    return lambda: of(there), of(packed), packed.nbytes + 4 * rows


def gather(device: Device, rows: int) -> Work:
    """Return the bytes that codes of one byte stand for."""
    codes, values = _bits(8 * rows)[:rows], np.arange(256, dtype=np.uint8)[::-1].copy()
    there = device.from_host(codes), device.from_host(values)

    def of(codes: Any, values: Any) -> Any:
        return decode_rows.take(codes, values, faults=new_faults(codes))

    return lambda: of(*there), of(codes, values), 2 * rows


def variant_get(device: Device, rows: int) -> Work:
    """Return a number out of each of some documents, a hundredth of the rows."""
    few = from_json([f'{{"a": {number}, "b": "x"}}' for number in range(_DOCUMENTS)])
    times = max(1, rows // 100 // _DOCUMENTS)
    whole = pa.concat_arrays([few.to_arrow()] * times)
    batch = Batch.from_arrow(pa.record_batch([whole], schema=pa.schema([few.field])))
    there = batch.to_device(device)[0]
    expected = np.tile(np.arange(_DOCUMENTS), times)
    return lambda: get(there, "$.a", pa.int64()).raw_values, expected, batch.nbytes + expected.nbytes


def checks(name: str) -> Generator[tuple[str, Callable[[], Found]]]:
    """Yield the works by name."""
    device = made_ready(name)
    rows = _FEW if isinstance(device, FakeDevice) else _ROWS
    for make in (copy, expand, pack, count, unpack, gather, variant_get):
        yield make.__name__, lambda make=make: _measured(device, *make(device, rows))  # type: ignore[misc]


def _measured(device: Device, work: Callable[[], Any], expected: Any, nbytes: int) -> Found:
    """Return whether all bytes are the CPU's, and by the median of some rounds how many were moved a second."""
    clock = Clock(device)
    with device.use():
        found = device.to_host(work())
        same = bool(np.array_equal(found.view(np.uint8), np.ascontiguousarray(expected).view(np.uint8)))
        taken = [clock.time(work)[0] for _ in range(_ROUNDS)]
    seconds = statistics.median(each.get("device_seconds", each["seconds"]) for each in taken)
    wall = statistics.median(each["seconds"] for each in taken)
    return same, {"bytes": nbytes, "seconds": seconds, "wall": wall, "GB/s": round(nbytes / seconds / 1e9, 1)}
