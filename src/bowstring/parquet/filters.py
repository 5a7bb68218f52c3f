"""Filters of rows: pyarrow's forms, with paths into Variant columns beside the columns of a file.

Row groups are left out by pyarrow, where their statistics rule out every row. The rows of the others are compared
one by one, so a filter is exact whatever the statistics are.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import struct
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from bowstring.errors import BowstringError, UnknownColumn, UsageError, first_line
from bowstring.ipc.flatbuf.message import decode_message
from bowstring.ipc.flatbuf.reader import Tables
from bowstring.parquet.columns import leaves_of
from bowstring.parquet.shredded import bounds_of
from bowstring.variant.reference import Reference, reference_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bowstring.parquet.file import OpenFile
    from bowstring.parquet.shredded import Chosen

__all__ = ["RowFilter"]

_PREFIX: Final = struct.Struct("<8sIi")
# Of these, none is true for NaN: statistics leave it out.
_WITHOUT_NAN: Final = frozenset(
    ("and_kleene", "or_kleene", "less", "less_equal", "greater", "greater_equal", "equal")
)
_FORMS: Final = "an expression, or tuples such as [('a', '>', 3)], or lists of them"


class RowFilter:
    """Which rows of a file are wanted.

    Parameters
    ----------
    filters
        A ``pyarrow.compute.Expression``; or a list of tuples of name, operator and value, all of which must hold;
        or a list of such lists, one of which must hold. ``bowstring.variant.path(…)`` stands for a name.

    Raises
    ------
    UsageError
        It is none of these.
    """

    def __init__(self, filters: Any) -> None:
        self._expression = _expression(filters)
        parts = _parts(self._expression)
        self._names = _names(parts)
        self._calls = {value.decode() for key, value in parts or () if key == b"call"}
        found = {name: reference_of(name) for name in self._names or ()}
        self._references = {name: each for name, each in found.items() if each is not None}

    def columns(self, schema: pa.Schema) -> list[Chosen]:
        """Return the columns that the filter compares, each by the name that the filter has for it.

        Raises
        ------
        UnknownColumn
            The schema has no such column, or several.
        """
        if self._names is None:
            return [(None, name) for name in dict.fromkeys(schema.names)]
        for name in self._names:
            if name in self._references:
                continue
            if schema.names.count(name) != 1:
                raise UnknownColumn(
                    "a filter names no column, or several",
                    found=name,
                    expected=f"one of {schema.names}"[:200],
                )
        return [(name, self._references.get(name, name)) for name in self._names]

    def row_groups(self, file: OpenFile) -> list[int]:
        """Return the numbers of the row groups that the statistics do not rule out.

        Raises
        ------
        UsageError
            The filter does not fit the types of the columns.
        """
        compared = [column for _, column in self.columns(file.schema) if not isinstance(column, Reference)]
        file.check_chunks({leaf for column in compared for leaf in leaves_of(file.leaf_paths, column)})
        extra = [pa.field(name, each.type) for name, each in self._references.items()]
        schema = pa.schema([*file.schema, *extra])
        options = ds.ParquetReadOptions(coerce_int96_timestamp_unit=file.int96)
        fragment = ds.ParquetFileFormat(read_options=options).make_fragment(file.statistics_source)
        with _translated():
            groups = [int(group.id) for group in fragment.subset(self._expression, schema=schema).row_groups]
            return [group for group in groups if self._may_match(file, group, schema)]

    def _may_match(self, file: OpenFile, group: int, schema: pa.Schema) -> bool:
        """Return whether statistics of typed columns leave rows that the filter could want."""
        known = [
            bounds_of(file, group, each, name, has_nan=not self._calls <= _WITHOUT_NAN)
            for name, each in self._references.items()
        ]
        known = [each for each in known if each is not None]
        if not known:
            return True
        # What is known of all rows of a fragment is compared with the filter; nothing is read.
        form = ds.ParquetFileFormat()
        bounds = functools.reduce(operator.and_, known)
        fragment = form.make_fragment(pa.BufferReader(b""), partition_expression=bounds)
        found = ds.FileSystemDataset([fragment], schema=schema, format=form)
        return any(True for _ in found.get_fragments(self._expression))

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Return a boolean for each row; no comparison holds for a null.

        Raises
        ------
        UsageError
            The filter does not fit the types of the columns.
        """
        table = pa.Table.from_batches([batch])
        with _translated():
            scanner = ds.InMemoryDataset(table).scanner(columns={"keep": self._expression}, use_threads=False)
            keep = scanner.to_table().column("keep").combine_chunks()
            if not pa.types.is_boolean(keep.type):
                raise UsageError("a filter is true or false", expected="a comparison", found=str(keep.type))
        return pc.fill_null(keep, fill_value=False)


def _expression(filters: Any) -> Any:
    if isinstance(filters, pc.Expression):
        return filters
    if not isinstance(filters, list | tuple) or not filters:
        raise UsageError("these are not filters", expected=_FORMS, found=repr(filters)[:200])
    whole = [filters] if all(isinstance(each, tuple) for each in filters) else filters
    try:
        named = [[(_name(column), operator, value) for column, operator, value in each] for each in whole]
        return pq.filters_to_expression(named)
    except BowstringError:
        raise
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise UsageError("these are not filters", expected=_FORMS, found=str(error)[:200]) from error


def _name(column: Any) -> Any:
    if not isinstance(column, pc.Expression):
        return column
    names = _names(_parts(column))
    if names is None or len(names) != 1 or reference_of(names[0]) is None:
        raise UsageError(
            "a filter compares a column", expected="a name, or variant.path(…)", found=str(column)[:200]
        )
    return names[0]


def _parts(expression: Any) -> Sequence[tuple[bytes, bytes]] | None:
    """Return the parts of an expression one after the other, ``None`` where they cannot be found out.

    pyarrow does not say. The form in which it pickles expressions is a file of Arrow IPC, whose metadata name them.
    """
    try:
        stored = expression.__reduce__()[1][0].to_pybytes()
        _, _, size = _PREFIX.unpack_from(stored)
        message = decode_message(stored[_PREFIX.size : _PREFIX.size + size])
        tables = Tables(message.data)
        return tables.key_values(message.header, tables.slots(message.header, "Schema")[2], "Schema").pairs
    except (pa.ArrowException, BowstringError, struct.error, TypeError):
        return None


def _names(parts: Sequence[tuple[bytes, bytes]] | None) -> list[str] | None:
    """Return the names of the columns that an expression refers to, ``None`` where that is not known."""
    if parts is None:
        return None
    names: list[str] = []
    inside = 0
    for key, value in parts:
        if key == b"nested_field_ref":
            names.append("")
            inside = int(value)
        elif key == b"field_ref":
            if not inside:
                names.append(value.decode())
            elif not names[-1]:
                names[-1] = value.decode()
            inside = max(inside - 1, 0)
    return list(dict.fromkeys(names))


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except BowstringError:
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError("the filters do not fit the columns", found=first_line(error)) from error
