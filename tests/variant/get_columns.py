"""Variant columns of given bytes, in every form that a column may have."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from bowstring.columnar.batch import Batch, Column

Row = tuple[bytes, bytes] | None
MARK = {b"ARROW:extension:name": b"arrow.parquet.variant", b"ARROW:extension:metadata": b""}
METADATA_FORMS = ("binary", "large_binary", "binary_view", "dictionary", "dictionary of views", "runs")
VALUE_FORMS = ("binary", "large_binary", "binary_view")
_TYPES = {"binary": pa.binary(), "large_binary": pa.large_binary(), "binary_view": pa.binary_view()}


def column_of(
    rows: Sequence[Row], metadata: str = "dictionary", value: str = "binary", *, first: str = "metadata"
) -> Column:
    """Return rows of metadata and value, marked as a Variant; None is an SQL NULL."""
    blobs = [b"" if row is None else row[0] for row in rows]
    values = pa.array([b"" if row is None else row[1] for row in rows], _TYPES[value])
    children = {"metadata": _metadata(blobs, metadata), "value": values}
    names = sorted(children, key=lambda name: name != first)
    mask = pa.array([row is None for row in rows], pa.bool_()) if None in rows else None
    fields = [pa.field(name, children[name].type, nullable=name == "value") for name in names]
    array = pa.StructArray.from_arrays([children[name] for name in names], fields=fields, mask=mask)
    schema = pa.schema([pa.field("v", array.type, metadata=MARK)])
    return Batch.from_arrow(pa.RecordBatch.from_arrays([array], schema=schema))["v"]


def _metadata(blobs: list[bytes], form: str) -> pa.Array:
    if form == "runs":
        ends = [row + 1 for row in range(len(blobs)) if row + 1 == len(blobs) or blobs[row] != blobs[row + 1]]
        values = pa.array([blobs[end - 1] for end in ends], pa.binary())
        return pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), values)
    if form.startswith("dictionary"):
        distinct = list(dict.fromkeys(blobs))
        indices = pa.array(
            [distinct.index(blob) for blob in blobs], pa.int8() if len(distinct) < 128 else pa.int32()
        )
        type_ = pa.binary_view() if "views" in form else pa.binary()
        return pa.DictionaryArray.from_arrays(indices, pa.array(distinct, type_))
    return pa.array(blobs, _TYPES[form])
