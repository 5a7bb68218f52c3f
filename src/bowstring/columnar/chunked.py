"""Tables of several chunks from other libraries: checked before pyarrow combines or unifies them.

For both, pyarrow follows offsets, views and indices wherever they lead, and a wrong one ends the process. So these
are checked, and not what values mean: text that is not UTF-8, or days with a rest, which
``Array.validate(full=True)`` refuses, lead nowhere. Chunks are often slices of one array: what they share is
checked once, or as far as each reaches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from bowstring.columnar.layout import Layout
from bowstring.columnar.nodes import DICTIONARY
from bowstring.errors import InvalidBody, UsageError

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
_WIDE: Final = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_LISTS_OF_ANY_KIND: Final = {
    *_LISTS,
    pa.lib.Type_FIXED_SIZE_LIST,
    pa.lib.Type_LIST_VIEW,
    pa.lib.Type_LARGE_LIST_VIEW,
}
_UNIONS: Final = {pa.lib.Type_SPARSE_UNION, pa.lib.Type_DENSE_UNION}


def combine_chunks(table: pa.Table) -> pa.Table:
    """Return a table with one chunk a column, as far as its offsets reach (``Table.combine_chunks``)."""
    _check_columns(table, (index for index, column in enumerate(table.columns) if column.num_chunks > 1))
    return table.combine_chunks()


def combine_column(chunks: pa.ChunkedArray, name: str = "") -> pa.Array:
    """Return the chunks of a column as one array."""
    column = combine_chunks(pa.table({name: chunks})).column(0)
    if column.num_chunks > 1:  # more bytes than offsets of 32 bits count
        wide = _WIDE.get(chunks.type)
        if wide is None:
            raise UsageError("the chunks of a column do not fit one array", hint="Give it larger offsets.")
        return combine_column(chunks.cast(wide), name)
    return column.chunk(0) if column.num_chunks else column.combine_chunks()


def unify_dictionaries(table: pa.Table) -> pa.Table:
    """Return a table whose chunks share their dictionaries (``Table.unify_dictionaries``)."""
    layout = Layout.of(table.schema)
    if not layout.dictionaries:
        return table
    encoded = {node.column for node in layout.nodes if node.dictionary_id is not None}
    differ = False
    for index in sorted(encoded):
        chunks = table.column(index).chunks
        known = [[_identity(each.dictionary) for each in _encoded(chunk)] for chunk in chunks]
        if any(each != known[0] for each in known):
            table = table.set_column(index, table.schema.field(index), _followed(table, index))
            differ = True
    return table.unify_dictionaries() if differ else table


def _encoded(array: pa.Array) -> list[pa.Array]:
    """Return the arrays with dictionaries that lie in an array, itself included."""
    inner = [each for child in _inner_arrays(array) for each in _encoded(child)]
    return [array, *inner] if isinstance(array, pa.DictionaryArray) else inner


def _followed(table: pa.Table, index: int) -> pa.ChunkedArray:
    """Return a column whose indices pyarrow may follow into dictionaries: it does so even where they are null."""
    column, name = table.column(index), table.schema.field(index).name
    if isinstance(column.type, pa.DictionaryType):
        _check_columns(table, [index])
        chunks = []
        for chunk in column.chunks:
            kept = chunk
            if chunk.null_count and _stray_indices(chunk, whole=False):  # zeros in place of what is null
                is_null = chunk.indices.is_null().to_numpy(zero_copy_only=False)
                indices = pa.array(chunk.indices.fill_null(0).to_numpy(), chunk.indices.type, mask=is_null)
                ordered = chunk.type.ordered
                kept = pa.DictionaryArray.from_arrays(indices, chunk.dictionary, ordered=ordered, safe=False)
            chunks.append(kept)
        return pa.chunked_array(chunks, column.type)
    try:
        column.validate(full=True)  # slices are unified with all that they are slices of
    except pa.ArrowException as error:
        raise _malformed(name, error) from error
    if any(_stray_indices(each, whole=True) for chunk in column.chunks for each in _encoded(chunk)):
        raise _malformed(name, "indices outside of a dictionary, maybe where they are null")
    return column


def _check_columns(table: pa.Table, columns: Iterable[int]) -> None:
    """Raise InvalidBody where the chunks of a column would lead pyarrow elsewhere when they are joined."""
    for index in columns:
        known: set[Any] = set()
        try:
            for chunk in table.column(index).chunks:
                chunk.validate()
                check_array(chunk, known)
        except pa.ArrowException as error:
            raise _malformed(table.schema.field(index).name, error) from error


def _malformed(name: str, found: object) -> InvalidBody:
    return InvalidBody("chunks that are to be joined are malformed", found=str(found), where=name)


def check_array(array: pa.Array, known: set[Any]) -> None:
    """Raise what pyarrow raises for one array, and for dictionaries of it that are not `known` yet."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        check_array(array.storage, known)
    elif type_.id == DICTIONARY:
        words = array.dictionary
        pa.DictionaryArray.from_arrays(array.indices, pa.nulls(len(words)), safe=False).validate(full=True)
        place = _identity(words)
        if place not in known:
            known.add(place)
            check_array(words, known)
    elif type_.id in _LISTS and len(array):
        buffers, children = array.buffers()[:2], [pa.nulls(len(array.values))]
        bare = pa.Array.from_buffers(_LISTS[type_.id], len(array), buffers, -1, array.offset, children)
        bare.validate(full=True)
        first, last = bare.offsets[0].as_py(), bare.offsets[-1].as_py()
        check_array(array.values.slice(first, last - first), known)
    elif type_.id == pa.lib.Type_FIXED_SIZE_LIST:
        size = type_.list_size
        check_array(array.values.slice(array.offset * size, len(array) * size), known)
    elif type_.id == pa.lib.Type_STRUCT:
        for position in range(type_.num_fields):
            check_array(array.field(position), known)
    elif type_.id in _BYTES:
        array.view(_BYTES[type_.id]).validate(full=True)
    elif not (type_.id in _LISTS or pa.types.is_primitive(type_) or pa.types.is_decimal(type_)):
        array.validate(full=True)


def _inner_arrays(array: pa.Array) -> list[pa.Array]:
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


def _identity(array: pa.Array) -> Any:
    """Return what two arrays of one type have in common if they are one."""
    places = tuple(None if each is None else (each.address, each.size) for each in array.buffers())
    return array.offset, len(array), places, tuple(_identity(each) for each in _inner_arrays(array))


def _stray_indices(array: pa.Array, *, whole: bool) -> bool:
    """Whether indices lie outside a dictionary, null slots included: pyarrow follows them there too.

    `whole`: look at all of their buffer, which may reach beyond the array.
    """
    indices = array.indices
    data = indices.buffers()[1]
    if data is None:
        return False
    start, rows = indices.offset, len(indices)
    if whole:
        start, rows = 0, data.size * 8 // indices.type.bit_width
    import pyarrow.compute as pc  # it takes long to import

    bounds = pc.min_max(pa.Array.from_buffers(indices.type, rows, [None, data], offset=start)).as_py()
    return rows > 0 and not 0 <= bounds["min"] <= bounds["max"] < len(array.dictionary)
