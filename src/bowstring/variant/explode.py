"""The children of each row as rows of their own, and the keys of each row."""

from __future__ import annotations

import array
import itertools
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.column import Column
from bowstring.errors import BowstringError, LimitExceeded
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.variant.build import ByteBudget, column_of, storage_array, variant_field
from bowstring.variant.codec.decode import children_of, value_size
from bowstring.variant.codec.rows import Names, in_row, open_on_host, raw_rows
from bowstring.variant.column import VariantColumn

__all__ = ["explode", "keys"]


_CHILD: Final = 16
"""What a child takes in the columns of numbers, whatever it is."""

# Rows and keys take an offset each.
_ROW = _KEY = 4


def explode(
    column: Any, *, outer: bool = False, plain: bool = False, limits: Limits = DEFAULT_LIMITS
) -> Batch:
    """Return a row for each element of an array, and for each field of an object.

    Only the outermost level is read; what is inside is copied as it is.

    Parameters
    ----------
    column
        A Variant column on the host, or its Arrow array.
    outer
        Give rows without children, SQL NULLs among them, one row whose position, key and value are null. Else
        they give none.
    plain
        Take a struct that is not marked as a Variant.
    limits
        ``extracted_bytes`` bounds each column of the result.

    Returns
    -------
    Batch
        ``row``: int64, the row of `column`; ``position``: int32, from 0; ``key``: string, null for elements of
        arrays; ``value``: Variant, over the metadata of its row.

    Raises
    ------
    InvalidBody, Truncated, Unsupported
        A container is not what the specification says; the error names its row. Or the metadata of many rows
        overlap.
    LimitExceeded
        The children of a row share their bytes, and together take more than the row; or a column of the result
        takes more than the limits, or than 2 GiB. The error names the row. It is raised before values are copied.
    NotOnDevice
        The column is not on the host.

    Examples
    --------
    >>> from bowstring.variant.python_objects import from_python, to_python
    >>> batch = explode(from_python([{"a": 1, "b": [2]}, 5, [6]]))
    >>> batch["row"].to_arrow().to_pylist(), batch["key"].to_arrow().to_pylist(), to_python(batch["value"])
    ([0, 0, 2], ['a', 'b', None], [1, [2], 6])
    """
    opened = open_on_host(column, "explode", plain=plain)
    found = _Children(opened, limits)
    names = Names()
    for row, raw in enumerate(raw_rows(opened)):
        try:
            if raw is None or not found.add(row, raw, names):
                found.add_null(row, outer=outer)
        except BowstringError as error:
            raise in_row(error, row) from error
    return found.batch()


class _Children:
    """The rows of the result as far as they are found: where each value lies, and not yet its bytes."""

    def __init__(self, opened: VariantColumn, limits: Limits) -> None:
        self._opened = opened
        self._count = ByteBudget("the children of an exploded Variant column", limits)
        self._bytes = ByteBudget("the values of an exploded Variant column", limits)
        self._text = ByteBudget("the keys of an exploded Variant column", limits)
        self._blobs = ByteBudget("the metadata of an exploded Variant column", limits)
        self._metadata: dict[bytes, int] = {}
        self._indices = array.array("i")
        self._rows = array.array("q")
        self._positions = array.array("i")
        self._starts = array.array("q")
        self._stops = array.array("q")
        self._keys: list[str | None] = []

    def add(self, row: int, raw: tuple[bytes, bytes], names: Names) -> bool:
        """Add the children of a row, and return whether it has any."""
        metadata, value = raw
        children = children_of(names[metadata], value)
        if not children:
            return False
        sizes = sum(stop - start for _, start, stop in children)
        whole = value_size(value)
        if sizes > whole:
            raise LimitExceeded(
                "the children of a Variant share their bytes, and together take more than what holds them",
                expected=f"at most {whole} bytes",
                found=f"{sizes} bytes of {len(children)} children",
            )
        keys = [step if isinstance(step, str) else None for step, _, _ in children]
        self._count.take(_CHILD * len(children))
        self._bytes.take(sizes)
        self._text.take(sum(len(key.encode()) for key in keys if key is not None))
        index = self._metadata.get(metadata)
        if index is None:
            self._blobs.take(len(metadata))
            index = self._metadata[metadata] = len(self._metadata)
        first = int(self._opened.value.starts[row])
        self._indices.extend(itertools.repeat(index, len(children)))
        self._rows.extend(itertools.repeat(row, len(children)))
        self._positions.extend(range(len(children)))
        self._starts.extend(first + start for _, start, _ in children)
        self._stops.extend(first + stop for _, _, stop in children)
        self._keys += keys
        return True

    def add_null(self, row: int, *, outer: bool) -> None:
        """Add the row of nulls of a row without children, if there is to be one."""
        if not outer:
            return
        self._count.take(_CHILD)
        # The children of a null are not null: it keeps the metadata before it, and an empty value.
        self._indices.append(self._indices[-1] if self._indices else 0)
        self._rows.append(row)
        self._positions.append(-1)
        self._starts.append(0)
        self._stops.append(0)
        self._keys.append(None)

    def batch(self) -> Batch:
        """Return the result: now the bytes are copied."""
        positions = np.array(self._positions, np.int32)
        nulls = positions < 0
        mask = pa.array(nulls) if nulls.any() else None
        fields = [
            pa.field("row", pa.int64(), nullable=False),
            pa.field("position", pa.int32()),
            pa.field("key", pa.string()),
            variant_field("value"),
        ]
        columns = [
            pa.array(np.array(self._rows, np.int64)),
            pa.array(positions, mask=nulls),
            pa.array(self._keys, pa.string()),
            storage_array(np.array(self._indices, np.int32), self._metadata, self._values(), mask),
        ]
        return Batch.from_arrow(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)))

    def _values(self) -> pa.Array:
        sizes = np.array(self._stops, np.int64) - np.array(self._starts, np.int64)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        data = np.empty(int(offsets[-1]), np.uint8)
        source, target = np.ascontiguousarray(self._opened.value.data).data, data.data
        for at, start, stop in zip(offsets.tolist(), self._starts, self._stops, strict=False):
            target[at : at + stop - start] = source[start:stop]
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), len(sizes), buffers, null_count=0)


def keys(column: Any, *, plain: bool = False, limits: Limits = DEFAULT_LIMITS) -> Column:
    """Return the keys of the object in each row, in the order of their UTF-8.

    Only the outermost object is read: what is inside of its fields may be anything.

    Parameters
    ----------
    column
        A Variant column on the host, or its Arrow array.
    plain
        Take a struct that is not marked as a Variant.
    limits
        ``extracted_bytes`` bounds the keys.

    Returns
    -------
    Column
        ``list<string>``; null where the row is an SQL NULL or no object.

    Raises
    ------
    InvalidBody, Truncated, Unsupported
        An object is not what the specification says; the error names its row.
    LimitExceeded
        The keys take more than the limits, or than 2 GiB.
    NotOnDevice
        The column is not on the host.

    Examples
    --------
    >>> from bowstring.variant.python_objects import from_python
    >>> keys(from_python([{"b": {"c": 1}, "a": 2}, [1], None])).to_arrow().to_pylist()
    [['a', 'b'], None, None]
    """
    opened = open_on_host(column, "keys", plain=plain)
    names = Names()
    budget = ByteBudget("the keys of a Variant column", limits)
    rows: list[list[str] | None] = []
    for row, raw in enumerate(raw_rows(opened)):
        try:
            found = None if raw is None else _keys(names[raw[0]], raw[1])
            budget.take(_ROW + sum(_KEY + len(key.encode()) for key in found or ()))
            rows.append(found)
        except BowstringError as error:
            raise in_row(error, row) from error
    type_ = pa.list_(pa.field("item", pa.string(), nullable=False))
    return column_of(pa.array(rows, type_), pa.field(opened.column.name, type_))


def _keys(names: tuple[str, ...], value: bytes) -> list[str] | None:
    children = children_of(names, value)
    if children is None or (not children and value[0] & 1):
        return None
    found = [step for step, _, _ in children if isinstance(step, str)]
    # Old writers sorted by UTF-16.
    return sorted(found) if len(found) == len(children) else None
