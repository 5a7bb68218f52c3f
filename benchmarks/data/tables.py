"""The data of the cases: made from a seed, so that two processes can have the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

_COLUMNS: Final = 8
_CARRIERS: Final = 1000
_NAME_BYTES: Final = 16
# A row of `mixed`: three columns of 8 bytes and a bit, a name with its offset and bit, an index.
_MIXED_ROW: Final = 3 * 8.125 + 4.125 + _NAME_BYTES + 4


def size_name(nbytes: int) -> str:
    """Return a size as cases name it."""
    for unit, shift in (("GiB", 30), ("MiB", 20)):
        if nbytes >= 1 << shift:
            return f"{nbytes / (1 << shift):g} {unit}"
    return f"{nbytes / 1024:g} KiB"


def floats(rows: int, rng: np.random.Generator) -> pa.RecordBatch:
    """Return a batch of 8 columns of float64 without nulls."""
    return pa.record_batch({f"f{index}": rng.random(rows) for index in range(_COLUMNS)})


def mixed(rows: int, rng: np.random.Generator) -> pa.RecordBatch:
    """Return a batch with nulls, text, a dictionary, integers, floats and timestamps."""
    return pa.record_batch(
        {
            "id": _with_nulls(pa.int64(), rng.integers(0, 1 << 62, rows), rng),
            "fare": _with_nulls(pa.float64(), rng.random(rows), rng),
            "departure": _with_nulls(pa.timestamp("us"), rng.integers(0, 1 << 50, rows), rng),
            "name": _names(rows, rng),
            "carrier": _carriers(rows, rng),
        }
    )


def _with_nulls(kind: pa.DataType, values: np.ndarray, rng: np.random.Generator) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [_validity(len(values), rng), pa.py_buffer(values)])


def _validity(rows: int, rng: np.random.Generator) -> pa.Buffer:
    """One null in eight; rows are a multiple of 64, so that no byte has bits that mean nothing."""
    bits = [rng.integers(0, 256, rows // 8, np.uint8) for _ in range(3)]
    return pa.py_buffer(bits[0] | bits[1] | bits[2])


def _names(rows: int, rng: np.random.Generator) -> pa.Array:
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(rng.integers(0, 2 * _NAME_BYTES + 1, rows, np.int32), out=offsets[1:])
    text = rng.integers(ord("a"), ord("z") + 1, int(offsets[-1]), np.uint8)
    return pa.Array.from_buffers(
        pa.string(), rows, [_validity(rows, rng), pa.py_buffer(offsets), pa.py_buffer(text)]
    )


def _carriers(rows: int, rng: np.random.Generator) -> pa.Array:
    names = pa.array([f"carrier number {index}" for index in range(_CARRIERS)])
    return pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, _CARRIERS, rows, np.int32)), names)


KINDS: Final[dict[str, tuple[str, Callable[[int, np.random.Generator], pa.RecordBatch], float]]] = {
    "floats": ("8 float64 columns", floats, _COLUMNS * 8),
    "mixed": ("strings, nulls and a dictionary", mixed, _MIXED_ROW),
}


def table(kind: str, nbytes: int, seed: int, batches: int = 1) -> pa.Table:
    """Return a table of about `nbytes` bytes in equal batches, the same for the same arguments."""
    _, make, row = KINDS[kind]
    rows = max(64, int(nbytes / batches / row) // 64 * 64)
    rng = np.random.default_rng(seed)
    made = list(_same_dictionary(make(rows, rng) for _ in range(batches)))
    return pa.Table.from_batches(made)


def _same_dictionary(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give all batches the dictionary of the first: theirs are equal, and a table has one."""
    shared: pa.Array | None = None
    for batch in batches:
        if "carrier" not in batch.schema.names:
            yield batch
            continue
        position = batch.schema.get_field_index("carrier")
        column = batch.column(position)
        shared = column.dictionary if shared is None else shared
        yield batch.set_column(position, "carrier", pa.DictionaryArray.from_arrays(column.indices, shared))
