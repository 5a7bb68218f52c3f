"""The dictionaries of a stream: which are known, how deltas are joined to them, when they are sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.dictionary import Dictionary
from bowstring.errors import InvalidMetadata, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bowstring.columnar.layout import Layout
    from bowstring.ipc.metadata import RecordBatchHeader

__all__ = ["complete", "join", "same_values"]


def complete(
    layout: Layout, header: RecordBatchHeader, known: Mapping[int, Dictionary]
) -> dict[int, Dictionary]:
    """Return the dictionaries that a batch of this header uses.

    Dictionaries of columns that are all null may come later (Columnar.rst, Dictionary Messages): until then
    they are empty.

    Raises
    ------
    InvalidMetadata
        A column that is not all null uses a dictionary that has not come.
    """
    if not layout.dictionaries:
        return {}
    found = {id_: known[id_] for id_ in layout.dictionaries if id_ in known}
    if len(found) == len(layout.dictionaries):
        return found
    for index, node in enumerate(layout.nodes):
        if node.dictionary_id is None or node.dictionary_id in found or index >= len(header.nodes):
            continue
        length, nulls = header.nodes[index].tolist()
        if length != nulls:
            raise InvalidMetadata(
                "a batch uses a dictionary that has not been sent",
                found=f"id {node.dictionary_id}",
                where=".".join(node.path),
            )
    for id_, values in layout.dictionaries.items():
        if id_ not in found:
            nothing = pa.nulls(0, values.schema.field(0).type)
            empty = pa.RecordBatch.from_arrays([nothing], schema=values.schema)
            found[id_] = Dictionary(id_, Batch.from_arrow(empty))
    return found


def join(before: Batch, delta: Batch) -> Batch:
    """Return the values of a dictionary followed by those of a delta, in new memory.

    Raises
    ------
    Unsupported
        pyarrow cannot join values of this type.

    Examples
    --------
    >>> before, delta = (Batch.from_arrow(pa.record_batch({"values": [word]})) for word in "ab")
    >>> join(before, delta)[0].to_arrow().to_pylist()
    ['a', 'b']
    """
    parts = [batch.to_arrow().column(0) for batch in (before, delta)]
    try:
        values = pa.concat_arrays(parts)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise Unsupported(f"delta dictionaries of {parts[0].type}: {error}") from error
    return Batch.from_arrow(pa.RecordBatch.from_arrays([values], schema=before.schema))


def same_values(before: Batch, after: Batch) -> bool:
    """Whether two dictionaries hold the same values, looking at them only where they lie in different memory.

    Examples
    --------
    >>> first, same, other = (Batch.from_arrow(pa.record_batch({"values": [word]})) for word in "aab")
    >>> same_values(first, same), same_values(first, other)
    (True, False)
    """
    if before is after:
        return True
    if before.num_rows != after.num_rows or not np.array_equal(before.nodes, after.nodes):
        return False
    if _places(before) == _places(after):
        return True
    return bool(before.to_arrow().equals(after.to_arrow()))


def _places(batch: Batch) -> list[object]:
    places: list[object] = [
        None if buffer is None else (buffer.address, buffer.nbytes) for buffer in batch.buffers
    ]
    return places + [_places(inner.values) for inner in batch.dictionaries.values()]
