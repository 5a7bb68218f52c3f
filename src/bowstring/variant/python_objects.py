"""Variant columns from Python objects, and back."""

from __future__ import annotations

import datetime as dt
import decimal
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from bowstring.columnar.column import Column
from bowstring.errors import BowstringError, LimitExceeded, UsageError
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.variant.build import built
from bowstring.variant.codec.primitives import Path, Value, at, decimal_type, int_type
from bowstring.variant.codec.rows import in_row, open_on_host, values

__all__ = ["from_python", "is_missing", "python_of", "to_python", "value_of"]


_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  the arithmetic of local times
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST_DAY: Final = dt.date(1970, 1, 1).toordinal()
_MOST_BITS: Final = 256
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_NUMPY_TIMES: Final = {"D": "date", "s": "timestamp_ntz", "ms": "timestamp_ntz", "us": "timestamp_ntz"}


def from_python(things: Iterable[Any], *, name: str = "variant", limits: Limits = DEFAULT_LIMITS) -> Column:
    """Return Python objects as a Variant column, one row each.

    Parameters
    ----------
    things
        An iterable of objects, one for each row; a dict or a str alone is refused. Objects are None, ``pandas.NA``
        and ``NaT`` (an SQL NULL as a row, a Variant null inside of one), bool, int (the narrowest type that holds
        it; beyond 64 bits a decimal of 38 digits), float, :class:`decimal.Decimal`, str, bytes, :class:`uuid.UUID`,
        date, time, datetime (aware: an instant; naive: a local time), NumPy's and pandas' scalars, mappings
        with text for keys, lists, tuples and NumPy arrays; and :class:`Value`, which says its type itself:
        ``Value("null", None)`` at the top is a Variant null.
    name
        That of the column.
    limits
        ``depth`` bounds the nesting.

    Returns
    -------
    Column
        ``struct<metadata: dictionary<int32, binary>, value: binary>``, marked ``arrow.parquet.variant``. Every
        65,536 rows share one dictionary of names.

    Raises
    ------
    UsageError
        No iterable of rows; an object, or a key, that no Variant can hold.
    LimitExceeded
        Too deep, or more than 2 GiB of values.

    Examples
    --------
    >>> column = from_python([{"id": 1, "tags": ["a", None]}, None])
    >>> column.field.metadata[b"ARROW:extension:name"], to_python(column)
    (b'arrow.parquet.variant', [{'id': 1, 'tags': ['a', None]}, None])
    """
    _refuse_one(things)
    return built(_typed(things, limits), name)


def _refuse_one(things: object) -> None:
    """Refuse what is one row, and what would be iterated by its keys, letters or names of columns."""
    is_table = hasattr(things, "columns")
    is_row = isinstance(things, Mapping | str | bytes | bytearray | memoryview)
    if is_table or is_row or not isinstance(things, Iterable):
        raise UsageError(
            "from_python() takes an iterable of rows",
            expected="a list, or another iterable of objects, one for each row",
            found=f"a {type(things).__name__} alone",
            hint='Give table.to_pylist(), or frame.to_dict("records").'
            if is_table
            else "For one row give [row].",
        )


def _typed(things: Iterable[Any], limits: Limits) -> Iterable[Value | None]:
    for row, thing in enumerate(things):
        try:
            yield None if is_missing(thing) else value_of(thing, limits=limits)
        except BowstringError as error:
            raise in_row(error, row) from error


def to_python(
    column: Any, *, typed: bool = False, plain: bool = False, limits: Limits = DEFAULT_LIMITS
) -> list[Any]:
    """Return a Variant column as Python objects.

    Parameters
    ----------
    column
        A Variant column on the host, or its Arrow array.
    typed
        Give trees of :class:`Value`, which say the type and tell a Variant null, ``Value("null", None)``, from
        an SQL NULL, None. Else both are None, and only what Python has no exact type for stays a Value:
        timestamps of nanoseconds, and dates and timestamps outside of the years 1 to 9999.
    plain
        Take a struct that is not marked as a Variant.
    limits
        ``depth`` bounds the nesting.

    Raises
    ------
    InvalidBody, Truncated, Unsupported, LimitExceeded
        A value is not what the specification says, or too deep; the error says its row and its place.
    NotOnDevice
        The column is not on the host.

    Examples
    --------
    >>> column = from_python([{"id": 1}, 2.5, None])
    >>> to_python(column)
    [{'id': 1}, 2.5, None]
    >>> to_python(column, typed=True)[1]
    Value(type='double', value=2.5)
    """
    rows = values(open_on_host(column, "to_python", plain=plain), limits=limits)
    if typed:
        return list(rows)
    return [None if row is None else python_of(row) for row in rows]


def is_missing(thing: object) -> bool:
    """Return whether a thing is None, or what stands for it: ``pandas.NA``, pandas' or NumPy's ``NaT``."""
    if type(thing) in _PLAIN_LEAVES:
        return thing is None
    if isinstance(thing, np.datetime64 | dt.datetime):
        return bool(thing != thing)  # noqa: PLR0124  NaT equals nothing
    return _is_pandas_na(thing)


def _is_pandas_na(thing: object) -> bool:
    # Where pandas has not been imported, nothing can be its NA; and it takes long to import.
    pandas = sys.modules.get("pandas")
    return pandas is not None and thing is getattr(pandas, "NA", pandas)


def value_of(thing: Any, *, limits: Limits = DEFAULT_LIMITS) -> Value:
    """Return a Python object as a typed tree.

    Integers and decimals take the narrowest type that holds them, integers beyond 64 bits become decimals, aware
    datetimes instants, naive ones local times; pandas' timestamps and NumPy's keep their nanoseconds. A Value
    stays what it is.

    Raises
    ------
    UsageError
        An object, or a key, that no Variant can hold.
    LimitExceeded
        Nested more deeply than ``limits.depth``.
    """
    root: list[Value] = []
    work: list[tuple[Any, int, Path, Any]] = [(thing, 0, None, root)]
    while work:
        thing, depth, path, target = work.pop()
        if isinstance(thing, np.ndarray) and not thing.ndim:
            thing = thing[()]
        steps = None if type(thing) in _PLAIN_LEAVES else _children(thing, path)
        if steps is None:
            found = _leaf(thing, path)
        else:
            if depth >= limits.depth:
                raise LimitExceeded(
                    "an object is nested too deeply for a Variant",
                    expected=f"at most {limits.depth} levels",
                    where=at(path),
                    hint="An object that holds itself has no Variant; else raise Limits.depth.",
                )
            kind, children = steps
            inside: Any = {} if kind == "object" else []
            found = Value(kind, inside)
            work.extend((child, depth + 1, (path, step), inside) for step, child in reversed(children))
        if isinstance(target, dict):
            assert path is not None
            target[path[1]] = found
        else:
            target.append(found)
    return root[0]


def _children(thing: Any, path: Path) -> tuple[str, list[tuple[str | int, Any]]] | None:
    """Return what is in a container, and its type; None where it is none."""
    if isinstance(thing, Value):
        if thing.type not in ("object", "array"):
            return None
        thing = thing.value
    if isinstance(thing, Mapping):
        for key in thing:
            if not isinstance(key, str):
                raise UsageError("a key is not text", found=repr(key)[:80], where=at(path))
        return "object", list(thing.items())
    if isinstance(thing, list | tuple | np.ndarray):
        return "array", list(enumerate(thing))
    return None


def _leaf(thing: Any, path: Path) -> Value:
    if isinstance(thing, Value):
        return thing
    make = _PLAIN_LEAVES.get(type(thing)) or _slow_leaf(thing)
    if make is None:
        raise UsageError(
            "an object that no Variant can hold",
            expected="None, bool, int, float, Decimal, str, bytes, UUID, date, time, datetime, list or dict",
            found=type(thing).__name__,
            where=at(path),
        )
    found = make(thing)
    if found is None:
        # Python refuses to write integers of thousands of digits.
        large = isinstance(thing, int) and thing.bit_length() > _MOST_BITS
        shown = f"an integer of {thing.bit_length()} bits" if large else repr(thing)[:80]
        raise UsageError("a value that no Variant type holds exactly", found=shown, where=at(path))
    return found


def _slow_leaf(thing: Any) -> Callable[[Any], Value | None] | None:
    if _is_pandas_na(thing):
        return _null
    return next((make for types, make in _LEAVES if isinstance(thing, types)), None)


def _integer(number: Any) -> Value | None:
    number = int(number)
    narrow = int_type(number)
    return Value(narrow, number) if narrow else _decimal(decimal.Decimal(number))


def _decimal(number: decimal.Decimal) -> Value | None:
    narrow = decimal_type(number)
    return Value(narrow, number) if narrow else None


def _datetime(moment: dt.datetime) -> Value | None:
    if moment != moment:  # noqa: PLR0124  pandas' NaT is a datetime that equals nothing
        return Value("null", None)
    zone = "_ntz" if moment.tzinfo is None else ""
    if getattr(moment, "nanosecond", 0):
        # Of pandas: `value` counts nanoseconds since 1970, in UTC where there is a zone.
        return Value(f"timestamp{zone}_ns", int(moment.value))  # type: ignore[attr-defined]
    since = moment - _EPOCH if zone else moment - _EPOCH_UTC
    return Value(f"timestamp{zone}", since // _MICROSECOND)


def _numpy_time(moment: np.datetime64) -> Value | None:
    if np.isnat(moment):
        return Value("null", None)
    unit, count = np.datetime_data(moment.dtype)
    if count != 1:
        return None
    if unit == "ns":
        return Value("timestamp_ntz_ns", int(moment.astype(np.int64)))
    name = _NUMPY_TIMES.get(unit)
    if name is None:
        return None
    number = int(moment.astype(np.int64)) * {"s": 1_000_000, "ms": 1_000}.get(unit, 1)
    return Value(name, number)


def _time(moment: dt.time) -> Value | None:
    if moment.tzinfo is not None:
        return None
    seconds = (moment.hour * 60 + moment.minute) * 60 + moment.second
    return Value("time", seconds * 1_000_000 + moment.microsecond)


def _null(_: Any) -> Value:
    return Value("null", None)


# In this order: True is an int, a NumPy duration an integer, a NumPy double a float, a datetime a date.
_LEAVES: Final[tuple[tuple[Any, Callable[[Any], Value | None]], ...]] = (
    (type(None), _null),
    ((bool, np.bool_), lambda flag: Value("boolean", bool(flag))),
    (np.timedelta64, lambda _: None),
    ((int, np.integer), _integer),
    ((np.float32, np.float16), lambda number: Value("float", float(number))),
    (float, lambda number: Value("double", float(number))),
    (decimal.Decimal, _decimal),
    (str, lambda text: Value("string", str.__str__(text))),  # the text of an enumeration's, not its name
    ((bytes, bytearray, memoryview), lambda payload: Value("binary", bytes(payload))),
    (uuid.UUID, lambda identity: Value("uuid", identity)),
    (dt.datetime, _datetime),
    (dt.date, lambda day: Value("date", day.toordinal() - _FIRST_DAY)),
    (dt.time, _time),
    (np.datetime64, _numpy_time),
)
# Most leaves are of one of these very types, and need no search.
_PLAIN_LEAVES: Final[dict[type, Callable[[Any], Value | None]]] = {
    kind: next(make for types, make in _LEAVES if issubclass(kind, types))
    for kind in (type(None), bool, int, float, str, decimal.Decimal)
}


def python_of(value: Value) -> Any:
    """Return a typed tree as plain Python objects.

    What Python has no exact type for stays a Value: timestamps of nanoseconds, and dates and timestamps outside
    of the years 1 to 9999.
    """
    root: list[Any] = []
    work: list[tuple[Value, str | None, Any]] = [(value, None, root)]
    while work:
        value, key, target = work.pop()
        found: Any
        if value.type == "object":
            found = {}
            work.extend((child, name, found) for name, child in reversed(value.value.items()))
        elif value.type == "array":
            found = []
            work.extend((child, None, found) for child in reversed(value.value))
        else:
            found = _python_leaf(value)
        if key is None:
            target.append(found)
        else:
            target[key] = found
    return root[0]


def _python_leaf(value: Value) -> Any:
    try:
        if value.type == "date":
            return dt.date.fromordinal(_FIRST_DAY + value.value)
        if value.type == "timestamp":
            return _EPOCH_UTC + value.value * _MICROSECOND
        if value.type == "timestamp_ntz":
            return _EPOCH + value.value * _MICROSECOND
    except (OverflowError, ValueError):
        return value
    if value.type == "time":
        return (_EPOCH + value.value * _MICROSECOND).time()
    if value.type in ("timestamp_ns", "timestamp_ntz_ns"):
        return value
    return value.value
