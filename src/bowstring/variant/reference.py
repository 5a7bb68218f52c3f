"""Names of Arrow types, and of paths into a column, which filters of pyarrow refer to."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from bowstring.columnar.marks import is_variant
from bowstring.errors import UsageError, did_you_mean
from bowstring.variant.column import VariantType
from bowstring.variant.path import Path, Step, single_path

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


_PREFIX: Final = "bowstring.variant.path:"


class Reference(NamedTuple):
    """What a name in an expression refers to: the steps below a column, and the type of the values."""

    column: str
    path: Path
    type: pa.DataType

    @property
    def label(self) -> str:
        return "$" + "".join(
            f".{each}" if isinstance(each, str) and each.isidentifier() else f"[{each!r}]"
            for each in self.path
        )


def path(column: str, path: str | Sequence[Step], type: Any) -> Any:  # noqa: A002  as in get()
    """Return the values at a path of a Variant column as an expression, for ``bow.parquet.read``.

    It is a column of ``columns=``, named as the path, and stands for a column in ``filters=``.

    Parameters
    ----------
    column
        The name of the column.
    path
        As :func:`bowstring.variant.get` takes it.
    type : pyarrow.DataType or str
        Or its name. What the values are read as, as by :func:`bowstring.variant.get`: numbers of any class become
        numbers, values of another class, such as strings for ``pa.int64()``, are null. Filters compare numbers as
        what they are, whatever type of numbers this is.

    Returns
    -------
    pyarrow.compute.Expression
        To compare and to combine with others, or to put in the place of a name: ``(path(…), ">", 3)``.

    Raises
    ------
    UsageError
        No name, no path, or no type.

    Examples
    --------
    >>> cheap = path("event", "$.price", pa.int64()) < 3
    >>> type(cheap).__name__
    'Expression'
    """
    import pyarrow.compute as pc

    type = type_named(type)  # noqa: A001  as in get()

    if not all((isinstance(column, str), isinstance(type, pa.DataType))):
        raise UsageError(
            "a path needs the name of a column and a type",
            expected="a string and a pyarrow.DataType",
            found=f"{column!r}, {type!r}"[:200],
        )
    stored = base64.b64encode(pa.schema([pa.field("", type)]).serialize()).decode()
    return pc.field(_PREFIX + json.dumps([column, single_path(path, "path"), stored]))


def reference_of(name: str) -> Reference | None:
    """Return what a name that :func:`path` made refers to; ``None`` for any other name."""
    if not name.startswith(_PREFIX):
        return None
    column, steps, stored = json.loads(name[len(_PREFIX) :])
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored)))
    return Reference(column, tuple(steps), _restored(schema.field(0)))


def _restored(field: pa.Field) -> pa.DataType:
    """Return the type of a field, whose Variants came back as structs that are marked."""
    type_ = field.type
    if is_variant(field):
        return VariantType()
    if pa.types.is_struct(type_):
        return pa.struct([each.with_type(_restored(each)) for each in type_])
    if pa.types.is_map(type_):
        return pa.map_(type_.key_field, type_.item_field.with_type(_restored(type_.item_field)))
    made = {pa.lib.Type_LIST: pa.list_, pa.lib.Type_LARGE_LIST: pa.large_list}.get(type_.id)
    if made is None:
        return type_
    return made(type_.value_field.with_type(_restored(type_.value_field)))
