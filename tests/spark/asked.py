"""Filters as PySpark hands them over, without PySpark: classes of the same names, and what Spark answers."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class _Asked:
    attribute: tuple[str, ...]
    value: Any = None


class EqualTo(_Asked): ...


class EqualNullSafe(_Asked): ...


class GreaterThan(_Asked): ...


class GreaterThanOrEqual(_Asked): ...


class LessThan(_Asked): ...


class LessThanOrEqual(_Asked): ...


class In(_Asked): ...


class IsNull(_Asked): ...


class IsNotNull(_Asked): ...


class StringStartsWith(_Asked): ...


class StringEndsWith(_Asked): ...


class StringContains(_Asked): ...


class NeverHeardOf(_Asked): ...


@dataclasses.dataclass(frozen=True)
class Not:
    child: Any


COMPARISONS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
TEXTS = (StringStartsWith, StringEndsWith, StringContains)


def answer(asked: Any, value: Any) -> bool | None:
    """Return what Spark says of one value: true, false or null."""
    if isinstance(asked, Not):
        inner = answer(asked.child, value)
        return None if inner is None else not inner
    if isinstance(asked, IsNull):
        return value is None
    if isinstance(asked, IsNotNull):
        return value is not None
    if isinstance(asked, EqualNullSafe):
        if value is None or asked.value is None:
            return value is asked.value
        return _order(value, asked.value, operator.eq)
    if value is None:
        return None
    if isinstance(asked, In):
        return any(_order(value, each, operator.eq) for each in asked.value)
    if isinstance(asked, StringStartsWith):
        return value.encode().startswith(asked.value.encode())
    if isinstance(asked, StringEndsWith):
        return value.encode().endswith(asked.value.encode())
    if isinstance(asked, StringContains):
        return asked.value.encode() in value.encode()
    return _order(value, asked.value, _OPERATORS[type(asked)])


def _order(left: Any, right: Any, how: Callable[[Any, Any], bool]) -> bool:
    """Compare as Spark does: NaN is equal to itself and above all, text is ordered by its bytes."""
    return how(_key(left), _key(right))


def _key(value: Any) -> Any:
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


_OPERATORS: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
