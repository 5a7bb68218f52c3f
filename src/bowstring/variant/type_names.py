"""Arrow types by name: ``"int64"``, ``"decimal(10, 2)"``, ``"list<string>"``, ``"variant"``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from bowstring.errors import UsageError, did_you_mean
from bowstring.variant.column import VariantType

# Those of pyarrow's own aliases that a Variant value can become, for "did you mean".
_PLAIN: Final = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "double", "string", "large_string", "binary", "large_binary"),
    *("date32", "date64", "time32[s]", "time64[us]", "timestamp[us]", "timestamp[us, UTC]", "null"),
    *("uuid", "variant", "decimal(10, 2)", "list<string>"),
)
_DECIMALS: Final = {"decimal": pa.decimal128, "decimal128": pa.decimal128, "decimal256": pa.decimal256}
_LISTS: Final = {"list": pa.list_, "large_list": pa.large_list}
_Rule = tuple["re.Pattern[str]", Callable[["re.Match[str]"], pa.DataType]]
_RULES: Final[tuple[_Rule, ...]] = (
    (re.compile(r"variant"), lambda _: VariantType()),
    (re.compile(r"uuid"), lambda _: pa.uuid()),
    (
        re.compile(r"(decimal|decimal128|decimal256)\((\d{1,2}), ?(\d{1,2})\)"),
        lambda found: _DECIMALS[found[1]](int(found[2]), int(found[3])),
    ),
    (
        re.compile(r"timestamp\[(s|ms|us|ns), ?(?:tz=)?([\w/+:-]+)\]"),
        lambda found: pa.timestamp(found[1], found[2]),
    ),
    (re.compile(r"(list|large_list)<(.+)>"), lambda found: _LISTS[found[1]](type_named(found[2]))),
)


def type_named(type_: Any) -> Any:
    """Return the type that a name stands for, and anything but a string as it is: what
    ``pyarrow.type_for_alias`` knows, ``decimal(10, 2)``, ``timestamp[us, UTC]``, ``uuid``, ``variant`` and
    ``list<NAME>``.
    """
    if not isinstance(type_, str):
        return type_
    try:
        for pattern, made in _RULES:
            found = pattern.fullmatch(type_)
            if found:
                return made(found)
        return pa.type_for_alias(type_)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            "no such type",
            expected='a name such as "int64", "timestamp[us, UTC]", "decimal(10, 2)", "list<string>" or "variant"',
            found=repr(type_)[:80],
            hint=did_you_mean(type_, _PLAIN),
        ) from error
