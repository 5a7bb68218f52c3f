"""Random Arrow arrays of any type, from NumPy's generator; what the strategies and benchmarks are filled with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

Rng = np.random.Generator
Mask = Any

_WORDS = ("", "a", "Zürich", "eleven char", "exactly 12 b", "thirteen char", "漢字と仮名", "x" * 40)
_DAY_MS = 86_400_000
_SLICED = 0.3
_NULLS = 0.6


def array_of(type_: pa.DataType, length: int, rng: Rng, *, nulls: bool = True) -> pa.Array:
    """Return a random array: valid to the last bit, without NaN, often a slice of a longer one.

    Parameters
    ----------
    type_
        Any type but intervals of months or days, which pyarrow cannot show in Python.
    length
        Its length.
    rng
        Where chance comes from.
    nulls
        Whether some slots may be null.

    Examples
    --------
    >>> len(array_of(pa.list_(pa.string()), 5, np.random.default_rng(0)))
    5
    """
    before, after = rng.integers(0, 12, 2).tolist() if rng.random() < _SLICED else (0, 0)
    total = before + length + after
    mask = rng.random(total) < rng.random() if nulls and rng.random() < _NULLS else None
    return _build(type_, total, rng, mask).slice(before, length)


def _build(type_: pa.DataType, length: int, rng: Rng, mask: Mask) -> pa.Array:
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, _build(type_.storage_type, length, rng, mask))
    if pa.types.is_fixed_size_binary(type_):
        values = [rng.bytes(type_.byte_width) for _ in range(length)]
        return pa.array(_masked(values, mask), type_)
    build = _BUILDERS.get(type_.id)
    if build is not None:
        return build(type_, length, rng, mask)
    return _numbers(type_, length, rng, mask)


def _masked(values: list[Any], mask: Mask) -> list[Any]:
    return (
        values
        if mask is None
        else [None if null else value for value, null in zip(values, mask, strict=True)]
    )


def _validity(mask: Mask) -> pa.Buffer | None:
    return None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little").tobytes())


def _numbers(type_: pa.DataType, length: int, rng: Rng, mask: Mask) -> pa.Array:
    width = type_.bit_width // 8
    small = rng.integers(-9_999, 9_999, length)
    if pa.types.is_floating(type_):
        raw: Any = (small / 8).astype(f"<f{width}")
    elif pa.types.is_decimal(type_) and width > 8:
        raw = np.repeat((small >> 63)[:, None], width // 8, axis=1)
        raw[:, 0] = small
    elif pa.types.is_time(type_):
        raw = np.abs(small).astype(f"<i{width}")
    elif pa.types.is_date64(type_):
        raw = small * _DAY_MS
    elif type_ == pa.month_day_nano_interval():
        raw = np.empty(length, [("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
        for name in raw.dtype.names:
            raw[name] = small
    else:
        raw = small.astype(f"<i{width}")
    data = pa.py_buffer(np.ascontiguousarray(raw).tobytes())
    return pa.Array.from_buffers(type_, length, [_validity(mask), data])


def _booleans(_type: pa.DataType, length: int, rng: Rng, mask: Mask) -> pa.Array:
    return pa.array(rng.random(length) < 0.5, mask=mask)


def _nulls(_type: pa.DataType, length: int, _rng: Rng, _mask: Mask) -> pa.Array:
    return pa.nulls(length)


def _words(type_: pa.DataType, length: int, rng: Rng, mask: Mask) -> pa.Array:
    words = [_WORDS[index] for index in rng.integers(0, len(_WORDS), length)]
    return pa.array(_masked(words, mask), type_)


def _offsets(length: int, rng: Rng, dtype: Any) -> tuple[Any, int]:
    """Return offsets that need not start at 0, and how long a child they need."""
    offsets = np.cumsum(rng.integers(0, 4, length + 1)) - rng.integers(0, 2)
    offsets = np.maximum(offsets, 0).astype(dtype)
    return offsets, int(offsets[-1]) + int(rng.integers(0, 3))


def _lists(type_: pa.DataType, length: int, rng: Rng, mask: Mask) -> pa.Array:
    large = pa.types.is_large_list(type_)
    offsets, needed = _offsets(length, rng, np.int64 if large else np.int32)
    values = array_of(type_.value_type, needed, rng)
    kind = pa.LargeListArray if large else pa.ListArray
    return kind.from_arrays(pa.array(offsets), values, type=type_, mask=_mask_array(mask))


def _mask_array(mask: Mask) -> pa.Array | None:
    return None if mask is None else pa.array(mask)


def _maps(type_: pa.DataType, length: int, rng: Rng, mask: Mask) -> pa.Array:
    offsets, needed = _offsets(length, rng, np.int32)
    keys = array_of(type_.key_type, needed, rng, nulls=False)
    items = array_of(type_.item_type, needed, rng)
    return pa.MapArray.from_arrays(pa.array(offsets), keys, items, type=type_, mask=_mask_array(mask))


def _list_views(type_: pa.DataType, length: int, rng: Rng, mask: Mask) -> pa.Array:
    large = type_.id == pa.lib.Type_LARGE_LIST_VIEW
    values = array_of(type_.value_type, 20, rng)
    starts = rng.integers(0, 18, length).astype(np.int64 if large else np.int32)
    sizes = rng.integers(0, 3, length).astype(starts.dtype)
    kind = pa.LargeListViewArray if large else pa.ListViewArray
    return kind.from_arrays(pa.array(starts), pa.array(sizes), values, type=type_, mask=_mask_array(mask))


def _fixed_lists(type_: pa.DataType, length: int, rng: Rng, mask: Mask) -> pa.Array:
    values = array_of(type_.value_type, length * type_.list_size, rng)
    return pa.Array.from_buffers(type_, length, [_validity(mask)], children=[values])


def _structs(type_: pa.DataType, length: int, rng: Rng, mask: Mask) -> pa.Array:
    children = [array_of(field.type, length, rng) for field in type_]
    return pa.Array.from_buffers(type_, length, [_validity(mask)], children=children)


def _unions(type_: pa.DataType, length: int, rng: Rng, _mask: Mask) -> pa.Array:
    fields = [type_.field(index) for index in range(type_.num_fields)]
    names = [field.name for field in fields]
    chosen = rng.integers(0, len(fields), length)
    codes = pa.array(np.array(type_.type_codes, np.int8)[chosen])
    if type_.mode == "sparse":
        children = [array_of(field.type, length, rng) for field in fields]
        return pa.UnionArray.from_sparse(codes, children, names, type_.type_codes)
    counts = np.array([np.cumsum(chosen == index) - 1 for index in range(len(fields))], np.int32)
    starts = counts[chosen, np.arange(length)] if length else np.empty(0, np.int32)
    children = [
        array_of(field.type, int((chosen == index).sum()) + int(rng.integers(0, 3)), rng)
        for index, field in enumerate(fields)
    ]
    return pa.UnionArray.from_dense(codes, pa.array(starts), children, names, type_.type_codes)


def _run_ends(type_: pa.DataType, length: int, rng: Rng, _mask: Mask) -> pa.Array:
    inner = rng.integers(1, length, 5) if length > 1 else np.empty(0, np.int64)
    ends = np.array(sorted({*inner.tolist(), int(length + rng.integers(0, 3))}))[: None if length else 1]
    ends = ends[ends > 0]
    values = array_of(type_.value_type, len(ends), rng)
    run_ends = pa.array(ends.astype(f"<i{type_.run_end_type.bit_width // 8}"))
    whole = pa.RunEndEncodedArray.from_arrays(run_ends, values, type_)
    return whole.slice(0, length)


def _dictionaries(type_: pa.DataType, length: int, rng: Rng, mask: Mask) -> pa.Array:
    values = array_of(type_.value_type, int(rng.integers(1, 10)), rng)
    indices = rng.integers(0, len(values), length)
    encoded = pa.array(_masked(indices.tolist(), mask), type_.index_type)
    return pa.DictionaryArray.from_arrays(encoded, values, ordered=type_.ordered)


_BUILDERS: dict[int, Callable[[pa.DataType, int, Rng, Mask], pa.Array]] = {
    pa.lib.Type_NA: _nulls,
    pa.lib.Type_BOOL: _booleans,
    **dict.fromkeys(
        (
            pa.lib.Type_STRING,
            pa.lib.Type_LARGE_STRING,
            pa.lib.Type_STRING_VIEW,
            pa.lib.Type_BINARY,
            pa.lib.Type_LARGE_BINARY,
            pa.lib.Type_BINARY_VIEW,
        ),
        _words,
    ),
    pa.lib.Type_LIST: _lists,
    pa.lib.Type_LARGE_LIST: _lists,
    pa.lib.Type_MAP: _maps,
    pa.lib.Type_LIST_VIEW: _list_views,
    pa.lib.Type_LARGE_LIST_VIEW: _list_views,
    pa.lib.Type_FIXED_SIZE_LIST: _fixed_lists,
    pa.lib.Type_STRUCT: _structs,
    pa.lib.Type_SPARSE_UNION: _unions,
    pa.lib.Type_DENSE_UNION: _unions,
    pa.lib.Type_RUN_END_ENCODED: _run_ends,
    pa.lib.Type_DICTIONARY: _dictionaries,
}
