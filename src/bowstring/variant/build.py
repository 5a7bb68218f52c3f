"""Putting Variant columns together from encoded rows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.column import Column
from bowstring.columnar.marks import marked_field
from bowstring.errors import LimitExceeded
from bowstring.variant.codec.encode import metadata_bytes

BLOCK_ROWS: Final = 65_536
"""Rows that share one dictionary of names, counted from the first row: the same in every writer."""

_MOST_METADATA: Final = (1 << 31) - 1

# One type, whatever the number of blocks, so that the columns of a stream have one schema.
STORAGE: Final = (
    pa.field("metadata", pa.dictionary(pa.int32(), pa.binary()), nullable=False),
    pa.field("value", pa.binary(), nullable=False),
)
"""The children of the Variant columns that Bowstring writes."""


def variant_field(name: str) -> pa.Field:
    """Return the field of the Variant columns that Bowstring writes."""
    return marked_field(pa.field(name, pa.struct(STORAGE)))


def storage_array(
    indices: npt.NDArray[np.int32], metadata: Collection[bytes], values: pa.Array, mask: pa.Array | None
) -> pa.StructArray:
    r"""Return the storage of a Variant column: which of the distinct metadata each row has, and its value."""
    # Rows that are all null have indices, too.
    blobs = list(metadata) if metadata or not len(indices) else [metadata_bytes(())]
    nbytes = sum(map(len, blobs))
    if nbytes > _MOST_METADATA:
        hint = "Make several columns of fewer rows."
        raise LimitExceeded("the keys of a Variant column", expected="at most 2 GiB", found=nbytes, hint=hint)
    dictionary = pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(blobs, pa.binary()))
    return pa.StructArray.from_arrays([dictionary, values], fields=list(STORAGE), mask=mask)


def column_of(array: pa.Array, field: pa.Field) -> Column:
    """Return an array as a column of a batch of its own."""
    return Batch.from_arrow(pa.RecordBatch.from_arrays([array], schema=pa.schema([field])))[str(field.name)]
