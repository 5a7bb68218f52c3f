"""Primitive types that the format does not have yet, and typed columns that only Arrow's extension type has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring as bow
from bowstring import Batch, variant
from bowstring.columnar.batch import Column
from bowstring.errors import BowstringError, Unsupported
from bowstring.variant import Status
from tests.variant.conftest import Move
from tests.variant.shredded_columns import group, metadata, shredded_type, unmarked

HEADERS = [bytes([kind << 2]) + bytes(20) for kind in range(64)]
"""A value of each primitive type that a header can have: the first 21 exist."""
UNKNOWN = HEADERS[21:]
WANTED = ("string", "int64", "bool", "double", "binary", "uuid", "decimal(10, 2)", "variant", "list<int64>")
TYPED = (
    pa.int64(),
    pa.string(),
    pa.list_(pa.field("element", group(pa.int8()), nullable=False)),
    pa.struct([pa.field("b", group(pa.int8()), nullable=False)]),
)


def plain(value: bytes) -> dict[str, bytes]:
    return {"metadata": metadata(["a"]), "value": value}


def columns(values: list[bytes], typed: pa.DataType, on_device: Move) -> list[tuple[Column, str]]:
    """Return values at the top, and as a field and an element that are shredded, each with the path to them."""
    field = pa.struct([pa.field("a", group(typed), nullable=False)])
    element = pa.list_(pa.field("element", group(typed), nullable=False))
    held = [{"value": value, "typed_value": None} for value in values]
    empty = {"metadata": metadata(["a"]), "value": None}
    made: list[tuple[list[Any], pa.DataType, str]] = [
        ([plain(value) for value in values], typed, "$"),
        ([{**empty, "typed_value": {"a": each}} for each in held], field, "$.a"),
        ([{**empty, "typed_value": [each]} for each in held], element, "$[0]"),
    ]
    return [
        (on_device(unmarked(pa.array([*rows, None], shredded_type(type_)))), path)
        for rows, type_, path in made
    ]


def answers(column: Column, path: str, wanted: str) -> list[Any]:
    """Return what every question about a path answers, or the class of its error."""
    found: list[Any] = []
    asked: tuple[Callable[[], Any], ...] = (
        lambda: variant.get(column, path, wanted, plain=True, with_status=True)["status"],
        lambda: variant.get(column, path, wanted, plain=True),
        lambda: variant.get(column, path, wanted, plain=True, on_error="raise"),
        lambda: variant.type_of(column, path, plain=True),
        lambda: variant.exists(column, path, plain=True),
        lambda: variant.is_null(column, path, plain=True),
        lambda: variant.array_length(column, path, plain=True),
    )
    for ask in asked:
        try:
            answer = ask()
        except BowstringError as error:
            found.append(type(error))
        else:
            answer = (answer if isinstance(answer, Batch) else answer.as_batch()).to_device("cpu")
            answer.validate(full=True)
            found.append(answer.to_arrow().column(0).to_pylist())
    return found


@pytest.mark.filterwarnings("ignore:.*became null")
@pytest.mark.parametrize("typed", TYPED, ids=str)
def test_a_value_of_an_unknown_type_has_one_status_shredded_or_not(
    typed: pa.DataType, on_device: Move
) -> None:
    """Each question answers for a value beside a typed column what it answers for the column without one."""
    twin_type = pa.struct([pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary())])
    found = [*UNKNOWN, *(each[:1] for each in UNKNOWN)]
    twin = on_device(unmarked(pa.array([*map(plain, found), None], twin_type)))
    for wanted in WANTED:
        expected = answers(twin, "$", wanted)
        assert expected[0] == [*[Status.UNSUPPORTED] * len(found), Status.SQL_NULL]
        for column, path in columns(found, typed, on_device):
            assert answers(column, path, wanted) == expected


@pytest.mark.parametrize("typed", TYPED, ids=str)
def test_kinds_are_within_their_dictionary(typed: pa.DataType, on_device: Move) -> None:
    """Whatever the first byte of a value is, its type is a name of the dictionary or null."""
    found = [bytes([byte]) + bytes(12) for byte in range(256)]
    for column, path in columns(found, typed, on_device):
        kinds = variant.type_of(column, path, plain=True).as_batch().to_device("cpu")
        kinds.validate(full=True)
        names = kinds.to_arrow().column(0).to_pylist()
        assert all(
            name is None
            for name, value in zip(names, found, strict=False)
            if value[0] & 3 == 0 and value[0] > 83
        )
        assert names[12] == "int8"


UNSIGNED = [(pa.uint8(), 255, "int16"), (pa.uint16(), 65_535, "int32"), (pa.uint32(), 4_294_967_295, "int64")]


@pytest.mark.parametrize(("type_", "most", "kind"), UNSIGNED, ids=str)
def test_unsigned_typed_columns_are_read(type_: pa.DataType, most: int, kind: str, on_device: Move) -> None:
    """As Arrow's extension type maps them, alone, in lists and in objects, to the next wider type."""
    blob = {"metadata": metadata(["a"]), "value": None}
    held = {"value": None, "typed_value": most}
    element = pa.list_(pa.field("element", group(type_), nullable=False))
    field = pa.struct([pa.field("a", group(type_), nullable=False)])
    for what, typed, path, value in (
        (most, type_, "$", most),
        ([held, {"value": b"\x0c\x01", "typed_value": None}], element, "$[0]", [most, 1]),
        ({"a": held}, field, "$.a", {"a": most}),
    ):
        column = on_device(unmarked(pa.array([{**blob, "typed_value": what}, None], shredded_type(typed))))
        for each in (column, variant.unshred(column, plain=True)):
            host = each.as_batch().to_device("cpu")[0]
            assert variant.to_python(host, plain=True) == [value, None]
        for wanted in (type_, pa.int64(), pa.uint64(), pa.decimal128(12, 0)):
            found = variant.get(column, path, wanted, plain=True).as_batch().to_device("cpu")
            assert [
                None if each is None else int(each) for each in found.to_arrow().column(0).to_pylist()
            ] == [most, None]
        kinds = variant.type_of(column, path, plain=True).as_batch().to_device("cpu")
        assert kinds.to_arrow().column(0).to_pylist() == [kind, None]
        narrow = variant.get(column, path, "int8", plain=True, with_status=True).to_device("cpu")
        assert narrow["status"].to_pylist() == [Status.OVERFLOW, Status.SQL_NULL]


@pytest.mark.parametrize("nested", [False, True])
def test_files_are_not_shredded_by_unsigned_integers(nested: bool, tmp_path: Path) -> None:
    """A file whose typed columns are unsigned breaks the rule of Parquet, and is refused."""
    typed = pa.list_(pa.field("element", group(pa.uint8()), nullable=False)) if nested else pa.uint8()
    row: dict[str, Any] = {"metadata": metadata([]), "value": None, "typed_value": [] if nested else 1}
    mark = {"ARROW:extension:name": "arrow.parquet.variant", "ARROW:extension:metadata": ""}
    column = pa.array([row], shredded_type(typed))
    table = pa.table([column], schema=pa.schema([pa.field("v", column.type, metadata=mark)]))
    pq.write_table(table, tmp_path / "v.parquet")  # ours widens them
    with bow.parquet.read(tmp_path / "v.parquet") as stream:
        found = stream.read_all()
    with pytest.raises(Unsupported, match="type of typed_value"):
        variant.to_python(found)
