"""What the golden files do not hold, and peers are asked about all the same."""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa

from tests.arrays import array_of
from tests.strategies import LEAF_TYPES

__all__ = ["CASES", "MESSAGE_METADATA", "OPTIONS", "STREAMS_ONLY"]


def _words(*chunks: list[str]) -> pa.Table:
    return pa.table({"word": pa.chunked_array([pa.array(chunk).dictionary_encode() for chunk in chunks])})


def _ordered() -> pa.Table:
    words = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.uint16()), ["low", "high"], ordered=True)
    return pa.table({"level": words})


def _dictionaries_in_structs_in_lists() -> pa.Table:
    words = pa.array(["x", "y", None, "x"]).dictionary_encode()
    structs = pa.StructArray.from_arrays([words, pa.array([1, 2, 3, 4])], names=["word", "number"])
    return pa.table({"list": pa.ListArray.from_arrays(pa.array([0, 1, None, 4], pa.int32()), structs)})


def _half_floats_and_small_decimals() -> pa.Table:
    return pa.table(
        {
            "half": pa.array([0.5, None, -2.0], pa.float16()),
            "d32": pa.array([Decimal("1.5"), None, Decimal("-2.5")], pa.decimal32(5, 1)),
            "d64": pa.array([Decimal("1.5"), None, Decimal("-2.5")], pa.decimal64(12, 1)),
            "mdn": pa.array([(1, 2, 3), None, (-1, 0, 5)], pa.month_day_nano_interval()),
        }
    )


def _unions_in_lists() -> pa.Table:
    codes = pa.array([0, 1, 0], pa.int8())
    union = pa.UnionArray.from_dense(
        codes, pa.array([0, 0, 1], pa.int32()), [pa.array([1, 2]), pa.array(["a"])], ["n", "s"]
    )
    return pa.table({"unions": pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), union)})


def _sliced() -> pa.Table:
    return pa.table({"a": range(100), "b": [str(each) for each in range(100)], "c": [True, None] * 50}).slice(
        3, 50
    )


def _no_columns() -> pa.Table:
    rows = pa.StructArray.from_buffers(pa.struct([]), 7, [None], children=[])
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(rows)])


def _of_type(type_: pa.DataType) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table({"a": pa.chunked_array([array_of(type_, rows, rng) for rows in (30, 0, 1)])})


_NUMBER: Final = pa.field("n", pa.int32())
_NESTED: Final = {
    "list": pa.list_(pa.string()),
    "large list": pa.large_list(pa.string()),
    "fixed size list": pa.list_(pa.string(), 2),
    "list view": pa.list_view(pa.string()),
    "large list view": pa.large_list_view(pa.string()),
    "map": pa.map_(pa.string(), pa.int64()),
    "sorted map": pa.map_(pa.string(), pa.int64(), keys_sorted=True),
    "struct": pa.struct([_NUMBER, pa.field("", pa.bool_())]),
    "sparse union": pa.sparse_union([_NUMBER, pa.field("s", pa.string())], [5, 9]),
    "dense union": pa.dense_union([_NUMBER, pa.field("s", pa.string())], [5, 9]),
    "runs": pa.run_end_encoded(pa.int32(), pa.string()),
}
_TYPES: Final = {f"type {type_}": type_ for type_ in LEAF_TYPES} | {
    f"type {name}": type_ for name, type_ in _NESTED.items()
}

CASES: Final[dict[str, Callable[[], pa.Table]]] = {
    "dictionary_replacement": lambda: _words(["a", "b"], ["c"], ["c", "d"]),
    "dictionary_delta": lambda: _words(["a", "b"], ["a", "b", "c"], ["a", "b", "c", "d"]),
    "dictionary_ordered": _ordered,
    "dictionary_in_struct_in_list": _dictionaries_in_structs_in_lists,
    "half_floats_and_small_decimals": _half_floats_and_small_decimals,
    "union_in_list": _unions_in_lists,
    "sliced": _sliced,
    "no_columns": _no_columns,
    "message_metadata": _sliced,
    "message_metadata_in_version_4": _sliced,
    **{name: functools.partial(_of_type, type_) for name, type_ in _TYPES.items()},
}
_V4: Final = pa.ipc.MetadataVersion.V4
OPTIONS: Final = {
    "dictionary_delta": pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True),
    "message_metadata_in_version_4": pa.ipc.IpcWriteOptions(metadata_version=_V4),
}
"""Where the case needs them."""
MESSAGE_METADATA: Final = {"message_metadata": {"k": "v"}, "message_metadata_in_version_4": {"k": "v"}}
"""Of each batch."""
STREAMS_ONLY: Final = frozenset(("dictionary_replacement",))
"""A file has one dictionary per field."""
