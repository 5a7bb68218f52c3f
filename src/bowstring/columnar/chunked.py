"""Tables of several chunks that others gave: looked at in full before pyarrow joins or unifies what they hold.

To join chunks, and to unify their dictionaries, pyarrow follows offsets, views and indices wherever they lead, and
a wrong one ends the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

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
    _check(table, several)
    return table.unify_dictionaries()


def _differ(column: pa.ChunkedArray) -> bool:
    """Whether the dictionaries of a column's chunks may be several."""
    if column.num_chunks < 2:
        return False
    if not pa.types.is_dictionary(column.type):
        return True
    first, *others = ([_place(each) for each in chunk.dictionary.buffers()] for chunk in column.chunks)
    return any(other != first for other in others)


def _place(buffer: pa.Buffer | None) -> tuple[int, int] | None:
    return None if buffer is None else (buffer.address, buffer.size)


def _check(table: pa.Table, columns: Iterable[int]) -> None:
    for index in columns:
        try:
            table.column(index).validate(full=True)
        except pa.ArrowException as error:
            raise InvalidBody(
                "chunks that are to be joined are malformed",
                found=str(error),
                where=table.schema.field(index).name,
            ) from error
