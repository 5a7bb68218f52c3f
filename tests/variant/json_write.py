"""One typed tree as JSON text, in plain Python: what the kernels of `to_json` are held against."""

from __future__ import annotations

import base64
import decimal
import math
import re
from json.encoder import encode_basestring
from typing import Final, Literal

import numpy as np

from bowstring.variant import Value

__all__ = ["Rules", "json_of"]

Rules = Literal["plain", "spark"]

_PER_SECOND: Final = 1_000_000
_SECONDS_PER_DAY: Final = 86_400
_EXACT: Final = decimal.Context(prec=64)
_CONTROL: Final = re.compile(r"\\u00([0-9a-f]{2})")


def json_of(value: Value, rules: Rules) -> str:
    """Return a tree as JSON text: see :func:`bowstring.variant.to_json`.

    Examples
    --------
    >>> json_of(Value("object", {"a": Value("double", 1e16), "b": Value("date", 0)}), "spark")
    '{"a":1.0E16,"b":"1970-01-01"}'
    """
    spark = rules == "spark"
    parts: list[str] = []
    work: list[str | Value] = [value]
    while work:
        each = work.pop()
        if isinstance(each, str):
            parts.append(each)
        elif each.type == "object":
            parts.append("{")
            work.append("}")
            fields = [(_text(key, spark) + ":", child) for key, child in each.value.items()]
            for index, (key, child) in reversed(list(enumerate(fields))):
                work.extend((child, "," + key if index else key))
        elif each.type == "array":
            parts.append("[")
            work.append("]")
            for index, child in reversed(list(enumerate(each.value))):
                work.append(child)
                if index:
                    work.append(",")
        else:
            parts.append(_leaf(each, spark))
    return "".join(parts)


def _leaf(value: Value, spark: bool) -> str:
    kind, held = value.type, value.value
    if kind == "null":
        return "null"
    if kind == "boolean":
        return "true" if held else "false"
    if kind.startswith("int"):
        return str(held)
    if kind == "string":
        return _text(held, spark)
    if kind in ("double", "float"):
        return _real(held, kind, spark)
    if kind.startswith("decimal"):
        return _decimal(held, spark)
    if kind == "binary":
        return f'"{base64.b64encode(held).decode()}"'
    if kind == "uuid":
        return f'"{held}"'
    if kind == "date":
        return f'"{_date(held)}"'
    if kind == "time":
        return f'"{_time(held, 6, spark)}"'
    return f'"{_timestamp(kind, held, spark)}"'


def _text(text: str, spark: bool) -> str:
    quoted = encode_basestring(text)
    if spark and "\\u00" in quoted:
        # Jackson writes the digits of control characters in capitals; the text itself may hold `\\u00`.
        parts = quoted.split("\\\\")
        quoted = "\\\\".join(_CONTROL.sub(_capitals, part) for part in parts)
    return quoted


def _capitals(found: re.Match[str]) -> str:
    return "\\u00" + found.group(1).upper()


def _real(held: float, kind: str, spark: bool) -> str:
    if math.isnan(held):
        return '"NaN"'
    if math.isinf(held):
        return '"Infinity"' if held > 0 else '"-Infinity"'
    # NumPy has its own idea of where exponents begin.
    shortest = repr(held if kind == "double" else float(str(np.float32(held))))
    return _java(shortest, held) if spark else shortest


def _java(shortest: str, held: float) -> str:
    """Return a number in the notation of Java's ``Double.toString``, which has two digits at least."""
    sign, digits, exponent = decimal.Decimal(shortest).as_tuple()
    if len(digits) == 1 and held:
        sign, digits, exponent = decimal.Decimal(format(decimal.Decimal(held), ".1e")).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    # The number is 0.TEXT times ten to this power; what it says of zero does not matter.
    power = len(text) + exponent
    minus = "-" if sign else ""
    stripped = text.rstrip("0")
    if not stripped:
        return f"{minus}0.0"
    if -3 < power <= 0:
        return f"{minus}0.{'0' * -power}{stripped}"
    if 0 < power <= 7:
        return f"{minus}{stripped[:power].ljust(power, '0')}.{stripped[power:] or '0'}"
    return f"{minus}{stripped[0]}.{stripped[1:] or '0'}E{power - 1}"


def _decimal(held: decimal.Decimal, spark: bool) -> str:
    if spark:
        held = _EXACT.normalize(held)
    return format(held, "f")


def _timestamp(kind: str, held: int, spark: bool) -> str:
    digits = 9 if kind.endswith("_ns") else 6
    days, rest = divmod(held, _SECONDS_PER_DAY * 10**digits)
    zone = "" if "_ntz" in kind else "+00:00" if spark else "Z"
    return f"{_date(days)}{' ' if spark else 'T'}{_time(rest, digits, spark)}{zone}"


def _time(held: int, digits: int, spark: bool) -> str:
    seconds, fraction = divmod(held, 10**digits)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    behind = f".{fraction:0{digits}d}"
    if spark:
        behind = behind.rstrip("0").rstrip(".")
    return f"{hour:02}:{minute:02}:{second:02}{behind}"


def _date(days: int) -> str:
    """Return days since 1970 in ISO 8601, years beyond 9999 with a sign: any day that 32 bits can count."""
    # Eras of 400 years, which begin in March: leap days end a year then.
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    month += 3 if month < 10 else -9
    year += era * 400 + (month <= 2)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{month:02}-{day + 1:02}"
