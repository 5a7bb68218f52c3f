"""Comparisons of a column with a constant: as what is right for every row, and as what statistics may be asked.

pyarrow casts a column or a number, by what the data happen to be, and loses digits or fails. Here a comparison with
a number is a threshold of the column's own type, or the same for all values. The table is in ``docs/parquet.md``.
"""

from __future__ import annotations

import decimal
import functools
import operator
import uuid
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bowstring.parquet.conditions import COMPARISONS, OPPOSITE, Condition

_NULL: Final = pc.scalar(pa.scalar(None, pa.bool_()))
_ORDERED: Final = (
    pa.types.is_boolean,
    pa.types.is_temporal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
_FLOATS: Final[dict[int, Any]] = {16: np.float16, 32: np.float32, 64: np.float64}
_WIDE: Final = decimal.Context(decimal.MAX_PREC, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
_EXACT_IN_FLOATS: Final = 2**53
_END_OF_INTEGERS: Final = 2**63


def in_column(condition: Condition, path: tuple[str, ...], schema: pa.Schema, *, mixed: bool = False) -> Any:
    """Return a condition as an expression of a column, or of a field inside of one.

    `mixed` is for decimals that may be stored as integers as well.
    """
    place, stored = pc.field(path), _type_at(schema, path)
    if stored is None:  # pyarrow says what it misses
        return _of_pyarrow(condition, place)
    place, type_ = _as_computed(place, stored)
    call, value = condition.call, condition.value
    if stored == pa.uuid() and call in COMPARISONS:
        value = pa.scalar(_as_bytes(value), type_)
    elif stored == pa.uuid() and call == "is_in":
        value = pa.array([_as_bytes(each) for each in value], type_)
    if call == "is_in" and is_number(stored):
        value = _members(value, stored, mixed=mixed).cast(type_)
        if pa.types.is_floating(type_) and pc.any(pc.is_nan(value), min_count=0).as_py():
            # pyarrow finds a NaN of the same bits only.
            return place.isin(value) | (place.is_valid() & place.is_nan())
    if call in COMPARISONS and _is_null(value):
        return _NULL
    number = number_of(value) if is_number(stored) and call in COMPARISONS else None
    if number is not None:
        fitting = _threshold(call, number, stored, mixed=mixed)
        if isinstance(fitting, bool):
            # One value where there is a value, and null where there is a null.
            return place.is_valid() | _NULL if fitting else place.is_null() & _NULL
        call, value = fitting[0], fitting[1].cast(type_)
    return _of_pyarrow(Condition(call, path, value), place)


def in_variant(condition: Condition, name: str, schema: pa.Schema) -> Any:
    """Return a condition as an expression of the values at a path, as `Compared` gives them."""
    # A typed column; or a struct of the values by their kind, in which `other` says what cannot be compared.
    type_ = schema.field(name).type
    if not pa.types.is_struct(type_):
        return in_column(condition, (name,), schema, mixed=True)
    kinds = [field.name for field in type_ if field.name != "other"]
    places = [pc.field(name, kind) for kind in kinds]
    every = [in_column(condition, (name, kind), schema, mixed=True) for kind in kinds]
    call = condition.call
    if call == "is_null":
        return functools.reduce(operator.and_, every)
    if call == "is_valid":
        return functools.reduce(operator.or_, every)
    # Where no kind has a value, the first speaks for the null.
    whole = every[0]
    for place, each in zip(places[1:], every[1:], strict=True):
        whole = pc.if_else(place.is_valid(), each, whole)
    return pc.if_else(pc.field(name, "other").is_valid(), _NULL, whole)


def possible(
    condition: Condition, schema: pa.Schema, paths: frozenset[str] = frozenset(), *, negated: bool = False
) -> Any | None:
    """Return what is true of every row that a filter wants, and maybe of others; ``None`` for all rows."""
    # pyarrow compares this with statistics, which leave out NaN and may swap the zeros: so no comparison that NaN
    # passes, or that tells zeros apart, may be in it. `paths`: columns of the schema that are paths.
    if condition.call == "invert":
        return possible(condition.parts[0], schema, paths, negated=not negated)
    if condition.parts:
        every = [possible(part, schema, paths, negated=negated) for part in condition.parts]
        known = [each for each in every if each is not None]
        if (condition.call == "and_kleene") != negated:
            return functools.reduce(operator.and_, known) if known else None
        return functools.reduce(operator.or_, known) if len(known) == len(every) else None
    type_ = _type_at(schema, condition.path) if condition.path else None
    if type_ is None:
        return None
    return _possible(condition, pc.field(condition.path), type_, negated, condition.path[0] in paths)


def _possible(condition: Condition, place: Any, type_: pa.DataType, negated: bool, mixed: bool) -> Any | None:
    """Return what is true of every row for which a comparison holds, or its negation."""
    call, value = condition.call, condition.value
    is_plain_number = is_number(type_) and _as_computed(place, type_)[1] == type_
    is_float = pa.types.is_floating(type_)
    if not is_plain_number and not any(is_ordered(type_) for is_ordered in _ORDERED):
        return None
    if call in ("is_null", "is_valid"):
        if negated:
            call, value = ("is_valid", None) if call == "is_null" else ("is_null", False)
        return None if is_float and value else place.is_valid() if call == "is_valid" else place.is_null()
    if call == "is_in":
        if negated:
            return None
        if is_plain_number:
            value = _members(value, type_, mixed=mixed)
        return _possible_in(value, place) if is_float else place.isin(value)
    if call not in COMPARISONS or (is_float and negated != (call == "not_equal")):
        return None
    if _is_null(value):
        return pc.scalar(False)
    number = number_of(value) if is_plain_number else None
    if number is not None:
        fitting = _threshold(call, number, type_, mixed=mixed)
        if isinstance(fitting, bool):
            return place.is_valid() if fitting != negated else pc.scalar(False)
        call, value = fitting
    return COMPARISONS[OPPOSITE[call] if negated else call](place, value)


def _possible_in(values: pa.Array, place: Any) -> Any | None:
    """Return what is true of every float that is one of some: ``is_in`` tells zeros apart, bounds do not."""
    numbers = values.drop_null()
    if pc.any(pc.is_nan(numbers), min_count=0).as_py():
        return None
    bounds = pc.min_max(numbers)
    between = (place >= bounds["min"]) & (place <= bounds["max"]) if len(numbers) else pc.scalar(False)
    return between | place.is_null() if values.null_count else between


def _of_pyarrow(condition: Condition, place: Any) -> Any:
    call, value = condition.call, condition.value
    if call in COMPARISONS:
        return COMPARISONS[call](place, value)
    if call == "is_in":
        return place.isin(value)
    return place.is_null(nan_is_null=value) if call == "is_null" else getattr(place, call)()


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, pa.Scalar) and not value.is_valid)


def _type_at(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType | None:
    """Return the type of a column, or of a field inside of it; ``None`` where there is not just one."""
    fields: list[pa.Field] = list(schema)
    type_ = None
    for name in path:
        named = [field for field in fields if field.name == name]
        if len(named) != 1:
            return None
        type_ = named[0].type
        fields = list(type_) if pa.types.is_struct(type_) else []
    return type_


class Number(NamedTuple):
    """A number as it was written: its exact value, which may be NaN or infinite, and its kind."""

    value: Decimal
    kind: Literal["integer", "decimal", "float"]


def number_of(value: Any) -> Number | None:
    """Return a number of Python's, NumPy's or pyarrow's; ``None`` for anything else, such as a boolean."""
    if isinstance(value, pa.Scalar):
        value = value.as_py() if is_number(value.type) else None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | np.integer | np.floating):
        return None
    if isinstance(value, Decimal):
        return Number(value, "decimal")
    if isinstance(value, int | np.integer):
        return Number(Decimal(int(value)), "integer")
    return Number(Decimal(float(value)), "float")


def is_number(type_: pa.DataType) -> bool:
    """Return whether a type is one of integers, floats or decimals."""
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _threshold(
    call: str, number: Number, type_: pa.DataType, *, mixed: bool = False
) -> tuple[str, pa.Scalar] | bool:
    """Return an equal comparison with a number of a column's own type, or what holds for all values that are there.

    `mixed` is for decimals that may be stored as integers as well, and so have to compare as these.
    """
    if number.value.is_nan():
        if pa.types.is_floating(type_):
            return call, pa.scalar(float("nan"), type_)
        return call == "not_equal"
    below, above = _around(number, type_, mixed=mixed)
    if call in ("equal", "not_equal"):
        return (call, below) if below is not None and below == above else call == "not_equal"
    least = above if call in ("less", "greater_equal") else below
    if least is None:
        return call in ("less", "greater")
    return call, least


def _members(values: Iterable[Any], type_: pa.DataType, *, mixed: bool = False) -> pa.Array:
    """Return those of some numbers that values of a type can be equal to, and the nulls among them."""
    values = values if isinstance(values, pa.Array) else list(values)
    try:
        array = pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        array = None  # numbers of several kinds, or too large
    if array is not None and array.type == type_:
        return array
    kept: list[Any] = []
    for value in values:
        if _is_null(value):
            kept.append(None)
            continue
        number = number_of(value)
        if number is None:
            raise TypeError(f"{value!r} is compared with {type_}")
        fitting = _threshold("equal", number, type_, mixed=mixed)
        if isinstance(fitting, tuple):
            kept.append(fitting[1].as_py())
    return pa.array(kept, type_)


def _as_computed(place: Any, type_: pa.DataType) -> tuple[Any, pa.DataType]:
    """Return an expression as one of a type that pyarrow has comparisons for, of the same values, and that type."""
    other = type_
    if type_ == pa.float16():
        other = pa.float32()
    elif pa.types.is_decimal32(type_) or pa.types.is_decimal64(type_):
        other = pa.decimal128(type_.precision, type_.scale)
    elif type_ == pa.uuid():
        other = type_.storage_type
    return (place, type_) if other is type_ else (place.cast(other), other)


def _as_bytes(value: Any) -> bytes | None:
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if value is not None and not isinstance(value, uuid.UUID | bytes):
        raise TypeError(f"{value!r} is compared with UUIDs")
    return value.bytes if isinstance(value, uuid.UUID) else value


def _around(number: Number, type_: pa.DataType, *, mixed: bool) -> tuple[Any, Any]:
    """Return the values of a type that are next to a number, below and above; twice the same if it is equal."""
    if pa.types.is_floating(type_):
        return _around_in_floats(number, type_)
    value, scale = number.value, 0
    if pa.types.is_decimal(type_):
        scale, most = type_.scale, 10**type_.precision - 1
        least = -most
        if number.kind == "float" and not (mixed and _EXACT_IN_FLOATS <= abs(value) <= _END_OF_INTEGERS):
            value = Decimal(repr(float(value)))
    else:
        bits = type_.bit_width - pa.types.is_signed_integer(type_)
        most = 2**bits - 1
        least = -(2**bits) if pa.types.is_signed_integer(type_) else 0

    def made(units: int) -> pa.Scalar:
        return pa.scalar(Decimal(units).scaleb(-scale, _WIDE) if pa.types.is_decimal(type_) else units, type_)

    # Before anything is made of it: a number of Python's may have an exponent of 18 digits.
    if value > Decimal(most).scaleb(-scale, _WIDE):
        return made(most), None
    if value < Decimal(least).scaleb(-scale, _WIDE):
        return None, made(least)
    units = value.scaleb(scale, _WIDE)
    below, above = (
        int(units.to_integral_value(rounding)) for rounding in (decimal.ROUND_FLOOR, decimal.ROUND_CEILING)
    )
    return made(below), made(above)


def _around_in_floats(number: Number, type_: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    kind = _FLOATS[type_.bit_width]
    value = number.value

    def met(each: Any) -> Decimal:
        """Return a value of the column as it is compared: with decimals, by its shortest text."""
        return Decimal(repr(float(each))) if number.kind == "decimal" else Decimal(float(each))

    with np.errstate(all="ignore"):
        near = kind(float(value))
        while met(near) > value:
            near = np.nextafter(near, kind(-np.inf))
        above = near
        while met(above) < value:
            near, above = above, np.nextafter(above, kind(np.inf))
    if met(above) == value:
        near = above
    return pa.scalar(near, type_), pa.scalar(above, type_)
