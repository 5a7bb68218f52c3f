"""A Variant column as it is built from waves of JSON texts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.column import Column
from bowstring.columnar.spans import buffer_of
from bowstring.errors import LimitExceeded
from bowstring.kernels.json.format import READ
from bowstring.memory.distinct import distinct
from bowstring.variant.build import BLOCK_ROWS, STORAGE, variant_field
from bowstring.variant.json.dictionary import joined
from bowstring.variant.json.plan import Parts, Wave
from bowstring.variant.json.source import Texts
from bowstring.variant.json.waves import Ranks, Read, Waves

__all__ = ["Building"]

_LARGEST: Final = (1 << 31) - 1
_LEAST: Final = 1 << 10


class Building:
    """A column as far as it is built: metadata of blocks, and values of rows."""

    def __init__(self, texts: Texts) -> None:
        rows = len(texts.starts)
        self._device = texts.device
        self._offsets = np.zeros(rows + 1, np.int64)
        self._valid = np.zeros(rows, np.bool_)
        # Values are seldom longer than their texts; what is not written takes no memory.
        self._values = texts.device.xp.empty(max(len(texts.data), _LEAST), np.uint8)
        self._metadata: dict[bytes, int] = {}
        self._of_blocks: list[int] = []

    def join(self, parts: Parts, waves: Sequence[Wave], reads: Sequence[Read]) -> list[Ranks]:
        """Add the metadata of the blocks of some waves, and return the ranks of all keys of each wave."""
        keys = [each for read in reads for each in read.keys]
        blocks = parts.blocks[waves[0].first : waves[-1].last]
        ranks: Ranks = []
        for block in distinct(blocks):
            chosen = np.flatnonzero(blocks == block)
            metadata, found = joined(keys[chosen[0] : chosen[-1] + 1])
            self._of_blocks.append(self._metadata.setdefault(metadata, len(self._metadata)))
            ranks.extend(found)
        bounds = np.cumsum([0, *(len(read.keys) for read in reads)]).tolist()
        return [ranks[first:last] for first, last in itertools.pairwise(bounds)]

    def add(self, waves: Waves, read: Read, ranks: Ranks) -> None:
        """Write the values of a wave behind those before it.

        Raises
        ------
        LimitExceeded
            They do not fit a column of binary.
        """
        rows, device = read.rows, self._device
        sizes = device.to_host(waves.measure(read, ranks))
        begin = int(self._offsets[rows.start])
        offsets = begin + np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        end = int(offsets[-1])
        if end > _LARGEST:
            last = int(np.searchsorted(offsets, _LARGEST, side="right")) - 1
            raise LimitExceeded(
                "the values of a Variant column",
                expected="at most 2 GiB",
                found=end,
                where=f"row {rows.start + last}",
                hint="Make several columns of fewer rows.",
            )
        self._offsets[rows.start : rows.stop + 1] = offsets
        self._valid[rows] = read.statuses == READ
        self._make_room(begin, end)
        waves.write(read, device.from_host(offsets), self._values)

    def _make_room(self, held: int, needed: int) -> None:
        if len(self._values) < needed:
            larger = self._device.xp.empty(max(needed, len(self._values) * 3 // 2), np.uint8)
            larger[:held] = self._values[:held]
            self._values = larger

    def column(self, name: str) -> Column:
        """Return the column, on the device of the texts."""
        rows, device = len(self._valid), self._device
        indices = np.repeat(np.array(self._of_blocks, np.int32), BLOCK_ROWS)[:rows]
        metadata = pa.DictionaryArray.from_arrays(
            pa.array(indices), pa.array(list(self._metadata), pa.binary())
        )
        nothing = pa.py_buffer(np.zeros(rows + 1, np.int32))
        empty = pa.Array.from_buffers(pa.binary(), rows, [None, nothing, pa.py_buffer(b"")], null_count=0)
        mask = None if self._valid.all() else pa.array(~self._valid)
        array = pa.StructArray.from_arrays([metadata, empty], fields=list(STORAGE), mask=mask)
        field = variant_field(name)
        batch = Batch.from_arrow(pa.RecordBatch.from_arrays([array], schema=pa.schema([field])))
        if not device.is_host:
            batch = batch.to_device(device)
        offsets = device.from_host(self._offsets.astype(np.int32))
        values = self._values[: int(self._offsets[-1])]
        return Batch.from_parts(
            batch.layout,
            rows,
            batch.nodes,
            [
                *batch.buffers[:-2],
                buffer_of(offsets.view(np.uint8), device),
                buffer_of(values, device) if len(values) else None,
            ],
            dictionaries=batch.dictionaries,
            device=device,
        )[name]
