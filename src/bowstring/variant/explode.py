"""The children of each row as rows of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.errors import BowstringError
from bowstring.variant.build import Encoded, variant_array, variant_field
from bowstring.variant.decode import children_of
from bowstring.variant.python_rows import Names, in_row, open_on_host, raw_rows

__all__ = ["explode"]


def explode(column: Any, *, outer: bool = False, plain: bool = False) -> Batch:
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

    Returns
    -------
    Batch
        ``row``: int64, the row of `column`; ``position``: int32, from 0; ``key``: string, null for elements of
        arrays; ``value``: Variant, over the metadata of its row.

    Raises
    ------
    InvalidBody, Truncated, Unsupported
        A container is not what the specification says; the error says its row.
    LimitExceeded
        The children take more than 2 GiB.
    NotOnDevice
        The column is not on the host.

    Examples
    --------
    >>> from bowstring.variant.python import from_python, to_python
    >>> batch = explode(from_python([{"a": 1, "b": [2]}, 5, [6]]))
    >>> batch["row"].values.tolist(), batch["key"].to_arrow().to_pylist(), to_python(batch["value"])
    ([0, 0, 2], ['a', 'b', None], [1, [2], 6])
    """
    names = Names()
    parents: list[int] = []
    positions: list[int | None] = []
    steps: list[str | None] = []
    values: list[Encoded] = []
    for row, raw in enumerate(raw_rows(open_on_host(column, "explode", plain=plain))):
        try:
            children = None if raw is None else children_of(names[raw[0]], raw[1])
        except BowstringError as error:
            raise in_row(error, row) from error
        if raw is None or not children:
            if outer:
                parents.append(row)
                positions.append(None)
                steps.append(None)
                values.append(None)
            continue
        metadata, value = raw
        parents += [row] * len(children)
        positions += range(len(children))
        steps += [step if isinstance(step, str) else None for step, _, _ in children]
        values += [(metadata, value[start:stop]) for _, start, stop in children]
    fields = [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("position", pa.int32()),
        pa.field("key", pa.string()),
        variant_field("value"),
    ]
    arrays = [
        pa.array(np.asarray(parents, np.int64)),
        pa.array(positions, pa.int32()),
        pa.array(steps, pa.string()),
        variant_array(values),
    ]
    return Batch.from_arrow(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)))
