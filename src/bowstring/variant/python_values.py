"""Python objects as typed Variant leaves and back, and rows made plain: nothing but what ``marshal`` writes."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import struct
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from bowstring.errors import LimitExceeded, UsageError
from bowstring.variant.codec.primitives import Path, Value, at, decimal_type, int_type, primitive_bytes, utf8

EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  the arithmetic of local times
EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
FIRST_DAY: Final = dt.date(1970, 1, 1).toordinal()
_MOST_BITS: Final = 256
MICROSECOND: Final = dt.timedelta(microseconds=1)
_NUMPY_TIMES: Final = {
    "D": ("date", 1),
    "s": ("timestamp_ntz", 1_000_000),
    "ms": ("timestamp_ntz", 1_000),
    "us": ("timestamp_ntz", 1),
    "ns": ("timestamp_ntz_ns", 1),
}


def _is_missing(thing: object) -> bool:
    """Return whether a thing is None, or what stands for it: ``pandas.NA``, pandas' or NumPy's ``NaT``."""
    if type(thing) in _PLAIN_LEAVES:
        return thing is None
    if isinstance(thing, np.datetime64 | dt.datetime):
        return bool(thing != thing)  # noqa: PLR0124  NaT equals nothing
    # Where pandas has not been imported, nothing can be its NA; and it takes long to import.
    pandas = sys.modules.get("pandas")
    return pandas is not None and thing is getattr(pandas, "NA", pandas)


def _children_of(thing: Any, path: Path) -> tuple[str, list[tuple[str | int, Any]]] | None:
    """Return what is in a container, and its type; None for any other object."""
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


def _leaf_of(thing: Any, path: Path) -> Value:
    """Return an object that is not a container as a typed leaf; NumPy's and pandas' timestamps keep their
    nanoseconds.
    """
    if isinstance(thing, Value):
        return thing
    if _is_missing(thing):
        return Value("null", None)
    make = _PLAIN_LEAVES.get(type(thing))
    make = make or next((make for types, make in _LEAVES if isinstance(thing, types)), None)
    if make is None:
        raise UsageError(
            "an object that no Variant can hold",
            expected="None, bool, int, float, Decimal, str, bytes, UUID, date, time, datetime, list or dict",
            found=type(thing).__name__,
            where=at(path),
        )
    leaf = make(thing)
    if leaf is None:
        # Python refuses to write integers of thousands of digits.
        large = isinstance(thing, int) and thing.bit_length() > _MOST_BITS
        shown = f"an integer of {thing.bit_length()} bits" if large else repr(thing)[:80]
        raise UsageError("a value that no Variant type holds exactly", found=shown, where=at(path))
    return leaf


def _integer(number: Any) -> Value | None:
    number = int(number)
    narrow = int_type(number)
    return Value(narrow, number) if narrow else _decimal(decimal.Decimal(number))


def _decimal(number: decimal.Decimal) -> Value | None:
    narrow = decimal_type(number)
    return Value(narrow, number) if narrow else None


def _datetime(moment: dt.datetime) -> Value | None:
    zone = "_ntz" if moment.tzinfo is None else ""
    if getattr(moment, "nanosecond", 0):
        # Of pandas: `value` counts nanoseconds since 1970, in UTC where there is a zone.
        return Value(f"timestamp{zone}_ns", int(moment.value))  # type: ignore[attr-defined]
    since = moment - EPOCH if zone else moment - EPOCH_UTC
    return Value(f"timestamp{zone}", since // MICROSECOND)


def _numpy_time(moment: np.datetime64) -> Value | None:
    unit, count = np.datetime_data(moment.dtype)
    name, factor = _NUMPY_TIMES.get(unit, ("", 0))
    return Value(name, int(moment.astype(np.int64)) * factor) if name and count == 1 else None


def _time(moment: dt.time) -> Value | None:
    if moment.tzinfo is not None:
        return None
    seconds = (moment.hour * 60 + moment.minute) * 60 + moment.second
    return Value("time", seconds * 1_000_000 + moment.microsecond)


# In this order: True is an int, a NumPy duration an integer, a NumPy double a float, a datetime a date.
_LEAVES: Final[tuple[tuple[Any, Callable[[Any], Value | None]], ...]] = (
    (type(None), lambda _: Value("null", None)),
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


LARGEST: Final = (1 << 31) - 1
"""Bytes that the values of a column take at most."""
_KEPT: Final = 4096
_INT32, _INT64 = struct.Struct("<Bi").pack, struct.Struct("<Bq").pack
_INT32_SCALED, _INT64_SCALED = struct.Struct("<BBi").pack, struct.Struct("<BBq").pack
_SHORT: Final = 63


def _integer_size(number: int) -> int:
    if -0x80 <= number < 0x80:
        return 2
    bits = (number if number >= 0 else ~number).bit_length()
    if bits > 63:
        raise UsageError("an integer that is encoded as a decimal")
    return 3 if bits < 16 else 5 if bits < 32 else 9


# The exact types that stay as they are, and how many bytes each value takes; what raises is looked at again.
_SIZES: Final[dict[type, Callable[[Any], int]]] = {
    type(None): lambda _: 1,
    bool: lambda _: 1,
    int: _integer_size,
    float: lambda _: 9,
    str: lambda text: (size := len(text.encode())) + (1 if size <= _SHORT else 5),
}
_TEXT: Final = frozenset({str})


def _decimal_bytes(number: decimal.Decimal) -> bytes:
    whole, _, fraction = str(number).partition(".")
    unscaled, scale = int(whole + fraction), len(fraction)  # with an exponent, or no number: ValueError
    if scale <= 9 and -(10**9) < unscaled < 10**9:
        return _INT32_SCALED(8 << 2, scale, unscaled)
    if scale <= 18 and -(10**18) < unscaled < 10**18:
        return _INT64_SCALED(9 << 2, scale, unscaled)
    raise ValueError("more digits than a word holds")


def _moment(moment: dt.datetime) -> bytes:
    since = moment - (EPOCH if moment.tzinfo is None else EPOCH_UTC)
    return _INT64((13 if moment.tzinfo is None else 12) << 2, since // MICROSECOND)


# The exact types of most leaves that are encoded here: what the general way makes of them, without its search.
_ENCODE: Final[dict[type, Callable[[Any], bytes]]] = {
    decimal.Decimal: _decimal_bytes,
    dt.date: lambda day: _INT32(11 << 2, day.toordinal() - FIRST_DAY),
    dt.datetime: _moment,
    bytes: lambda payload: _INT32(15 << 2, len(payload)) + payload,
}
_ODD: Final = (KeyError, UsageError, ValueError)


def too_large(most: int, nbytes: int) -> LimitExceeded:
    """Return the error for values of a column that take too many bytes."""
    return LimitExceeded(
        "the values of a Variant column take too many bytes",
        expected=f"at most {most} bytes",
        found=nbytes,
        hint="Make several columns of fewer rows."
        if most == LARGEST
        else "Make several columns of fewer rows, or raise Limits.extracted_bytes.",
    )


_Frame = tuple[Any, Iterator[tuple["str | int", Any]], Path]
"""A container whose children are being copied: its copy, what is left of its children, and its place."""


class PlainRows:
    """Copies rows. `nbytes` counts what their values take, with one byte for the head of each container."""

    def __init__(self, depth: int, most: int) -> None:
        self._depth = depth
        self._most = most
        self._keys: set[tuple[str, ...]] = set()
        self.nbytes = 0

    def copy(self, thing: Any) -> Any:
        """Return a row of dict, list, str, int of 64 bits, float, bool and None; bytes are an encoded value, and
        None is an SQL NULL at the top.
        """
        if type(thing) is dict and (plain := self._plain(thing)) is not None:
            return plain
        return None if _is_missing(thing) else self._copied(thing)

    def _plain(self, thing: dict[Any, Any]) -> dict[str, Any] | None:
        """Return the copy of a dict of plain leaves; None where it is anything else."""
        if tuple(thing) not in self._keys or not _TEXT.issuperset(map(type, thing)):
            return None
        plain = thing.copy()
        total = 1
        try:
            for key, child in thing.items():
                size = _SIZES.get(type(child))
                if size is None:
                    plain[key] = encoded = _ENCODE[type(child)](child)
                    total += len(encoded)
                else:
                    total += size(child)
        except _ODD:
            return None
        self.nbytes += total
        return plain

    def _copied(self, thing: Any) -> Any:
        frames: list[_Frame] = []
        root = self._start(thing, None, frames)
        while frames:
            copied, left, path = frames[-1]
            for step, child in left:
                depth = len(frames)
                value = self._start(child, (path, step), frames)
                if type(copied) is list:
                    copied.append(value)
                else:
                    copied[step] = value
                if len(frames) > depth:
                    break
            else:
                frames.pop()
        return root

    def _start(self, thing: Any, path: Path, frames: list[_Frame]) -> Any:
        """Return the copy of a value; of a container, an empty one, whose frame is the last."""
        kind = type(thing)
        if kind in _SIZES:
            try:
                self.nbytes += _SIZES[kind](thing)
            except _ODD:
                return self._encoded(thing, path)
            # At the top None is an SQL NULL, and was returned.
            return thing
        if kind is dict and len(frames) < self._depth and (plain := self._plain(thing)) is not None:
            return plain
        if isinstance(thing, np.ndarray) and not thing.ndim:
            thing = thing[()]
        steps = _children_of(thing, path)
        if steps is None:
            return self._encoded(thing, path)
        if len(frames) >= self._depth:
            raise LimitExceeded(
                "an object is nested too deeply for a Variant",
                expected=f"at most {self._depth} levels",
                where=at(path),
                hint="An object that holds itself has no Variant; else raise Limits.depth.",
            )
        if self.nbytes > self._most:
            # Before all of it is copied: what holds something twice, in each other, has no end.
            raise too_large(self._most, self.nbytes)
        what, children = steps
        self.nbytes += 1
        copied: Any = {} if what == "object" else []
        frames.append((copied, iter(self._named(children, path) if what == "object" else children), path))
        return copied

    def _named(self, children: list[tuple[str | int, Any]], path: Path) -> list[tuple[str | int, Any]]:
        """Return fields by their very text, which is checked."""
        keys = tuple(str.__str__(key) for key, _ in children)
        if keys not in self._keys:
            try:
                for key in keys:
                    utf8(key, "a key")
            except UsageError as error:
                what = error.what, error.expected, error.found
                raise UsageError(what[0], expected=what[1], found=what[2], where=at(path)) from error
            if len(set(keys)) < len(keys):
                raise UsageError("an object has a key twice", found=repr(keys)[:80], where=at(path))
            if len(self._keys) >= _KEPT:
                self._keys.clear()
            self._keys.add(keys)
        return list(zip(keys, (child for _, child in children), strict=True))

    def _encoded(self, thing: Any, path: Path) -> bytes:
        encoded = b""
        if type(thing) in _ENCODE:
            with contextlib.suppress(ValueError):
                encoded = _ENCODE[type(thing)](thing)
        try:
            encoded = encoded or primitive_bytes(_leaf_of(thing, path))
        except UsageError as error:
            where = error.where or at(path)
            raise UsageError(error.what, expected=error.expected, found=error.found, where=where) from error
        self.nbytes += len(encoded)
        return encoded
