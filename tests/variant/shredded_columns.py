"""Shredded Variant columns for tests: the two tables of the specification, and columns from typed trees."""

from __future__ import annotations

import decimal
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st

from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.variant import Value
from tests.variant.encoding import column_of, encode_with, metadata_bytes
from tests.variant.get_columns import MARK
from tests.variant.typed_values import LEAVES as RANDOM_LEAVES

BINARY = pa.binary()


def group(typed: pa.DataType) -> pa.DataType:
    """Return the struct of a value and a typed value of some type."""
    return pa.struct([pa.field("value", BINARY), pa.field("typed_value", typed)])


def shredded_type(typed: pa.DataType) -> pa.DataType:
    """Return the type of a Variant column that is shredded as some type."""
    metadata = pa.field("metadata", BINARY, nullable=False)
    return pa.struct([metadata, pa.field("value", BINARY), pa.field("typed_value", typed)])


def unmarked(array: pa.Array) -> Column:
    """Return an array as a column that nothing marks as a Variant."""
    return column_of(array, pa.field("v", array.type))


def value(names: list[str], what: Any) -> bytes:
    """Return the value of a Python object that JSON has, over the metadata of some names."""
    [tree] = variant.to_python(variant.from_json([json.dumps(what)]), typed=True)
    assert tree is not None
    return encode_with({name: index for index, name in enumerate(names)}, tree)


def metadata(names: list[str]) -> bytes:
    """Return the metadata of some names."""
    return metadata_bytes(tuple(names))


EVENT = ["click", "email", "error_msg", "event_ts", "event_type", "n"]
EVENT_TYPE = shredded_type(
    pa.struct(
        [
            pa.field("event_type", group(pa.string()), nullable=False),
            pa.field("event_ts", group(pa.timestamp("us", "UTC")), nullable=False),
        ]
    )
)


def event(
    residual: Any = None, fields: dict[str, Any] | None = None, *, has_value: bool = False
) -> dict[str, Any]:
    """Return a row of the table of objects: a residual value, and the shredded fields that there are."""
    missing = {"value": None, "typed_value": None}
    typed = None
    if fields is not None:
        typed = {name: fields.get(name, missing) for name in ("event_type", "event_ts")}
    held = value(EVENT, residual) if has_value or residual is not None else None
    return {"metadata": metadata(EVENT), "value": held, "typed_value": typed}


def typed(what: Any) -> dict[str, Any]:
    """Return a field that is of the shredded type."""
    return {"value": None, "typed_value": what}


def untyped(what: Any) -> dict[str, Any]:
    """Return a field that is not of the shredded type."""
    return {"value": value(EVENT, what), "typed_value": None}


def shredded_rows(trees: Sequence[Value | None], type_: pa.DataType, drawn: random.Random) -> Column:
    """Return typed trees as a column that is shredded as a type says; some of what fits stays in ``value``.

    A second way to shred, row by row and after the text of the specification.
    """
    names = sorted({name for tree in trees if tree is not None for name in _names(tree)})
    drawn.shuffle(names)
    ids = {name: index for index, name in enumerate(names)}
    blob = metadata_bytes(tuple(names))
    rows: list[dict[str, Any] | None] = []
    for tree in trees:
        if tree is None:
            rows.append(None)
        else:
            rows.append({"metadata": blob, **_cell(tree, type_, ids, drawn)})
    array = pa.array(rows, shredded_type(typed_type(type_)))
    return column_of(array, pa.field("v", array.type, metadata=MARK))


def typed_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of a ``typed_value``: each element and field of a type becomes a group."""
    if pa.types.is_struct(type_):
        return pa.struct(
            [pa.field(each.name, group(typed_type(each.type)), nullable=False) for each in type_]
        )
    if pa.types.is_list(type_):
        return pa.list_(pa.field("element", group(typed_type(type_.value_type)), nullable=False))
    return type_


def _names(tree: Value) -> Iterator[str]:
    if tree.type == "object":
        yield from tree.value
        for child in tree.value.values():
            yield from _names(child)
    elif tree.type == "array":
        for child in tree.value:
            yield from _names(child)


def _cell(tree: Value, type_: pa.DataType, ids: dict[str, int], drawn: random.Random) -> dict[str, Any]:
    missing = {"value": None, "typed_value": None}
    if pa.types.is_struct(type_) and tree.type == "object":
        names = {each.name for each in type_}
        rest = {name: child for name, child in tree.value.items() if name not in names}
        fields = {
            each.name: _cell(tree.value[each.name], each.type, ids, drawn)
            if each.name in tree.value
            else missing
            for each in type_
        }
        held = encode_with(ids, Value("object", rest)) if rest or drawn.random() < 0.2 else None
        return {"value": held, "typed_value": fields}
    if pa.types.is_list(type_) and tree.type == "array":
        return {
            "value": None,
            "typed_value": [_cell(each, type_.value_type, ids, drawn) for each in tree.value],
        }
    if _fits(tree, type_) and drawn.random() < 0.8:
        return {"value": None, "typed_value": tree.value.bytes if tree.type == "uuid" else tree.value}
    return {"value": encode_with(ids, tree), "typed_value": None}


def _fits(tree: Value, type_: pa.DataType) -> bool:
    if pa.types.is_decimal(type_) and isinstance(tree.value, decimal.Decimal):
        places = -int(tree.value.as_tuple().exponent)
        return places == type_.scale and len(tree.value.as_tuple().digits) <= type_.precision
    return tree.type == LEAVES.get(type_)


LEAVES: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.time64("us"): "time",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("ns", "UTC"): "timestamp_ns",
    pa.timestamp("ns"): "timestamp_ntz_ns",
    pa.binary(16): "uuid",
}
"""Types whose Variant values Arrow takes as they are in trees."""
DECIMALS: Final = (pa.decimal128(9, 2), pa.decimal128(18, 0), pa.decimal128(38, 38))

_NAMES: Final = ("a", "b", "é", "")


def _nested(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(_NAMES)
    return st.one_of(
        st.builds(Value, st.just("array"), st.lists(inside, max_size=3)),
        st.builds(Value, st.just("object"), st.dictionaries(names, inside, max_size=3)),
    )


def _types(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.dictionaries(st.sampled_from(_NAMES), inside, min_size=1, max_size=3)
    return st.one_of(st.builds(pa.list_, inside), fields.map(lambda each: pa.struct(list(each.items()))))


TREES = st.recursive(RANDOM_LEAVES, _nested, max_leaves=8)
TYPES = st.recursive(st.sampled_from([*LEAVES, *DECIMALS]), _types, max_leaves=5)
