"""``variant.get`` takes the types that ``variant.schema_of`` gives: nulls, and types that are deep."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.errors import LimitExceeded
from bowstring.limits import Limits
from bowstring.variant import Status
from tests.variant.conftest import Move

pytestmark = pytest.mark.filterwarnings("ignore:.* became null")  # that values are lost, is no matter here

DEEP = Limits(depth=100_000)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.text("ab", max_size=3),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from("abc"), inside, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize("cast", ["number", "exact", "spark"])
def test_fields_that_are_always_null(cast: Any, on_device: Move) -> None:
    """A column can be read as its own type where a field, the elements of arrays, or every row is null."""
    documents = [{"a": None, "b": [None, None], "c": {"d": None}, "e": "x"}, {"b": []}, None]
    column = on_device(variant.from_python(documents))
    type_ = variant.schema_of(variant.from_python(documents))
    assert type_.field("a").type == pa.null()
    assert type_.field("b").type == pa.list_(pa.null())
    got = variant.get(column, "$", type_, cast=cast, with_status=True).to_device("cpu")
    got.validate(full=True)
    assert got["status"].to_arrow().to_pylist() == [Status.OK, Status.OK, Status.SQL_NULL]
    assert got["$"].to_arrow().to_pylist() == [
        {"a": None, "b": [None, None], "c": {"d": None}, "e": "x"},
        {"a": None, "b": [], "c": None, "e": None},
        None,
    ]
    nulls = variant.get(column, "$.a", pa.null(), cast=cast)
    assert (nulls.type, nulls.null_count, len(nulls)) == (pa.null(), 3, 3)


def test_values_are_no_nulls(on_device: Move) -> None:
    """A value that is no null does not match the type null; lists, structs and maps can hold nulls."""
    column = on_device(variant.from_python([1, None, "x", {"a": None}, [None]]))
    got = variant.get(column, "$", pa.null(), with_status=True).to_device("cpu")
    assert got["status"].to_arrow().to_pylist() == [
        Status.TYPE_MISMATCH,
        Status.SQL_NULL,
        *[Status.TYPE_MISMATCH] * 3,
    ]
    many = variant.get_many(
        column,
        {
            "map": ("$", pa.map_(pa.string(), pa.null())),
            "struct": ("$", pa.struct([("a", pa.null()), ("b", pa.list_(pa.null(), 2))])),
            "list": ("$", pa.large_list(pa.null())),
            "views": ("$", pa.list_view(pa.null())),
        },
    ).to_device("cpu")
    many.validate(full=True)
    assert many.to_arrow().to_pylist()[3:] == [
        {"map": [("a", None)], "struct": {"a": None, "b": None}, "list": None, "views": None},
        {"map": None, "struct": None, "list": [None], "views": [None]},
    ]


@given(rows=st.lists(DOCUMENTS, max_size=4))
def test_every_document_is_read_as_its_type(rows: list[Any]) -> None:
    """Whatever the documents are, no row is an error under the type that holds them all."""
    column = variant.from_python(rows)
    got = variant.get(column, "$", variant.schema_of(column), with_status=True)
    got.validate(full=True)
    assert max(got["status"].to_arrow().to_pylist(), default=0) <= Status.VARIANT_NULL


def nested(levels: int, *, objects: bool) -> Any:
    document: Any = 1
    for _ in range(levels):
        document = {"a": document} if objects else [document]
    return document


@pytest.mark.parametrize("objects", [False, True])
def test_deep_documents_have_a_type(objects: bool) -> None:
    """With raised limits the type is as deep as the documents, and not bounded by Python's recursion."""
    column = variant.from_python([nested(1_999, objects=objects)], limits=DEEP)
    type_ = variant.schema_of(column, limits=DEEP)
    levels = 0
    while type_ != pa.int8():
        type_ = type_.field(0).type
        levels += 1
    assert levels == 1_999


@pytest.mark.parametrize("objects", [False, True])
def test_documents_that_are_too_deep_for_a_type(objects: bool) -> None:
    """Deeper than pyarrow takes types, the limit is named: it would end the process."""
    column = variant.from_python([None, nested(3_000, objects=objects)], limits=DEEP)
    with pytest.raises(LimitExceeded, match=r"2000 levels.*row 1"):
        variant.schema_of(column, limits=DEEP)


def test_types_that_are_too_deep_for_a_batch() -> None:
    """A type that no batch can have is refused by ``get``, however far the limits are raised."""
    deep = pa.int8()
    for _ in range(700):
        deep = pa.list_(deep)
    for cast in ("exact", "spark"):
        with pytest.raises(LimitExceeded, match="deep"):
            variant.get(variant.from_python([1]), "$", deep, cast=cast, limits=DEEP)
