"""Faults: what is wrong in the data that kernels decode.

Kernels do not raise. They note in an array what is wrong, which may serve many launches, is on the device, and is
brought to the host once.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bowstring.errors import InvalidBody
from bowstring.kernels.launch import run_arrays
from bowstring.kernels.vortex import gather, numbers, strings, unpack

_FAULTS: Final = {
    unpack.OUTSIDE: "packed data are shorter than their rows, or an index of a patch is beyond them",
    gather.PATCH: "a patch lies beyond the rows",
    gather.CODE: "a code points at no value of its dictionary",
    gather.RUN: "ends of runs do not rise, or runs end before the rows do",
    numbers.LEFT: "a left part has a code that its dictionary lacks",
    strings.LENGTH: "the bytes of a value are not as many as its length",
    strings.TOKEN: "a code stands for no symbol, or offsets point outside",
}


def new_faults(beside: Any) -> Any:
    """Return an array of int64 on the device of another, in which kernels note what is wrong."""
    return run_arrays(lambda xp, _: xp.zeros(len(_FAULTS) + 1, np.int64), beside)


def check_faults(faults: Any, where: str | None = None) -> None:
    """Raise for the first fault that kernels noted."""
    # faults: array of int64; what `new_faults` made, brought to the host
    for place, what in _FAULTS.items():
        if faults[place]:
            raise InvalidBody(what, where=where)
