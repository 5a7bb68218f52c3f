"""Tasks that read Parquet files themselves: Spark says which, and its JVM does not see a row."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import os
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.fs

from bowstring.errors import InvalidData, Unsupported
from bowstring.parquet.file import OpenFile
from bowstring.parquet.source import file_system
from bowstring.spark.scheduling import running_task
from bowstring.spark.stored import as_spark, check_file, zones_of
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
    size
        How large the file was when it was cut, in bytes.
    """

    uri: str
    begin: int
    end: int
    size: int


def pieces_of(files: Iterable[str], least: int) -> list[Piece]:
    """Cut files into pieces of at most 128 MiB, and into at least so many pieces as there are cores to read them.

    Files of no bytes have no rows, for Spark neither.

    Raises
    ------
    FileNotFoundError
        A file is not there.
    Unsupported
        pyarrow cannot open what a URI names.
    """
    known = [(uri, _size(uri)) for uri in files]
    total = sum(size for _, size in known)
    most = max(1, min(_PIECE_BYTES, -(-total // max(1, least))))
    pieces = []
    for uri, size in known:
        count = -(-size // most)
        bounds = [size * index // count for index in range(count + 1)] if count else []
        pieces += [Piece(uri, begin, end, size) for begin, end in itertools.pairwise(bounds)]
    return pieces


def _size(uri: str) -> int:
    filesystem, path = _opened(uri)
    found = filesystem.get_file_info(path)
    if found.type != pyarrow.fs.FileType.File:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), uri)
    size: int = found.size
    return size


def _opened(uri: str) -> tuple[Any, str]:
    try:
        return file_system(uri)
    except Unsupported as error:
        error.hint = "publish(…, scan='spark') lets Spark read the files."
        raise


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
        for _ in numbers:
            pass  # a worker that leaves something of its input unread is not used again
        context = running_task()
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
            The file holds other types than Spark says, or has changed.
        """
        filesystem, path = _opened(piece.uri)
        with filesystem.open_input_file(path) as source:
            if source.size() != piece.size:
                raise InvalidData(
                    "a Parquet file has changed while it was published",
                    expected=f"{piece.size} bytes",
                    found=f"{source.size()} bytes",
                    where=piece.uri,
                )
            file = OpenFile(source)
            groups = [
                index
                for index in range(file.num_row_groups)
                if piece.begin <= file.row_group_begin(index) < piece.end
            ]
            if not groups:
                return
            sources = [source_name for source_name, _ in self.columns]
            check_file(file, sources, self.schema, piece.uri)
            instants = zones_of(file)
            selection = file.select(sources)
            for batch in file.iter_row_groups(groups, selection, _BATCH_ROWS, threads=False):
                arrays = [
                    as_spark(batch.column(name), field, piece.uri, instants=name in instants)
                    for name, field in zip(sources, self.schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)
