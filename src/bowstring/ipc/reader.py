"""What readers of streams and of files have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyarrow.ipc import ReadStats

from bowstring.ipc.dictionaries import Arrival

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    from bowstring.columnar.batch import Batch
    from bowstring.ipc.decoder import Decoder

__all__ = ["ReadCounts", "ReadStats", "RecordBatchReader", "RecordBatchWithMetadata"]


class RecordBatchWithMetadata(NamedTuple):
    """A batch, and the key-value pairs of its message."""

    batch: Batch
    custom_metadata: dict[bytes, bytes] | None


class ReadCounts:
    """Counts what was read."""

    def __init__(self) -> None:
        self.messages = self.batches = self.dictionaries = self.deltas = self.replacements = 0

    def dictionary(self, arrival: Arrival) -> None:
        """Count a dictionary."""
        self.dictionaries += 1
        self.deltas += arrival is Arrival.DELTA
        self.replacements += arrival is Arrival.REPLACEMENT

    def stats(self) -> ReadStats:
        """Return the counts as pyarrow's."""
        return ReadStats(self.messages, self.batches, self.dictionaries, self.deltas, self.replacements)


class RecordBatchReader(ABC):
    """Reads batches of one schema.

    Batches keep the memory that they lie in alive, also after the reader is closed.
    """

    _decoder: Decoder
    _counts: ReadCounts

    @property
    def schema(self) -> pa.Schema:
        """The ``pyarrow.Schema`` of the batches: of the columns that were asked for."""
        return self._decoder.schema

    @property
    def layout(self) -> Any:
        """The :class:`bowstring.columnar.Layout`, with the dictionary ids of the source."""
        return self._decoder.layout

    @property
    def stats(self) -> ReadStats:
        """What was read so far, the schema and dictionaries included."""
        return self._counts.stats()

    def read_all(self) -> pa.Table:
        """Return all batches, of a stream those that are left, as one ``pyarrow.Table``."""
        return pa.Table.from_batches(list(self._arrow_batches()), schema=self.schema)

    def read_pandas(self, **options: Any) -> Any:
        """Return what :meth:`read_all` does as a pandas DataFrame; ``options`` go to ``Table.to_pandas``."""
        return self.read_all().to_pandas(**options)

    @abstractmethod
    def close(self) -> None:
        """Let go of the source; batches that were read live on."""

    @abstractmethod
    def __iter__(self) -> Iterator[Batch]:
        """Return the batches."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the batches as a capsule of the Arrow PyCapsule interface."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self._arrow_batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _arrow_batches(self) -> Iterator[pa.RecordBatch]:
        return (batch.to_arrow() for batch in self)
