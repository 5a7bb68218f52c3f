"""The distinct metadata of a column: each is inspected once, however many rows name it; values are not copied."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bowstring.limits import DEFAULT_LIMITS
from bowstring.variant import Value, open_column
from bowstring.variant.column import dictionary_of
from bowstring.variant.json.writer import rows_of
from tests.variant import test_shared_metadata as shared
from tests.variant.conftest import Move
from tests.variant.encoding import encode, metadata_bytes
from tests.variant.get_columns import column_of
from tests.variant.shredded_columns import unmarked


@pytest.mark.parametrize("form", ["binary", "large_binary", "binary_view"])
def test_repeated_metadata_are_one_class(form: str) -> None:
    """Metadata that stand in every row are inspected once where they repeat."""
    blobs = [b"\x01\x00\x00"] * 5 + [b"\x01\x01\x00\x01a"] * 5 + [b"\x01\x00\x00"]
    column = column_of([(blob, b"\x00") for blob in blobs], form)
    classes = dictionary_of(open_column(column))
    assert classes.indices.tolist() == [0] * 5 + [1] * 5 + [2]
    assert len(classes.marks) == 3


@pytest.mark.parametrize("indexed", [False, True])
def test_views_of_the_same_bytes_are_one_class(indexed: bool, on_device: Move) -> None:
    """Metadata that many views name are looked at a bounded number of times."""
    other = metadata_bytes(["another long name"])
    places = [(0, len(shared.BLOB)), (len(shared.BLOB), len(other)), (len(shared.BLOB), len(other) + 3)]
    slots = [places[0 if k % 2 else k % 3] for k in range(2000)]
    views = shared.views(slots, shared.BLOB + other + b"...")
    column = on_device(shared.column_of(views, [*range(1999, -1, -1), 0] if indexed else None))
    assert len(dictionary_of(open_column(column, plain=True)).marks) == 3


def test_no_copy_where_only_null_rows_have_no_value() -> None:
    """Values are read where they lie if those that are missing are of null rows."""
    metadata, value = encode(Value("object", {"a": Value("int8", 1)}))
    children = [pa.array([metadata] * 2, pa.binary()), pa.array([value, None], pa.binary())]
    array = pa.StructArray.from_arrays(children, ["metadata", "value"], mask=pa.array([False, True]))
    opened = open_column(unmarked(array), plain=True)
    assert rows_of(opened, dictionary_of(opened), limits=DEFAULT_LIMITS).data is opened.value.data
