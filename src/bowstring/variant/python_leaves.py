"""Python objects as typed Variant leaves, and typed leaves as Python objects."""

from __future__ import annotations

import datetime as dt
import decimal
import sys
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from bowstring.errors import UsageError
from bowstring.variant.codec.primitives import Path, Value, at, decimal_type, int_type

EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  the arithmetic of local times
EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
FIRST_DAY: Final = dt.date(1970, 1, 1).toordinal()
_MOST_BITS: Final = 256
MICROSECOND: Final = dt.timedelta(microseconds=1)
_NUMPY_TIMES: Final = {"D": "date", "s": "timestamp_ntz", "ms": "timestamp_ntz", "us": "timestamp_ntz"}


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


def children_of(thing: Any, path: Path) -> tuple[str, list[tuple[str | int, Any]]] | None:
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


def leaf_of(thing: Any, path: Path) -> Value:
    """Return an object that is not a container as a typed leaf; a Value stays as it is.
    :func:`~bowstring.variant.from_python` documents the types; NumPy's and pandas' timestamps keep their
    nanoseconds.
    """
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
    since = moment - EPOCH if zone else moment - EPOCH_UTC
    return Value(f"timestamp{zone}", since // MICROSECOND)


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
    (dt.date, lambda day: Value("date", day.toordinal() - FIRST_DAY)),
    (dt.time, _time),
    (np.datetime64, _numpy_time),
)
# Most leaves are of one of these very types, and need no search.
_PLAIN_LEAVES: Final[dict[type, Callable[[Any], Value | None]]] = {
    kind: next(make for types, make in _LEAVES if issubclass(kind, types))
    for kind in (type(None), bool, int, float, str, decimal.Decimal)
}


def python_leaf(value: Value) -> Any:
    """Return a leaf as a plain Python object. What Python has no exact type for stays a Value: timestamps of
    nanoseconds, and dates and timestamps outside of the years 1 to 9999.
    """
    try:
        if value.type == "date":
            return dt.date.fromordinal(FIRST_DAY + value.value)
        if value.type == "timestamp":
            return EPOCH_UTC + value.value * MICROSECOND
        if value.type == "timestamp_ntz":
            return EPOCH + value.value * MICROSECOND
    except (OverflowError, ValueError):
        return value
    if value.type == "time":
        return (EPOCH + value.value * MICROSECOND).time()
    if value.type in ("timestamp_ns", "timestamp_ntz_ns"):
        return value
    return value.value
