"""One Parquet file that is open: its schema with the meaning of its footer, and its row groups as Arrow batches.

pyarrow decodes pages. What it drops, such as that a group is a Variant, is taken from the footer; where it would
read a column wrongly, or no column because of one, it is shown a footer in which that column is plain.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import functools
import itertools
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bowstring.errors import (
    BowstringError,
    InvalidData,
    InvalidMetadata,
    UnknownColumn,
    Unsupported,
    UsageError,
    first_line,
    warn_caller,
)
from bowstring.kernels.parquet.footer import COMPRESSED
from bowstring.kernels.parquet.footer import VALUES as VALUES_OF_CHUNK
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.parquet.annotations import meant_fields
from bowstring.parquet.chunks import SMALL, Chunks
from bowstring.parquet.columns import (
    ColumnPath,
    leaves_of,
    meant,
    variant_groups,
    variants_of,
    within,
)
from bowstring.parquet.footer import AROUND, Footer, decode_footer, footer_bytes, leaf_paths, once
from bowstring.parquet.pages import begins_of
from bowstring.parquet.physical import as_type
from bowstring.parquet.shown import (
    meant_elements,
    refused_by_pyarrow,
    refused_by_type,
    shown_file,
)
from bowstring.parquet.sizes import Size, Sizes, TooLargeError
from bowstring.parquet.source import name_of, open_source
from bowstring.parquet.types import PLAIN, Meaning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

BATCH_ROWS: Final = 128 * 1024
"""The most rows of a batch of a row group that is read piece by piece."""
_MORE: Final = 16 << 20
_REPEATED: Final = 2
_OF_PYARROW: Final = (pa.ArrowException, OSError, ValueError, NotImplementedError)
Int96 = Literal["us", "ns"]
"""The unit of timestamps that INT96 is read as."""


class Selection(NamedTuple):
    """Columns of a file, in the order that was asked for."""

    leaves: tuple[int, ...]  # numbers of the columns of values, in the order of the file
    schema: pa.Schema  # of the batches, Variants marked
    positions: tuple[int, ...]  # of the columns of the batches in what pyarrow reads


class OpenFile:
    """A Parquet file."""

    def __init__(self, source: Any, limits: Limits = DEFAULT_LIMITS, int96: Int96 = "us") -> None:
        # refusals: why a column cannot be read where the others can, by the number of the column of values
        if int96 not in ("us", "ns"):
            raise UsageError("INT96 is read as timestamps", expected="'us' or 'ns'", found=repr(int96)[:80])
        self.name = name_of(source)
        self.limits = limits  # bounds on what is read of it
        self.int96 = int96
        # By the number of the column of values: what pyarrow makes of it is not all.
        self.meanings: dict[int, Meaning] = {}
        self._warned: set[int] = set()
        self._checked: set[int] = set()
        self._groups: frozenset[tuple[int, int]] = frozenset()
        self._selected: Selection | None = None
        self._maps: frozenset[tuple[int, int]] = frozenset()
        self._owned = not isinstance(source, pa.NativeFile)
        self.source = open_source(source)
        try:
            with self._translated():
                # pyarrow has no bound on the size of a footer, and takes up to 300 bytes of memory for each of its.
                data = footer_bytes(self.source, limits)
                self._footer_length = len(data)
                self.footer = decode_footer(data, limits)
                _checked_leaves(self.footer)
                self.leaf_paths = leaf_paths(self.footer)
                self._tops = _tops_of(self.footer)
                if len(self.footer.rest) > SMALL:
                    _ = self.chunks  # bounded before pyarrow sees them
                self._elements = meant_elements(self.footer)
                self.refusals = refused_by_type(self.footer)
                self._open_by_pyarrow()
                self.schema: pa.Schema = self._meant_schema()
        except BaseException:
            self.close()
            raise

    @functools.cached_property
    def num_rows(self) -> int:
        """How many rows its row groups have: the number beside them may be another one."""
        return sum(map(self.row_group_rows, range(self.num_row_groups)))

    def row_group_rows(self, index: int) -> int:
        return int(self.metadata.row_group(index).num_rows)

    def row_group_bytes(self, index: int) -> int:
        """Return how many bytes the pages of a row group have, decompressed."""
        return int(self.metadata.row_group(index).total_byte_size)

    def row_group_begin(self, index: int) -> int:
        with self._translated():
            return int(begins_of(self.chunks.facts[index, :1], self.source.size()).sum())

    def column_chunk(self, group: int, leaf: int) -> Any:
        """Return what pyarrow says about a column chunk; errors as :meth:`check_chunks`."""
        self.check_chunks((leaf,))
        return self.metadata.row_group(group).column(leaf)

    def statistics(self, group: int, leaf: int) -> Any:
        """Return the statistics of a column chunk by pyarrow, ``None`` where there are none."""
        # pyarrow must not be asked where it is shown another physical type, or bounds are shorter than a value.
        chunk = self.column_chunk(group, leaf)
        physical = self.metadata.schema.column(leaf).physical_type
        if chunk.physical_type != physical or self.chunks.short_bounds(leaf)[group]:
            return None
        return chunk.statistics if chunk.is_stats_set else None

    def values(self, group: int, leaf: int) -> int:
        """Return how many values a column chunk has, nulls among them."""
        return int(self.chunks.facts[group, leaf, VALUES_OF_CHUNK])

    def check_chunks(self, leaves: Iterable[int]) -> None:
        """Look at the column chunks of some columns of values, before pyarrow is asked about them."""
        new = set(leaves) - self._checked
        if new:
            self._check_encrypted(new)
            with self._translated():
                self.chunks.check(self.metadata.schema, new)
            self._checked |= new

    @functools.cached_property
    def chunks(self) -> Chunks:
        with self._translated():
            return Chunks(self.footer, self.limits)

    @functools.cached_property
    def _sizes(self) -> Sizes:
        return Sizes(self.footer, self.chunks, self.source, self.limits, frozenset(self._dictionaries))

    def size(self, group: int, leaves: Iterable[int], *, look: bool = True) -> Size:
        """Return the decoded size of some columns of values of a row group.
        Without `look` no pages are read for it, and ``likely`` alone counts.
        """
        chosen, rows = tuple(sorted(leaves)), self.row_group_rows(group)
        with self._translated():
            pages = self._sizes.pages(group, rows, chosen) if look else None
            size = self._sizes.of(group, rows, chosen, pages)
        return size._replace(rows=min(size.rows, BATCH_ROWS))

    def encrypted(self) -> list[int]:
        """Return the columns of values that are encrypted, in a file whose footer is not."""
        return self.chunks.encrypted(range(len(self.leaf_paths))) if self._is_signed else []

    def _check_encrypted(self, leaves: Iterable[int]) -> None:
        encrypted = self.chunks.encrypted(set(leaves))
        if encrypted:
            names = ", ".join(".".join(self.leaf_paths[leaf]) for leaf in encrypted)
            raise Unsupported(
                "columns of the Parquet file are encrypted",
                found=names[:300],
                where=self.name,
                hint="Leave them out: columns=[…] names others.",
            )

    def select(self, columns: Sequence[ColumnPath] | None) -> Selection:
        if columns is None:
            leaves = tuple(range(len(self.leaf_paths)))
            self._check_leaves(leaves)
            tops = [node for node in self.footer.nodes() if len(node.path) == 1]
            empty = [node.path[0] for node in tops if node.first_leaf == node.end_leaf]
            if empty:
                raise Unsupported(
                    "a group of the Parquet file has no columns inside",
                    found=str(empty)[:200],
                    where=self.name,
                    hint="Leave it out: columns=[…] names others.",
                )
            return Selection(leaves, self.schema, tuple(range(len(self.schema))))
        chosen = [leaves_of(self.leaf_paths, column) for column in columns]
        for column, each in zip(columns, chosen, strict=True):
            if len({self._tops[leaf] for leaf in each}) > 1:
                raise UnknownColumn("a name occurs twice", found=repr(column), where=self.name)
        leaves = tuple(sorted({leaf for each in chosen for leaf in each}))
        whole = self._schema_of(leaves)
        # Names may repeat, so columns are told apart by where they are in the file.
        there = list(dict.fromkeys(self._tops[leaf] for leaf in leaves))
        positions = tuple(there.index(top) for top in dict.fromkeys(self._tops[each[0]] for each in chosen))
        schema = pa.schema([whole.field(position) for position in positions], metadata=whole.metadata)
        return Selection(leaves, schema, positions)

    def column_of(self, path: ColumnPath) -> int:
        return self._tops[leaves_of(self.leaf_paths, path)[0]]

    def leaves_of(self, position: int) -> tuple[int, ...]:
        return tuple(leaf for leaf, top in enumerate(self._tops) if top == position)

    def select_leaves(self, leaves: tuple[int, ...]) -> Selection:
        """Choose columns of values by their numbers, which ascend; most row groups need the same."""
        last = self._selected
        if last is None or last.leaves != leaves:
            schema = self._schema_of(leaves)
            last = self._selected = Selection(leaves, schema, tuple(range(len(schema))))
        return last

    def read_row_group(self, index: int, selection: Selection) -> list[pa.RecordBatch]:
        """Read a row group whole: one batch, but for columns of more than 2 GiB of text."""
        size = self.size(index, selection.leaves)
        if size.likely > self.limits.window_bytes:
            raise TooLargeError
        if size.most > self.limits.window_bytes:
            return self._guarded(index, selection, size)
        with self._translated():
            rows = self.row_group_rows(index)
            ways = self._ways(selection)
            for metadata in ways:
                try:
                    table = self._whole(metadata, [index], selection.leaves)
                    break
                except _OF_PYARROW as error:  # kept no longer: it keeps this frame, and so the table
                    if metadata is ways[-1]:
                        raise self._blamed(error, [index], selection) from error
            _check_rows(rows, table.num_rows, selection, [index])
            return _batches(table, selection, rows)

    def iter_row_groups(
        self, groups: Sequence[int], selection: Selection, rows: int = BATCH_ROWS, *, threads: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Read row groups piece by piece, without ever having all of one in memory.

        Their pages were looked at: `rows` are at most those of :meth:`size`.
        """
        expected, found = sum(map(self.row_group_rows, groups)), 0
        with self._translated():
            try:
                for table in self._pieces(groups, selection, rows, threads=threads):
                    found += table.num_rows
                    if table.num_rows:
                        yield from _batches(table, selection, table.num_rows)
            except BowstringError:
                raise
            except _OF_PYARROW as error:
                raise self._blamed(error, groups, selection) from error
            _check_rows(expected, found, selection, groups)

    def _guarded(self, index: int, selection: Selection, size: Size) -> list[pa.RecordBatch]:
        """Read a row group that should be small, of which the values of dictionaries could make a large one."""
        batches = []
        left = 2 * size.likely + _MORE
        rows = min(4 * size.rows, BATCH_ROWS)  # still within the window
        for batch in self.iter_row_groups([index], selection, rows):
            batches.append(batch)
            left -= batch.nbytes
            if left < 0:
                raise TooLargeError
        return list(pa.Table.from_batches(batches, selection.schema).combine_chunks().to_batches())

    def _ways(self, selection: Selection) -> list[Any]:
        """Return the metadata to read columns with: the last reads all, one before it is faster."""
        has_lists = not _inside_lists(self.footer).isdisjoint(selection.leaves)
        ways = [self._list_metadata if has_lists else self.metadata]
        if any(leaf in self.meanings and self.meanings[leaf].wide for leaf in selection.leaves):
            ways.append(self._wide_metadata)
        return ways

    def _whole(self, metadata: Any, groups: list[int], leaves: tuple[int, ...]) -> pa.Table:
        file = _ByNumber(self.source, metadata=metadata, read_dictionary=list(self._dictionaries.values()))
        return file.reader.read_row_groups(groups, column_indices=list(leaves), use_threads=True)

    def _pieces(
        self, groups: Sequence[int], selection: Selection, rows: int, *, threads: bool
    ) -> Iterator[pa.Table]:
        # pyarrow reads dictionaries of nested columns for whole row groups only.
        chosen = list(selection.leaves)
        packed = self.chunks.facts[list(groups)][:, chosen, COMPRESSED]
        # pyarrow keeps the bytes of whole column chunks, or else of as much of each.
        window = self.limits.window_bytes
        size = 0 if packed.sum() <= window else max(window // (8 * packed.shape[1]), SMALL)
        reader = _ByNumber(self.source, metadata=self._ways(selection)[-1], buffer_size=size).reader
        batches = reader.iter_batches(
            rows, row_groups=list(groups), column_indices=chosen, use_threads=threads
        )
        return (pa.Table.from_batches([batch]) for batch in batches)

    @functools.cached_property
    def _list_footer(self) -> Footer:
        """The footer that lists are read with: pyarrow reads no more rows of lists than it says."""
        return self.chunks.with_a_row_more(self.footer) if _inside_lists(self.footer) else self.footer

    @functools.cached_property
    def _list_metadata(self) -> Any:
        return _metadata_of(shown_file(self._list_footer, self._elements))

    @functools.cached_property
    def _wide_metadata(self) -> Any:
        """The footer in which such decimals are bytes: pyarrow decodes the others faster."""
        plain = Meaning(shown=PLAIN)
        elements = [each._replace(meaning=plain) if each.meaning.wide else each for each in self._elements]
        return _metadata_of(shown_file(self._list_footer, elements))

    def _blamed(self, error: Exception, groups: Sequence[int], selection: Selection) -> Exception:
        """Return the error of pyarrow for the first column that cannot be read by itself, with its name."""
        for _, inside in itertools.groupby(selection.leaves, self._tops.__getitem__):
            leaves = tuple(inside)
            alone = selection._replace(leaves=leaves)
            try:
                for _ in self._pieces(groups, alone, BATCH_ROWS, threads=False):
                    pass
            except _OF_PYARROW as own:
                unsupported = isinstance(own, pa.ArrowNotImplementedError | NotImplementedError)
                return (Unsupported if unsupported else InvalidData)(
                    "a column of the Parquet file cannot be read",
                    found=first_line(own),
                    where=f"column {self.leaf_paths[leaves[0]][0]}",
                    hint="Leave it out: columns=[…] names others.",
                )
        return error

    def close(self) -> None:
        """Close the file; batches that were read live on. One that was given open stays open."""
        if self._owned:
            self.source.close()

    @functools.cached_property
    def statistics_source(self) -> pa.NativeFile:
        """The file as pyarrow opens it for its statistics: the footer may be one that pyarrow refuses."""
        refused = [
            each
            for each in self._elements
            if each.meaning.shown
            and (each.meaning.warning or (each.meaning.arrow is None and not each.meaning.mark))
        ]
        if not refused:
            return self.source
        return pa.BufferReader(shown_file(self.footer, refused))

    def _open_by_pyarrow(self) -> None:
        """Open the file by pyarrow; columns for which it refuses to do so are shown plain, and are not read."""
        try:
            self._open_shown()
        except _OF_PYARROW:
            elements, refusals = refused_by_pyarrow(self.footer, self._elements)
            if not refusals:
                raise
            self._elements = [*self._elements, *elements]
            self.refusals = {**refusals, **self.refusals}
            self._open_shown()

    def _open_shown(self) -> None:
        length, metadata = self._footer_length, None
        if any(each.meaning.shown for each in self._elements):
            shown = shown_file(self.footer, self._elements)
            length, metadata = len(shown) - AROUND, _metadata_of(shown)
        file = _ByNumber(self.source, metadata=metadata)
        self.metadata: Any = file.metadata
        self.num_row_groups = int(self.metadata.num_row_groups)
        self._stored_schema: pa.Schema = file.schema_arrow
        # A signature comes after a footer that says that columns are encrypted.
        self._is_signed = self.metadata.serialized_size < length

    def _meant_schema(self) -> pa.Schema:
        """Return the schema with the meaning of the footer; the metadata of Variants are dictionaries."""
        leaves = _checked_leaves(self.footer)
        if leaves != self.metadata.num_columns:
            raise InvalidMetadata(
                "the columns of a footer contradict each other",
                expected=self.metadata.num_columns,
                found=leaves,
            )
        stored = self._stored_schema
        self.meanings = {each.leaf: each.meaning for each in self._elements}
        maps = {each.position for each in self._elements if each.is_map}
        if maps:
            self._maps = frozenset(
                (node.first_leaf, node.end_leaf) for node in self.footer.nodes() if node.position in maps
            )
        self._fields = meant_fields(self.meanings, self.int96, self.metadata.metadata or {})
        if len(self.footer.schema) > leaves + 1:
            # Files of others are annotated; those that pyarrow wrote may have a mark in the Arrow schema only.
            self._groups = variant_groups(self.footer) | {each.leaves for each in variants_of(stored)}
        if not (self._groups or self._fields or self._maps):
            return stored
        return meant(stored, self._groups, self._fields, self._maps)

    def _check_leaves(self, leaves: Sequence[int]) -> None:
        """Raise an error for columns that cannot be read, and warn of those whose meaning is lost."""
        if self.refusals:
            for leaf in leaves:
                if leaf in self.refusals:
                    raise self._refusal(leaf)
        if self._is_signed:
            self._check_encrypted(leaves)
        for leaf in leaves if self.meanings else ():
            meaning = self.meanings.get(leaf)
            if meaning is not None and meaning.warning and leaf not in self._warned:
                self._warned.add(leaf)
                text = f"{self.name}: column {'.'.join(self.leaf_paths[leaf])} {meaning.warning}"
                warn_caller([text])

    def _refusal(self, leaf: int) -> BowstringError:
        error, column = self.refusals[leaf], ".".join(self.leaf_paths[leaf])
        return type(error)(
            error.what,
            expected=error.expected,
            found=column if error.found is None else error.found,
            where=self.name if error.found is None else f"{self.name}, column {column}",
            hint="Leave it out: columns=[…] names others.",
        )

    @functools.cached_property
    def _dictionaries(self) -> dict[int, str]:
        """The metadata of Variants, which pyarrow shall read as dictionaries: their numbers and names."""
        paths = [".".join(path) for path in self.leaf_paths]
        # A name may hold dots: where two columns are written alike, pyarrow would take the first.
        every = collections.Counter(paths)
        leaves = [each.metadata_leaf for each in variants_of(self.schema)] if self._groups else []
        return (
            {leaf: paths[leaf] for leaf in leaves} if all(every[paths[leaf]] == 1 for leaf in leaves) else {}
        )

    def _schema_of(self, leaves: tuple[int, ...]) -> pa.Schema:
        """Return the schema of some leaves; a Variant of which something is missing is a plain struct."""
        self._check_leaves(leaves)
        chosen = collections.Counter(self._tops[leaf] for leaf in leaves)
        every = collections.Counter(self._tops)
        if all(every[top] == count for top, count in chosen.items()):
            return pa.schema([self.schema.field(top) for top in chosen], metadata=self.schema.metadata)
        with self._translated():
            found = self._whole(self.metadata, [], leaves).schema
        place = {leaf: position for position, leaf in enumerate(leaves)}
        complete, maps = (
            frozenset(
                (place[first], place[first] + end - first)
                for first, end in groups
                if all(leaf in place for leaf in range(first, end))
            )
            for groups in (self._groups, self._maps)
        )
        fields = {place[leaf]: field for leaf, field in self._fields.items() if leaf in place}
        return meant(found.with_metadata(self.schema.metadata), complete, fields, maps)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise errors of ours for those of pyarrow, with the name of the file."""
        try:
            with within(self.name):
                yield
        except BowstringError:
            raise
        except (pa.ArrowNotImplementedError, NotImplementedError) as error:
            raise Unsupported(
                "pyarrow cannot read the Parquet file", found=first_line(error), where=self.name
            ) from error
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InvalidData(
                "the Parquet file cannot be read", found=first_line(error), where=self.name
            ) from error


class _ByNumber(pq.ParquetFile):  # type: ignore[misc] # pyarrow has no types
    """A file whose columns are asked for by number: paths by name, half of the time of opening, are left out.
    Each read opens one, as threads read at the same time and a reader of pyarrow keeps the bytes of one read.
    """

    def _build_nested_paths(self) -> dict[str, list[int]]:
        return {}


def _metadata_of(shown: bytes) -> Any:
    return _ByNumber(pa.BufferReader(shown)).metadata


def _batches(table: pa.Table, selection: Selection, rows: int) -> list[pa.RecordBatch]:
    schema = selection.schema
    if not len(schema):
        empty = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
        return [pa.RecordBatch.from_struct_array(empty)] if rows else []
    batches = []
    for batch in table.to_batches():
        arrays = []
        for position, field in zip(selection.positions, schema, strict=True):
            array = batch.column(position)
            if not array.type.equals(field.type):
                with within(f"column {field.name}"):
                    array = as_type(array, field.type)
            arrays.append(array)
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return batches


def _check_rows(expected: int, found: int, selection: Selection, groups: Sequence[int]) -> None:
    if expected != found and len(selection.schema):
        where = ", ".join(f"row group {group}" for group in groups[:3])
        raise InvalidData(
            "columns of the Parquet file have another number of rows than its footer says",
            expected=f"{expected} rows",
            found=f"{found} rows",
            where=f"{where}, columns {', '.join(selection.schema.names)[:200]}",
        )


@once
def _tops_of(footer: Footer) -> tuple[int, ...]:
    """Return the position in the schema of the column that each leaf belongs to."""
    ends = [node.end_leaf for node in footer.nodes() if len(node.path) == 1]
    return tuple(bisect.bisect_right(ends, leaf) for leaf in range(ends[-1] if ends else 0))


@once
def _inside_lists(footer: Footer) -> frozenset[int]:
    return frozenset(
        leaf
        for node in footer.nodes()
        if node.element.repetition == _REPEATED
        for leaf in range(node.first_leaf, node.end_leaf)
    )


@once
def _checked_leaves(footer: Footer) -> int:
    """Return how many columns of values there are; raise an error for a name that pyarrow cannot give as text."""
    names = [element.name for element in footer.schema]
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        found = next(name for name in names if not name.isprintable())
        raise InvalidMetadata("a column's name is not UTF-8", found=repr(found)[:80]) from None
    return sum(element.physical is not None for element in footer.schema)
