"""Writing Parquet files: pyarrow encodes pages, and the footer gets the annotations that pyarrow cannot write."""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bowstring.columnar.batch import batches
from bowstring.errors import ClosedError, Unsupported, UsageError, first_line
from bowstring.files import FileWriter, Target
from bowstring.parquet.annotations import GeospatialStatistics, annotated_leaves, with_statistics
from bowstring.parquet.columns import variants_of, within
from bowstring.parquet.footer import Footer, decode_footer, encode_footer, footer_bytes, framed
from bowstring.parquet.logical import VARIANT
from bowstring.parquet.physical import stored_array, stored_schema
from bowstring.parquet.shredding import is_shredded_field, shredded_batches
from bowstring.parquet.source import file_system, is_url

if TYPE_CHECKING:
    from collections.abc import Iterator

_GROUP_ROWS: Final = 1 << 20
_GROUP_BYTES: Final = 128 << 20
_ANNOTATED: Final = ("logical", "converted", "precision", "scale")


def write(
    data: Any,
    path: Any,
    *,
    schema: pa.Schema | None = None,
    row_group_size: int = _GROUP_ROWS,
    shred: Any = None,
    **options: Any,
) -> None:
    """Write Arrow data to a Parquet file.

    Batches are taken one by one and kept until a row group is full, so a stream may be larger than memory. Row
    groups are written when they have 1,048,576 rows or 128 MiB. Columns that are marked as Variants are written as
    groups ``metadata``, ``value`` with the annotation VARIANT (*VARIANT* in ``LogicalTypes.md``), which DuckDB and
    Spark read as VARIANT.

    Parameters
    ----------
    data
        A Batch, a stream, a table, a data frame, a mapping of names to arrays, or an iterable of such things: what
        ``Server.publish`` takes.
    path
        A path, a URL, or a binary file opened for writing. A file of a path, or of a URL ``file:``, is there when
        all of it is written, and not before; where the writing fails, what was there before stays.
    schema
        That of an iterable that may be empty.
    row_group_size
        Most rows of a row group.
    shred
        How Variant columns are shredded (*Variant Shredding*): ``"infer"``, or the most columns that are inferred
        for each; or for some columns by name, one of these or a schema as :func:`bowstring.variant.shred` takes it.
        Schemas are inferred from the first batches, of 65,536 rows or 64 MiB. By default, columns are written as
        they are. Decimals of at most 18 digits are stored as integers then, as the specification asks.
    options
        Those of ``pyarrow.parquet.ParquetWriter``, such as ``compression="zstd"``.

    Raises
    ------
    UsageError
        The data are not Arrow data, there is no such folder, or an option is not known.
    UnknownColumn
        There is no such Variant column to shred.
    Unsupported
        Parquet has no type for a column, or the specification no such typed column.
    InvalidBody, Truncated
        A value that is to be shredded is malformed.

    Examples
    --------
    >>> import bowstring as bow, io
    >>> file = io.BytesIO()
    >>> bow.parquet.write({"event": bow.variant.from_json(['{"a": 1}', "[2]"])}, file)
    >>> bow.variant.to_json(
    ...     bow.parquet.read(file.getvalue()).read_next_batch()["event"]
    ... ).to_arrow().to_pylist()
    ['{"a":1}', '[2]']
    """
    schema, taken = batches(data, schema)
    arrow: Iterator[Any] = (batch.to_arrow() for batch in taken)
    if shred is not None or any(map(is_shredded_field, schema)):
        options.setdefault("store_decimal_as_integer", True)
    if shred is not None:
        schema, arrow = shredded_batches(schema, taken, shred)
    with (
        _opened(path) as sink,
        ParquetWriter(sink, schema, row_group_size=row_group_size, **options) as writer,
    ):
        for batch in arrow:
            writer.write_batch(batch)


class ParquetWriter(FileWriter):
    """Writes batches of one schema to a file.

    What a path named before is replaced when the writer is closed. At the end of a ``with`` block that an error
    leaves it stays; a file object gets no footer, and so is no Parquet file.

    Parameters
    ----------
    sink
        A path, or a binary file opened for writing.
    schema
        Of all batches, Variants marked.
    row_group_size, options
        As :func:`write` takes them.

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO()
    >>> with ParquetWriter(file, pa.schema({"a": pa.int64()})) as writer:
    ...     writer.write_batch(pa.record_batch({"a": [1, 2]}))
    >>> pq.read_table(io.BytesIO(file.getvalue())).num_rows
    2
    """

    def __init__(
        self, sink: Any, schema: pa.Schema, *, row_group_size: int = _GROUP_ROWS, **options: Any
    ) -> None:
        if row_group_size < 1:
            raise UsageError("a row group has rows", expected="1 or more", found=row_group_size)
        self._schema = stored_schema(schema)
        self._annotations = dict(annotated_leaves(schema, self._schema))
        wkb = {leaf: each.wkb for leaf, each in self._annotations.items() if each.wkb is not None}
        self._geospatial = GeospatialStatistics(self._schema, wkb)
        self._rows = row_group_size
        self._batches: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._target = Target(sink)
        self._sink = _Sink(self._target.file)
        # pyarrow's writer writes a footer when it is collected.
        weakref.finalize(self, self._sink.discard)
        self._writer: Any = None
        try:
            with _translated():
                options = self._without_wrong_statistics(options)
                self._writer = pq.ParquetWriter(pa.PythonFile(self._sink, mode="w"), self._schema, **options)
        except BaseException:
            self.abort()
            raise

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Take a batch; it is written with others, or at once where it fills a row group.

        Raises
        ------
        ClosedError
            The writer was closed.
        UsageError
            The batch has another schema.
        """
        if self._writer is None:
            raise ClosedError("the Parquet writer was closed")
        arrays = []
        for array, field in zip(batch.columns, self._schema, strict=True):
            with within(f"column {field.name}"):
                arrays.append(stored_array(array, field))
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= self._rows or self._waiting_bytes >= _GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write what is left, and the footer; then a path names what was written. Idempotent."""
        if self._writer is None:
            return
        try:
            self._flush()
            self._sink.hold()
            with _translated():
                self._writer.close()
            self._sink.release(self._annotated)
            self._target.finish()
        except BaseException:
            self.abort()
            raise
        self._writer = None

    def abort(self) -> None:
        """Write nothing more, above all no footer. What a path named before stays. Idempotent."""
        writer, self._writer = self._writer, None
        self._batches.clear()
        self._sink.discard()
        if writer is not None:
            with contextlib.suppress(pa.ArrowException, OSError, ValueError):
                writer.close()
        self._target.discard()

    def _flush(self) -> None:
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches, schema=self._schema)
        self._batches = []
        self._waiting_rows = self._waiting_bytes = 0
        self._geospatial.add(table, self._rows)
        with _translated():
            self._writer.write_table(table, self._rows)

    def _without_wrong_statistics(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return options by which pyarrow writes no bounds of columns that it would order wrongly."""
        wrong = {leaf for leaf, each in self._annotations.items() if not each.is_ordered}
        wanted = options.get("write_statistics", True)
        if not wrong or not wanted:
            return options
        # pyarrow knows columns by their paths with dots, which it gives itself.
        empty = pa.BufferOutputStream()
        pq.ParquetWriter(empty, self._schema, **options).close()
        schema = pq.read_metadata(pa.BufferReader(empty.getvalue())).schema
        paths = [schema.column(leaf).path for leaf in range(len(schema))]
        left_out = {paths[leaf] for leaf in wrong}
        wanted = paths if wanted is True else wanted
        return {**options, "write_statistics": [path for path in wanted if path not in left_out]}

    def _annotated(self, footer: Footer) -> Footer:
        """Return the footer with the annotations that pyarrow does not write."""
        wanted = {variant.leaves for variant in variants_of(self._schema)}
        if not wanted and not self._annotations:
            return footer
        schema = list(footer.schema)
        for node in footer.nodes():
            element = node.element
            # A group around a Variant alone has the same leaves, and one child.
            if (element.children or 0) > 1 and (node.first_leaf, node.end_leaf) in wanted:
                schema[node.position] = element._replace(logical=VARIANT, converted=None)
            annotation = None if element.physical is None else self._annotations.get(node.first_leaf)
            if annotation is not None:
                fields = {name: getattr(annotation, name) for name in _ANNOTATED}
                schema[node.position] = element._replace(**fields)
        annotated = dataclasses.replace(footer, schema=tuple(schema))
        return with_statistics(annotated, self._geospatial.by_leaf) if self._geospatial.by_leaf else annotated


class _Sink:
    """A file whose last bytes are held back, so that the footer can be changed before it is written."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._write = file.write
        self._held: list[bytes] | None = None
        self._discards = False

    def write(self, data: Any) -> int:
        size = len(data)
        if self._held is not None:
            self._held.append(bytes(data))
        elif not self._discards:
            self._write(data)
        return size

    def flush(self) -> None:
        """Nothing waits here."""

    def hold(self) -> None:
        self._held = []

    def release(self, change: Any) -> None:
        end = b"".join(self._held or ())
        self._held = None
        # The beginning of the file was written long ago; what is read of it is its mark, which any bytes replace.
        footer = footer_bytes(pa.BufferReader(b"PAR1" + end))
        front = end[: len(end) - len(framed(footer))]
        changed = change(decode_footer(footer))
        self._write(front + framed(encode_footer(changed)))

    def discard(self) -> None:
        self._held = None
        self._discards = True


@contextlib.contextmanager
def _opened(path: Any) -> Iterator[Any]:
    """Open the file of a URL; where the writing fails, no file of it is left."""
    if not is_url(path):
        yield path
        return
    system, inside = file_system(path)
    if system.type_name == "local":
        yield inside
        return
    try:
        with system.open_output_stream(inside) as stream:
            yield stream
    except BaseException:
        with contextlib.suppress(OSError):
            system.delete_file(inside)
        raise


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise Unsupported("these data cannot be written as Parquet", found=first_line(error)) from error
    except TypeError as error:
        raise UsageError("no such option", found=str(error)[:200]) from error
