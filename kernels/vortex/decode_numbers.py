"""Numbers decoded on any device: each function allocates its result and launches kernels.

Packed integers with zigzag, a frame of reference and ALP are one launch; sequences, differences, parts and halves
are others. Arrays have one dimension and are contiguous; numbers of rows come from the caller, which bounds them
before anything is allocated. What is wrong in the data: :mod:`bowstring.kernels.vortex.faults`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from bowstring.errors import InvalidBody, UsageError
from bowstring.kernels.launch import find_place, launch, run_arrays
from bowstring.kernels.vortex import numbers
from bowstring.kernels.vortex import unpack as unpacking
from bowstring.kernels.vortex.arrays import empty, put, unsigned, words_of

CHUNK: Final = 1024
"""Elements that are packed together."""
ONES: Final = {8: 0x0101010101010101, 16: 0x0001000100010001, 32: 0x100000001, 64: 1}
"""Words with the lowest bit of each element set, by the bits of an element."""
_COLUMNS: Final = 4  # log2 of the words in a row: on a GPU each has a work item


class Adjustment(NamedTuple):
    """What is done with integers after they are unpacked, in this order."""

    zigzag: bool = False  # whether they are zigzag-coded
    # What is added to each, wrapping: a number, or an array of uint64 with one for each 1,024 elements.
    reference: Any = 0
    # Those of ALP, ``(e, f)``: the result is ``integer * 10**f * 10**-e``, of floats as wide as the
    # integers.
    exponents: tuple[int, int] | None = None


_PLAIN: Final = Adjustment()


def unpack(
    packed: Any,
    width: int,
    dtype: Any,
    rows: int,
    *,
    offset: int = 0,
    starts: Any = None,
    adjustment: Adjustment = _PLAIN,
    faults: Any,
) -> Any:
    """Return bit-packed integers, shape (rows,), unpacked and adjusted in one launch."""
    # packed: uint8 or uint64, chunks of 128 * width bytes each; copied if not at a multiple of 8 bytes
    # width: bits of a packed element; dtype: of the integers (with exponents, the floats are as wide)
    # rows, offset: elements [offset, offset + rows); offset below 1,024
    # starts: int64, optional: bytes, multiples of 128, at which chunks begin and the last ends, instead of `width`
    dtype = np.dtype(dtype)
    bits = 8 * dtype.itemsize
    chunks = -(-(offset + rows) // CHUNK)
    _check_range("bit width", width, 0, bits)
    _check_range("offset", offset, 0, CHUNK - 1)
    words = packed if packed.dtype == np.uint64 else words_of(packed)
    if starts is None and words.size < chunks * width * 16:
        raise InvalidBody(
            "bit-packed data are too short", expected=f"{chunks * width * 128} bytes", found=packed.nbytes
        )
    first = (
        empty(words, 0, np.int64)
        if starts is None
        else run_arrays(lambda xp, each: xp.right_shift(each, 3), starts)
    )
    references = _references(adjustment.reference, bits, words)
    parts = 0 if find_place((words,)) == "host" else _COLUMNS
    zigzag, exponents = adjustment.zigzag, adjustment.exponents
    if exponents is None or starts is not None:
        out = empty(words, chunks * 16 * bits, np.uint64)
        arguments = (words, first, references, width, bits.bit_length() - 1, ONES[bits], zigzag, parts)
        launch(unpacking.unpack_words, chunks << parts, *arguments, out, faults)
        found = out.view(dtype)[offset : offset + rows]
        return found if exponents is None else scale(found, exponents)
    float_, factors = _factors(dtype, exponents)
    out = empty(words, chunks * CHUNK, float_)
    kernel = unpacking.unpack_doubles if bits == 64 else unpacking.unpack_singles
    if parts and bits == 32:
        parts += 1  # two elements lie in a word
    launch(kernel, chunks << parts, words, references, width, zigzag, *factors, parts, out, faults)
    return out[offset : offset + rows]


def adjust(values: Any, adjustment: Adjustment) -> Any:
    """Return integers adjusted as :func:`unpack` does it, for those that are not packed."""
    bits = 8 * values.dtype.itemsize
    references = _references(adjustment.reference, bits, values)
    if adjustment.zigzag or references.size:
        out = empty(values, values.size, values.dtype)
        signed = (
            values.view(f"i{bits // 8}"),
            64 - bits,
            adjustment.zigzag,
            references,
            out.view(f"i{bits // 8}"),
        )
        launch(numbers.adjust, values.size, *signed)
        values = out
    return values if adjustment.exponents is None else scale(values, adjustment.exponents)


def scale(values: Any, exponents: tuple[int, int]) -> Any:
    """Return the floats of ALP: ``integer * 10**f * 10**-e``, rounded after each product."""
    # values: array of int32, uint32, int64 or uint64
    float_, factors = _factors(values.dtype, exponents)
    out = empty(values, values.size, float_)
    kernel = numbers.scale_doubles if float_.itemsize == 8 else numbers.scale_singles
    launch(kernel, values.size, values.view(f"i{float_.itemsize}"), *factors, out)
    return out


def join_halves(
    codes: Any,
    rights: Any,
    lefts: Sequence[int],
    right_bits: int,
    *,
    patches: tuple[Any, Any, int] | None = None,
    validity: Any = None,
    faults: Any,
) -> Any:
    """Return the floats of ALP-RD: their left bits by a small dictionary, their right bits as they are."""
    # codes: uint8 or uint16; lefts: the dictionary, each below 2**16
    # rights: uint32 or uint64, as wide as the floats
    # validity: bitmap of the rows; patches: indices, left parts and offset of rows that the dictionary lacks
    size = rights.dtype.itemsize
    _check_range("right bit width", right_bits, 0, 8 * size - 1)
    table = put(rights, [each & (1 << 16) - 1 for each in lefts], np.uint64)
    bitmap = empty(rights, 0, np.uint8) if validity is None else validity
    out = empty(rights, rights.size, f"u{size}")
    joining, patching = (
        (numbers.join_doubles, numbers.patch_doubles)
        if size == 8
        else (numbers.join_singles, numbers.patch_singles)
    )
    small = unsigned(codes).astype(np.uint16)
    launch(joining, rights.size, small, unsigned(rights), table, right_bits, bitmap, out, faults)
    if patches is not None:
        at, left = patches[0].astype(np.uint64), patches[1].astype(np.uint64)
        launch(patching, at.size, at, patches[2], left, right_bits, out, faults)
    return out.view(f"f{size}")


def sequence(beside: Any, base: int, step: int, dtype: Any, rows: int) -> Any:
    """Return ``base + i * step``, wrapping, on the device of another array."""
    dtype = np.dtype(dtype)
    out = empty(beside, rows, dtype)
    signed = base & 2**64 - 1, step & 2**64 - 1, 64 - 8 * dtype.itemsize, out.view(f"i{dtype.itemsize}")
    launch(numbers.count_up, rows, *signed)
    return out


def undelta(bases: Any, deltas: Any, rows: int, *, offset: int = 0, faults: Any) -> Any:
    """Return integers of which differences are stored, in the transposed order of FastLanes."""
    # deltas: chunks of 1,024; bases: of the same type, one for each of the 128 / itemsize lanes of a chunk
    size = deltas.dtype.itemsize
    chunks = -(-(offset + rows) // CHUNK)
    out = empty(deltas, chunks * CHUNK, deltas.dtype)
    signed = bases.view(f"i{size}"), deltas.view(f"i{size}")
    up, log = 64 - 8 * size, (8 * size).bit_length() - 1
    launch(numbers.add_deltas, chunks * (128 // size), *signed, log, up, out.view(f"i{size}"), faults)
    return out[offset : offset + rows]


def add_parts(parts: Sequence[tuple[Any, int]], rows: int, *, beside: Any) -> Any:
    """Return the sum of arrays or numbers times a factor each, as int64."""
    constant = sum(part * factor for part, factor in parts if not hasattr(part, "dtype"))
    total = sequence(beside, constant, 0, np.int64, rows)
    for part, factor in parts:
        if hasattr(part, "dtype"):
            plain = part.view(np.int64) if part.dtype == np.uint64 else part
            launch(numbers.add_part, rows, plain, factor, total)
    return total


def widen(values: Any, words: int) -> Any:
    """Return signed integers as integers of several words of 64 bits, lowest word first.

    The result has ``values.size * words`` words.
    """
    out = empty(values, values.size * words, np.uint64)
    launch(numbers.widen, values.size, values.view(f"i{values.dtype.itemsize}"), words, out)
    return out


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidBody(f"a {name} is out of range", expected=f"{least} to {most}", found=value)


def _factors(dtype: Any, exponents: tuple[int, int]) -> tuple[np.dtype[Any], tuple[Any, Any]]:
    """Return the floats as wide as integers, and the two factors of ALP: decimal literals, rounded once."""
    if dtype.itemsize not in (4, 8):
        raise UsageError("no floats are as wide as these integers", expected="4 or 8 bytes", found=str(dtype))
    float_ = np.dtype(f"f{dtype.itemsize}")
    most = 23 if dtype.itemsize == 8 else 10
    for each in exponents:
        _check_range("exponent of ALP", each, 0, most)
    return float_, (float_.type(f"1e{exponents[1]}"), float_.type(f"1e-{exponents[0]}"))


def _references(reference: Any, bits: int, beside: Any) -> Any:
    if hasattr(reference, "dtype"):
        return reference.astype(np.uint64)
    wrapped = reference & (1 << bits) - 1
    return put(beside, [wrapped], np.uint64) if wrapped else empty(beside, 0, np.uint64)
