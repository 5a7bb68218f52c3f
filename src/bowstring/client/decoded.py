"""Streams of encoded batches that are decoded where they are delivered."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

import pyarrow as pa

from bowstring.client.stream import Stream, StreamStatistics
from bowstring.columnar.batch import Batch
from bowstring.columnar.lookup import column_index
from bowstring.errors import EndOfStream
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.vortex.dtype import to_schema
from bowstring.vortex.stream import encoded_batches, messages_dtype

if TYPE_CHECKING:
    from bowstring.vortex.batch import EncodedBatch


class DecodedStream(Stream):
    """Decodes the batches of a stream of encoded ones (:func:`bowstring.vortex.to_messages`), each on request."""

    def __init__(
        self, stream: Stream, columns: tuple[str, ...] | None, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        super().__init__()
        self._stream = stream
        self._columns = columns
        self._limits = limits
        self._dtype = messages_dtype(stream.schema, limits)
        self._whole = to_schema(self._dtype)
        self._waiting: collections.deque[EncodedBatch] = collections.deque()
        chosen = self._whole.names if columns is None else columns
        positions = [column_index(self._whole, name) for name in chosen]
        self._schema = pa.schema([self._whole.field(position) for position in positions])

    @property
    def stats(self) -> StreamStatistics:
        return self._stream.stats

    @property
    def num_batches(self) -> int | None:
        return self._stream.num_batches

    @property
    def nbytes(self) -> int | None:
        return self._stream.nbytes

    def read_next_batch(self) -> Batch:
        came = False
        try:
            while not self._waiting:
                batch = self._stream.read_next_batch()
                came = True
                self._waiting.extend(encoded_batches(batch, self._dtype, self._whole, self._limits))
            came = True
            return self._waiting.popleft().decode(self._columns)
        except EndOfStream:
            self._note_end()
            raise
        except BaseException as error:
            if came and not isinstance(error, Exception):  # the next one would hide that it is missing
                self.close()
            raise

    def close(self) -> None:
        self._waiting.clear()
        self._stream.close()

    def _check_open(self) -> None:
        self._stream._check_open()
