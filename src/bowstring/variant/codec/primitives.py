"""The primitive types of Variant, and metadata of names: read with every bound checked, and written.

All numbers are little-endian but for the bytes of a UUID ("Value Data for Primitive type" of the specification).
"""

from __future__ import annotations

import dataclasses
import decimal
import itertools
import struct
import uuid
from collections.abc import Sequence
from typing import Any, Final

from bowstring.errors import InvalidBody, LimitExceeded, Truncated, Unsupported, UsageError

PRIMITIVES: Final[tuple[str, ...]] = (
    "null",
    "true",
    "false",
    "int8",
    "int16",
    "int32",
    "int64",
    "double",
    "decimal4",
    "decimal8",
    "decimal16",
    "date",
    "timestamp",
    "timestamp_ntz",
    "float",
    "binary",
    "string",
    "time",
    "timestamp_ns",
    "timestamp_ntz_ns",
    "uuid",
)
"""Names of the primitive types by their number in the specification."""

WIDTHS: Final[tuple[int, ...]] = (0, 0, 0, 1, 2, 4, 8, 8, 5, 9, 17, 4, 8, 8, 4, -1, -1, 8, 8, 8, 16)
"""Bytes behind the header byte of each primitive; -1 where a length of 4 bytes says it."""

DIGITS: Final[dict[str, int]] = {"decimal4": 9, "decimal8": 18, "decimal16": 38}
"""Most decimal digits that each width of decimal holds."""

MAX_SCALE: Final = 38
MICROSECONDS_PER_DAY: Final = 86_400_000_000
# Enough digits for the largest decimal, and never rounded.
_EXACT: Final = decimal.Context(prec=64)

Path = tuple["Path", "str | int"] | None
"""The way from the root to a value: the way to its parent, and one step."""

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


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """A Variant value with its type.

    Two Values are equal where type and value are; long and short strings are one type. For equality of what they
    mean (1 and 1.00) see :func:`bowstring.variant.equals`.

    Attributes
    ----------
    type : str
        ``"object"``, ``"array"``, ``"boolean"`` or one of :data:`PRIMITIVES` but ``"true"`` and ``"false"``.
    value
        None, bool, int, float, str, bytes, :class:`uuid.UUID`; a :class:`decimal.Decimal` with the scale that is
        stored; days since 1970 for dates; micro- or nanoseconds since 1970 for timestamps, microseconds since
        midnight for times; a list of Values for arrays, a dict of names to Values for objects.

    Examples
    --------
    >>> Value("int8", 1) == Value("int16", 1)
    False
    """

    type: str
    value: Any


@dataclasses.dataclass(slots=True)
class Budget:
    """How many more values, and bytes of text and of other payloads, one decoding may still visit."""

    nodes: int
    bytes: int


def primitive(value: bytes, position: int, end: int, budget: Budget, path: Path) -> Value:
    """Return the primitive value whose header is at a position."""
    number = value[position] >> 2
    if number >= len(WIDTHS):
        raise Unsupported(
            "a primitive type that the specification does not know",
            expected=f"0 to {len(WIDTHS) - 1}",
            found=number,
            where=at(path, position),
        )
    width = WIDTHS[number]
    start = position + 1
    name = PRIMITIVES[number]
    if width < 0:
        length = unsigned(value, start, 4, end, path)
        start += 4
        if name == "string":
            return Value(name, string(value, start, start + length, end, budget, path))
        return Value(name, payload_of(value, start, start + length, end, budget, path))
    payload = payload_of(value, start, start + width, end, budget, path)
    if name in ("true", "false"):
        return Value("boolean", name == "true")
    if name == "null":
        return Value(name, None)
    if name in DIGITS:
        scale, number = payload[0], int.from_bytes(payload[1:], "little", signed=True)
        if scale > MAX_SCALE:
            where = at(path, position)
            raise InvalidBody("the scale of a decimal", expected="0 to 38", found=scale, where=where)
        if abs(number) >= 10 ** DIGITS[name]:
            raise InvalidBody(
                "a decimal has too many digits",
                expected=f"at most {DIGITS[name]}",
                found=number,
                where=at(path, position),
            )
        return Value(name, decimal.Decimal(number).scaleb(-scale, _EXACT))
    if name == "uuid":
        return Value(name, uuid.UUID(bytes=payload))
    if name in ("double", "float"):
        return Value(name, struct.unpack("<d" if name == "double" else "<f", payload)[0])
    integer = int.from_bytes(payload, "little", signed=True)
    if name == "time" and not 0 <= integer < MICROSECONDS_PER_DAY:
        raise InvalidBody(
            "a time is not within a day",
            expected=f"0 to {MICROSECONDS_PER_DAY - 1} microseconds",
            found=integer,
            where=at(path, position),
        )
    return Value(name, integer)


def check_room(what: str, needed: int, there: int, path: Path, position: int) -> None:
    """Check that so many bytes are there."""
    if needed > there:
        where = at(path, position)
        raise Truncated(what, expected=f"{needed} bytes", found=max(0, there), where=where)


def payload_of(value: bytes, start: int, stop: int, end: int, budget: Budget, path: Path) -> bytes:
    """Return the bytes of text or another payload, and count them."""
    check_room("a value passes the end", stop - start, end - start, path, start)
    budget.bytes -= stop - start
    if budget.bytes < 0:
        raise too_much("bytes", path, start)
    return bytes(value[start:stop])


def string(value: bytes, start: int, stop: int, end: int, budget: Budget, path: Path) -> str:
    """Return text."""
    payload = payload_of(value, start, stop, end, budget, path)
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise InvalidBody("text is not UTF-8", found=error.reason, where=at(path, start)) from error


def unsigned(buffer: bytes, position: int, width: int, end: int, path: Path) -> int:
    """Return a number that must not pass the end."""
    check_room("a number passes the end", width, end - position, path, position)
    return little(buffer, position, width)


def little(buffer: bytes, position: int, width: int) -> int:
    """Return a little-endian number that is known to be there."""
    return int.from_bytes(buffer[position : position + width], "little")


def too_much(what: str, path: Path, position: int) -> LimitExceeded:
    """Return the error of values that share too many children."""
    return LimitExceeded(
        f"a Variant shares so many children that it stands for more {what} than it may",
        expected="work bounded by the value's length",
        where=at(path, position),
    )


def at(path: Path, position: int | None = None) -> str:
    """Return a place as text: the way to it, and its byte."""
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else f"[{step!r}]")
    way = f"${''.join(reversed(steps))}"
    return way if position is None else f"{way}, byte {position}"


def primitive_bytes(value: Value) -> bytes:
    """Return the bytes of a primitive value, header byte first; strings below 64 bytes become short ones."""
    name, held = value.type, value.value
    if name == "null":
        return b"\x00"
    if name == "boolean":
        return bytes((_NUMBERS["true" if held else "false"] << 2,))
    if name not in _NUMBERS or name in ("true", "false"):
        raise UsageError("not a type of Variant", expected=", ".join(sorted(_NUMBERS)), found=repr(name))
    wanted, header, width = _TYPES.get(name, int), bytes((_NUMBERS[name] << 2,)), WIDTHS[_NUMBERS[name]]
    fits = isinstance(held, wanted) and not (wanted is int and isinstance(held, bool))
    if not fits:
        raise _misfit(name, held)
    if name in ("string", "binary"):
        payload = utf8(held, "a string") if name == "string" else bytes(held)
        if name == "string" and len(payload) <= _LONGEST_SHORT:
            return bytes((_SHORT_STRING | len(payload) << 2,)) + payload
        if len(payload) > _LONGEST:
            raise LimitExceeded(
                "a text or binary of a Variant", expected="less than 4 GiB", found=len(payload)
            )
        return header + len(payload).to_bytes(4, "little") + payload
    if name == "uuid":
        return header + bytes(held.bytes)
    if name in DIGITS:
        narrowest = decimal_type(held)
        if narrowest is None or DIGITS[narrowest] > DIGITS[name]:
            raise _misfit(name, held)
        number, scale = unscaled(held)
        return header + bytes((scale,)) + number.to_bytes(width - 1, "little", signed=True)
    try:
        if name == "double":
            return header + struct.pack("<d", held)
        if name == "float":
            packed = struct.pack("<f", held)
            if held == held and struct.unpack("<f", packed)[0] != held:  # noqa: PLR0124  a NaN has no nearest
                raise _misfit(name, held)
            return header + packed
        if name == "time" and not 0 <= held < MICROSECONDS_PER_DAY:
            raise _misfit(name, held)
        integer: bytes = held.to_bytes(width, "little", signed=True)
        return header + integer
    except OverflowError as error:
        raise _misfit(name, held) from error


def int_type(number: int) -> str | None:
    """Return the narrowest type that holds an integer, or None where none does."""
    bits = (number if number >= 0 else ~number).bit_length() + 1
    for name in _INTS:
        if bits <= WIDTHS[_NUMBERS[name]] * 8:
            return name
    return None


def decimal_type(number: decimal.Decimal) -> str | None:
    """Return the narrowest type that holds a decimal in every reader, or None where none does.

    Neither the digits nor the scale may be more than the width's digits: Spark refuses the rest.
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
    """Return the integer and the scale of a finite decimal; the scale is never negative."""
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


def _misfit(name: str, held: Any) -> UsageError:
    return UsageError("a value that its Variant type cannot hold", expected=name, found=repr(held)[:80])


_LARGEST: Final = (1 << 32) - 1


def metadata_bytes(names: Sequence[str]) -> bytes:
    """Return the metadata component that holds distinct names in the order of their UTF-8."""
    encoded = [utf8(name, "a key") for name in names]
    numbers = [len(names), 0, *itertools.accumulate(map(len, encoded))]
    largest = max(numbers)
    if largest > _LARGEST:
        raise LimitExceeded("a part of a Variant is too large", expected="less than 4 GiB", found=largest)
    width = max(1, (largest.bit_length() + 7) // 8)
    header = bytes((1 | bool(names) << 4 | (width - 1) << 6,))
    return b"".join((header, *(number.to_bytes(width, "little") for number in numbers), *encoded))
