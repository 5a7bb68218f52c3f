"""Rows of every combination of ``value`` and ``typed_value`` are read from files as the specification's algorithm
reads them (*Variant Shredding*, "Reconstructing a Shredded Variant").
"""

from __future__ import annotations

import decimal
import functools
import io
import random
import uuid
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.errors import BowstringError
from bowstring.variant import Value
from tests.variant.decoding import decode
from tests.variant.encoding import encode_with, metadata_bytes
from tests.variant.get_columns import MARK
from tests.variant.shredded_columns import DECIMALS, LEAVES, TREES, TYPES

pytestmark = pytest.mark.filterwarnings("ignore:.* became null")  # that values are lost, is no matter here

NAMES: Final = ("", "a", "b", "é", "z")
IDS: Final = {name: index for index, name in enumerate(NAMES)}
PATHS: Final[tuple[list[str | int], ...]] = (["a"], ["b", 0], [1], [0, "é"])
_MISSING: Final = object()
_ROWS: Final = 20


class _Invalid(Exception):
    """The specification has no value for the row."""


def _shredded(type_: pa.DataType, drawn: random.Random, *, may_lack: bool) -> pa.DataType:
    """Return the struct of a group: children in any order, one that may be left out left out at times."""
    children = [pa.field("value", pa.binary()), pa.field("typed_value", _typed(type_, drawn))]
    if may_lack and drawn.random() < 0.3:
        children.pop(drawn.randrange(2))
    drawn.shuffle(children)
    return pa.struct(children)


def _typed(type_: pa.DataType, drawn: random.Random) -> pa.DataType:
    # Groups must be required, and writers exist that have them optional.
    nullable = drawn.random() < 0.3
    if pa.types.is_struct(type_):
        fields = [
            pa.field(each.name, _shredded(each.type, drawn, may_lack=True), nullable=nullable)
            for each in type_
        ]
        return pa.struct(fields)
    if pa.types.is_list(type_):
        item = _shredded(type_.value_type, drawn, may_lack=True)
        return pa.list_(pa.field("element", item, nullable=nullable))
    return type_


def _row(type_: pa.DataType, drawn: random.Random, trees: list[Value], *, nullable: bool) -> Any:
    """Return a group with any combination of a value and a typed value."""
    if nullable and drawn.random() < 0.1:
        return None
    row: dict[str, Any] = {}
    for child in type_:
        if drawn.random() < 0.4:
            row[child.name] = None
        elif child.name == "value":
            tree = drawn.choice(trees)
            row["value"] = b"" if drawn.random() < 0.02 else encode_with(IDS, tree)
        else:
            row[child.name] = _cell(child.type, drawn, trees)
    return row


def _cell(type_: pa.DataType, drawn: random.Random, trees: list[Value]) -> Any:
    if pa.types.is_struct(type_):
        return {each.name: _row(each.type, drawn, trees, nullable=each.nullable) for each in type_}
    if pa.types.is_list(type_):
        item = type_.value_field
        return [_row(item.type, drawn, trees, nullable=item.nullable) for _ in range(drawn.randrange(3))]
    if pa.types.is_decimal(type_):
        most = 10**type_.precision - 1
        number = drawn.choice([0, 1, most, -most])
        return decimal.Decimal(number).scaleb(-type_.scale, decimal.Context(prec=64))
    numbers = {"int8": 8, "int16": 16, "int32": 32, "date": 32}
    kind = LEAVES[type_]
    bits = numbers.get(kind, 64)
    made = {
        "boolean": drawn.random() < 0.5,
        "float": drawn.choice([0.0, -0.0, 1.5, float("inf"), float("nan")]),
        "double": drawn.choice([0.0, -0.0, 1e300, float("-inf"), float("nan")]),
        "string": drawn.choice(["", "é" * 31, "x" * 63, "x" * 64]),
        "binary": drawn.choice([b"", b"\x00\xff", b"x" * 300]),
        "uuid": uuid.UUID(int=drawn.getrandbits(128)).bytes,
        "time": drawn.choice([0, 86_399_999_999]),
    }
    return made.get(kind, drawn.choice([0, -1, (1 << bits - 1) - 1, -(1 << bits - 1)]))


def _construct(type_: pa.DataType, row: Any, *, required: bool) -> Any:
    """Return the value of a group, after the pseudo-code."""
    row = row or {}
    held, typed = row.get("value"), row.get("typed_value")
    if typed is None and held is None:
        return Value("null", None) if required else _MISSING
    if typed is None:
        return _decoded(held)
    of = type_.field("typed_value").type
    if pa.types.is_struct(of):
        fields = {}
        for each in of:
            found = _construct(each.type, typed[each.name], required=False)
            if found is not _MISSING:
                fields[each.name] = found
        if held is not None:
            rest = _decoded(held)
            if rest.type != "object":
                raise _Invalid
            # Of a field in both, the typed column counts.
            fields.update((name, each) for name, each in rest.value.items() if of.get_field_index(name) < 0)
        return Value("object", fields)
    if held is not None:
        raise _Invalid
    if pa.types.is_list(of):
        return Value("array", [_construct(of.value_type, each, required=True) for each in typed])
    if pa.types.is_decimal(of):
        width = 4 if of.precision <= 9 else 8 if of.precision <= 18 else 16
        return Value(f"decimal{width}", typed)
    return Value(LEAVES[of], uuid.UUID(bytes=typed) if of == pa.binary(16) else typed)


def _tree(type_: pa.DataType, row: Any) -> Any:
    try:
        return None if row is None else _construct(type_, row, required=True)
    except _Invalid:
        return "invalid"


def _at(tree: Any, path: list[str | int]) -> Any:
    """Return what is at a path; what is not there is no value."""
    for step in path:
        if tree is None or tree.type != ("object" if isinstance(step, str) else "array"):
            return None
        inside = tree.value if isinstance(step, str) else dict(enumerate(tree.value))
        tree = inside.get(step)
    return tree


@functools.lru_cache(256)
def _decoded(held: bytes) -> Value:
    try:
        return decode(metadata_bytes(NAMES), held)
    except BowstringError as error:
        raise _Invalid from error


def _sorted(tree: Any) -> str:
    if isinstance(tree, Value) and tree.type == "object":
        return f"{{{', '.join(f'{name!r}: {_sorted(tree.value[name])}' for name in sorted(tree.value))}}}"
    if isinstance(tree, Value) and tree.type == "array":
        return f"[{', '.join(map(_sorted, tree.value))}]"
    return repr(tree)


def _file(type_: pa.StructType, rows: list[Any], names: tuple[str, ...]) -> bytes:
    """Return a Parquet file that pyarrow wrote, annotated through the mark in its Arrow schema."""
    fields = [pa.field("metadata", pa.binary(), nullable=False), *type_]
    whole = [None if row is None else {"metadata": metadata_bytes(names), **row} for row in rows]
    array = pa.array(whole, pa.struct(fields))
    sink = io.BytesIO()
    schema = pa.schema([pa.field("v", array.type, metadata=MARK)])
    pq.write_table(pa.table([array], schema=schema), sink, store_decimal_as_integer=True)
    return sink.getvalue()


def _read(column: Column, row: int) -> str:
    one = column.as_batch().slice(row, 1)[0]
    try:
        [tree] = variant.to_python(variant.unshred(one), typed=True)
    except BowstringError:
        return "invalid"
    return _sorted(tree)


@given(
    TYPES | st.sampled_from([*LEAVES, *DECIMALS]),
    st.lists(TREES, min_size=1, max_size=4),
    st.integers(0, 1 << 32).map(random.Random),
)
@settings(max_examples=60)
def test_a_row_is_what_the_algorithm_of_the_specification_makes_of_it(
    type_: pa.DataType, trees: list[Value], drawn: random.Random
) -> None:
    struct = _shredded(type_, drawn, may_lack=True)
    rows = [_row(struct, drawn, trees, nullable=True) for _ in range(_ROWS)]
    trees_of_rows = [_tree(struct, row) for row in rows]
    expected = [each if isinstance(each, str) else _sorted(each) for each in trees_of_rows]
    with bow.parquet.read(_file(struct, rows, NAMES)) as stream:
        column = stream.read_next_batch()["v"]
    assert [_read(column, row) for row in range(_ROWS)] == expected
    kinds = variant.type_of(column).to_arrow().to_pylist()
    assert [kind is None for kind in kinds] == [each in ("invalid", "None") for each in expected]
    for path in PATHS:
        got = variant.get(column, path, variant.type())
        for row, tree in enumerate(trees_of_rows):
            if tree != "invalid":
                assert _read(got, row) == _sorted(_at(tree, path))
