"""Decoding arrays of Vortex on any device: each function allocates its result and launches a kernel.

Arrays have one dimension and are contiguous; numbers of rows come from the caller, which bounds them before
anything is allocated. Kernels do not raise: what is wrong in the data they note in an array of *faults*
(:func:`new_faults`), which may serve many launches, is on the device, and is brought to the host once, for
:func:`check_faults`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from bowstring.errors import InvalidBody, UsageError
from bowstring.kernels.launch import find_place, launch, run_arrays
from bowstring.kernels.vortex import gather, numbers, strings
from bowstring.kernels.vortex import unpack as unpacking

__all__ = [
    "CHUNK",
    "ONES",
    "Adjustment",
    "add_parts",
    "adjust",
    "check_faults",
    "decode_fsst",
    "decode_onpair",
    "empty",
    "expand_rle",
    "expand_runs",
    "join_halves",
    "make_views",
    "new_faults",
    "offsets_of",
    "patch",
    "scale",
    "sequence",
    "take",
    "take_bits",
    "undelta",
    "unpack",
    "widen",
    "words_of",
]

CHUNK: Final = 1024
"""Elements that are packed together."""
ONES: Final = {8: 0x0101010101010101, 16: 0x0001000100010001, 32: 0x100000001, 64: 1}
"""Words with the lowest bit of each element set, by the bits of an element."""

_FAULTS: Final = {
    unpacking.OUTSIDE: "packed data are shorter than their rows, or an index of a patch is beyond them",
    gather.PATCH: "a patch lies beyond the rows",
    gather.CODE: "a code points at no value of its dictionary",
    gather.RUN: "ends of runs do not rise, or runs end before the rows do",
    numbers.LEFT: "a left part has a code that its dictionary lacks",
    strings.LENGTH: "the bytes of a value are not as many as its length",
    strings.TOKEN: "a code stands for no symbol, or offsets point outside",
}
_STEP_ON_HOST: Final = 1024
_SYMBOLS: Final = 256
_LARGE: Final = 1 << 16
_COLUMNS: Final = 4  # log2 of the words in a row: on a GPU each has a work item


class Adjustment(NamedTuple):
    """What is done with integers after they are unpacked, in this order.

    Attributes
    ----------
    zigzag
        Whether they are zigzag-coded.
    reference
        What is added to each, wrapping: a number, or an array of uint64 with one for each 1,024 elements.
    exponents
        Those of ALP, ``(e, f)``: the result is ``integer * 10**f * 10**-e``, of floats as wide as the integers.

    Examples
    --------
    >>> Adjustment(reference=5)
    Adjustment(zigzag=False, reference=5, exponents=None)
    """

    zigzag: bool = False
    reference: Any = 0
    exponents: tuple[int, int] | None = None


_PLAIN: Final = Adjustment()


def new_faults(beside: Any) -> Any:
    """Return an array of int64 on the device of another, in which kernels note what is wrong.

    Examples
    --------
    >>> new_faults(np.zeros(1)).any()
    np.False_
    """
    return run_arrays(lambda xp, _: xp.zeros(len(_FAULTS) + 1, np.int64), beside)


def check_faults(faults: Any, where: str | None = None) -> None:
    """Raise for the first fault that kernels noted.

    Parameters
    ----------
    faults : numpy.ndarray of int64
        What :func:`new_faults` made, brought to the host.
    where
        Which column they were about.

    Raises
    ------
    InvalidBody
        A kernel met what is wrong.

    Examples
    --------
    >>> check_faults(new_faults(np.zeros(1)))
    """
    for place, what in _FAULTS.items():
        if faults[place]:
            raise InvalidBody(what, where=where)


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
    """Return bit-packed integers, unpacked and adjusted in one launch.

    Parameters
    ----------
    packed : array of uint8 or uint64
        Chunks of ``128 * width`` bytes each. It is copied if it does not begin at a multiple of 8 bytes.
    width
        Bits of a packed element, from 0 to those of `dtype`.
    dtype
        Integers of the result; with exponents, it is of floats as wide.
    rows, offset
        Which elements: ``[offset, offset + rows)``; at most 1,023 come before them.
    starts : array of int64, optional
        Where each chunk begins in `packed`, in bytes that are multiples of 128, and where the last ends: then the
        width of each follows from it, and `width` does not count.
    faults : array of int64
        What :func:`new_faults` made on this device.

    Returns
    -------
    array, shape (rows,)
        On the same device.

    Raises
    ------
    InvalidBody
        A width, offset or exponent is out of range, or `packed` is too short.

    Examples
    --------
    >>> packed = np.full(128 * 3, 0xFF, np.uint8)
    >>> faults = new_faults(packed)
    >>> unpack(packed, 3, np.int32, 4, adjustment=Adjustment(reference=100), faults=faults).tolist()
    [107, 107, 107, 107]
    """
    dtype = np.dtype(dtype)
    bits = 8 * dtype.itemsize
    chunks = -(-(offset + rows) // CHUNK)
    _check_range("bit width", width, 0, bits)
    _check_range("offset", offset, 0, CHUNK - 1)
    words = packed if packed.dtype == np.uint64 else words_of(packed)
    if starts is None and len(words) < chunks * width * 16:
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
    launch(kernel, chunks << parts, words, references, width, zigzag, *factors, parts, out, faults)
    return out[offset : offset + rows]


def adjust(values: Any, adjustment: Adjustment) -> Any:
    """Return integers adjusted as :func:`unpack` does it, for those that are not packed.

    Raises
    ------
    InvalidBody
        An exponent is out of range.

    Examples
    --------
    >>> adjust(np.array([1, 2, 3], np.uint8), Adjustment(zigzag=True)).tolist()
    [255, 1, 254]
    """
    bits = 8 * values.dtype.itemsize
    references = _references(adjustment.reference, bits, values)
    if adjustment.zigzag or len(references):
        out = empty(values, len(values), values.dtype)
        signed = (
            values.view(f"i{bits // 8}"),
            64 - bits,
            adjustment.zigzag,
            references,
            out.view(f"i{bits // 8}"),
        )
        launch(numbers.adjust, len(values), *signed)
        values = out
    return values if adjustment.exponents is None else scale(values, adjustment.exponents)


def scale(values: Any, exponents: tuple[int, int]) -> Any:
    """Return the floats of ALP: ``integer * 10**f * 10**-e``, rounded after each product.

    Parameters
    ----------
    values : array of int32, uint32, int64 or uint64
    exponents
        ``(e, f)``.

    Raises
    ------
    InvalidBody
        An exponent is out of range.

    Examples
    --------
    >>> scale(np.array([1999, -5]), (3, 1)).tolist()
    [19.990000000000002, -0.05]
    """
    float_, factors = _factors(values.dtype, exponents)
    out = empty(values, len(values), float_)
    kernel = numbers.scale_doubles if float_.itemsize == 8 else numbers.scale_singles
    launch(kernel, len(values), values.view(f"i{float_.itemsize}"), *factors, out)
    return out


def patch(out: Any, indices: Any, values: Any, *, offset: int = 0, words: int = 1, faults: Any) -> None:
    """Write patches into an array: ``out[indices - offset] = values``.

    Parameters
    ----------
    out, values : arrays of one type
        Numbers of 1, 2, 4 or 8 bytes; or uint64, of which one element has several.
    indices : array of unsigned integers
    words
        Words of 64 bits of one element, if more than 1.

    Examples
    --------
    >>> out = np.zeros(4, np.int16)
    >>> patch(
    ...     out, np.array([11, 13], np.uint8), np.array([7, 8], np.int16), offset=10, faults=new_faults(out)
    ... )
    >>> out.tolist()
    [0, 7, 0, 8]
    """
    at = indices.astype(np.uint64)
    if words > 1:
        launch(gather.scatter_words, len(at), at, offset, values, words, out, faults)
    else:
        launch(gather.scatter, len(at), at, offset, _unsigned(values), _unsigned(out), faults)


def take(
    codes: Any, values: Any, *, validity: Any = None, first: int = 0, words: int = 1, faults: Any
) -> Any:
    """Return the values that codes stand for.

    Parameters
    ----------
    codes : array of integers
        Those of null rows may be anything.
    values : array
        Numbers of 1, 2, 4 or 8 bytes; or uint64, of which one value has several.
    validity : array of uint8, optional
        The bitmap of the rows, `first` being the bit of the first row.
    words
        Words of 64 bits of one value, if more than 1.

    Examples
    --------
    >>> codes = np.array([1, 0, 1], np.uint8)
    >>> take(codes, np.array([2.5, 3.5]), faults=new_faults(codes)).tolist()
    [3.5, 2.5, 3.5]
    """
    codes = _codes(codes)
    bitmap = empty(codes, 0, np.uint8) if validity is None else validity
    out = empty(codes, len(codes) * words, values.dtype)
    if words > 1:
        launch(gather.gather_words, len(codes), codes, values, words, bitmap, first, out, faults)
    else:
        plain = _unsigned(values), bitmap, first, _unsigned(out)
        launch(gather.gather, len(codes), codes, *plain, faults)
    return out


def take_bits(codes: Any, bitmap: Any, start: int, count: int) -> Any:
    """Return, as a bitmap, the bits of a bitmap that codes stand for: of `count` from `start` on; 0 beyond them.

    Examples
    --------
    >>> take_bits(np.array([0, 2, 2, 1], np.uint8), np.array([0b101], np.uint8), 0, 3).tolist()
    [7]
    """
    codes = _codes(codes)
    words = empty(codes, -(-len(codes) // 64), np.uint64)
    launch(gather.gather_bits, len(words), codes, bitmap, start, count, words)
    return words.view(np.uint8)[: (len(codes) + 7) >> 3]


def expand_runs(ends: Any, values: Any, rows: int, *, offset: int = 0, faults: Any) -> Any:
    """Return the values of rows that are encoded as runs.

    Parameters
    ----------
    ends : array of unsigned integers
        Behind which row each run ends; rising.
    values : array
        One for each run. For what is no number of 1, 2, 4 or 8 bytes, pass ``arange``, and take by the result.
    offset
        How many rows of the first runs come before the first row.

    Examples
    --------
    >>> ends = np.array([2, 3], np.uint16)
    >>> expand_runs(ends, np.array([5, 6]), 3, faults=new_faults(ends)).tolist()
    [5, 5, 6]
    """
    if ends.dtype.itemsize < 4:
        ends = _unsigned(ends).astype(np.uint32)
    out = empty(values, rows, values.dtype)
    step = _step(values)
    ends = _unsigned(ends)
    run_arrays(_note_order, ends, faults)  # a work item looks at the ends of its own rows only
    launch(
        gather.expand_runs,
        -(-rows // step),
        ends,
        _unsigned(values),
        offset,
        rows,
        step,
        _unsigned(out),
        faults,
    )
    return out


def _note_order(xp: Any, ends: Any, faults: Any) -> Any:
    """Note a fault where ends of runs do not rise."""
    faults[gather.RUN : gather.RUN + 1] |= xp.any(ends[1:] <= ends[:-1])
    return faults


def expand_rle(
    indices: Any,
    values: Any,
    starts: Any,
    rows: int,
    *,
    offset: int = 0,
    validity: Any = None,
    first: int = 0,
    faults: Any,
) -> Any:
    """Return the values of rows in blocks of 1,024, each with values of its own that indices choose from.

    Parameters
    ----------
    indices : array of uint8 or uint16
        One for each row of whole blocks.
    values : array
        Numbers of 1, 2, 4 or 8 bytes.
    starts : array of integers
        With which value each block begins, and more by the first of them.
    rows, offset
        Which rows: ``[offset, offset + rows)``.
    validity : array of uint8, optional
        The bitmap of these rows, `first` being the bit of the first.

    Examples
    --------
    >>> indices = np.zeros(1024, np.uint8)
    >>> expand_rle(indices, np.array([7]), np.array([0]), 3, faults=new_faults(indices)).tolist()
    [7, 7, 7]
    """
    if indices.dtype.itemsize < 2:
        indices = _unsigned(indices).astype(np.uint16)
    bitmap = empty(values, 0, np.uint8) if validity is None else validity
    out = empty(values, rows, values.dtype)
    arguments = _unsigned(indices), _unsigned(values), starts.astype(np.int64), offset, bitmap, first
    launch(gather.expand_blocks, rows, *arguments, _unsigned(out), faults)
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
    """Return the floats of ALP-RD: their left bits by a small dictionary, their right bits as they are.

    Parameters
    ----------
    codes : array of uint8 or uint16
    rights : array of uint32 or uint64
        As wide as the floats.
    lefts
        The dictionary of left parts, each below ``2**16``.
    patches
        Indices, left parts and an offset: the rows whose left part is not in the dictionary.
    validity : array of uint8, optional
        The bitmap of the rows, from bit 0 on.

    Raises
    ------
    InvalidBody
        A number is out of range.

    Examples
    --------
    >>> codes, rights = np.zeros(2, np.uint16), np.array([0, 1 << 51], np.uint64)
    >>> join_halves(codes, rights, [0x3FF], 52, faults=new_faults(codes)).tolist()
    [1.0, 1.5]
    """
    size = rights.dtype.itemsize
    _check_range("right bit width", right_bits, 0, 8 * size - 1)
    table = _put(rights, [each & (1 << 16) - 1 for each in lefts], np.uint64)
    bitmap = empty(rights, 0, np.uint8) if validity is None else validity
    out = empty(rights, len(rights), f"u{size}")
    joining, patching = (
        (numbers.join_doubles, numbers.patch_doubles)
        if size == 8
        else (numbers.join_singles, numbers.patch_singles)
    )
    small = _unsigned(codes).astype(np.uint16)
    launch(joining, len(rights), small, _unsigned(rights), table, right_bits, bitmap, out, faults)
    if patches is not None:
        at, left = patches[0].astype(np.uint64), patches[1].astype(np.uint64)
        launch(patching, len(at), at, patches[2], left, right_bits, out, faults)
    return out.view(f"f{size}")


def sequence(beside: Any, base: int, step: int, dtype: Any, rows: int) -> Any:
    """Return ``base + i * step``, wrapping, on the device of another array.

    Examples
    --------
    >>> sequence(np.zeros(1), 250, 3, np.uint8, 4).tolist()
    [250, 253, 0, 3]
    """
    dtype = np.dtype(dtype)
    out = empty(beside, rows, dtype)
    signed = base & 2**64 - 1, step & 2**64 - 1, 64 - 8 * dtype.itemsize, out.view(f"i{dtype.itemsize}")
    launch(numbers.count_up, rows, *signed)
    return out


def undelta(bases: Any, deltas: Any, rows: int, *, offset: int = 0, faults: Any) -> Any:
    """Return integers of which differences are stored, in the transposed order of FastLanes.

    Parameters
    ----------
    bases, deltas : arrays of one type
        Chunks of 1,024 differences, and for each chunk a base for each of its ``128 / itemsize`` lanes.
    rows, offset
        Which elements: ``[offset, offset + rows)``.

    Examples
    --------
    >>> deltas = np.ones(1024, np.uint64)
    >>> undelta(np.arange(16, dtype=np.uint64) * 64, deltas, 3, faults=new_faults(deltas)).tolist()
    [1, 2, 3]
    """
    size = deltas.dtype.itemsize
    chunks = -(-(offset + rows) // CHUNK)
    out = empty(deltas, chunks * CHUNK, deltas.dtype)
    signed = bases.view(f"i{size}"), deltas.view(f"i{size}")
    up, log = 64 - 8 * size, (8 * size).bit_length() - 1
    launch(numbers.add_deltas, chunks * (128 // size), *signed, log, up, out.view(f"i{size}"), faults)
    return out[offset : offset + rows]


def add_parts(parts: Sequence[tuple[Any, int]], rows: int, *, beside: Any) -> Any:
    """Return the sum of arrays or numbers times a factor each, as int64.

    Examples
    --------
    >>> days = np.array([0, 2], np.int32)
    >>> add_parts([(days, 86_400), (5, 1)], 2, beside=days).tolist()
    [5, 172805]
    """
    constant = sum(part * factor for part, factor in parts if isinstance(part, int))
    wrapped = (constant + 2**63) % 2**64 - 2**63
    total = empty(beside, rows, np.int64)
    run_arrays(lambda _, out: _filled(out, wrapped), total)
    for part, factor in parts:
        if not isinstance(part, int):
            plain = part.view(np.int64) if part.dtype == np.uint64 else part
            launch(numbers.add_part, rows, plain, factor, total)
    return total


def _filled(out: Any, value: int) -> Any:
    out[:] = value
    return out


def widen(values: Any, words: int) -> Any:
    """Return signed integers as integers of several words of 64 bits, lowest word first.

    The result has ``len(values) * words`` words.

    Examples
    --------
    >>> widen(np.array([-1, 5], np.int8), 2).view(np.int64).tolist()
    [-1, -1, 5, 0]
    """
    out = empty(values, len(values) * words, np.uint64)
    launch(numbers.widen, len(values), values.view(f"i{values.dtype.itemsize}"), words, out)
    return out


def offsets_of(lengths: Any) -> Any:
    """Return where values of some lengths begin, and where the last ends: their sums, from 0 on, as int64.

    A length of 2 GiB or more counts as 2 GiB, which no value has.

    Examples
    --------
    >>> offsets_of(np.array([2, 0, 5], np.uint8)).tolist()
    [0, 2, 2, 7]
    """

    def summed(xp: Any, sizes: Any) -> Any:
        out = xp.zeros(len(sizes) + 1, np.int64)
        if sizes.dtype.itemsize > 2:
            sizes = xp.minimum(sizes, sizes.dtype.type(2**31 - 1))
        xp.cumsum(sizes, dtype=np.int64, out=out[1:])
        return out

    return run_arrays(summed, _unsigned(lengths))


def decode_fsst(
    codes: Any, code_offsets: Any, symbols: Any, lengths: Any, offsets: Any, size: int, *, faults: Any
) -> Any:
    """Return the bytes of texts that are encoded by FSST, one after the other.

    Parameters
    ----------
    codes : array of uint8
    code_offsets : array of integers, shape (rows + 1,)
        Where the codes of each text begin, and where the last end.
    symbols, lengths : arrays of uint8
        Eight bytes for each symbol, and how many of them count.
    offsets : array of int64, shape (rows + 1,)
        Where each text goes; see :func:`offsets_of`.
    size
        The last of the offsets.

    Examples
    --------
    >>> symbols = np.frombuffer(b"bow.....", np.uint8)
    >>> codes, ends = np.array([0, 255, 33], np.uint8), np.array([0, 3])
    >>> out = decode_fsst(
    ...     codes, ends, symbols, symbols[:1] * 0 + 3, np.array([0, 4]), 4, faults=new_faults(codes)
    ... )
    >>> out.tobytes()
    b'bow!'
    """

    def tables(xp: Any, symbols: Any, lengths: Any) -> Any:
        """Return 256 words, and behind them 256 lengths as bytes: 0 for what is no symbol."""
        held = min(len(lengths), len(symbols) // 8, _SYMBOLS - 1)
        words, sizes = xp.zeros(_SYMBOLS + _SYMBOLS // 8, np.uint64), lengths[:held]
        words.view(np.uint8)[: 8 * held] = symbols[: 8 * held]
        words[_SYMBOLS:].view(np.uint8)[:held] = xp.where(sizes <= 8, sizes, np.uint8(0))
        return words

    table = run_arrays(tables, symbols, lengths)
    words, sizes = table[:_SYMBOLS], table[_SYMBOLS:].view(np.uint8)
    out, step = empty(codes, size, np.uint8), _step(codes)
    items = -(-(len(offsets) - 1) // step)
    launch(strings.decode_fsst, items, codes, _int64(code_offsets), words, sizes, offsets, step, out, faults)
    return out


def decode_onpair(
    codes: Any, code_offsets: Any, tokens: Any, token_offsets: Any, offsets: Any, size: int, *, faults: Any
) -> Any:
    """Return the bytes of texts that are encoded by OnPair, one after the other.

    Parameters
    ----------
    codes : array of unsigned integers
        Which tokens each text is made of.
    code_offsets, token_offsets : arrays of integers
        Where the codes of each text, and the bytes of each token begin, and where the last end.
    tokens : array of uint8
    offsets, size
        As for :func:`decode_fsst`.

    Examples
    --------
    >>> tokens = np.frombuffer(b"bowstring", np.uint8)
    >>> codes, ends = np.array([1, 0], np.uint16), np.array([0, 2])
    >>> faults = new_faults(codes)
    >>> decode_onpair(codes, ends, tokens, np.array([0, 3, 9]), np.array([0, 9]), 9, faults=faults).tobytes()
    b'stringbow'
    """
    codes = _codes(codes)
    if codes.dtype.itemsize < 2:
        codes = codes.astype(np.uint16)
    out, step = empty(codes, size, np.uint8), _step(codes)
    arguments = codes, _int64(code_offsets), tokens, _int64(token_offsets), offsets, step, out, faults
    launch(strings.decode_onpair, -(-(len(offsets) - 1) // step), *arguments)
    return out


def make_views(
    offsets: Any, data: Any, *, buffer: int = 0, validity: Any = None, first: int = 0, faults: Any
) -> Any:
    """Return the views of values that lie one after the other.

    Parameters
    ----------
    offsets : array of int32 or int64, shape (rows + 1,)
    data : array of uint8
        Shorter than 2 GiB.
    buffer
        The index of `data` among the buffers of the views.
    validity : array of uint8, optional
        The bitmap of the rows, `first` being the bit of the first row: offsets of null rows may be anything.

    Returns
    -------
    array of uint64, shape (2 * rows,)
        Sixteen bytes for each row, as Arrow has them.

    Examples
    --------
    >>> data = np.frombuffer(b"bowstring", np.uint8)
    >>> views = make_views(np.array([0, 3, 9]), data, faults=new_faults(data))
    >>> views.tobytes()[4:7]
    b'bow'
    """
    rows = len(offsets) - 1
    bitmap = empty(data, 0, np.uint8) if validity is None else validity
    out = empty(data, 2 * rows, np.uint64)
    launch(strings.make_views, rows, offsets, data, buffer, bitmap, first, out, faults)
    return out


def _step(beside: Any) -> int:
    """Return how many rows one work item takes where a row alone would be too little for the host."""
    return _STEP_ON_HOST if find_place((beside,)) == "host" else 1


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
    if not isinstance(reference, int):
        return reference.astype(np.uint64)
    wrapped = reference & (1 << bits) - 1
    return _put(beside, [wrapped], np.uint64) if wrapped else empty(beside, 0, np.uint64)


def _codes(codes: Any) -> Any:
    codes = _unsigned(codes)
    if codes.dtype.itemsize < 8:
        return codes
    return run_arrays(lambda xp, each: xp.minimum(each, np.uint64(2**32 - 1)).astype(np.uint32), codes)


def _int64(array: Any) -> Any:
    return array if array.dtype == np.int64 else array.astype(np.int64)


def _unsigned(array: Any) -> Any:
    return array if array.dtype.kind == "u" else array.view(f"u{array.dtype.itemsize}")


def words_of(data: Any) -> Any:
    """Return bytes as words of 64 bits, copied where they do not begin at a multiple of 8."""
    whole = data[: len(data) & ~7]
    on_host = isinstance(whole, np.ndarray)
    address = whole.__array_interface__["data"][0] if on_host else whole.data.ptr
    return (whole if address & 7 == 0 else whole.copy()).view(np.uint64)


def empty(beside: Any, size: int, dtype: Any) -> Any:
    """Return a new array on the device of another, whose elements may be anything."""
    if type(beside) is not np.ndarray:
        return run_arrays(lambda xp, _: xp.empty(size, dtype), beside)
    dtype = np.dtype(dtype)
    if size * dtype.itemsize < _LARGE:
        return np.empty(size, dtype)
    # Arrow's pool keeps the pages of what is freed. Fresh ones cost more than most decoding.
    return np.frombuffer(pa.allocate_buffer(size * dtype.itemsize), dtype)


def _put(beside: Any, values: list[int], dtype: Any) -> Any:
    return run_arrays(lambda xp, _: xp.asarray(np.array(values, dtype)), beside)
