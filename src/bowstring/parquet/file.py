"""One Parquet file that is open: its schema with Variants marked, and its row groups as Arrow batches.

pyarrow decodes pages. What it drops, that a group is a Variant, is taken from the footer. Footers of files that
cannot have Variants are read by pyarrow alone.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bowstring.errors import (
    BowstringError,
    InvalidData,
    InvalidMetadata,
    LimitExceeded,
    UnknownColumn,
    Unsupported,
    first_line,
)
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.parquet.columns import (
    ColumnPath,
    leaves_of,
    marked,
    may_hold_variants,
    variant_groups,
    variants_of,
)
from bowstring.parquet.footer import Footer, decode_footer, footer_bytes, footer_length
from bowstring.parquet.source import name_of, open_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["OpenFile", "Selection"]

_BATCH_ROWS: Final = 128 * 1024
# A struct in field 16 of a union, as every footer has it that annotates a Variant: the number may be padded.
_VARIANT: Final = re.compile(rb"\x0c(?:\x20|\xa0\x80*\x00)")


class Selection(NamedTuple):
    """Columns of a file, in the order that was asked for.

    Attributes
    ----------
    leaves
        Numbers of the columns of values, in the order of the file; ``None`` for all.
    schema
        Of the batches, Variants marked.
    positions
        The columns of the batches by their position in what pyarrow reads; ``None`` where the order is the same.
    """

    leaves: tuple[int, ...] | None
    schema: pa.Schema
    positions: tuple[int, ...] | None


class OpenFile:
    """A Parquet file.

    Parameters
    ----------
    source
        A path, a URL, a binary file, or bytes.
    limits
        Bounds on the footer.

    Raises
    ------
    InvalidData
        It is not a Parquet file, or a damaged one.
    Unsupported
        It is encrypted, or has a type that pyarrow cannot read.
    UsageError
        There is no such file.
    """

    def __init__(self, source: Any, limits: Limits = DEFAULT_LIMITS) -> None:
        self.name = name_of(source)
        self._limits = limits
        self._groups: frozenset[tuple[int, int]] = frozenset()
        self._owned = not isinstance(source, pa.NativeFile)
        self.source = open_source(source)
        try:
            with self._translated():
                # pyarrow has no bound on the size of a footer, and takes up to 300 bytes of memory for each of its.
                footer_length(self.source, limits)
                self.metadata: Any = None
                self._file = self._opened()
                self.metadata = self._file.metadata
                if self.metadata.num_columns > limits.columns:
                    raise LimitExceeded(
                        "a schema has too many columns",
                        expected=f"at most Limits.columns = {limits.columns}",
                        found=self.metadata.num_columns,
                    )
                self.schema: pa.Schema = self._marked_schema()
        except BaseException:
            self.close()
            raise

    @functools.cached_property
    def footer(self) -> Footer:
        """The footer, read by Bowstring's own codec."""
        with self._translated():
            return decode_footer(self._footer_bytes, self._limits)

    @functools.cached_property
    def leaf_paths(self) -> tuple[tuple[str, ...], ...]:
        """The path of each column of values."""
        if self._is_flat():
            return tuple((name,) for name in self.schema.names)
        return tuple(node.path for node in self.footer.nodes() if node.element.physical is not None)

    @property
    def num_row_groups(self) -> int:
        """How many row groups the file has."""
        return int(self.metadata.num_row_groups)

    @property
    def num_rows(self) -> int:
        """How many rows the file has."""
        return int(self.metadata.num_rows)

    def row_group_bytes(self, index: int) -> int:
        """Return how many bytes the pages of a row group have, decompressed."""
        return int(self.metadata.row_group(index).total_byte_size)

    def row_group_begin(self, index: int) -> int:
        """Return where the pages of a row group begin, in bytes."""
        column = self.metadata.row_group(index).column(0)
        dictionary = column.dictionary_page_offset
        first = int(column.data_page_offset)
        return first if dictionary is None else min(int(dictionary), first)

    def select(self, columns: Sequence[ColumnPath] | None) -> Selection:
        """Choose columns.

        Parameters
        ----------
        columns
            Names of columns, or paths of leaves and groups: see :func:`bowstring.parquet.read`. All by default.

        Raises
        ------
        UnknownColumn
            There is no such column.
        """
        if columns is None:
            return Selection(None, self.schema, None)
        chosen = [leaves_of(self.leaf_paths, column) for column in columns]
        for column, each in zip(columns, chosen, strict=True):
            if len({self._tops[leaf] for leaf in each}) > 1:
                raise UnknownColumn("a name occurs twice", found=repr(column), where=self.name)
        leaves = tuple(sorted({leaf for each in chosen for leaf in each}))
        order = dict.fromkeys(self._tops[each[0]] for each in chosen)
        found = self._schema_of(leaves)
        # Names may repeat, so columns are told apart by where they are in the file.
        there = list(dict.fromkeys(self._tops[leaf] for leaf in leaves))
        positions = tuple(there.index(top) for top in order)
        schema = pa.schema([found.field(position) for position in positions], metadata=found.metadata)
        return Selection(leaves, schema, positions)

    def column_of(self, path: ColumnPath) -> int:
        """Return the number of the column that a name or a path of a leaf or group is in.

        Raises
        ------
        UnknownColumn
            There is no such column.
        """
        return self._tops[leaves_of(self.leaf_paths, path)[0]]

    def select_leaves(self, leaves: tuple[int, ...]) -> Selection:
        """Choose columns of values by their numbers, which ascend."""
        return Selection(leaves, self._schema_of(leaves), None)

    def read_row_group(
        self, index: int, selection: Selection, *, threads: bool = True
    ) -> list[pa.RecordBatch]:
        """Read a row group whole: one batch, but for columns of more than 2 GiB of text."""
        with self._translated():
            table = self._opened(read_dictionary=self._dictionaries).reader.read_row_group(
                index, column_indices=_indices(selection), use_threads=threads
            )
            return _batches(table, selection, self.metadata.row_group(index).num_rows)

    def iter_row_groups(
        self, groups: Sequence[int], selection: Selection, rows: int = _BATCH_ROWS, *, threads: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Read row groups piece by piece, without ever having all of one in memory."""
        with self._translated():
            # pyarrow reads dictionaries of nested columns for whole row groups only.
            reader = self._opened().reader
            for batch in reader.iter_batches(
                rows, row_groups=list(groups), column_indices=_indices(selection), use_threads=threads
            ):
                yield from _batches(pa.Table.from_batches([batch]), selection, batch.num_rows)

    def close(self) -> None:
        """Close the file; batches that were read live on. One that was given open stays open."""
        if self._owned:
            self.source.close()

    def _is_flat(self) -> bool:
        return not any(pa.types.is_nested(type_) for type_ in self.schema.types)

    def _marked_schema(self) -> pa.Schema:
        """Return the schema with Variants marked, their metadata as dictionaries, and open the file for that."""
        found = self._file.schema_arrow
        # Reading a footer in Python takes longer than in pyarrow: only where there may be something to find.
        if not may_hold_variants(found.types):
            return found
        # Files of others are annotated; those that pyarrow wrote may have a mark in the Arrow schema only.
        self._groups = self._annotated() | {each.leaves for each in variants_of(found)}
        return marked(found, self._groups) if self._groups else found

    def _annotated(self) -> frozenset[tuple[int, int]]:
        """Return where the footer says that groups are Variants."""
        if not _VARIANT.search(self._footer_bytes):
            return frozenset()
        leaves = sum(element.physical is not None for element in self.footer.schema)
        if leaves != self.metadata.num_columns:
            raise InvalidMetadata(
                "the columns of a footer contradict each other",
                expected=self.metadata.num_columns,
                found=leaves,
            )
        return variant_groups(self.footer)

    @functools.cached_property
    def _footer_bytes(self) -> bytes:
        return footer_bytes(self.source, self._limits)

    @functools.cached_property
    def _dictionaries(self) -> list[str] | None:
        """The metadata of Variants, which pyarrow shall read as dictionaries."""
        if not self._groups:
            return None
        paths = [".".join(path) for path in self.leaf_paths]
        # A name may hold dots: where two columns are written alike, pyarrow would take the first.
        every = collections.Counter(paths)
        found = [paths[each.metadata_leaf] for each in variants_of(self.schema)]
        return found if all(every[path] == 1 for path in found) else None

    def _opened(self, **options: Any) -> Any:
        # Threads read at the same time, and a reader of pyarrow keeps the bytes of one read: each read has its own.
        # Nanoseconds, pyarrow's own choice for INT96, would wrap around beyond the year 2262.
        return pq.ParquetFile(
            self.source, metadata=self.metadata, coerce_int96_timestamp_unit="us", **options
        )

    def _schema_of(self, leaves: tuple[int, ...]) -> pa.Schema:
        """Return the schema of some leaves; a Variant of which something is missing is a plain struct."""
        chosen = collections.Counter(self._tops[leaf] for leaf in leaves)
        every = collections.Counter(self._tops)
        if all(every[top] == count for top, count in chosen.items()):
            return pa.schema([self.schema.field(top) for top in chosen], metadata=self.schema.metadata)
        with self._translated():
            reader = self._opened(read_dictionary=self._dictionaries).reader
            found = reader.read_row_groups([], column_indices=list(leaves)).schema
        place = {leaf: position for position, leaf in enumerate(leaves)}
        complete = frozenset(
            (place[first], place[first] + end - first)
            for first, end in self._groups
            if all(leaf in place for leaf in range(first, end))
        )
        return marked(found.with_metadata(self.schema.metadata), complete)

    @functools.cached_property
    def _tops(self) -> tuple[int, ...]:
        """The position in the schema of the column that each leaf belongs to."""
        if self._is_flat():
            return tuple(range(len(self.schema)))
        found: list[int] = []
        top = -1
        for node in self.footer.nodes():
            top += len(node.path) == 1
            if node.element.physical is not None:
                found.append(top)
        return tuple(found)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise errors of ours for those of pyarrow, with the name of the file."""
        try:
            yield
        except BowstringError as error:
            error.where = f"{self.name}, {error.where}" if error.where else self.name
            raise
        except (pa.ArrowNotImplementedError, NotImplementedError) as error:
            raise Unsupported(
                "pyarrow cannot read the Parquet file", found=first_line(error), where=self.name
            ) from error
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InvalidData(
                "the Parquet file cannot be read", found=first_line(error), where=self.name
            ) from error


def _indices(selection: Selection) -> list[int] | None:
    return None if selection.leaves is None else list(selection.leaves)


def _batches(table: pa.Table, selection: Selection, rows: int) -> list[pa.RecordBatch]:
    """Return the batches of what pyarrow read, of the schema of the selection."""
    schema = selection.schema
    if not len(schema):
        return [pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))] if rows else []
    found = []
    for batch in table.to_batches():
        arrays = batch.columns
        if selection.positions is not None:
            arrays = [arrays[position] for position in selection.positions]
        found.append(
            pa.RecordBatch.from_arrays(
                [_of_type(array, field.type) for array, field in zip(arrays, schema, strict=True)],
                schema=schema,
            )
        )
    return found


def _of_type(array: Any, type_: pa.DataType) -> Any:
    """Return an array whose metadata of Variants are dictionaries where the schema has them so."""
    return array if array.type.equals(type_) else array.cast(type_)
