"""Tasks that read Parquet files themselves: Spark says which, and its JVM does not see a row."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from bowstring.errors import InvalidData
from bowstring.spark.task import DepotTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bowstring.spark.task import Order

__all__ = ["Piece", "ScanTask", "pieces_of"]

_PIECE_BYTES: Final = 128 << 20
_BATCH_ROWS: Final = 128 * 1024


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of a Parquet file: the row groups that begin in a range of its bytes.

    Attributes
    ----------
    uri
        The file.
    begin, end
        The range, in bytes.
    """

    uri: str
    begin: int
    end: int


def pieces_of(files: Iterable[str], least: int) -> list[Piece]:
    """Cut files into pieces of at most 128 MiB, and into at least so many pieces as there are cores to read them.

    Raises
    ------
    OSError
        A file is not there.
    """
    sizes = [(uri, _opened(uri)) for uri in files]
    known = [(uri, filesystem.get_file_info(path).size or 0) for uri, (filesystem, path) in sizes]
    total = sum(size for _, size in known)
    most = max(1, min(_PIECE_BYTES, -(-total // max(1, least))))
    pieces = []
    for uri, size in known:
        count = max(1, -(-size // most))
        bounds = [size * index // count for index in range(count + 1)]
        pieces += [Piece(uri, begin, end) for begin, end in itertools.pairwise(bounds)]
    return pieces


def _opened(uri: str) -> tuple[Any, str]:
    # Spark writes `file:/x` where others write `file:///x`.
    whole = (
        uri.replace("file:/", "file:///", 1)
        if uri.startswith("file:/") and not uri.startswith("file://")
        else uri
    )
    found: tuple[Any, str] = pyarrow.fs.FileSystem.from_uri(whole)
    return found


@dataclasses.dataclass(frozen=True)
class ScanTask:
    """Publishes a piece of a Parquet file; Spark calls it with a partition of a range, whose rows mean nothing.

    Attributes
    ----------
    order
        What every task is told.
    pieces
        One for each partition.
    columns
        Names in the files, and names in the data set.
    schema
        What Spark would give; the files must hold it.
    """

    order: Order
    pieces: Sequence[Piece]
    columns: tuple[tuple[str, str], ...]
    schema: pa.Schema

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Publish one piece, and give back one ticket."""
        from pyspark import TaskContext

        for _ in numbers:
            pass  # a worker that leaves something of its input unread is not used again
        context = TaskContext.get()
        partition = context.partitionId()
        if self.order.only is None or partition in self.order.only:
            task = DepotTask(self.order)
            piece = self.pieces[partition]
            yield task.publish(self.read(piece), partition, context.taskAttemptId()).as_batch()

    def read(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Read a piece, as Spark would give it.

        Raises
        ------
        InvalidData
            The file holds other types than Spark says.
        """
        filesystem, path = _opened(piece.uri)
        with filesystem.open_input_file(path) as source, pq.ParquetFile(source) as file:
            groups = [
                index
                for index in range(file.num_row_groups)
                if piece.begin <= _begin(file, index) < piece.end
            ]
            if not groups:
                return
            sources = [source_name for source_name, _ in self.columns]
            for batch in file.iter_batches(_BATCH_ROWS, groups, sources, use_threads=False):
                yield self._as_spark(batch, piece)

    def _as_spark(self, batch: pa.RecordBatch, piece: Piece) -> pa.RecordBatch:
        arrays = []
        for (name, _), field in zip(self.columns, self.schema, strict=True):
            if name not in batch.schema.names:
                # Spark finds names whatever their case, and gives nulls where there is none: not we.
                raise InvalidData("a Parquet file lacks a column", expected=name, where=piece.uri)
            array = batch.column(name)
            try:
                # The same values under Spark's type: another zone for the same instants, not another number.
                arrays.append(array if array.type == field.type else array.cast(field.type, safe=True))
            except pa.ArrowException as error:
                raise InvalidData(
                    "a Parquet file holds another type than Spark gives",
                    expected=str(field.type),
                    found=str(array.type),
                    where=f"{name} in {piece.uri}",
                    hint="publish(…, scan='spark') lets Spark read the files.",
                ) from error
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _begin(file: Any, index: int) -> int:
    """Return where a row group begins, in bytes."""
    column = file.metadata.row_group(index).column(0)
    dictionary = column.dictionary_page_offset
    first: int = column.data_page_offset
    return first if dictionary is None else min(dictionary, first)
