"""The chunks of an LZ4 or ZSTD frame that a device can decompress independently.

A frame that is not certainly valid, or that a device cannot decompress (blocks that need the ones before them,
checksums, dictionaries), is not split: the caller gives it to the host, which checks it. Nothing here raises. The
formats are those of ``lz4_Frame_format.md`` and of RFC 8878.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

_UINT32: Final = struct.Struct("<I")
_UINT64: Final = struct.Struct("<Q")
_MASK: Final = 0xFFFFFFFF

_LZ4_MAGIC: Final = 0x184D2204
_LZ4_RAW: Final = 1 << 31
_LZ4_DESCRIPTOR: Final = 4

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_HEADER: Final = 5
_ZSTD_BLOCK: Final = 3
_ZSTD_LARGEST: Final = 128 << 10
_ZSTD_RLE, _ZSTD_RESERVED = 1, 3
# Writers that flush often have small blocks; more than these are somebody's attempt to keep us busy.
_ZSTD_SMALL: Final = 1 << 10
_ZSTD_FEW: Final = 64
# What does not shrink grows by this share and a little at most.
_ZSTD_SHARE: Final = 1 << 7
_ZSTD_EXTRA: Final = 1 << 9


class Chunk(NamedTuple):
    """A part of a frame that becomes a part of its buffer."""

    start: int  # in the frame, with `nbytes`
    nbytes: int
    target: int  # in the buffer, with `size`
    size: int
    raw: bool = False  # stored, not compressed


def chunks_of(frame: memoryview, claimed: int, codec: str) -> list[Chunk] | str:
    """Return the chunks of a whole frame that claims to hold `claimed` bytes, or why a device cannot take it."""
    if not claimed:
        return "a frame of nothing"
    try:
        return _CODECS[codec](frame.cast("B"), claimed)
    except (struct.error, IndexError):
        return "a frame that is cut off"


def _lz4(frame: memoryview, claimed: int) -> list[Chunk] | str:
    (magic,) = _UINT32.unpack_from(frame)
    flags, sizes = frame[_LZ4_DESCRIPTOR], frame[_LZ4_DESCRIPTOR + 1]
    independent, has_size = bool(flags & 0x20), bool(flags & 0x08)
    if magic != _LZ4_MAGIC or flags & 0xC2 != 0x40 or sizes & 0x8F or sizes < 0x40:
        return "not one plain LZ4 frame"
    if flags & 0x15:
        return "an LZ4 frame with checksums, or a dictionary"
    end = _LZ4_DESCRIPTOR + 2 + 8 * has_size
    if has_size and _UINT64.unpack_from(frame, _LZ4_DESCRIPTOR + 2) != (claimed,):
        return "an LZ4 frame of another size"
    if frame[end] != _xxh32(bytes(frame[_LZ4_DESCRIPTOR:end])) >> 8 & 0xFF:
        return "a damaged header"
    largest = 1 << (8 + 2 * (sizes >> 4))
    if claimed > largest and not independent:
        return "blocks that need those before them"
    # All blocks but the last are full: none says how much is in it. And writers leave a block that does not shrink.
    chunks, place = [], end + 1
    for target in range(0, claimed, largest):
        (word,) = _UINT32.unpack_from(frame, place)
        nbytes, raw = word & ~_LZ4_RAW, bool(word & _LZ4_RAW)
        size = min(largest, claimed - target)
        place += _UINT32.size
        if not 0 < nbytes <= size or place + nbytes > len(frame) or (raw and nbytes != size):
            return "an LZ4 block of an odd size"
        chunks.append(Chunk(place, nbytes, target, size, raw))
        place += nbytes
    if _UINT32.unpack_from(frame, place) != (0,) or place + _UINT32.size != len(frame):
        return "an LZ4 frame that does not end with its buffer"
    return chunks


def _zstd(frame: memoryview, claimed: int) -> list[Chunk] | str:
    (magic,) = _UINT32.unpack_from(frame)
    flags = frame[4]
    single = flags >> 5 & 1
    if magic != _ZSTD_MAGIC or flags & 0x08:
        return "not one plain ZSTD frame"
    if flags & 0x07:
        return "a ZSTD frame with a checksum, or a dictionary"
    if len(frame) > claimed + claimed // _ZSTD_SHARE + _ZSTD_EXTRA:
        return "a ZSTD frame that is longer than what it holds"
    width = (single, 2, 4, 8)[flags >> 6]
    place = _ZSTD_HEADER + (not single)
    if width:
        said = int.from_bytes(frame[place : place + width], "little") + (256 if width == 2 else 0)
        if said != claimed:
            return "a ZSTD frame of another size"
    place += width
    for _ in range(_ZSTD_FEW + claimed // _ZSTD_SMALL):
        header = frame[place] | frame[place + 1] << 8 | frame[place + 2] << 16
        kind, size = header >> 1 & 3, header >> 3
        place += _ZSTD_BLOCK + (1 if kind == _ZSTD_RLE else size)
        if kind == _ZSTD_RESERVED or size > _ZSTD_LARGEST or place > len(frame):
            return "a ZSTD block of an odd kind or size"
        if header & 1:
            whole = [Chunk(0, len(frame), 0, claimed)]
            return whole if place == len(frame) else "a ZSTD frame that does not end with its buffer"
    return "a ZSTD frame of very many blocks"


_CODECS: Final[dict[str, Callable[[memoryview, int], list[Chunk] | str]]] = {"lz4": _lz4, "zstd": _zstd}


def _xxh32(data: bytes) -> int:
    """Return the checksum of fewer than 16 bytes, with the seed 0."""
    value = 374761393 + len(data)
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        value += _UINT32.unpack_from(data, start)[0] * 3266489917
        value = _rotated(value & _MASK, 17) * 668265263
    for byte in data[whole:]:
        value = _rotated((value + byte * 374761393) & _MASK, 11) * 2654435761
    value &= _MASK
    value = (value ^ value >> 15) * 2246822519 & _MASK
    value = (value ^ value >> 13) * 3266489917 & _MASK
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
