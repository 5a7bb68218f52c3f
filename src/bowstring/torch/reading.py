"""The rows of one reader, epoch after epoch, as dicts of arrays; nothing here needs PyTorch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bowstring.client import connect
from bowstring.dissociated.endpoint import Dataset
from bowstring.errors import InvalidData
from bowstring.torch.arrays import arrays_of, check_type
from bowstring.torch.batching import Arrays, rebatched, shuffled
from bowstring.torch.shares import Part, known_rows, parts_of, rows_by_asking


@dataclasses.dataclass(frozen=True)
class Reading:
    """What readers of a data set do; the arguments of :class:`bowstring.torch.IterableDataset`."""

    dataset: Dataset  # without a schema, that is known when it is read
    columns: tuple[str, ...]
    batch_size: int | None = None
    shuffle_buffer: int = 0
    seed: int = 0
    drop_last: bool = False
    even: bool = False
    decimals: str | None = None
    device: Any = None
    decoded: frozenset[str] = frozenset()

    def batches(self, index: int, count: int, epoch: int) -> Iterator[Arrays]:
        """Yield the rows of one epoch that one of several readers takes.

        Over all readers each row comes once; with `even` all readers get equally many batches and rows.
        """
        random = np.random.default_rng([self.seed, epoch, index])
        rows = known_rows(self.dataset)
        if rows is None and self.even:
            rows = rows_by_asking(self.dataset.endpoints)
        batches = (
            self._cut_by_producers(index, count, random)
            if rows is None
            else self._of_parts(parts_of(rows, index, count, even=self.even), random)
        )
        if self.shuffle_buffer:
            batches = shuffled(batches, self.shuffle_buffer, random)
        if self.batch_size is not None:
            batches = rebatched(batches, self.batch_size, drop_last=self.drop_last)
        return batches

    def _of_parts(self, parts: list[Part], random: np.random.Generator) -> Iterator[Arrays]:
        if self.shuffle_buffer:
            parts = [parts[each] for each in random.permutation(len(parts))]
        if not parts:
            return
        with self._connected([part.endpoint for part in parts], None) as stream:
            for part in parts:
                seen = 0
                while seen < part.rows:
                    batch = next(stream, None)
                    if batch is None or seen + batch.num_rows > part.rows:
                        raise InvalidData(
                            "an endpoint has another number of rows than the data set says",
                            expected=part.rows,
                            found=f"{seen} and then {'no more' if batch is None else batch.num_rows}",
                            where=f"endpoint {part.endpoint}",
                        )
                    low, high = max(part.first - seen, 0), min(part.last - seen, batch.num_rows)
                    seen += batch.num_rows
                    if low < high:
                        arrays = arrays_of(batch, self.columns, self.decimals, self.decoded)
                        yield {name: array[low:high] for name, array in arrays.items()}

    def _cut_by_producers(self, index: int, count: int, random: np.random.Generator) -> Iterator[Arrays]:
        order = list(range(len(self.dataset.endpoints)))
        if self.shuffle_buffer:
            order = list(random.permutation(len(order)))
        if not order:
            return
        with self._connected(order, (index, count) if count > 1 else None) as stream:
            for batch in stream:
                if batch.num_rows:
                    yield arrays_of(batch, self.columns, self.decimals, self.decoded)

    def _connected(self, endpoints: list[int], shard: tuple[int, int] | None) -> Any:
        """Return a stream of some endpoints, in their order; its batches can be written without harm to others."""
        chosen = tuple(self.dataset.endpoints[each] for each in endpoints)
        source = chosen[0] if len(chosen) == 1 else Dataset(chosen, self.dataset.schema)
        stream = connect(
            source,
            shard=shard,
            columns=self.columns,
            device=self.device,
            writable=self.device in (None, "cpu"),
        )
        self.check_types(stream.schema)
        return stream

    def check_types(self, schema: pa.Schema) -> None:
        """Raise `Unsupported` for a column that makes no tensor and is not decoded."""
        for name in self.columns:
            if name not in self.decoded:
                check_type(name, schema.field(name).type, self.decimals)
