"""Reading Parquet files as a stream of batches, row groups ahead of the caller."""

from __future__ import annotations

import collections
import itertools
import os
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.validation import check_once, checked_choice
from bowstring.errors import (
    BowstringError,
    ClosedError,
    EndOfStream,
    ForkedError,
    InvalidData,
    UsageError,
    warn_caller,
    without_frames,
)
from bowstring.ipc.reader import ReadCounts, SequentialReader
from bowstring.limits import Limits, limits_or_default
from bowstring.memory import Device, Pool
from bowstring.memory.devices import device_named
from bowstring.parquet.columns import ColumnPath, holds_variant
from bowstring.parquet.file import Int96, OpenFile
from bowstring.parquet.shredded import Columns, named_columns
from bowstring.parquet.shredding import alike, conformed, union_schema
from bowstring.parquet.sizes import TooLargeError
from bowstring.variant.status import Losses

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bowstring.columnar.parts import Validated
    from bowstring.parquet.filters import Filter
    from bowstring.parquet.shredded import Chosen
    from bowstring.parquet.sizes import Size

_MOST_THREADS: Final = 4
_SLICE: Final = 1.0
_ADVICE: Final = "The type variant.type() gives the values as they are."


def read(
    source: Any,
    *,
    columns: Sequence[ColumnPath] | None = None,
    filters: Any = None,
    bbox: Any = None,
    on_error: Literal["null", "raise"] = "null",
    device: Device | str | None = None,
    int96: Int96 = "us",
    limits: Limits | None = None,
    validate: Validated = "structure",
) -> ParquetStream:
    r"""Read Parquet files as a stream of batches.

    The first footer is read at once, and pages when batches are asked for: some row groups ahead, in threads, and
    never more than ``limits.window_bytes`` of them beside the one that is due. A batch is a row group; row groups
    that are larger than that when they are decoded are read in batches of at most 131,072 rows and a quarter of
    that size. Files without rows give no batch.

    Parameters
    ----------
    source
        A path, a URL such as ``s3://bucket/a.parquet`` (of any file system of ``pyarrow.fs``), a binary file, or
        bytes. A list of them is one stream: their schemas must be the same, metadata aside. Variant columns may be
        shredded in different ways: the stream has the typed columns of all files, and none where they contradict
        each other. Then the footers of all files are read first.
    columns
        Names of columns; or paths of leaves and groups inside them, with dots between the names, or as tuples of
        names where names hold dots. These are names of the file: lists have elements such as ``list.element``. A
        column has what was named of it. ``bowstring.variant.path(…)`` is the value at a path of a Variant column:
        only the leaves that it needs are decoded. All columns by default.
    filters
        Which rows: a ``pyarrow.compute.Expression``; or tuples of name, operator and value, as
        ``pyarrow.parquet.read_table`` takes them, for a field inside of structs with a tuple of names.
        ``bowstring.variant.path(…)`` stands for a column. Rows for which a comparison is null are left out. Row
        groups without such rows are skipped by their statistics; for a path, by those of a ``typed_value`` whose
        ``value`` is null in all of them. How numbers of all kinds compare with columns of all types, and what NaN
        does, is a table of the guide; at a path they compare as what they are in the document.
    bbox
        Only rows whose geometries have a point of their bounds in a box: a :class:`bowstring.geo.Box`, or ``xmin,
        ymin, xmax, ymax``, for the only geospatial column; or a mapping of names of columns to boxes. Row groups
        are skipped by their geospatial statistics. Rows are compared by :func:`bowstring.geo.intersects_box`.
    on_error
        What becomes of values at a path of `filters` that are of another class than its type, such as text for
        numbers: ``"null"`` leaves their rows out, and warns of them once, at the end; ``"raise"`` makes the first
        of any row group an error, so no row group is skipped.
    device
        Where the batches shall be, such as ``"cuda:0"``: pyarrow decodes them on the host, row groups ahead.
    int96
        The unit of the timestamps that INT96 is read as: ``"us"``, or ``"ns"``, which end in the year 2262.
    limits
        Bounds on footers, on what is read ahead, and on the values of paths: see :class:`bowstring.Limits`.
    validate
        What is checked of each batch: ``"structure"``, what decoding needs; or ``"full"``, every element, such as
        whether text is UTF-8, for files of others. See `Batch.validated`.

    Returns
    -------
    ParquetStream
        A context manager; iterable; with ``schema``, ``read_next_batch()``, ``read_all()`` and
        ``__arrow_c_stream__``. Groups that are annotated as VARIANT are Variant columns, with their metadata
        dictionary-encoded. What the other logical types become is in the table of ``docs/parquet.md``; one that is
        not known is read as its physical type, with a ``UserWarning``.

    Warns
    -----
    UserWarning
        Values at a path of `columns` are there and became null, in rows that were read: how many of how many, and
        one of the rows. One warning, at the end of the stream or when it is closed.

    Raises
    ------
    MissingFile
        There is no such file.
    UsageError
        A list is empty; the filters do not fit the columns.
    UnknownColumn
        There is no such column.
    InvalidData
        A file is damaged, the schemas of two files differ, or an INT96 or INTERVAL is beyond what the Arrow type
        holds. Later files are opened when they are reached. With ``on_error="raise"``: a filter compares a value of
        another class.
    Unsupported
        A file is encrypted, or a column has a type that cannot be read; the other columns of the file can.
    LimitExceeded
        A footer is larger than the bounds; a row, decoded, may be larger than ``decompression_floor``, and than
        ``decompression_ratio`` times its compressed column.

    Examples
    --------
    >>> import bowstring as bow, pyarrow.parquet as pq
    >>> sink = pa.BufferOutputStream()
    >>> pq.write_table(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}), sink)
    >>> with bow.parquet.read(sink.getvalue(), columns=["name"], filters=[("id", ">", 1)]) as stream:
    ...     stream.read_all().to_pydict()
    {'name': ['b', 'c']}
    """
    if isinstance(columns, str):
        raise UsageError("columns are chosen by a list", expected=f"[{columns!r}]", found=repr(columns))
    if on_error not in ("null", "raise"):
        raise UsageError("no way to treat errors", expected="'null' or 'raise'", found=repr(on_error)[:80])
    sources = list(source) if isinstance(source, list | tuple) else [source]
    if not sources:
        raise UsageError("no files to read", expected="one or more", found="an empty list")
    row_filter = None
    if filters is not None or bbox is not None:
        # It needs pyarrow.dataset, which takes long to import.
        from bowstring.parquet.filters import Filter

        row_filter = Filter(filters, bbox, on_error)
    return ParquetStream(
        sources,
        named_columns(columns),
        row_filter,
        None if device is None else device_named(device),
        int96,
        limits_or_default(limits),
        checks=checked_choice(validate) == "full",
    )


class _Plan(NamedTuple):
    """What is read of one file."""

    file: OpenFile
    output: Columns  # the columns that come out of it
    filter: Filter | None
    compared: Columns  # the columns that the filter looks at; without one, those of the output
    groups: list[int]  # the numbers of its row groups
    schema: pa.Schema  # that of the stream, which Variant columns are shredded by

    def size(self, group: int, *, look: bool) -> Size:
        """Return the size of what is read of a row group; parameters and errors as :meth:`OpenFile.size`."""
        return self.file.size(group, self.output.leaves(group) | self.compared.leaves(group), look=look)

    def whole(self, group: int) -> list[pa.RecordBatch]:
        """Read a row group, and what of it a filter leaves; columns that it rules out entirely are not read."""
        if self.filter is None:
            return list(self._conform(self.output.read(group)))
        masks = [self.filter.mask(batch) for batch in self.compared.read(group)]
        if not any(mask.true_count for mask in masks):
            return []
        try:
            batches = list(self.output.read(group, masks=masks))
            return list(self._conform(_filtered(batches, masks)))
        except TooLargeError as error:
            error.masks = masks
            raise

    def pieces(self, group: int, kept: list[pa.Array] | None = None) -> Iterator[pa.RecordBatch]:
        """Read a row group in pieces; `kept` are the masks of its rows, where they are known already."""
        rows = self.size(group, look=True).rows
        if self.filter is None:
            yield from self._conform(self.output.read(group, rows))
            return
        pieces: Iterator[pa.Array]
        if kept is None:
            pieces = map(self.filter.mask, self.compared.read(group, rows))
        else:
            whole = pa.chunked_array(kept, pa.bool_())
            pieces = (whole.slice(at, rows).combine_chunks() for at in range(0, len(whole), rows))
        masks, ahead = itertools.tee(pieces)
        for batch, mask in zip(self.output.read(group, rows, ahead), masks, strict=True):
            yield from self._conform(_filtered([batch], [mask]))

    def _conform(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch if batch.schema.equals(self.schema) else conformed(batch, self.schema)


class _Due(NamedTuple):
    """A row group that will be delivered."""

    plan: _Plan
    group: int
    is_last: bool
    nbytes: int
    read: Future[list[pa.RecordBatch]] | None = None  # without it the thread that asks reads all


class ParquetStream(SequentialReader):
    """Batches of Parquet files, one after the other; made by :func:`read`.

    Batches live on after the stream is closed. At the end, :meth:`read_next_batch` raises `EndOfStream`.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the batches.
    num_rows : int or None
        Rows of a stream of one file without filters.
    """

    def __init__(
        self,
        sources: list[Any],
        columns: list[Chosen] | None,
        row_filter: Filter | None,
        device: Device | None,
        int96: Int96,
        limits: Limits,
        *,
        checks: bool,
    ) -> None:
        self._sources = sources
        self._columns = columns
        self._filter = row_filter
        self._device = device
        self._limits = limits
        self._int96: Int96 = int96
        self._checks = checks
        self._losses = Losses()
        self._pool: Pool | None = None
        self._counts = ReadCounts()
        self._process = os.getpid()
        self._closed = False
        self._files: list[OpenFile] = []
        self._threads: ThreadPoolExecutor | None = None
        self._due: collections.deque[_Due] = collections.deque()
        self._ready: Iterator[pa.RecordBatch] = iter(())
        self._failure: list[BowstringError] = []
        first = self._open(self._sources[0])
        self._schema = self._union(first)
        self._whole = first.file.schema
        self._rows = first.file.num_rows
        self._coming = self._row_groups(first)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self._schema

    @property
    def layout(self) -> Layout:
        """The :class:`bowstring.columnar.Layout` of the batches."""
        return Layout.of(self._schema)

    @property
    def num_rows(self) -> int | None:
        """How many rows the stream has, where no filter decides and all of it is one file."""
        return self._rows if self._filter is None and len(self._sources) == 1 else None

    def read_next_batch(self) -> Batch:
        """Return the next batch.

        Raises
        ------
        EndOfStream
            There are no more.
        InvalidData, Unsupported
            The pages are damaged, or a later file is not like the first.
        ClosedError
            The stream was closed.
        """
        self._check_open()
        try:
            batch = Batch.from_arrow(self._next())
            if self._device is not None and not self._device.is_host:
                if self._pool is None:
                    self._pool = Pool(self._device)
                batch = batch.to_device(self._device, self._pool)
            self._counts.batches += 1
            return check_once(batch) if self._checks else batch
        except BowstringError:
            raise
        except BaseException:  # an interrupt: going on would leave rows out in silence
            self.close()
            raise

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the batches that are left as a pyarrow reader, which reads the file as it is read.

        Raises
        ------
        ClosedError
            The stream was closed.
        """
        self._check_open()
        return pa.RecordBatchReader.from_batches(self.schema, self._arrow_batches())

    def close(self) -> None:
        """Close the files, and read nothing more. Batches that were read live on."""
        self._closed = True
        self._ready = self._coming = iter(())
        if self._process != os.getpid():
            return
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            # What threads read from is closed next.
            futures = [each.read for each in self._due if each.read is not None]
            while wait([each for each in futures if not each.cancelled()], _SLICE).not_done:
                pass
            self._threads = None
        self._due.clear()
        for file in self._files:
            file.close()
        self._files.clear()
        self._warn()

    def _warn(self) -> None:
        """Warn, once, of values that could not be compared and of values that became null."""
        of_filter = [] if self._filter is None else self._filter.losses()
        warn_caller([*of_filter, *self._losses.texts(_ADVICE)])

    def _decompressed(self) -> str:
        return ""

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the stream was closed")
        if self._process != os.getpid():
            raise ForkedError(
                "the stream belongs to the process that opened it", hint="Call read() in this process."
            )

    def _next(self) -> pa.RecordBatch:
        while True:
            for batch in self._ready:
                return batch
            self._read_ahead(is_awaited=True)
            if not self._due:
                if self._failure:
                    self.close()
                    raise self._failure.pop()
                self._warn()
                raise EndOfStream("the stream has no more batches")
            due = self._due.popleft()
            if due.nbytes > self._limits.window_bytes:  # together, whatever each of its columns has
                self._ready = self._in_pieces(due, None)
                continue
            try:
                batches = due.plan.whole(due.group) if due.read is None else _awaited(due.read)
            except TooLargeError as error:
                self._ready = self._in_pieces(due, error.masks)
                continue
            if due.is_last:
                self._leave(due.plan.file)
            self._read_ahead()  # before this one is used, the next one is on its way
            self._ready = iter(batches)

    def _in_pieces(self, due: _Due, kept: list[pa.Array] | None) -> Iterator[pa.RecordBatch]:
        yield from due.plan.pieces(due.group, kept)
        if due.is_last:
            self._leave(due.plan.file)

    def _leave(self, file: OpenFile) -> None:
        """Close a file of which all is read: a list may have more files than a process may have open."""
        self._files.remove(file)
        file.close()

    def _read_ahead(self, *, is_awaited: bool = False) -> None:
        """Start to read what fits into the window, but for what the caller awaits and no thread has begun."""
        budget = self._limits.window_bytes
        nbytes_ahead = sum(each.nbytes for each in self._due)
        threads = min(_MOST_THREADS, pa.cpu_count())
        while len(self._due) <= threads:
            if self._due and (nbytes_ahead >= budget or self._due[-1].nbytes > budget):
                return
            try:
                coming = next(self._coming, None)
            except BowstringError as error:  # of a later file: what is before it comes first
                self._failure.append(without_frames(error))
                return
            if coming is None:
                return
            plan, group, is_last = coming
            try:
                nbytes = plan.size(group, look=False).likely
            except BowstringError as error:  # it is due when its row group is
                failed: Future[list[pa.RecordBatch]] = Future()
                failed.set_exception(error)
                self._due.append(_Due(plan, group, is_last, 0, read=failed))
                return
            nbytes_ahead += nbytes
            read = None
            if nbytes <= budget and not (is_awaited and not self._due):
                if self._threads is None:
                    self._threads = ThreadPoolExecutor(threads, "bowstring-parquet")
                read = self._threads.submit(plan.whole, group)
            self._due.append(_Due(plan, group, is_last, nbytes, read))

    def _row_groups(self, first: _Plan) -> Iterator[tuple[_Plan, int, bool]]:
        for position, source in enumerate(self._sources):
            plan = first if not position else self._open(source)
            if position and not (
                alike(plan.file.schema, self._whole) and alike(plan.output.schema, self._schema)
            ):
                raise InvalidData(
                    "the files of a stream have different schemas",
                    expected=self._whole.to_string(show_field_metadata=False, show_schema_metadata=False),
                    found=plan.file.schema.to_string(show_field_metadata=False, show_schema_metadata=False),
                    where=plan.file.name,
                )
            plan = plan._replace(schema=self._schema)
            for group in plan.groups:
                yield plan, group, group == plan.groups[-1]
            if not plan.groups:
                self._leave(plan.file)

    def _union(self, first: _Plan) -> pa.Schema:
        """Return the schema of the stream: files may shred a Variant column in different ways."""
        schemas = [first.output.schema]
        if len(self._sources) == 1 or not any(map(holds_variant, schemas[0])):
            return schemas[0]
        for source in self._sources[1:]:
            file = OpenFile(source, self._limits, self._int96)
            try:
                schemas.append(Columns(file, self._columns).schema)
            finally:
                if not hasattr(source, "read"):  # a file that is open is read later
                    file.close()
        same = [schema for schema in schemas if alike(schema, schemas[0])]
        return union_schema(same)  # a file that is not alike is an error when it is reached

    def _open(self, source: Any) -> _Plan:
        file = OpenFile(source, self._limits, self._int96)
        self._files.append(file)
        output = compared = Columns(file, self._columns, self._losses)
        groups = list(range(file.num_row_groups))
        if self._filter is not None:
            compared = Columns(file, self._filter.columns(file.schema))
            groups = self._filter.row_groups(file)
        return _Plan(file, output, self._filter, compared, groups, output.schema)


def _awaited(future: Future[list[pa.RecordBatch]]) -> list[pa.RecordBatch]:
    """Return what a thread reads; waits in slices, so that Ctrl-C ends the wait whatever C code handles it."""
    while not wait([future], _SLICE).done:
        pass
    return future.result()


def _filtered(batches: list[pa.RecordBatch], masks: list[pa.Array]) -> list[pa.RecordBatch]:
    """Return the rows for which the masks hold; text of more than 2 GiB may divide both in other places."""
    if len(batches) != len(masks) or any(
        len(mask) != batch.num_rows for mask, batch in zip(masks, batches, strict=True)
    ):
        table = pa.Table.from_batches(batches)
        return list(table.filter(pa.chunked_array(masks)).to_batches())
    filtered = (batch.filter(mask) for batch, mask in zip(batches, masks, strict=True))
    return [batch for batch in filtered if batch.num_rows]
