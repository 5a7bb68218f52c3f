"""Which encoding takes the fewest bytes for numbers: all that fit are estimated, and the best one is built."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bowstring.vortex.compress.floats import alp
from bowstring.vortex.compress.numbers import NODE, Numbers, Plan, plain
from bowstring.vortex.compress.packed import packed
from bowstring.vortex.compress.repeats import constant, dictionary, runs, sequence, sparse
from bowstring.vortex.nodes import Piece

DEPTH: Final = 3
"""How many encodings may be chosen inside each other; bit-packing comes below them."""


def encoded(numbers: Numbers, depth: int = DEPTH) -> Piece:
    """Return numbers in the encoding that takes the fewest bytes."""
    return plan(numbers, depth).build()


def integers(values: Any) -> Piece:
    """Return integers without nulls, encoded in the type that they have."""
    return encoded(Numbers(np.ascontiguousarray(values)))


def plan(numbers: Numbers, depth: int = DEPTH) -> Plan:
    """Return the plan that takes the fewest bytes."""
    if not len(numbers):
        return plain(numbers)
    single = constant(numbers)
    if single is not None:
        return single

    if numbers.values.nbytes <= 2 * NODE:  # other nodes take more
        return (sequence(numbers) if depth > 0 else None) or plain(numbers)

    def below(inner: Numbers) -> Piece:
        return encoded(inner, depth - 1)

    found = [plain(numbers), packed(numbers)]
    if depth > 0:
        found += [sequence(numbers), runs(numbers, below), sparse(numbers, below), alp(numbers, below)]
        least = min(each.nbytes for each in found if each is not None)
        found.append(dictionary(numbers, below, least))
    return min((each for each in found if each is not None), key=lambda each: each.nbytes)
