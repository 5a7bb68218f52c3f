"""Python's own json as the oracle of :func:`bowstring.variant.from_json`."""

from __future__ import annotations

import collections
import decimal
import json
import re
from collections.abc import Iterable
from typing import Any, Final

from bowstring.columnar.batch import Column
from bowstring.errors import BowstringError, InvalidBody, InvalidData, LimitExceeded, UsageError
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.variant import Value, VariantBuilder
from tests.variant.json_write import Rules

__all__ = ["read_by_python"]

# "-0." and 38 digits: no longer literal is a decimal, and a short one costs little to read.
_LONGEST_DECIMAL: Final = 41
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def read_by_python(
    texts: Iterable[str | bytes | None],
    rules: Rules = "plain",
    on_error: str = "raise",
    limits: Limits = DEFAULT_LIMITS,
    repeated: str = "raise",
) -> Column:
    """Return what from_json should make of some texts."""
    builder, reader = VariantBuilder(limits=limits), _Reader(rules, repeated)
    for row, text in enumerate(texts):
        try:
            found = None if text is None else reader.read(text)
            builder.append(Value("null", None) if found is None and text is not None else found)
        except LimitExceeded as error:
            if on_error == "raise":
                raise (
                    error if error.where and error.where.startswith("row") else _in_row(error, row)
                ) from error
            builder.append(None)
        except BowstringError as error:
            if on_error == "raise" or not isinstance(error, InvalidData):
                raise _in_row(error, row) from error
            builder.append(None)
    return builder.finish()


class _Reader:
    """Python's JSON reader, with numbers as typed Values and without what JSON does not have."""

    def __init__(self, rules: Rules, repeated: str) -> None:
        self._spark = rules == "spark"
        self._decoder = json.JSONDecoder(
            object_pairs_hook=_object if repeated == "raise" else _last,
            parse_int=self._int,
            parse_float=self._number,
            parse_constant=_constant,
        )

    def read(self, text: str | bytes) -> Any:
        if not isinstance(text, str | bytes):
            raise UsageError("not a JSON text", expected="str or bytes", found=type(text).__name__)
        try:
            if isinstance(text, bytes):
                text = text.decode()
            found = self._decoder.decode(text)
        except UnicodeDecodeError as error:
            raise InvalidBody("JSON text is not UTF-8", found=error.reason) from error
        except json.JSONDecodeError as error:
            raise InvalidBody("not JSON", found=error.msg, where=f"character {error.pos}") from error
        except RecursionError as error:
            raise LimitExceeded("JSON is nested too deeply", expected="what Python's reader takes") from error
        # A str may hold half a pair, and an escape make one.
        if "\\u" in text or not text.isascii():
            _check_pairs(found)
        return found

    def _int(self, literal: str) -> Value:
        if len(literal) < _LONGEST_DECIMAL:
            number = int(literal)
            narrow = _int_type(number)
            if narrow is not None:
                return Value(narrow, number)
        return self._number(literal)

    def _number(self, literal: str) -> Value:
        if len(literal) <= _LONGEST_DECIMAL and "e" not in literal and "E" not in literal:
            number = decimal.Decimal(literal)
            narrow = _decimal_type(number)
            if narrow is not None and (self._spark or number or not number.is_signed()):
                return Value(narrow, number)
        real = float(literal)
        if real in (float("inf"), float("-inf")) and not self._spark:
            raise InvalidBody("a number of JSON is beyond the doubles", found=literal[:80])
        return Value("double", real)


def _object(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(fields)
    if len(found) < len(fields):
        twice, _ = collections.Counter(key for key, _ in fields).most_common(1)[0]
        raise InvalidBody("a JSON object has a key twice", found=repr(twice))
    return found


def _last(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    _check_pairs([each for field in fields for each in field])  # also those of values that are not kept
    return dict(fields)


def _constant(literal: str) -> Any:
    raise InvalidBody("not JSON", found=literal)


def _check_pairs(found: Any) -> None:
    work = [found]
    while work:
        each = work.pop()
        if isinstance(each, str):
            half = _SURROGATE.search(each)
            if half is not None:
                raise InvalidBody("half a surrogate pair has no UTF-8", found=ascii(half.group()))
        elif isinstance(each, dict):
            work.extend(each)
            work.extend(each.values())
        elif isinstance(each, list):
            work.extend(each)


def _in_row(error: BowstringError, row: int) -> BowstringError:
    where = f"row {row}, {error.where}" if error.where else f"row {row}"
    return type(error)(error.what, expected=error.expected, found=error.found, where=where, hint=error.hint)


def _int_type(number: int) -> str | None:
    """Return the narrowest type that holds an integer."""
    return next(
        (f"int{bits}" for bits in (8, 16, 32, 64) if -(1 << bits - 1) <= number < 1 << bits - 1), None
    )


def _decimal_type(number: decimal.Decimal) -> str | None:
    """Return the narrowest type that holds the digits of a finite decimal, and its scale."""
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    count = len(digits) + max(exponent, 0) if any(digits) else 1
    widths = {"decimal4": 9, "decimal8": 18, "decimal16": 38}
    return next((name for name, most in widths.items() if count <= most and -exponent <= most), None)
