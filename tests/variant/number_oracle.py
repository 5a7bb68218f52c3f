"""What a number becomes by the rule ``cast="number"``, worked out with fractions."""

from __future__ import annotations

import decimal
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from bowstring.variant import Status, Value

FLOATS: dict[pa.DataType, tuple[int, int, int]] = {
    pa.float16(): (11, -24, 15),
    pa.float32(): (24, -149, 127),
    pa.float64(): (53, -1074, 1023),
}
"""Binary digits, and the exponents of the least number and of the greatest power of two."""
NUMBERS = ("int8", "int16", "int32", "int64", "decimal4", "decimal8", "decimal16", "float", "double")


def expected(value: Value, type_: pa.DataType) -> tuple[Status, Any]:
    """Return the status of a number, and what it becomes."""
    if value.type not in NUMBERS:
        return Status.TYPE_MISMATCH, None
    number = value.value
    if type_ in FLOATS:
        return _float(number, *FLOATS[type_])
    if isinstance(number, float) and not math.isfinite(number):
        return Status.OVERFLOW, None
    if pa.types.is_integer(type_):
        limits = np.iinfo(type_.to_pandas_dtype())
        exact = Fraction(number)
        fits = exact.denominator == 1 and int(limits.min) <= exact <= int(limits.max)
        return (Status.OK, int(exact)) if fits else (Status.OVERFLOW, None)
    if isinstance(number, float):
        number = decimal.Decimal(repr(number) if value.type == "double" else str(np.float32(number)))
    unscaled = Fraction(number) * 10**type_.scale
    if unscaled.denominator != 1 or abs(unscaled) >= 10**type_.precision:
        return Status.OVERFLOW, None
    return Status.OK, decimal.Decimal(int(unscaled)).scaleb(-type_.scale, decimal.Context(prec=100))


def _float(number: Any, digits: int, least: int, most: int) -> tuple[Status, Any]:
    if isinstance(number, float) and (not math.isfinite(number) or number == 0):
        return Status.OK, number
    exact = Fraction(number)
    sign = -1.0 if exact < 0 else 1.0
    size = abs(exact)
    if not size:
        return Status.OK, 0.0
    power = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** power > size:
        power -= 1
    quantum = Fraction(2) ** max(power - digits + 1, least)
    nearest = round(size / quantum) * quantum  # Python rounds fractions half to even
    if nearest >= Fraction(2) ** (most + 1):
        return Status.OVERFLOW, None
    return Status.OK, math.copysign(float(nearest), sign)


def same(found: Any, wanted: Any) -> bool:
    """Return whether two numbers are one, with the sign of a zero; a NaN is one as another."""
    if isinstance(wanted, float) and isinstance(found, float):
        if math.isnan(wanted):
            return math.isnan(found)
        return found == wanted and math.copysign(1, found) == math.copysign(1, wanted)
    return type(found) is type(wanted) and found == wanted
