"""The bytes of a Variant's primitive values ("Value Data for Primitive type" of the specification)."""

from __future__ import annotations

import decimal
import struct
import uuid
from typing import Any, Final

from bowstring.errors import LimitExceeded, UsageError
from bowstring.variant.codec.decode_primitives import DIGITS, MICROSECONDS_PER_DAY, PRIMITIVES, WIDTHS, Value

__all__ = ["decimal_type", "int_type", "primitive_bytes", "unscaled", "utf8"]

_SHORT_STRING: Final = 1
_LONGEST_SHORT: Final = 63
_LONGEST: Final = (1 << 32) - 1
_NUMBERS: Final = {name: number for number, name in enumerate(PRIMITIVES)}
_INTS: Final = ("int8", "int16", "int32", "int64")
_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "double": float,
    "float": float,
    "string": str,
    "binary": (bytes, bytearray, memoryview),
    "uuid": uuid.UUID,
    "decimal4": decimal.Decimal,
    "decimal8": decimal.Decimal,
    "decimal16": decimal.Decimal,
}


def primitive_bytes(value: Value) -> bytes:
    """Return the bytes of a primitive value, its header byte first; strings below 64 bytes become short ones.

    Raises
    ------
    UsageError
        The type is not a primitive one, or the value is not one that it can hold.
    LimitExceeded
        Text or binary of 4 GiB or more.

    Examples
    --------
    >>> primitive_bytes(Value("int16", 1000)).hex(" ")
    '10 e8 03'
    >>> primitive_bytes(Value("string", "ä")).hex(" ")
    '09 c3 a4'
    """
    name, held = value.type, value.value
    if name == "null":
        return b"\x00"
    if name == "boolean":
        return _header("true" if held else "false")
    if name not in _NUMBERS or name in ("true", "false"):
        raise UsageError("not a type of Variant", expected=", ".join(sorted(_NUMBERS)), found=repr(name))
    _check(name, held)
    if name == "string":
        return _string(held)
    if name == "binary":
        return _header(name) + _sized(bytes(held))
    if name == "uuid":
        return _header(name) + bytes(held.bytes)
    if name in ("double", "float"):
        return _header(name) + _real(name, held)
    if name in DIGITS:
        return _header(name) + _decimal(name, held)
    return _header(name) + _integer(name, held)


def int_type(number: int) -> str | None:
    """Return the narrowest type that holds an integer, or None where none does.

    Examples
    --------
    >>> int_type(-128), int_type(128), int_type(1 << 63)
    ('int8', 'int16', None)
    """
    bits = (number if number >= 0 else ~number).bit_length() + 1
    for name in _INTS:
        if bits <= WIDTHS[_NUMBERS[name]] * 8:
            return name
    return None


def decimal_type(number: decimal.Decimal) -> str | None:
    """Return the narrowest type that holds a decimal in every reader, or None where none does.

    Neither the digits nor the scale may be more than the width's digits: Spark refuses the rest.

    Examples
    --------
    >>> decimal_type(decimal.Decimal("1.50")), decimal_type(decimal.Decimal("1e-10"))
    ('decimal4', 'decimal8')
    """
    if not number.is_finite():
        return None
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    # Zero with a large exponent has one digit; others grow by theirs.
    count = len(digits) + max(exponent, 0) if any(digits) else 1
    for name, most in DIGITS.items():
        if count <= most and -exponent <= most:
            return name
    return None


def unscaled(number: decimal.Decimal) -> tuple[int, int]:
    """Return the integer and the scale of a finite decimal; the scale is never negative.

    Examples
    --------
    >>> unscaled(decimal.Decimal("-1.50")), unscaled(decimal.Decimal("1e2"))
    ((-150, 2), (100, 0))
    """
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    magnitude = int("".join(map(str, digits)))
    if exponent > 0 and magnitude:
        magnitude *= 10**exponent
    return -magnitude if sign else magnitude, max(-exponent, 0)


def utf8(text: str, what: str) -> bytes:
    """Return text as UTF-8, or say that it has none."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{what} has no UTF-8", expected="no surrogates", found=ascii(text[error.start : error.end])
        ) from error


def _header(name: str) -> bytes:
    return bytes((_NUMBERS[name] << 2,))


def _check(name: str, held: Any) -> None:
    wanted = _TYPES.get(name, int)
    if not isinstance(held, wanted) or (wanted is int and isinstance(held, bool)):
        raise _misfit(name, held)


def _misfit(name: str, held: Any) -> UsageError:
    return UsageError("a value that its Variant type cannot hold", expected=name, found=repr(held)[:80])


def _string(text: str) -> bytes:
    encoded = utf8(text, "a string")
    if len(encoded) <= _LONGEST_SHORT:
        return bytes((_SHORT_STRING | len(encoded) << 2,)) + encoded
    return _header("string") + _sized(encoded)


def _sized(payload: bytes) -> bytes:
    if len(payload) > _LONGEST:
        raise LimitExceeded("a text or binary of a Variant", expected="less than 4 GiB", found=len(payload))
    return len(payload).to_bytes(4, "little") + payload


def _real(name: str, held: float) -> bytes:
    if name == "double":
        return struct.pack("<d", held)
    try:
        packed = struct.pack("<f", held)
    except OverflowError as error:
        raise _misfit(name, held) from error
    if held == held and struct.unpack("<f", packed)[0] != held:  # noqa: PLR0124  a NaN has no nearest
        raise _misfit(name, held)
    return packed


def _decimal(name: str, held: decimal.Decimal) -> bytes:
    narrowest = decimal_type(held)
    if narrowest is None or DIGITS[narrowest] > DIGITS[name]:
        raise _misfit(name, held)
    number, scale = unscaled(held)
    return bytes((scale,)) + number.to_bytes(WIDTHS[_NUMBERS[name]] - 1, "little", signed=True)


def _integer(name: str, held: int) -> bytes:
    if name == "time" and not 0 <= held < MICROSECONDS_PER_DAY:
        raise _misfit(name, held)
    try:
        return held.to_bytes(WIDTHS[_NUMBERS[name]], "little", signed=True)
    except OverflowError as error:
        raise _misfit(name, held) from error
