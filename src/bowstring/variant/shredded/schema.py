"""Shredding schemas: as the type of a shredded column and back, what two have in common, and found in columns.

A schema is the type of the values: ``struct<a: int64, tags: list<string>>``. Where it says
:func:`bowstring.variant.type`, values have no typed column. To find one, all values of a level are looked at at
once, on the device of the column: the host gets counts.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.layout import Layout
from bowstring.columnar.marks import marked_field
from bowstring.columnar.nodes import storage_type
from bowstring.errors import Unsupported, UsageError
from bowstring.kernels.variant import shred as kernels
from bowstring.variant.codec.primitives import PRIMITIVES
from bowstring.variant.column import VariantType
from bowstring.variant.shredded.layout import is_leaf
from bowstring.variant.shredded.levels import Level, Levels
from bowstring.variant.status import Status
from bowstring.variant.walk import Located

if TYPE_CHECKING:
    from bowstring.variant.nested import Source


_LISTS: Final = (pa.lib.Type_LIST, pa.lib.Type_LARGE_LIST)
_INTEGER_TYPES: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
WIDENED: Final = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
_DIGITS: Final = (3, 5, 10, 19)
_MOST_DIGITS: Final = 38


def is_untyped(schema: pa.DataType) -> bool:
    """Return whether values of a schema have no typed column."""
    return isinstance(schema, VariantType)


def checked_schema(schema: Any, where: str) -> pa.DataType:
    """Return a schema with the storage types that this module uses; reject what the specification has no typed
    column for.
    """
    if not isinstance(schema, pa.DataType):
        raise UsageError(
            "no schema to shred by", expected='a pyarrow.DataType or "infer"', found=repr(schema)
        )
    checked = _checked(schema, where)
    Layout.of(pa.schema([pa.field("v", _group(checked))]))
    return checked


def _checked(schema: pa.DataType, where: str) -> pa.DataType:
    if isinstance(schema, VariantType):
        return schema
    if schema.id == pa.lib.Type_STRUCT:
        names = [each.name for each in schema]
        if not names or len(set(names)) < len(names):
            raise UsageError(
                "a struct to shred by needs fields, each name once", found=str(schema), where=where
            )
        return pa.struct(
            [pa.field(each.name, _checked(each.type, f"{where}.{each.name}")) for each in schema]
        )
    if schema.id in _LISTS:
        item = _checked(schema.value_type, f"{where}[*]")
        return pa.large_list(item) if schema.id == pa.lib.Type_LARGE_LIST else pa.list_(item)
    if schema.id == pa.lib.Type_FIXED_SIZE_BINARY and schema.byte_width == 16:
        return pa.uuid()
    if schema.id == pa.lib.Type_NA or not is_leaf(schema):
        raise Unsupported(
            "a Variant is not shredded as this type",
            expected="bool, int8 to int64, float, double, a decimal of at most 38 digits, date32, time64[us], "
            "timestamps in us or ns, string, binary, uuid, variant.type(), or lists and structs of these",
            found=str(schema),
            where=where,
        )
    return schema


def typed_type(schema: pa.DataType) -> pa.DataType:
    """Return the type of the ``typed_value`` of a schema."""
    if schema.id == pa.lib.Type_STRUCT:
        return pa.struct([pa.field(each.name, _group(each.type), nullable=False) for each in schema])
    if schema.id in _LISTS:
        element = pa.field("element", _group(schema.value_type), nullable=False)
        return pa.large_list(element) if schema.id == pa.lib.Type_LARGE_LIST else pa.list_(element)
    return schema


def _group(schema: pa.DataType) -> pa.DataType:
    value = pa.field("value", pa.binary())
    if is_untyped(schema):
        return pa.struct([value])
    return pa.struct([value, pa.field("typed_value", typed_type(schema))])


def shredded_field(field: pa.Field, schema: pa.DataType) -> pa.Field:
    """Return the field of a Variant column when it is shredded as a schema, its metadata as they are."""
    metadata = storage_type(field.type).field("metadata")
    children = [metadata, *_group(schema)]
    return marked_field(field.with_type(pa.struct(children)))


def schema_of_storage(storage: pa.DataType) -> pa.DataType:
    """Return the schema by which the struct of a Variant column is shredded."""
    position = storage.get_field_index("typed_value")
    if position < 0:
        return VariantType()
    typed = storage.field(position).type
    if typed.id == pa.lib.Type_STRUCT:
        return pa.struct([pa.field(each.name, schema_of_storage(each.type)) for each in typed])
    if typed.id in _LISTS:
        item = schema_of_storage(typed.value_type)
        return pa.large_list(item) if typed.id == pa.lib.Type_LARGE_LIST else pa.list_(item)
    if typed.id == pa.lib.Type_FIXED_SIZE_BINARY and typed.byte_width == 16:
        return pa.uuid()
    return WIDENED.get(typed, typed)


def union(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return a schema whose typed columns hold what those of two schemas do, or None. Structs have the fields
    of both; whole numbers and decimals the wider type; timestamps nanoseconds.
    """
    if one.equals(other) or is_untyped(other):
        return one
    if is_untyped(one):
        return other
    if one.id == other.id == pa.lib.Type_STRUCT:
        fields: dict[str, pa.DataType] = {each.name: each.type for each in one}
        for each in other:
            found = union(fields[each.name], each.type) if each.name in fields else each.type
            if found is None:
                return None
            fields[each.name] = found
        return pa.struct(list(fields.items()))
    if one.id in _LISTS and other.id in _LISTS:
        item = union(one.value_type, other.value_type)
        large = pa.lib.Type_LARGE_LIST in (one.id, other.id)
        return None if item is None else pa.large_list(item) if large else pa.list_(item)
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other) and (one.tz is None) == (other.tz is None):
        return pa.timestamp("ns" if "ns" in (one.unit, other.unit) else "us", one.tz)
    return union_of_numbers(one, other)


def union_of_numbers(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that holds what two types of whole numbers and decimals do, or None."""
    if one in _INTEGER_TYPES and other in _INTEGER_TYPES:
        return max(one, other, key=_INTEGER_TYPES.index)
    sizes = [exact_digits(type_) for type_ in (one, other)]
    if None in sizes:
        return None
    whole, scale = (max(each) for each in zip(*sizes, strict=True))
    return pa.decimal128(whole + scale, scale) if whole + scale <= _MOST_DIGITS else None


def exact_digits(type_: pa.DataType) -> tuple[int, int] | None:
    """Return the digits before and behind the point of an exact number."""
    if type_ in _INTEGER_TYPES:
        return _DIGITS[_INTEGER_TYPES.index(type_)], 0
    return (type_.precision - type_.scale, type_.scale) if pa.types.is_decimal(type_) else None


MOST_COLUMNS: Final = 300
"""How many columns are inferred, unless told otherwise: as many as Spark's."""

_SAMPLE: Final = 16_384
_RARE: Final = 10
"""A field is a column where one of so many has it."""
_MOST_LEVELS: Final = 24
"""Each level of a document is two of Arrow's, of which a batch has 64."""
_MOST_NODES: Final = 1_000
"""Columns of one level, whatever the bound is: counts are tables of them."""
_LONG_DIGITS: Final = 18
_INTEGERS: Final = {3: 3, 4: 5, 5: 10, 6: 19}
"""The digits of whole numbers of 1, 2, 4 and 8 bytes."""
_EXACT_NUMBERS: Final = 3

_NULL, _ABSENT = int(kernels.NULL_KIND), int(kernels.ABSENT_KIND)
_OBJECT, _ARRAY, _OTHER = int(kernels.OBJECT_KIND), int(kernels.ARRAY_KIND), int(kernels.OTHER_KIND)
_EXACT, _SCALES = int(kernels.EXACT_KIND), int(kernels.SCALES)
_KINDS: Final = int(kernels.KINDS)
NAMES: Final = ("null", "boolean", *PRIMITIVES[2:])
"""The types of leaves by their kinds."""
TYPES: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp_ns": pa.timestamp("ns", "UTC"),
    "timestamp_ntz_ns": pa.timestamp("ns"),
    "binary": pa.binary(),
    "string": pa.string(),
    "uuid": pa.uuid(),
}
"""Of each leaf but decimals."""
_TYPES: Final = {kind: TYPES[name] for kind, name in enumerate(NAMES) if name in TYPES}
_MICROS: Final = {18: 12, 19: 13}
"""Timestamps of nanoseconds are of one kind with those of microseconds."""


@dataclasses.dataclass(eq=False, slots=True)
class _Node:
    """A place in the documents."""

    share: float  # of the rows, or of the elements around it, that have it
    population: int  # slots that a field here could be in
    order: int  # of two nodes that are equally frequent, the first is kept
    schema: pa.DataType = dataclasses.field(default_factory=VariantType)
    fields: dict[str, _Node] | None = None
    item: _Node | None = None


class Inference:
    """Finds the schema of at most `most` columns by which a column is shredded."""

    def __init__(self, source: Source, most: int) -> None:
        self._source = source
        self._device = source.device
        self._most = min(most, _MOST_NODES)
        self._levels = Levels(source)
        self._made = 0

    def schema(self, located: Located) -> pa.DataType:
        """Return the schema of a column; ``variant.type()`` if nothing in it is frequent."""
        xp, rows, groups = self._device.xp, len(located.statuses), self._source.dictionary.indices
        if rows > _SAMPLE:
            at = xp.asarray(np.linspace(0, rows - 1, _SAMPLE).astype(np.int64))
            located, groups = Located(located.positions[at], located.statuses[at]), groups[at]
        level = Level(located, groups, xp.zeros(len(groups), np.int32))
        present = located.statuses != np.uint8(Status.SQL_NULL)
        population = self._device.to_host(present.sum(keepdims=True, dtype=np.int64))
        root = self._node(1.0, int(population[0]))
        nodes = [root]
        for _ in range(_MOST_LEVELS):
            if not nodes or not len(level.numbers):
                break
            kinds = self._levels.kinds(level)
            self._count(nodes, level.numbers, kinds)
            level, nodes = self._below(nodes, level, kinds)
        leaves = sorted(_leaves(root), key=lambda node: (-node.share, node.order))
        return _schema(root, {id(node) for node in leaves[: self._most]}) or VariantType()

    def _node(self, share: float, population: int) -> _Node:
        self._made += 1
        return _Node(share, population, self._made)

    def _count(self, nodes: list[_Node], numbers: Any, kinds: Any) -> None:
        """Count the kinds of the values of each node, and decide what it is to be."""
        xp = self._device.xp
        keys = numbers.astype(np.int64) * np.int64(_KINDS) + kinds
        table = xp.bincount(keys, minlength=len(nodes) * _KINDS)
        counts = self._device.to_host(table).reshape(len(nodes), _KINDS)
        for node, of_node in zip(nodes, counts, strict=True):
            kind, schema = _decided(of_node)
            if kind == _OBJECT:
                node.fields = {}
            elif kind == _ARRAY:
                node.item = self._node(node.share, int(of_node[_ARRAY]))
            else:
                node.schema = schema

    def _below(self, nodes: list[_Node], level: Level, kinds: Any) -> tuple[Level, list[_Node]]:
        """Return the values inside those of a level, and their nodes: of fields, those that one of ten could-be
        holders has.
        """
        levels = self._levels
        inner: dict[int, _Node] = {}

        def keep(keys: Any, counts: Any) -> list[int]:
            order = np.argsort(-counts, kind="stable")
            for key, count in zip(keys[order].tolist(), counts[order].tolist(), strict=True):
                node = nodes[key // levels.count]
                if count * _RARE < node.population or len(inner) >= self._most:
                    continue
                name = levels.text(key % levels.count)
                if name is not None:
                    share = node.share * count / max(node.population, 1)
                    assert node.fields is not None
                    inner[key] = node.fields[name] = self._node(share, node.population)
            return list(inner)

        objects, items = [node.fields is not None for node in nodes], [node.item for node in nodes]
        arrays = [item is not None for item in items]
        below, keys, _ = levels.below(level, kinds, objects, arrays, keep)
        inside = [*(inner[key] for key in keys), *(item for item in items if item is not None)]
        counts = self._device.to_host(self._device.xp.bincount(below.numbers, minlength=len(inside)))
        for item, count in zip(inside[len(keys) :], counts[len(keys) :].tolist(), strict=True):
            item.population = int(count)
        return below, inside


def _leaves(node: _Node) -> list[_Node]:
    if node.fields is not None:
        return [leaf for child in node.fields.values() for leaf in _leaves(child)]
    return _leaves(node.item) if node.item is not None else [node]


def _schema(node: _Node, kept: set[int]) -> pa.DataType | None:
    """Return the schema of a node; one whose values have no typed column is a column of values."""
    if node.fields is not None:
        found = {name: _schema(child, kept) for name, child in node.fields.items()}
        inside = [(name, found[name]) for name in sorted(found, key=str.encode) if found[name] is not None]
        return pa.struct(inside) if inside else None
    if node.item is not None:
        item = _schema(node.item, kept)
        return VariantType() if item is None or isinstance(item, VariantType) else pa.list_(item)
    return node.schema if id(node) in kept else None


def _decided(counts: np.ndarray[Any, Any]) -> tuple[int, pa.DataType]:
    """Return the kind of more than half of some values, and its type; ``OTHER`` where no kind is."""
    by_kind = {kind: int(counts[kind]) for kind in range(_ABSENT) if kind != _NULL and counts[kind]}
    for nanos, micros in _MICROS.items():
        if nanos in by_kind:
            by_kind[nanos] += by_kind.pop(micros, 0)
    decimals = counts[_EXACT:]
    digits = max((digits for kind, digits in _INTEGERS.items() if kind in by_kind), default=0)
    exact = sum(by_kind.pop(kind, 0) for kind in _INTEGERS) + int(decimals.sum())
    if exact:
        by_kind[_EXACT_NUMBERS] = exact
    total = sum(by_kind.values())
    kind = max(by_kind, key=lambda each: by_kind[each], default=_OTHER)
    if kind == _OTHER or by_kind[kind] * 2 <= total:
        return _OTHER, VariantType()
    if kind == _EXACT_NUMBERS:
        return kind, _exact(digits, np.flatnonzero(decimals))
    return kind, _TYPES.get(kind, VariantType())


def _exact(digits: int, decimals: np.ndarray[Any, Any]) -> pa.DataType:
    """Return the type of whole numbers of some digits, and of decimals of some scales and digits."""
    scale = int((decimals // _SCALES).max(initial=0))
    whole = max(int((decimals % _SCALES).max(initial=0)), digits)
    if not scale and whole <= _INTEGERS[6]:
        return pa.int64()
    if whole + scale <= _LONG_DIGITS:
        return pa.decimal128(_LONG_DIGITS, scale)
    return pa.decimal128(_MOST_DIGITS, min(scale, _MOST_DIGITS - whole))
