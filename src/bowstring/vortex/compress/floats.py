"""Floating-point numbers that were decimal ones: ``vortex.alp``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.vortex.compress.numbers import NODE, Numbers, Plan
from bowstring.vortex.compress.packed import patches_metadata, patches_of
from bowstring.vortex.nodes import Piece
from bowstring.vortex.protobuf import BYTES, VARINT, encode

if TYPE_CHECKING:
    from collections.abc import Callable

_SAMPLE: Final = 256
_MOST_EXPONENT: Final = {4: 10, 8: 18}
_MOST_PATCHES: Final = 0.3
_LARGEST: Final = {4: float(1 << 30), 8: float(1 << 62)}


class _Encoded(NamedTuple):
    """Integers that stand for numbers, and which of them do in every bit."""

    integers: Any
    exact: Any


def alp(numbers: Numbers, below: Callable[[Numbers], Piece]) -> Plan | None:
    """Integers times powers of ten, and patches for the numbers that are none."""
    size = numbers.bits // 8
    if not numbers.is_float or size not in _MOST_EXPONENT:
        return None
    valid = numbers.values if numbers.valid is None else numbers.values[numbers.valid]
    step = -(-len(valid) // _SAMPLE)
    sample = valid[::step]
    bits, share, exponents = _best(sample, numbers.bits)
    if share > _MOST_PATCHES:
        return None
    nbytes = len(numbers) * bits / 8 + share * len(valid) * (size + 4) + numbers.tail_bytes + 4 * NODE
    return Plan(nbytes, lambda: _encode(numbers, exponents, below))


def _best(sample: Any, bits: int) -> tuple[int, float, tuple[int, int]]:
    """Return how many bits each number takes, the share of patches, and the exponents, where that is least."""
    best = float("inf"), bits, 1.0, (0, 0)
    size = bits // 8
    for e in range(_MOST_EXPONENT[size] + 1):
        for f in range(e + 1):
            found = _encoded(sample, (e, f))
            good = found.integers[found.exact]
            share = 1 - len(good) / len(sample)
            width = (int(good.max()) - int(good.min())).bit_length() if len(good) else bits
            cost = width + share * (bits + 32)
            if cost < best[0]:
                best = cost, width, share, (e, f)
    return best[1:]


def _encoded(values: Any, exponents: tuple[int, int]) -> _Encoded:
    float_ = values.dtype.type
    size = values.dtype.itemsize
    e, f = exponents
    with np.errstate(all="ignore"):
        scaled = np.rint(values * float_(f"1e{e}") * float_(f"1e-{f}"))
        inside = np.abs(scaled) < _LARGEST[size]
        integers = np.where(inside, scaled, 0).astype(f"<i{size}")
        again = integers.astype(values.dtype) * float_(f"1e{f}") * float_(f"1e-{e}")
    kind = f"<u{size}"
    return _Encoded(integers, again.view(kind) == np.ascontiguousarray(values).view(kind))


def _encode(numbers: Numbers, exponents: tuple[int, int], below: Callable[[Numbers], Piece]) -> Piece:
    found = _encoded(numbers.values, exponents)
    bad = ~found.exact
    if numbers.valid is not None:
        bad &= numbers.valid
    rows = np.flatnonzero(bad)
    fields: list[tuple[int, int, int | bytes]] = [(1, VARINT, exponents[0]), (2, VARINT, exponents[1])]
    children: tuple[Piece, ...] = ()
    integers = found.integers
    if len(rows):
        good = np.flatnonzero(found.exact if numbers.valid is None else found.exact & numbers.valid)
        integers[rows] = integers[good[0]] if len(good) else 0  # what the patches stand for counts no bits
        fields.append((3, BYTES, patches_metadata(rows, len(numbers))))
        values = np.ascontiguousarray(numbers.values[rows])
        plain = Piece("vortex.primitive", buffers=((values, values.dtype.itemsize),))
        children = patches_of(rows, len(numbers), plain)
    encoded = below(numbers.with_values(integers))
    return Piece("vortex.alp", encode(fields), (), (encoded, *children))
