"""The one Arrow type that holds what is in a Variant column.

Kernels say of each value what it is, one level of the documents after the other; the host gets each kind that is
found at each place once. Rows that are not valid, or whose children share their bytes, are decoded one by one.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from bowstring.errors import InvalidBody, LimitExceeded, UsageError
from bowstring.kernels.variant import shred as kernels
from bowstring.limits import Limits, limits_or_default
from bowstring.variant.codec.primitives import Value, unscaled
from bowstring.variant.codec.rows import in_row, on_host, values
from bowstring.variant.column import VariantColumn, VariantType, dictionary_of
from bowstring.variant.nested import Source
from bowstring.variant.shredded.levels import Level, Levels
from bowstring.variant.shredded.schema import NAMES, TYPES, exact_digits, union_of_numbers
from bowstring.variant.shredded.unshred import open_column
from bowstring.variant.status import Status, any_of
from bowstring.variant.validate import statuses_of
from bowstring.variant.walk import Located

if TYPE_CHECKING:
    from bowstring.memory import Device

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
    column, plain
        As for :func:`bowstring.variant.get`.
    sample
        Look at so many rows, at the same distance from each other; at all by default.
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
            statuses = device.to_host(statuses_of(opened, dictionary_of(opened, full=True), limits=limits))
        except InvalidBody:  # offsets that decrease: each row is looked at
            statuses = np.full(rows, Status.MALFORMED, np.uint8)
        right = chosen[statuses[chosen] == Status.OK]
        root = _Array({_ITEM: pa.null()})
        others = chosen[statuses[chosen] > Status.VARIANT_NULL]
        if not _walk(opened, right, root, limits):
            root, others = _Array({_ITEM: pa.null()}), chosen
        if len(others):
            _decode(opened, others, root, limits)
    return _arrow(root)


def _decode(opened: VariantColumn, rows: np.ndarray[Any, Any], root: _Array, limits: Limits) -> None:
    """Widen what is in `root` until it holds some rows, one after the other."""
    chosen = rows.tolist()
    trees = values(on_host(opened.column), limits=limits, chosen=chosen)
    for row, value in zip(chosen, trees, strict=True):
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
        if not _widen(levels, level, root, device):
            return False
        first = last
    return True


def _widen(levels: Levels, level: Level, root: _Array, device: Device) -> bool:
    """Widen what is in `root` by the values of a level and all below them, as :func:`_walk` says."""
    places: list[tuple[_Object | _Array, str]] = [(root, _ITEM)]
    for _ in range(_MOST_LEVELS + 1):
        if not len(level.numbers):
            return True
        kinds = levels.kinds(level, exact=True)
        keys = level.numbers.astype(np.int64) * np.int64(_KINDS) + kinds
        for key in levels.counted(keys, len(places) * _KINDS)[0].tolist():
            (holder, name), kind = places[key // _KINDS], key % _KINDS
            if kind not in _WITHOUT_TYPE:
                holder[name] = _widened(holder.get(name, pa.null()), _kind_of(kind))
        inside = [holder.get(name) for holder, name in places]
        are_objects, are_arrays = ([isinstance(each, kind) for each in inside] for kind in (_Object, _Array))
        level, fields, statuses = levels.below(level, kinds, are_objects, are_arrays, lambda keys, _: keys)
        if any_of(statuses > np.uint8(Status.VARIANT_NULL), device):
            return False
        places = []
        for key in fields:
            shape, name = inside[key // levels.count], levels.text(key % levels.count)
            assert isinstance(shape, _Object)
            assert name is not None
            shape.setdefault(name, pa.null())
            places.append((shape, name))
        places += [(each, _ITEM) for each in inside if isinstance(each, _Array)]
    return False


def _kind_of(kind: int) -> _Kind:
    """Return what the number of a kind stands for."""
    if kind == _OBJECT_KIND:
        return _Object
    if kind == _ARRAY_KIND:
        return _Array
    if kind < _EXACT_KIND:
        return TYPES[NAMES[kind]]
    scale, whole = divmod(kind - _EXACT_KIND, _SCALES)
    return pa.decimal128(max(whole + scale, 1), scale)


class _Object(dict[str, "_Shape"]):
    """The type of each field of objects."""


class _Array(dict[str, "_Shape"]):
    """The type of the elements of arrays."""


_Shape: TypeAlias = pa.DataType | _Object | _Array
_Kind: TypeAlias = "type[_Object | _Array] | pa.DataType"


def _merge(root: _Array, value: Value) -> None:
    """Widen what is in `root` until it holds a value; work is a list, because documents may be deep."""
    work: list[tuple[_Object | _Array, str, Value, int]] = [(root, _ITEM, value, 0)]
    while work:
        holder, key, value, depth = work.pop()
        kind: _Kind
        if value.type in ("object", "array"):
            if depth >= _MOST_LEVELS:
                raise LimitExceeded(
                    "a Variant is nested too deeply for an Arrow type",
                    expected=f"at most {_MOST_LEVELS} levels",
                    hint="Take such a part as bowstring.variant.type().",
                )
            kind = _Object if value.type == "object" else _Array
        elif value.type in TYPES:
            kind = TYPES[value.type]
        else:
            number, scale = unscaled(value.value)
            kind = pa.decimal128(max(len(str(abs(number))), scale, 1), scale)
        shape = holder[key] = _widened(holder.get(key, pa.null()), kind)
        if kind is _Object and isinstance(shape, _Object):
            work.extend((shape, name, child, depth + 1) for name, child in value.value.items())
        elif kind is _Array and isinstance(shape, _Array):
            work.extend((shape, _ITEM, child, depth + 1) for child in value.value)


def _widened(shape: _Shape, kind: _Kind) -> _Shape:
    """Return a shape that holds what another does and values of a kind: Variants, where nothing else does."""
    if not isinstance(kind, pa.DataType):
        if isinstance(shape, pa.DataType) and shape == pa.null():
            return _Array({_ITEM: pa.null()}) if kind is _Array else _Object()
        return shape if isinstance(shape, kind) else VariantType()
    if kind == pa.null():
        return shape
    if not isinstance(shape, pa.DataType):
        return VariantType()
    if shape in (kind, pa.null()):
        return kind
    if pa.types.is_timestamp(shape) and pa.types.is_timestamp(kind) and shape.tz == kind.tz:
        return pa.timestamp("ns", shape.tz)
    if any(exact_digits(type_) is None and type_ not in _REALS for type_ in (shape, kind)):
        return VariantType()
    return union_of_numbers(shape, kind) or pa.float64()


def _arrow(root: _Array) -> pa.DataType:
    """Return what is in `root` as an Arrow type: from the leaves up, each shape is replaced by its type."""
    places: list[tuple[_Object | _Array, str]] = [(root, _ITEM)]
    for holder, key in places:
        inside = holder[key]
        if not isinstance(inside, pa.DataType):
            places.extend((inside, each) for each in inside)
    for holder, key in reversed(places):
        inside = holder[key]
        if isinstance(inside, _Object):
            holder[key] = pa.struct([pa.field(each, inside[each]) for each in sorted(inside)])
        elif isinstance(inside, _Array):
            holder[key] = pa.list_(inside[_ITEM])
    return root[_ITEM]
