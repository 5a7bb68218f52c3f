"""Arrays as Spark takes them: decoded, widened, re-based; without a copy where only labels change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bowstring.errors import InvalidData, LimitExceeded, Unsupported

Convert = Callable[[Any], Any]
_MOST: Final = (1 << 31) - 1
_DAY: Final = 86_400_000_000_000
_TRUNCATE: Final = "Ask for truncate=True to cut them to microseconds."


class TooLong(LimitExceeded):
    """Spark's 32-bit offsets do not reach; half the rows may do."""


def cast_to(target: pa.DataType, path: str, *, truncate: bool = False) -> Convert:
    """Return a function that casts, and loses nothing but, with `truncate`, nanoseconds."""
    times = pa.types.is_timestamp(target) or pa.types.is_duration(target)

    def cast(array: Any) -> Any:
        nanoseconds = times and array.type.unit == "ns"
        if nanoseconds and truncate:
            # Downwards, as Spark does: a cast would cut towards 1970.
            return _thousandths(array).view(target)
        try:
            return pc.cast(array, target)
        except pa.ArrowInvalid as error:
            if pa.types.is_string(target) or pa.types.is_binary(target):
                raise TooLong("Spark's strings of one batch are 2 GiB at most", where=path) from error
            raise Unsupported(
                "Spark has microseconds" if times else "Spark's type cannot hold a value",
                expected=None if times else str(target),
                found=str(error),
                where=path,
                hint=_TRUNCATE if nanoseconds else None,
            ) from error

    return cast


def _thousandths(array: Any) -> Any:
    values = np.floor_divide(array.cast(pa.int64()).fill_null(0).to_numpy(), 1000)
    return pa.array(values, mask=array.is_null().to_numpy(zero_copy_only=False))


def to_time(path: str, *, truncate: bool) -> Convert:
    """Return a function that makes times of day of nanoseconds, whole microseconds of one day each."""

    def cast(array: Any) -> Any:
        try:
            wide = array.cast(pa.time64("ns"))
        except pa.ArrowInvalid as error:
            raise InvalidData("a time is not of one day", found=str(error), where=path) from error
        numbers = wide.cast(pa.int64())
        bounds = pc.min_max(numbers)
        least, most = bounds["min"].as_py(), bounds["max"].as_py()
        if least is not None and (least < 0 or most >= _DAY):
            raise InvalidData("a time is not of one day", found=least if least < 0 else most, where=path)
        if array.type.unit != "ns":
            return wide
        whole = pc.multiply(_thousandths(numbers), 1000)
        if whole.equals(numbers):
            return wide
        if not truncate:
            raise Unsupported("Spark's times have microseconds", where=path, hint=_TRUNCATE)
        return whole.cast(pa.time64("ns"))

    return cast


def decode(array: Any, convert: Convert | None) -> Any:
    """Return the values of a dictionary-encoded or run-end encoded array."""
    if pa.types.is_dictionary(array.type):
        values, indices = array.dictionary, array.indices
    else:
        ends, rows = array.run_ends.to_numpy(), np.arange(array.offset, array.offset + len(array))
        values, indices = array.values, pa.array(np.searchsorted(ends, rows, side="right"))
    return _taken(values if convert is None else convert(values), indices)


def _taken(values: Any, indices: Any) -> Any:
    try:
        return values.take(indices)
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        raise TooLong("Spark's batch would be too large", found=str(error)) from error


def to_list(array: Any, target: pa.DataType, convert: Convert | None, path: str) -> Any:
    """Return any kind of list as a list of 32-bit offsets."""
    if not len(array):
        return pa.nulls(0, target)
    offsets, first, count, places = _spans(array)
    values = array.values.slice(first, count)
    # Before they are taken: pyarrow takes nothing of some types that Spark does not have.
    values = values if convert is None else convert(values)
    values = values if places is None else _taken(values, places)
    lists = _rebuilt(array, target, [values], offsets)
    if not target.value_field.nullable and values.null_count:
        if lists.flatten().null_count:
            raise InvalidData("a list holds a null where its type allows none", where=path)
        lists = _rebuilt(array, target, [without_nulls(values)], offsets)
    return lists


def to_map(array: Any, target: pa.DataType, keys: Convert | None, items: Convert | None, path: str) -> Any:
    """Return a map with Spark's names of keys and values."""
    if not len(array):
        return pa.nulls(0, target)
    offsets, first, count, _ = _spans(array)
    parts = [array.keys.slice(first, count), array.items.slice(first, count)]
    parts = [
        part if convert is None else convert(part) for part, convert in zip(parts, (keys, items), strict=True)
    ]
    for field, part in zip((target.key_field, target.item_field), parts, strict=True):
        if not field.nullable and part.null_count:
            raise InvalidData(f"a map holds a null {field.name} where its type allows none", where=path)
    entries = pa.StructArray.from_arrays(parts, fields=[target.key_field, target.item_field])
    return _rebuilt(array, target, [entries], offsets)


def to_struct(
    array: Any,
    target: pa.DataType,
    converts: Sequence[Convert | None],
    path: str,
    order: Sequence[int] | None = None,
) -> Any:
    """Return a struct of other children; what may not be null is not, where the struct is null, too."""
    children = []
    for position, (field, convert) in enumerate(zip(target, converts, strict=True)):
        child = array.field(position if order is None else order[position])
        child = child if convert is None else convert(child)
        if not field.nullable and child.null_count:
            seen = pc.and_(pc.is_null(child), pc.is_valid(array))
            if pc.any(seen).as_py():
                row, where = pc.index(seen, pa.scalar(value=True)).as_py(), f"{path}.{field.name}"
                raise InvalidData("a null where the type allows none", found=f"row {row}", where=where)
            child = without_nulls(child)
        children.append(child)
    return _rebuilt(array, target, children)


def to_variant(
    array: Any, target: pa.DataType, value: Convert | None, metadata: Convert | None, path: str
) -> Any:
    """Return Spark's struct of a Variant; a value that is missing is a Variant null, as Parquet has it."""
    positions = [array.type.get_field_index(name) for name in ("value", "metadata")]

    def filled(child: Any) -> Any:
        child = child if value is None else value(child)
        hidden = pc.and_(pc.is_null(child), pc.is_valid(array)) if child.null_count else None
        if hidden is None or not pc.any(hidden).as_py():
            return child
        return pc.if_else(hidden, pa.scalar(b"\0", pa.binary()), child)

    return to_struct(array, target, [filled, metadata], path, positions)


def without_nulls(array: Any) -> Any:
    """Return an array whose nulls, which something else hides, count as values."""
    type_ = array.type
    if pa.types.is_null(type_):
        return array
    if pa.types.is_struct(type_):
        children = [array.field(position) for position in range(type_.num_fields)]
        children = [
            child if field.nullable else without_nulls(child)
            for field, child in zip(type_, children, strict=True)
        ]
        return _rebuilt(array, type_, children, nulls=False)
    if pa.types.is_map(type_):
        entries = pa.StructArray.from_arrays(
            [array.keys, array.items], fields=[type_.key_field, type_.item_field]
        )
        return _rebuilt(array, type_, [entries], _data(array.offsets), nulls=False)
    if pa.types.is_list(type_):
        return _rebuilt(array, type_, [array.values], _data(array.offsets), nulls=False)
    return pa.Array.from_buffers(type_, len(array), [None, *array.buffers()[1:]], 0, array.offset)


def _rebuilt(
    array: Any, target: pa.DataType, children: list[Any], *offsets: pa.Buffer, nulls: bool = True
) -> Any:
    """Return an array of other children with the rows of one; without `nulls` all of them are values."""
    valid, count = (_validity(array), array.null_count) if nulls else (None, 0)
    return pa.Array.from_buffers(target, len(array), [valid, *offsets], count, children=children)


def _validity(array: Any) -> Any:
    """Return the bitmap of an array, from its first row on; None where nothing is null."""
    if not array.null_count:
        return None
    if not array.offset:
        return array.buffers()[0]
    valid = pc.is_valid(array)
    if valid.offset:
        valid = pa.concat_arrays([valid, pa.array([], pa.bool_())])
    return valid.buffers()[1]


def _data(numbers: Any) -> Any:
    """Return the buffer of an array of 32-bit integers, from its first row on."""
    return numbers.buffers()[1].slice(numbers.offset * 4, len(numbers) * 4)


def _spans(array: Any) -> tuple[Any, int, int, Any]:
    """Return 32-bit offsets of lists of any kind, or of maps, into their own values: those from one on, so many.

    Last, which of these, where each row has some by itself; ``None`` for all in their order.
    """
    type_, sizes, places = array.type, None, None
    if pa.types.is_fixed_size_list(type_):
        starts = np.arange(array.offset, array.offset + len(array) + 1) * type_.list_size
    else:
        starts = array.offsets.to_numpy()
    if type_.id in (pa.lib.Type_LIST_VIEW, pa.lib.Type_LARGE_LIST_VIEW):
        sizes = pc.list_value_length(array).fill_null(0).to_numpy().astype(np.int64)
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        last = int((starts + sizes)[sizes > 0].max(initial=0))
        first = int(starts[sizes > 0].min(initial=last))
    else:
        first, last = int(starts[0]), int(starts[-1])
        ends = starts - first
    if ends[-1] > _MOST:
        raise TooLong("Spark's lists of one batch have 2^31 - 1 elements at most", found=int(ends[-1]))
    if sizes is not None:
        places = pa.array(np.repeat(starts - first - ends[:-1], sizes) + np.arange(ends[-1]))
    return pa.py_buffer(ends.astype(np.int32)), first, last - first, places


_SAMPLE: Final = 512


class SharedMetadata:
    """Encodes the metadata of a column, batch after batch: a dictionary that stays the same is the same object."""

    def __init__(self) -> None:
        self._last: Any = None

    def __call__(self, array: Any) -> Any:
        encoded = shared(array)
        if self._last is not None and encoded.dictionary.equals(self._last):
            encoded = pa.DictionaryArray.from_arrays(encoded.indices, self._last, safe=False)
        self._last = encoded.dictionary
        return encoded


def shared(array: Any) -> Any:
    """Return bytes dictionary-encoded, if that pays; else each row has its own entry, and nothing is copied.

    Rows that are null have some index: what lies above them is null, too.
    """
    rows = len(array)
    if not rows:
        return pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), array)
    if not _repeats(array):
        entries = without_nulls(array) if array.null_count else array
        return pa.DictionaryArray.from_arrays(pa.array(np.arange(rows, dtype=np.int32)), entries, safe=False)
    encoded = array.dictionary_encode()
    if not encoded.null_count:
        return encoded
    if not len(encoded.dictionary):
        return pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(rows, np.int32)), pa.array([b""], array.type), safe=False
        )
    return pa.DictionaryArray.from_arrays(encoded.indices.fill_null(0), encoded.dictionary)


def _repeats(array: Any) -> bool:
    """Whether rows repeat, by a look at some that lie apart and at some that lie together."""
    rows = len(array)
    if rows < _SAMPLE:
        return True
    apart = np.linspace(0, rows - 1, _SAMPLE, dtype=np.int64)
    sample = array.take(pa.array(apart))
    return bool(2 * pc.count_distinct(sample).as_py() <= _SAMPLE)
