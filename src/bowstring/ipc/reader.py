"""What readers of streams and of files have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow.ipc import ReadStats

from bowstring.closing import Closing
from bowstring.columnar.batch import Batch
from bowstring.columnar.batch import batches as batches_of
from bowstring.columnar.layout import Layout
from bowstring.errors import ClosedError, EndOfStream, UsageError
from bowstring.ipc.dictionary.reader import Arrival


class RecordBatchWithMetadata(NamedTuple):
    """A batch, and the key-value pairs of its message."""

    batch: Batch
    custom_metadata: dict[bytes, bytes] | None


class ReadStatistics(ReadStats):  # type: ignore[misc]  # pyarrow has no types
    """pyarrow's counts, and how buffers were decompressed.

    Attributes
    ----------
    decompressed : str
        How compressed buffers came to the device that was asked for, and why not in another way.
    """

    decompressed: str = ""


class ReadCounts:
    """Counts what was read."""

    def __init__(self) -> None:
        self.messages = self.batches = self.dictionaries = self.deltas = self.replacements = 0

    def dictionary(self, arrival: Arrival) -> None:
        """Count a dictionary."""
        self.dictionaries += 1
        self.deltas += arrival is Arrival.DELTA
        self.replacements += arrival is Arrival.REPLACEMENT

    def stats(self, decompressed: str = "") -> ReadStatistics:
        """Return the counts as pyarrow's."""
        counts = self.messages, self.batches, self.dictionaries, self.deltas, self.replacements
        stats = ReadStatistics(*counts)
        stats.decompressed = decompressed
        return stats


class RecordBatchReader(Closing):
    """Reads batches of one schema.

    Batches keep the memory that they lie in alive, also after the reader is closed.

    Examples
    --------
    >>> reader = RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), [{"a": [1, 2]}, {"a": [3]}])
    >>> [batch.num_rows for batch in reader.cast(pa.schema({"a": pa.int8()}))]
    [2, 1]
    """

    _decoder: Any = None  # of what reads messages
    _counts: ReadCounts
    _source: Any  # None where the reader was closed

    @staticmethod
    def from_batches(schema: pa.Schema, batches: Iterable[Any]) -> IteratedReader:
        """Return a reader of batches, each taken when it is asked for.

        Parameters
        ----------
        schema
            Of all of them; one that has another is a `UsageError` when it is reached.
        batches
            Batches, or Arrow data of which each is one.
        """
        return IteratedReader(*batches_of(iter(batches), schema))

    @staticmethod
    def from_stream(data: Any, schema: pa.Schema | None = None) -> IteratedReader:
        """Return a reader of Arrow data, such as anything with ``__arrow_c_stream__``.

        Parameters
        ----------
        data
            As :meth:`bowstring.Batch.from_arrow` takes them, of any number of batches.
        schema
            What to cast the batches to.

        Raises
        ------
        UsageError
            It is not Arrow data.
        """
        reader = IteratedReader(*batches_of(data))
        return reader if schema is None or schema.equals(reader.schema) else reader.cast(schema)

    def cast(self, target_schema: pa.Schema) -> IteratedReader:
        """Return a reader of the batches that are left, each cast when it is asked for.

        Parameters
        ----------
        target_schema
            Has the same names in the same order. Only casts that lose nothing are made; pyarrow makes them, on
            the host, where the batches of a device are copied to.

        Raises
        ------
        UsageError
            The names differ, or pyarrow has no such cast. While reading: a value would be lost.
        ClosedError
            The reader was closed.
        """
        self._check_open()
        try:
            reader = pa.RecordBatchReader.from_batches(self.schema, self._arrow_batches()).cast(target_schema)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise UsageError(f"the batches cannot be cast: {error}") from error
        return IteratedReader(target_schema, _cast_batches(reader), self.close)

    @property
    def schema(self) -> pa.Schema:
        """The ``pyarrow.Schema`` of the batches: of the columns that were asked for."""
        return self._decoder.schema

    @property
    def layout(self) -> Any:
        """The :class:`bowstring.columnar.Layout`, with the dictionary ids of the source."""
        return self._decoder.layout

    @property
    def stats(self) -> ReadStatistics:
        """What was read so far, the schema and dictionaries included; ``decompressed`` is not pyarrow's."""
        return self._counts.stats("" if self._decoder is None else self._decoder.decompressed)

    def read_all(self) -> pa.Table:
        """Return all batches, of a stream those that are left, as one ``pyarrow.Table``.

        Raises
        ------
        ClosedError
            The reader was closed.
        """
        self._check_open()
        return pa.Table.from_batches(list(self._arrow_batches()), schema=self.schema)

    def read_pandas(self, **options: Any) -> Any:
        """Return what :meth:`read_all` does as a pandas DataFrame; ``options`` go to ``Table.to_pandas``."""
        return self.read_all().to_pandas(**options)

    @abstractmethod
    def close(self) -> None:
        """Let go of the source; batches that were read live on."""

    def _check_open(self) -> Any:
        """Return the source, if there is one: here, and not later in what is made of it."""
        if self._source is None:
            raise ClosedError("the reader was closed")
        return self._source

    @abstractmethod
    def __iter__(self) -> Iterator[Batch]:
        """Return the batches."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the batches as a capsule of the Arrow PyCapsule interface."""
        self._check_open()
        reader = pa.RecordBatchReader.from_batches(self.schema, self._arrow_batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _arrow_batches(self) -> Iterator[pa.RecordBatch]:
        return (batch.to_arrow() for batch in self)


class SequentialReader(RecordBatchReader):
    """Reads batches one after the other, each once."""

    @abstractmethod
    def read_next_batch(self) -> Batch:
        """Return the next batch.

        Raises
        ------
        EndOfStream
            There are no more.
        ClosedError
            The reader was closed.
        """

    def read_next_batch_with_custom_metadata(self) -> RecordBatchWithMetadata:
        """Return the next batch and the key-value pairs of its message, which are in the batch, too.

        Raises
        ------
        EndOfStream
            There are no more.
        """
        batch = self.read_next_batch()
        return RecordBatchWithMetadata(batch, batch.custom_metadata)

    def iter_batches_with_custom_metadata(self) -> Iterator[RecordBatchWithMetadata]:
        """Yield the batches that are left, each with the key-value pairs of its message."""
        for batch in self:
            yield RecordBatchWithMetadata(batch, batch.custom_metadata)

    def __iter__(self) -> Iterator[Batch]:
        self._check_open()
        return self

    def __next__(self) -> Batch:
        try:
            return self.read_next_batch()
        except EndOfStream:
            raise StopIteration from None


class IteratedReader(SequentialReader):
    """Reads what an iterator gives."""

    def __init__(
        self, schema: pa.Schema, batches: Iterator[Batch], close: Callable[[], None] | None = None
    ) -> None:
        self._schema = schema
        self._source = batches
        self._close = close
        self._counts = ReadCounts()

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def layout(self) -> Layout:
        return Layout.of(self._schema)

    def read_next_batch(self) -> Batch:
        batch: Batch
        for batch in self._check_open():
            self._counts.batches += 1
            return batch
        raise EndOfStream("there are no more batches")

    def close(self) -> None:
        self._source = None
        if self._close is not None:
            self._close()


def _cast_batches(reader: pa.RecordBatchReader) -> Iterator[Batch]:
    try:
        yield from map(Batch.from_arrow, reader)
    except pa.ArrowException as error:
        raise UsageError(f"a batch cannot be cast: {error}") from error
