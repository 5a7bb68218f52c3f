"""A libnvcomp without a GPU: the functions of its headers that we call, done on the memory of the fake device.

It looks at its arguments as the library does: tables lie on the device, structures come by value, results are
written where the caller says. It is careful with LZ4. A damaged ZSTD frame, with which the library may do anything,
raises here what nobody catches.
"""

from __future__ import annotations

import collections
import ctypes
from typing import Any

import numpy as np
import pyarrow as pa

from bowstring.testing.fake_array import ADDRESS_SHIFT

CANNOT_DECOMPRESS = 12
OPTIONS_BYTES = 64
MATCH = 4


class Overrun(Exception):
    """A block reaches outside."""


def lz4_block(block: bytes, room: int) -> bytes:
    """Decompress one raw LZ4 block of at most `room` bytes, as lz4_Block_format.md says."""
    out = bytearray()
    place = 0

    def length(nibble: int) -> int:
        nonlocal place
        while nibble >= 15:
            byte = block[place]
            place += 1
            nibble += byte
            if byte != 255:
                break
        return nibble

    while place < len(block):
        token = block[place]
        place += 1
        literals = length(token >> 4) if token >> 4 == 15 else token >> 4
        if place + literals > len(block) or len(out) + literals > room:
            raise Overrun
        out += block[place : place + literals]
        place += literals
        if place == len(block):
            return bytes(out)
        offset = block[place] | block[place + 1] << 8
        place += 2
        match = MATCH + (length(token & 15) if token & 15 == 15 else token & 15)
        if not 0 < offset <= len(out) or len(out) + match > room:
            raise Overrun
        for _ in range(match):
            out.append(out[-offset])
    raise Overrun


def zstd_frame(frame: bytes, room: int) -> bytes:
    """Decompress one frame."""
    out: bytes = pa.CompressedInputStream(pa.BufferReader(frame), "zstd").read()
    if len(out) > room:
        raise Overrun
    return out


class FakeNvComp:
    """What ``ctypes.CDLL("libnvcomp.so")`` would be.

    Parameters
    ----------
    version
        As ``nvcompGetProperties`` says it.
    alignment
        Of input, output and temporary memory.

    Attributes
    ----------
    calls : collections.Counter of str
        How often each function was called.
    chunks : int
        How many chunks were given to it.
    short, failing, lying, silent : set of int
        Numbers of chunks, over all calls: one byte too few, an error status, a wrong size beside success, and
        nothing said or written at all.
    refuses : int
        What the next decompression returns, instead of doing anything.
    """

    def __init__(self, version: int = 6000, alignment: int = 1) -> None:
        self.version = version
        self.alignment = alignment
        self.calls: collections.Counter[str] = collections.Counter()
        self.chunks = 0
        self.short: set[int] = set()
        self.failing: set[int] = set()
        self.lying: set[int] = set()
        self.silent: set[int] = set()
        self.refuses = 0

    def __getattr__(self, name: str) -> Any:
        if name == "nvcompGetProperties":
            return self._properties
        for codec in ("LZ4", "Zstd"):
            if name == f"nvcompBatched{codec}DecompressGetRequiredAlignments":
                return self._alignments
            if name == f"nvcompBatched{codec}DecompressGetTempSize" + "Async" * (self.version < 6000):
                return self._temp_size
            if name == f"nvcompBatched{codec}DecompressAsync":
                return lambda *arguments: self._decompress(codec, *arguments)
        raise AttributeError(name)

    def _properties(self, properties: Any) -> int:
        properties._obj.version = self.version
        return 0

    def _alignments(self, options: Any, found: Any) -> int:
        _check_options(options)
        found._obj.input = found._obj.output = found._obj.temp = self.alignment
        return 0

    def _temp_size(self, *arguments: Any) -> int:
        count, largest, options, found, total, *stream = arguments
        assert len(stream) == (self.version >= 6000)
        _check_options(options)
        assert 0 < largest.value <= total.value <= count.value * largest.value
        found._obj.value = 64 * count.value
        return 0

    def _decompress(self, codec: str, *arguments: Any) -> int:
        (starts, sizes, rooms, actual, count, temp, temp_bytes, targets, options, statuses, _stream) = (
            arguments
        )
        self.calls["Decompress"] += 1
        _check_options(options)
        if self.refuses:
            refused, self.refuses = self.refuses, 0
            return refused
        many = count.value
        _there(temp.value, temp_bytes.value)[:] = 0xAA
        tables = [_there(each.value, 8 * many).view(np.int64) for each in (starts, sizes, rooms, targets)]
        found = _there(actual.value, 8 * many).view(np.int64)
        status = _there(statuses.value, 4 * many).view(np.int32)
        for index, (start, size, room, target) in enumerate(
            zip(*(each.tolist() for each in tables), strict=True)
        ):
            number, self.chunks = self.chunks, self.chunks + 1
            if number not in self.silent:
                found[index], status[index] = self._one(
                    number, codec, bytes(_there(start, size)), _there(target, room)
                )
        return 0

    def _one(self, number: int, codec: str, data: bytes, target: Any) -> tuple[int, int]:
        try:
            out = lz4_block(data, len(target)) if codec == "LZ4" else zstd_frame(data, len(target))
        except (Overrun, IndexError):
            return 0, CANNOT_DECOMPRESS
        if number in self.short:
            out = out[:-1]
        target[: len(out)] = np.frombuffer(out, np.uint8)
        if number in self.failing:
            return len(out), CANNOT_DECOMPRESS
        return len(out) + (number in self.lying), 0


def _check_options(options: Any) -> None:
    # By value, the CUDA backend, and nothing else set.
    assert ctypes.sizeof(options) == OPTIONS_BYTES
    assert bytes(options) == (2).to_bytes(4, "little") + bytes(OPTIONS_BYTES - 4)


def _there(address: int | None, nbytes: int) -> Any:
    """Return memory of the fake device, which the host cannot read at its address."""
    assert address is not None
    assert address >= ADDRESS_SHIFT
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address - ADDRESS_SHIFT))
