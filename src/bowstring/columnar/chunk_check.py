"""Whether pyarrow may follow what chunks say: offsets, views and indices, and not what values mean.

A chunk is often a slice of an array that others are slices of too: what they share is looked at once, or as far as
each reaches. Text that is no UTF-8 or days with a rest, which ``Array.validate(full=True)`` refuses, lead nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bowstring.columnar.nodes import DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check_chunks", "identity", "inner_arrays", "stray_indices"]

_BYTES: Final = {
    pa.lib.Type_STRING: pa.binary(),
    pa.lib.Type_LARGE_STRING: pa.large_binary(),
    pa.lib.Type_STRING_VIEW: pa.binary_view(),
}
_LISTS: Final = {
    pa.lib.Type_LIST: pa.list_(pa.null()),
    pa.lib.Type_MAP: pa.list_(pa.null()),
    pa.lib.Type_LARGE_LIST: pa.large_list(pa.null()),
}
_LISTS_OF_ANY_KIND: Final = {
    *_LISTS,
    pa.lib.Type_FIXED_SIZE_LIST,
    pa.lib.Type_LIST_VIEW,
    pa.lib.Type_LARGE_LIST_VIEW,
}
_UNIONS: Final = {pa.lib.Type_SPARSE_UNION, pa.lib.Type_DENSE_UNION}


def check_chunks(chunks: Iterable[pa.Array]) -> None:
    """Raise what pyarrow raises where one of them would lead it elsewhere when they are joined.

    Examples
    --------
    >>> check_chunks([pa.array([bytes([255])]).view(pa.string())])
    """
    known: set[Any] = set()
    for chunk in chunks:
        chunk.validate()
        _check(chunk, known)


def _check(array: pa.Array, known: set[Any]) -> None:
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        _check(array.storage, known)
    elif type_.id == DICTIONARY:
        _check_encoded(array, known)
    elif type_.id in _LISTS:
        _check_lists(array, known)
    elif type_.id == pa.lib.Type_FIXED_SIZE_LIST:
        size = type_.list_size
        _check(array.values.slice(array.offset * size, len(array) * size), known)
    elif type_.id == pa.lib.Type_STRUCT:
        for position in range(type_.num_fields):
            _check(array.field(position), known)
    elif type_.id in _BYTES:
        array.view(_BYTES[type_.id]).validate(full=True)
    elif not pa.types.is_primitive(type_) and not pa.types.is_decimal(type_):
        array.validate(full=True)


def _check_encoded(array: pa.Array, known: set[Any]) -> None:
    words = array.dictionary
    pa.DictionaryArray.from_arrays(array.indices, pa.nulls(len(words)), safe=False).validate(full=True)
    place = identity(words)
    if place not in known:
        known.add(place)
        _check(words, known)


def _check_lists(array: pa.Array, known: set[Any]) -> None:
    if not len(array):
        return
    values = array.values
    children = [pa.nulls(len(values))]
    bare = pa.Array.from_buffers(
        _LISTS[array.type.id], len(array), array.buffers()[:2], offset=array.offset, children=children
    )
    bare.validate(full=True)
    first, last = bare.offsets[0].as_py(), bare.offsets[-1].as_py()
    _check(values.slice(first, last - first), known)


def inner_arrays(array: pa.Array) -> list[pa.Array]:
    """Return the children of an array, its dictionary included."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return [array.storage]
    if type_.id == DICTIONARY:
        return [array.dictionary]
    if type_.id in _LISTS_OF_ANY_KIND or type_.id == pa.lib.Type_RUN_END_ENCODED:
        return [array.values]
    if type_.id == pa.lib.Type_STRUCT or type_.id in _UNIONS:
        return [array.field(position) for position in range(type_.num_fields)]
    return []


def identity(array: pa.Array) -> Any:
    """Return what two arrays of one type have in common if they are one.

    Examples
    --------
    >>> words = pa.array(["a", "b"])
    >>> identity(words) == identity(words.slice(0)), identity(words[:1]) == identity(words[1:])
    (True, False)
    """
    places = tuple(None if each is None else (each.address, each.size) for each in array.buffers())
    return array.offset, len(array), places, tuple(identity(each) for each in inner_arrays(array))


def stray_indices(array: pa.Array, *, whole: bool) -> bool:
    """Whether indices lie outside a dictionary, be it where the array is null: there pyarrow follows them too.

    Parameters
    ----------
    array
        That has a dictionary.
    whole
        Whether to look at all of their buffer, which may reach beyond the array.

    Examples
    --------
    >>> stray_indices(pa.array(["a", None]).dictionary_encode(), whole=True)
    False
    """
    indices = array.indices
    data = indices.buffers()[1]
    if data is None:
        return False
    start, rows = indices.offset, len(indices)
    if whole:
        start, rows = 0, data.size * 8 // indices.type.bit_width
    import pyarrow.compute as pc  # it takes long to import

    found = pc.min_max(pa.Array.from_buffers(indices.type, rows, [None, data], offset=start)).as_py()
    return rows > 0 and not 0 <= found["min"] <= found["max"] < len(array.dictionary)
