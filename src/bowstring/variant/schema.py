"""The one Arrow type that holds what is in a Variant column.

Kernels say of each value what it is, one level of the documents after the other; the host gets each kind that is
found at each place once. Rows that are not valid, or whose children share their bytes, are decoded one by one.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from bowstring.errors import InvalidBody, LimitExceeded, UsageError
from bowstring.kernels.variant import shred as kernels
from bowstring.limits import Limits, limits_or_default
from bowstring.variant import column as variant_column
from bowstring.variant.codec.primitives import Value, unscaled
from bowstring.variant.codec.rows import in_row, on_host, values
from bowstring.variant.column import VariantColumn
from bowstring.variant.nested import Source
from bowstring.variant.shredded.levels import Level, Levels
from bowstring.variant.shredded.schema import NAMES, TYPES, exact_digits, union_of_numbers
from bowstring.variant.shredded.unshred import open_column
from bowstring.variant.status import Status
from bowstring.variant.validate import statuses_of
from bowstring.variant.walk import Located

_REALS: Final = (pa.float32(), pa.float64())
_ITEM: Final = "item"
# pyarrow recurses over types: these levels take up to 4 MiB of a thread's stack; 10,000 end the process.
_MOST_LEVELS: Final = 2_000
_CHUNK: Final = 1 << 24
"""Bytes of values that are looked at together: what is known of each value takes 25 bytes."""
_KINDS, _SCALES = int(kernels.KINDS), int(kernels.SCALES)
_OBJECT_KIND, _ARRAY_KIND = int(kernels.OBJECT_KIND), int(kernels.ARRAY_KIND)
_EXACT_KIND: Final = int(kernels.EXACT_KIND)
_WITHOUT_TYPE: Final = (int(kernels.NULL_KIND), int(kernels.ABSENT_KIND), int(kernels.OTHER_KIND))


def schema_of(
    column: Any, *, sample: int | None = None, plain: bool = False, limits: Limits | None = None
) -> pa.DataType:
    """Return the narrowest Arrow type that holds every value of a Variant column.

    Parameters
    ----------
    column
        A Variant column, on any device, or its Arrow array.
    sample
        Look at so many rows, at the same distance from each other; at all by default.
    plain
        Take a struct that is not marked as a Variant.
    limits
        ``depth`` bounds the nesting. A type has at most 2,000 levels whatever it is: pyarrow does not bear many
        more. Batches, and so :func:`~bowstring.variant.get`, take types of at most 64.

    Returns
    -------
    pyarrow.DataType
        Objects become structs of all their keys, in the order of their UTF-8; arrays lists; nulls fit anything.
        Integers widen, integers and decimals meet in a decimal128 of all their digits (beyond 38: in a double),
        numbers and doubles in a double, timestamps in nanoseconds where some are. Values of different kinds have
        :func:`bowstring.variant.type` in common. ``null`` where there is nothing but nulls.

    Raises
    ------
    InvalidBody, Truncated, Unsupported, LimitExceeded
        A value is not what the specification says, or too deep; the error says its row.
    UsageError
        `sample` is no number of rows.

    Examples
    --------
    >>> from bowstring.variant.builder import from_python
    >>> schema_of(from_python([{"a": 1, "b": [1]}, {"a": 1000, "b": [2.5]}, None]))
    StructType(struct<a: int16, b: list<item: double>>)
    """
    limits = limits_or_default(limits)
    if sample is not None and (isinstance(sample, bool) or sample < 1):
        raise UsageError("sample is a number of rows", expected="1 or more", found=repr(sample))
    opened = open_column(column, plain=plain)
    device, rows = opened.column.device, opened.rows
    chosen = np.arange(rows)
    if sample is not None and sample < rows:
        chosen = np.linspace(0, rows - 1, sample).astype(np.int64)
    with device.use():
        try:
            statuses = device.to_host(statuses_of(opened, limits=limits))
        except InvalidBody:  # offsets that decrease: each row is looked at
            statuses = np.full(rows, Status.MALFORMED, np.uint8)
        right = chosen[statuses[chosen] == Status.OK]
        root = _Array({_ITEM: pa.null()})
        others = chosen[statuses[chosen] > Status.VARIANT_NULL]
        if not _walk(opened, right, root, limits):
            root, others = _Array({_ITEM: pa.null()}), chosen
        _decode(opened, others, root, limits)
    return _arrow(root)


def _decode(opened: VariantColumn, rows: np.ndarray[Any, Any], root: _Array, limits: Limits) -> None:
    """Widen what is in `root` until it holds some rows, one after the other."""
    if not len(rows):
        return
    chosen = rows.tolist()
    found = values(on_host(opened.column), limits=limits, chosen=chosen)
    for row, value in zip(chosen, found, strict=True):
        try:
            if value is not None:
                _merge(root, value)
        except LimitExceeded as error:
            raise in_row(error, row) from error


def _walk(opened: VariantColumn, rows: np.ndarray[Any, Any], root: _Array, limits: Limits) -> bool:
    """Widen what is in `root` until it holds some valid rows. Return False if children share their bytes, or
    lie deeper than a type may be: `root` is then of no use.
    """
    if not len(rows):
        return True
    source = Source(opened, limits, opened.column.name)
    xp, device = source.device.xp, source.device
    levels = Levels(source, secrets.randbits(64))
    starts = device.to_host(opened.value.starts)[rows].astype(np.int64)
    ends = np.cumsum(device.to_host(opened.value.stops)[rows].astype(np.int64) - starts)
    groups = source.dictionary.indices
    first = 0
    while first < len(rows):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _CHUNK)))
        at = xp.asarray(rows[first:last])
        located = Located(xp.asarray(starts[first:last].view(np.uint64)), xp.zeros(last - first, np.uint8))
        level = Level(located, groups[at], xp.zeros(last - first, np.int32))
        if not _walk_chunk(levels, level, root, device):
            return False
        first = last
    return True


_Place: TypeAlias = "tuple[_Object | _Array, str]"


def _walk_chunk(levels: Levels, level: Level, root: _Array, device: Any) -> bool:
    places: list[_Place] = [(root, _ITEM)]
    for _ in range(_MOST_LEVELS + 1):
        if not len(level.numbers):
            return True
        kinds = levels.kinds(level, exact=True)
        _widen(places, levels, level, kinds)
        below = _below(places, levels, level, kinds, device)
        if below is None:
            return False
        level, places = below
    return False


def _widen(places: Sequence[_Place], levels: Levels, level: Level, kinds: Any) -> None:
    """Widen the shape of each place until it holds each kind that was found there."""
    keys = level.numbers.astype(np.int64) * np.int64(_KINDS) + kinds
    unique, _ = levels.counted(keys, len(places) * _KINDS)
    for key in unique.tolist():
        (holder, name), kind = places[key // _KINDS], key % _KINDS
        shape = holder.get(name, pa.null())
        if kind == _OBJECT_KIND:
            if isinstance(shape, pa.DataType) and shape == pa.null():
                shape = _Object()
            holder[name] = shape if isinstance(shape, _Object) else _Mixed()
        elif kind == _ARRAY_KIND:
            if isinstance(shape, pa.DataType) and shape == pa.null():
                shape = _Array({_ITEM: pa.null()})
            holder[name] = shape if isinstance(shape, _Array) else _Mixed()
        elif kind not in _WITHOUT_TYPE:
            if kind < _EXACT_KIND:
                found = TYPES[NAMES[kind]]
            else:
                scale, whole = divmod(kind - _EXACT_KIND, _SCALES)
                found = pa.decimal128(max(whole + scale, 1), scale)
            holder[name] = _with_leaf(shape, found)


def _below(
    places: Sequence[_Place], levels: Levels, level: Level, kinds: Any, device: Any
) -> tuple[Level, list[_Place]] | None:
    """Return the values inside those of a level, and their places; None where children share their bytes."""
    xp, texts = device.xp, levels.texts
    inside = [holder.get(name) for holder, name in places]
    # Every place has its values in an object, an array, or neither.
    shapes = xp.asarray(
        np.array([(isinstance(each, _Object), isinstance(each, _Array)) for each in inside], np.bool_)
    ).reshape(-1, 2)
    objects = levels.chosen(level, (kinds == np.int32(_OBJECT_KIND)) & shapes[:, 0][level.numbers])
    arrays = levels.chosen(level, (kinds == np.int32(_ARRAY_KIND)) & shapes[:, 1][level.numbers])
    members, parents = levels.members(objects)
    keys = parents.astype(np.int64) * np.int64(max(texts.count, 1)) + members.numbers
    unique, _ = levels.counted(keys, len(places) * texts.count)
    made: list[_Place] = []
    for key in unique.tolist():
        shape, name = inside[key // texts.count], texts.text(key % texts.count)
        assert isinstance(shape, _Object)
        assert name is not None
        shape.setdefault(name, pa.null())
        made.append((shape, name))
    found = levels.renumbered(members, keys, unique)
    positions = np.cumsum([isinstance(each, _Array) for each in inside]) - 1 + len(made)
    elements = levels.elements(arrays, xp.asarray(positions.astype(np.int32)))
    made += [(each, _ITEM) for each in inside if isinstance(each, _Array)]
    statuses = xp.concatenate([objects.located.statuses, arrays.located.statuses])
    if (device.to_host(statuses) > Status.VARIANT_NULL).any():
        return None
    return found.joined(elements, xp), made


class _Object(dict[str, "_Shape"]):
    """The type of each field of objects."""


class _Array(dict[str, "_Shape"]):
    """The type of the elements of arrays."""


class _Mixed:
    """Values of different kinds."""


_Shape: TypeAlias = pa.DataType | _Object | _Array | _Mixed


def _merge(root: _Array, value: Value) -> None:
    """Widen what is in `root` until it holds a value; work is a list, because documents may be deep."""
    work: list[tuple[_Object | _Array, str, Value, int]] = [(root, _ITEM, value, 0)]
    while work:
        holder, key, value, depth = work.pop()
        shape = holder.get(key, pa.null())
        if value.type in ("object", "array"):
            if depth >= _MOST_LEVELS:
                raise LimitExceeded(
                    "a Variant is nested too deeply for an Arrow type",
                    expected=f"at most {_MOST_LEVELS} levels",
                    hint="Take such a part as bowstring.variant.type().",
                )
            kind = _Object if value.type == "object" else _Array
            if isinstance(shape, pa.DataType) and shape == pa.null():
                shape = kind() if kind is _Object else kind({_ITEM: pa.null()})
            if isinstance(shape, _Object) and kind is _Object:
                work.extend((shape, name, child, depth + 1) for name, child in value.value.items())
            elif isinstance(shape, _Array) and kind is _Array:
                work.extend((shape, _ITEM, child, depth + 1) for child in value.value)
            else:
                shape = _Mixed()
        elif value.type != "null":
            found = TYPES.get(value.type)
            if found is None:
                number, scale = unscaled(value.value)
                found = pa.decimal128(max(len(str(abs(number))), scale, 1), scale)
            shape = _with_leaf(shape, found)
        holder[key] = shape


def _with_leaf(shape: _Shape, found: pa.DataType) -> _Shape:
    if not isinstance(shape, pa.DataType):
        return _Mixed()
    return found if found == shape or shape == pa.null() else _common(shape, found)


def _common(one: pa.DataType, other: pa.DataType) -> _Shape:
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other) and one.tz == other.tz:
        return pa.timestamp("ns", one.tz)
    if any(exact_digits(type_) is None and type_ not in _REALS for type_ in (one, other)):
        return _Mixed()
    return union_of_numbers(one, other) or pa.float64()


def _arrow(root: _Array) -> pa.DataType:
    """Return what is in `root` as an Arrow type: from the leaves up, each shape is replaced by its type."""
    found: list[tuple[_Object | _Array, str]] = [(root, _ITEM)]
    for holder, key in found:
        inside = holder[key]
        if isinstance(inside, _Object | _Array):
            found.extend((inside, each) for each in inside)
    for holder, key in reversed(found):
        inside = holder[key]
        if isinstance(inside, _Object):
            holder[key] = pa.struct([pa.field(each, inside[each]) for each in sorted(inside)])
        elif isinstance(inside, _Array):
            holder[key] = pa.list_(inside[_ITEM])
        elif isinstance(inside, _Mixed):
            holder[key] = variant_column.type()
    return root[_ITEM]
