"""Tables of several chunks that others gave: looked at before pyarrow joins or unifies what they hold.

To join chunks, and to unify their dictionaries, pyarrow follows offsets, views and indices wherever they lead, and
a wrong one ends the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from bowstring.columnar.chunk_check import check_chunks, identity, inner_arrays, stray_indices
from bowstring.columnar.layout import Layout
from bowstring.errors import InvalidBody, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["joined", "joined_array", "unified"]


def joined(table: pa.Table) -> pa.Table:
    """Return a table with one chunk a column, as far as its offsets reach (``Table.combine_chunks``).

    Raises
    ------
    InvalidBody
        A column of several chunks is malformed.

    Examples
    --------
    >>> joined(pa.table({"a": pa.chunked_array([["x"], ["y"]])})).column("a").num_chunks
    1
    """
    _check(table, (index for index, column in enumerate(table.columns) if column.num_chunks > 1))
    return table.combine_chunks()


def joined_array(chunks: pa.ChunkedArray, name: str = "") -> pa.Array:
    """Return the chunks of a column as one array.

    Raises
    ------
    InvalidBody
        There are several, and they are malformed.
    UsageError
        They are too much for their offsets.

    Examples
    --------
    >>> joined_array(pa.chunked_array([["x"], ["y"]])).to_pylist()
    ['x', 'y']
    """
    column = joined(pa.table({name: chunks})).column(0)
    if column.num_chunks > 1:
        raise UsageError("the chunks of a column do not fit one array", hint="Give it larger offsets.")
    return column.chunk(0) if column.num_chunks else column.combine_chunks()


def unified(table: pa.Table) -> pa.Table:
    """Return a table whose chunks share their dictionaries (``Table.unify_dictionaries``).

    Raises
    ------
    InvalidBody
        A column with dictionaries is malformed.
    pyarrow.ArrowException
        Pyarrow cannot unify them: those of nested values.

    Examples
    --------
    >>> words = pa.chunked_array([pa.array([word]).dictionary_encode() for word in "xy"])
    >>> unified(pa.table({"a": words})).column("a").chunk(0).dictionary.to_pylist()
    ['x', 'y']
    """
    nodes = Layout.of(table.schema).nodes
    encoded = {node.column for node in nodes if node.dictionary_id is not None}
    several = [index for index in sorted(encoded) if _differ(table.column(index))]
    if not several:
        return table
    for index in several:
        table = table.set_column(index, table.schema.field(index), _followed(table, index))
    return table.unify_dictionaries()


def _differ(column: pa.ChunkedArray) -> bool:
    """Whether the dictionaries of a column's chunks may be several."""
    if column.num_chunks < 2:
        return False
    first, *others = ([identity(each.dictionary) for each in _encoded(chunk)] for chunk in column.chunks)
    return any(other != first for other in others)


def _encoded(array: pa.Array) -> list[pa.Array]:
    """Return the arrays with dictionaries that lie in an array, itself included."""
    inner = [each for child in inner_arrays(array) for each in _encoded(child)]
    return [array, *inner] if isinstance(array, pa.DictionaryArray) else inner


def _followed(table: pa.Table, index: int) -> pa.ChunkedArray:
    """Return a column whose indices pyarrow may follow into dictionaries: it does so even where they are null."""
    column, name = table.column(index), table.schema.field(index).name
    if isinstance(column.type, pa.DictionaryType):
        _check(table, [index])
        chunks = [_without_strays(chunk) for chunk in column.chunks]
        return pa.chunked_array(chunks, column.type)
    try:
        column.validate(full=True)  # slices are unified with all that they are slices of
    except pa.ArrowException as error:
        raise _malformed(name, error) from error
    if any(stray_indices(each, whole=True) for chunk in column.chunks for each in _encoded(chunk)):
        raise _malformed(name, "indices outside of a dictionary, maybe where they are null")
    return column


def _without_strays(chunk: pa.Array) -> pa.Array:
    """Return a chunk of valid indices, with zeros in place of others where it is null."""
    if not chunk.null_count or not stray_indices(chunk, whole=False):
        return chunk
    found = chunk.indices
    is_null = found.is_null().to_numpy(zero_copy_only=False)
    indices = pa.array(found.fill_null(0).to_numpy(), found.type, mask=is_null)
    return pa.DictionaryArray.from_arrays(indices, chunk.dictionary, ordered=chunk.type.ordered, safe=False)


def _check(table: pa.Table, columns: Iterable[int]) -> None:
    for index in columns:
        try:
            check_chunks(table.column(index).chunks)
        except pa.ArrowException as error:
            raise _malformed(table.schema.field(index).name, error) from error


def _malformed(name: str, found: object) -> InvalidBody:
    return InvalidBody("chunks that are to be joined are malformed", found=str(found), where=name)
