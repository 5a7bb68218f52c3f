"""Variant columns from JSON text, and back, one row at a time on the host.

Reading goes by way of Python's own :mod:`json`: correct, and at its speed. It is no columnar parser.
"""

from __future__ import annotations

import collections
import decimal
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import pyarrow as pa

from bowstring.columnar.column import Column
from bowstring.errors import (
    BowstringError,
    InvalidBody,
    InvalidData,
    LimitExceeded,
    NotOnDevice,
    UsageError,
)
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.variant.build import built, column_of
from bowstring.variant.decode import Value
from bowstring.variant.encode_primitives import decimal_type, int_type
from bowstring.variant.json_write import Rules, check_rules, json_of
from bowstring.variant.python_rows import in_row, open_on_host, values
from bowstring.variant.python_values import value_of

__all__ = ["from_json", "to_json"]

# "-0." and 38 digits: no longer literal is a decimal, and a short one costs little to read.
_LONGEST_DECIMAL: Final = 41
_LARGEST_TEXT: Final = (1 << 31) - 1
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def to_json(
    column: Any, *, rules: Rules = "plain", plain: bool = False, limits: Limits = DEFAULT_LIMITS
) -> Column:
    """Return each row of a Variant column as JSON text.

    Parameters
    ----------
    column
        A Variant column on the host, or its Arrow array.
    rules
        ``"plain"``: decimals with all their digits, ISO 8601 with ``T``, six or nine digits and ``Z`` for
        instants, shortest doubles as Python writes them. ``"spark"``: as Spark's ``to_json`` in UTC: decimals
        without trailing zeros, a blank between date and time and no trailing zeros of a second, doubles in
        Java's notation (with the shortest digits, as Java 19 on). Both: binary as Base64, NaN and infinities as
        strings, keys in the order of the object, text as it is but for what JSON must escape.
    plain
        Take a struct that is not marked as a Variant.
    limits
        ``depth`` bounds the nesting.

    Returns
    -------
    Column
        ``string``; null where the row is an SQL NULL, ``null`` where it is a Variant null.

    Raises
    ------
    InvalidBody, Truncated, Unsupported, LimitExceeded
        A value is not what the specification says, or too deep, or the text takes more than 2 GiB.
    NotOnDevice
        The column is not on the host.

    Examples
    --------
    >>> column = from_json(['{"b": 1.50, "a": [true, null]}', None])
    >>> to_json(column).to_arrow().to_pylist()
    ['{"a":[true,null],"b":1.50}', None]
    """
    check_rules(rules)
    texts: list[str | None] = []
    size = 0
    opened = open_on_host(column, "to_json", plain=plain)
    for row in values(opened, limits=limits):
        text = None if row is None else json_of(row, rules)
        texts.append(text)
        size += 0 if text is None else len(text.encode())
        if size > _LARGEST_TEXT:
            raise LimitExceeded(
                "the JSON text of a column",
                expected="at most 2 GiB",
                found=size,
                hint="Take fewer rows at a time: column.batch.slice(start, rows).",
            )
    name = opened.column.name
    return column_of(pa.array(texts, pa.string()), pa.field(name, pa.string()))


def from_json(
    texts: Any,
    *,
    rules: Rules = "plain",
    on_error: Literal["raise", "null"] = "raise",
    name: str = "variant",
    limits: Limits = DEFAULT_LIMITS,
) -> Column:
    """Return JSON texts as a Variant column.

    Integers take the narrowest type that holds them. Numbers without an exponent that have at most 38 digits,
    and as many behind the point, become decimals with exactly these digits, integers beyond 64 bits among them;
    all others the nearest double. An object with a key twice is refused, and so are ``NaN``, ``Infinity`` and
    half a surrogate pair.

    The text is read row by row by Python's own :mod:`json`, on one core: one or two MB per second.

    Parameters
    ----------
    texts
        A Column or Arrow array of text (or binary: UTF-8), or an iterable of str, bytes and None; null rows
        become SQL NULLs.
    rules
        ``"plain"``: a number beyond the doubles is refused, ``-0.0`` stays a double. ``"spark"``: it becomes an
        infinity, ``-0.0`` the decimal 0.0, as with Spark's ``parse_json``.
    on_error
        What becomes of a text that is refused: ``"raise"``, or ``"null"`` for an SQL NULL.
    name
        That of the column.
    limits
        ``depth`` bounds the nesting.

    Returns
    -------
    Column
        As of :func:`bowstring.variant.from_python`.

    Raises
    ------
    InvalidBody
        A text is no JSON, or one of the above; the error says its row.
    LimitExceeded
        Nested too deeply, or more than 2 GiB of values.
    NotOnDevice
        The column is not on the host.

    Examples
    --------
    >>> from bowstring.variant.python import to_python
    >>> to_python(from_json(['{"a": [1, 2.50, 1e3]}', "null"]))
    [{'a': [1, Decimal('2.50'), 1000.0]}, None]
    """
    check_rules(rules)
    if on_error not in ("raise", "null"):
        raise UsageError("on_error", expected="'raise' or 'null'", found=repr(on_error))
    return built(_parsed(_texts(texts), rules, on_error, limits), name)


def _texts(source: Any) -> Iterable[str | bytes | None]:
    if isinstance(source, Column):
        if not source.device.is_host:
            raise NotOnDevice(
                "variant.from_json works on the host",
                found=source.device.name,
                hint='Use column.batch.to_device("cpu") first.',
            )
        source = source.to_arrow()
    if isinstance(source, str | bytes):
        raise UsageError("one text is not a column of them", hint="Put it into a list.")
    if isinstance(source, pa.Array | pa.ChunkedArray):
        return source.to_pylist()  # type: ignore[no-any-return]
    if isinstance(source, Iterable):
        return source
    raise UsageError("not a column of JSON texts", found=type(source).__name__)


def _parsed(
    texts: Iterable[str | bytes | None], rules: Rules, on_error: str, limits: Limits
) -> Iterator[Value | None]:
    reader = _Reader(rules)
    for row, text in enumerate(texts):
        if text is None:
            yield None
            continue
        try:
            found = value_of(reader.read(text), limits=limits)
        except (InvalidData, LimitExceeded) as error:
            if on_error == "raise":
                raise in_row(error, row) from error
            yield None
        except BowstringError as error:
            raise in_row(error, row) from error
        else:
            yield found


class _Reader:
    """Python's JSON reader, with numbers as typed Values and without what JSON does not have."""

    def __init__(self, rules: Rules) -> None:
        self._spark = rules == "spark"
        self._decoder = json.JSONDecoder(
            object_pairs_hook=_object,
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
            narrow = int_type(number)
            if narrow is not None:
                return Value(narrow, number)
        return self._number(literal)

    def _number(self, literal: str) -> Value:
        if len(literal) <= _LONGEST_DECIMAL and "e" not in literal and "E" not in literal:
            number = decimal.Decimal(literal)
            narrow = decimal_type(number)
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
