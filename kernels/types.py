"""The scalar types that kernels compute with, and their names in signatures.

NumPy's scalars wrap where compiled code widens, and mixing signedness gives a float in one and an integer in the
other. So a kernel computes in ``i64`` and ``u64`` only and casts what it loads at once. Literals take the type of
what they meet (:mod:`bowstring.kernels.checker`); alone, they are spelled with it: ``total = i64(0)``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

u8 = np.uint8
u16 = np.uint16
u32 = np.uint32
u64 = np.uint64
i8 = np.int8
i16 = np.int16
i32 = np.int32
i64 = np.int64
f32 = np.float32
f64 = np.float64

# By the name that signatures use.
SCALARS: Final[dict[str, type[np.generic]]] = {
    "u8": u8,
    "u16": u16,
    "u32": u32,
    "u64": u64,
    "i8": i8,
    "i16": i16,
    "i32": i32,
    "i64": i64,
    "f32": f32,
    "f64": f64,
}
