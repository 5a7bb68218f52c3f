"""Putting Variant columns together from encoded rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.column import Column
from bowstring.columnar.marks import marked_field
from bowstring.errors import LimitExceeded, UsageError
from bowstring.limits import Limits
from bowstring.variant.codec.encode import encode_with, metadata_bytes, names_in
from bowstring.variant.codec.primitives import Value
from bowstring.variant.codec.rows import in_row

__all__ = [
    "BLOCK_ROWS",
    "STORAGE",
    "ByteBudget",
    "Encoded",
    "built",
    "column_of",
    "encoded",
    "storage_array",
    "variant_array",
    "variant_field",
]

BLOCK_ROWS: Final = 65_536
"""Rows that share one dictionary of names, counted from the first row: the same in every writer."""

# One type, whatever the number of blocks, so that the columns of a stream have one schema.
STORAGE: Final = (
    pa.field("metadata", pa.dictionary(pa.int32(), pa.binary()), nullable=False),
    pa.field("value", pa.binary(), nullable=False),
)
"""The children of the Variant columns that Bowstring writes."""
_LARGEST: Final = (1 << 31) - 1

Encoded = tuple[bytes, bytes] | None
"""Metadata and value of one row, or None for an SQL NULL."""


def variant_field(name: str) -> pa.Field:
    """Return the field of the Variant columns that Bowstring writes."""
    return marked_field(pa.field(name, pa.struct(STORAGE)))


def variant_array(rows: Iterable[Encoded]) -> pa.StructArray:
    """Return encoded rows as the storage of a Variant column; equal metadata are stored once.

    Raises
    ------
    LimitExceeded
        The values take more than 2 GiB, which a column of binary cannot hold.
    """
    metadata: dict[bytes, int] = {}
    indices: list[int] = []
    values: list[bytes] = []
    nulls: list[bool] = []
    for row in rows:
        # The children of a null row are not null: it keeps the metadata before it, and an empty value.
        nulls.append(row is None)
        if row is None:
            indices.append(indices[-1] if indices else 0)
            values.append(b"")
        else:
            indices.append(metadata.setdefault(row[0], len(metadata)))
            values.append(row[1])
    for what, pieces in (("values", values), ("metadata", metadata)):
        size = sum(map(len, pieces))
        if size > _LARGEST:
            raise LimitExceeded(
                f"the {what} of a Variant column",
                expected="at most 2 GiB",
                found=size,
                hint="Make several columns of fewer rows.",
            )
    mask = pa.array(nulls, pa.bool_()) if any(nulls) else None
    return storage_array(np.asarray(indices, np.int32), metadata, pa.array(values, pa.binary()), mask)


def storage_array(
    indices: npt.NDArray[np.int32], metadata: Collection[bytes], values: pa.Array, mask: pa.Array | None
) -> pa.StructArray:
    r"""Return the storage of a Variant column: which of the distinct metadata each row has, and its value."""
    # Rows that are all null have indices, too.
    blobs = list(metadata) if metadata or not len(indices) else [metadata_bytes(())]
    dictionary = pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(blobs, pa.binary()))
    return pa.StructArray.from_arrays([dictionary, values], fields=list(STORAGE), mask=mask)


class ByteBudget:
    """How many bytes one column may still take: counted before they are copied.

    Parameters
    ----------
    what
        The column, for the message.
    limits
        ``extracted_bytes`` bounds it, and so do 2 GiB.
    """

    __slots__ = ("_held", "_most", "_what")

    def __init__(self, what: str, limits: Limits) -> None:
        self._what = what
        self._most = min(limits.extracted_bytes, _LARGEST)
        self._held = 0

    def take(self, nbytes: int) -> None:
        """Count some bytes.

        Raises
        ------
        LimitExceeded
            They are too many.
        """
        self._held += nbytes
        if self._held > self._most:
            raise LimitExceeded(
                f"{self._what} take too many bytes",
                expected=f"at most {self._most} bytes",
                found=self._held,
                hint="Make several columns of fewer rows."
                if self._most == _LARGEST
                else "Take fewer rows, or raise Limits.extracted_bytes.",
            )


def column_of(array: pa.Array, field: pa.Field) -> Column:
    """Return an array as a column of a batch of its own."""
    return Batch.from_arrow(pa.RecordBatch.from_arrays([array], schema=pa.schema([field])))[str(field.name)]


def encoded(rows: Iterable[Value | None]) -> Iterator[Encoded]:
    """Yield each row encoded; every block of rows has a dictionary of its own. An error says its row."""
    block: list[Value | None] = []
    first = 0
    for row in rows:
        block.append(row)
        if len(block) == BLOCK_ROWS:
            yield from _block(block, first)
            first += len(block)
            block = []
    yield from _block(block, first)


def built(rows: Iterable[Value | None], name: str) -> Column:
    """Return typed rows as a Variant column; None is an SQL NULL."""
    return column_of(variant_array(encoded(rows)), variant_field(name))


def _block(rows: Sequence[Value | None], first: int) -> Iterator[Encoded]:
    names = names_in(row for row in rows if row is not None)
    try:
        metadata = metadata_bytes(names)
    except UsageError as error:
        raise in_row(error, first + _without_utf8(rows)) from error
    ids = {name: index for index, name in enumerate(names)}
    for number, row in enumerate(rows, first):
        try:
            yield None if row is None else (metadata, encode_with(ids, row))
        except UsageError as error:
            raise in_row(error, number) from error


def _without_utf8(rows: Sequence[Value | None]) -> int:
    """Return the first row that has a key with half a surrogate pair."""
    halves = re.compile("[\ud800-\udfff]")
    return next(k for k, row in enumerate(rows) if row and any(map(halves.search, names_in([row]))))
