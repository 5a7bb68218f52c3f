"""Columns of other writers that pyarrow refuses are read; one that cannot be read refuses nothing else."""

from __future__ import annotations

import base64
import decimal
import gc
import io
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.errors import InvalidBody, InvalidData, InvalidMetadata, Unsupported
from tests.parquet.footers import (
    CONVERTED,
    Change,
    LogicalType,
    SchemaElement,
    decimal_type,
    patched,
    simple_type,
)
from tests.parquet.thrift import I32, Field

OPTIONAL, REPEATED = 1, 2
Maps = list[list[tuple[Any, Any]] | None]


def read(file: Any, **options: Any) -> pa.Table:
    with bow.parquet.read(file, **options) as stream:
        return stream.read_all()


def optional_keys(
    maps: Maps, key: pa.DataType, item: pa.DataType, outer: dict[str, Any], inner: Any
) -> bytes:
    """Return a file with a map of optional keys, between two other columns."""
    pairs = pa.list_(pa.struct([("key", key), ("value", item)]))
    rows = [None if each is None else [{"key": k, "value": v} for k, v in each] for each in maps]
    table = pa.table({"id": range(len(maps)), "m": pa.array(rows, pairs), "z": range(len(maps))})

    def change(schema: list[SchemaElement]) -> list[SchemaElement]:
        # pyarrow writes lists of structs with a level more: m, list, element. A map's pairs are that element.
        at = next(place for place, element in enumerate(schema) if element.name == "m")
        schema[at] = schema[at]._replace(**{"logical": None, **outer})
        schema[at + 1] = schema[at + 1]._replace(name="key_value", converted=inner, children=2)
        del schema[at + 2]
        return schema

    # The element of the list must be required, so that the levels agree.
    table = table.set_column(
        1, "m", table["m"].cast(pa.list_(pa.field("element", pairs.value_type, nullable=False)))
    )
    return patched(table, change)


SPELLINGS: dict[str, tuple[dict[str, Any], Any]] = {
    "MAP": ({"logical": simple_type("MAP"), "converted": CONVERTED.index("MAP")}, None),
    "ConvertedType": ({"converted": CONVERTED.index("MAP")}, None),
    "MAP_KEY_VALUE inside": ({"converted": CONVERTED.index("MAP")}, CONVERTED.index("MAP_KEY_VALUE")),
    "MAP_KEY_VALUE": ({"converted": CONVERTED.index("MAP_KEY_VALUE")}, None),
}
TYPES = [
    (pa.string(), st.text(max_size=3)),
    (pa.int64(), st.integers(-9, 9)),
    (pa.binary(), st.binary(max_size=3)),
]


@pytest.mark.parametrize("spelling", SPELLINGS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_maps_with_optional_keys_are_maps(spelling: str, data: Any) -> None:
    """Whatever the keys, values and spelling are, the rows are those of the same map with required keys."""
    key, keys = data.draw(st.sampled_from(TYPES))
    item, items = data.draw(st.sampled_from(TYPES))
    entries = st.none() | st.lists(st.tuples(keys, st.none() | items), max_size=3)
    maps = data.draw(st.lists(entries, min_size=1, max_size=6))
    file = optional_keys(maps, key, item, *SPELLINGS[spelling])
    found = read(file)
    expected = pa.map_(key, item)
    assert found.schema.field("m").type.equals(expected), found.schema
    assert found["m"].to_pylist() == maps
    found.validate(full=True)
    assert read(file, columns=["m"])["m"].to_pylist() == maps
    tight = bow.DEFAULT_LIMITS.replace(window_bytes=1)
    assert read(file, limits=tight)["m"].to_pylist() == maps
    with bow.parquet.read(file, columns=["m"], filters=[("id", ">=", 1)]) as stream:
        assert stream.read_all()["m"].to_pylist() == maps[1:]
    assert bow.parquet.read_schema(file).arrow.field("m").type.equals(expected)


def test_a_null_key_is_an_error_of_its_column() -> None:
    """A key that is null names its column and row; the other columns are read."""
    maps: Maps = [[("a", 1)], None, [("b", 1), (None, 2)]]
    file = optional_keys(maps, pa.string(), pa.int64(), *SPELLINGS["MAP"])
    with pytest.raises(InvalidBody, match=r"key of a map is null.*column m, row 2"):
        read(file)
    assert read(file, columns=["id", "z"]).to_pydict() == {"id": [0, 1, 2], "z": [0, 1, 2]}


def test_maps_with_optional_keys_inside_of_others() -> None:
    """Such maps inside of structs, lists and each other are maps; parts of one are what was named."""
    inner = [[{"key": "x", "value": 1}], None, []]
    pairs = pa.struct([pa.field("key", pa.string()), ("value", pa.int64())])
    map_ = pa.list_(pa.field("element", pairs, nullable=False))
    table = pa.table(
        {
            "s": pa.array([{"l": [each, each]} for each in inner], pa.struct([("l", pa.list_(map_))])),
            "id": [1, 2, 3],
        }
    )

    def change(schema: list[SchemaElement]) -> list[SchemaElement]:
        at = next(place for place, element in enumerate(schema) if element.name == "element")
        schema[at] = schema[at]._replace(logical=simple_type("MAP"), converted=CONVERTED.index("MAP"))
        schema[at + 1] = schema[at + 1]._replace(children=2)
        del schema[at + 2]
        return schema

    file = patched(table, change)
    found = read(file)
    one = [("x", 1)]
    assert found["s"].to_pylist() == [{"l": [one, one]}, {"l": [None, None]}, {"l": [[], []]}]
    assert pa.types.is_map(found.schema.field("s").type.field("l").type.value_type)
    [keys] = read(file, columns=["s.l.list.element.list.key"]).columns
    assert keys[0].as_py() == {"l": [[{"key": "x"}]] * 2}


@pytest.mark.parametrize("name", [name for name in CONVERTED if name not in ("DECIMAL", "MAP", "LIST")])
def test_a_converted_type_beside_unknown_decides(name: str) -> None:
    """UNKNOWN beside a ConvertedType, which parquet-java writes for INTERVAL, is as if it were not there."""
    stored: dict[str, tuple[pa.DataType, list[Any]]] = {
        "INTERVAL": (pa.binary(12), [bytes(range(12)), None]),
        **dict.fromkeys(("UTF8", "ENUM", "JSON", "BSON"), (pa.binary(), [b"1", None])),
        **dict.fromkeys(
            ("INT_64", "UINT_64", "TIME_MICROS", "TIMESTAMP_MILLIS", "TIMESTAMP_MICROS"),
            (pa.int64(), [7, None]),
        ),
    }
    type_, values = stored.get(name, (pa.int32(), [7, None]))
    if name == "MAP_KEY_VALUE":
        pytest.skip("it is for groups")

    def with_logical(logical: LogicalType | None) -> bytes:
        fields: dict[str, Any] = {"logical": logical, "converted": CONVERTED.index(name)}
        table = pa.table({"a": pa.array(values, type_), "b": [1, 2]})
        return patched(table, lambda schema: [schema[0], schema[1]._replace(**fields), schema[2]])

    expected, found = read(with_logical(None)), read(with_logical(simple_type("UNKNOWN")))
    assert found.schema.equals(expected.schema, check_metadata=True)
    assert found.equals(expected)
    [a, _] = bow.parquet.read_schema(with_logical(simple_type("UNKNOWN"))).columns
    assert a.logical == name
    if name == "INTERVAL":
        assert found.schema.field("a").type == pa.month_day_nano_interval()
    with bow.parquet.read(with_logical(simple_type("UNKNOWN")), filters=[("b", ">", 1)]) as stream:
        assert stream.read_all().num_rows == 1


def stored_decimals(values: list[int | None], precision: int, length: int | None, scale: int = 2) -> bytes:
    """Return a file of decimals in so many bytes each, in BYTE_ARRAY of two bytes more than needed without."""
    raw = [
        None if each is None else each.to_bytes(length or (each.bit_length() // 8 + 3), "big", signed=True)
        for each in values
    ]
    type_ = pa.binary(length) if length else pa.binary()
    table = pa.table({"d": pa.array(raw, type_), "id": range(len(raw))})
    fields: dict[str, Any] = {
        "logical": decimal_type(precision, scale),
        "converted": CONVERTED.index("DECIMAL"),
    }
    fields |= {"precision": precision, "scale": scale}
    return patched(table, lambda schema: [schema[0], schema[1]._replace(**fields), schema[2]])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_decimals_in_more_bytes_than_their_precision_needs(data: Any) -> None:
    """Values that fit the precision are read, whatever bytes are in front; one that does not is an error."""
    precision = data.draw(st.integers(1, 76))
    length = data.draw(st.none() | st.integers(33, 60))
    if precision <= 38 and length is not None:
        length -= data.draw(st.integers(0, 16))
    most = 10**precision - 1
    numbers = data.draw(st.lists(st.none() | st.integers(-most, most), min_size=1, max_size=9))
    scale = min(precision, 2)
    file = stored_decimals(numbers, precision, length, scale)
    context = decimal.Context(prec=80)
    expected = [None if each is None else decimal.Decimal(each).scaleb(-scale, context) for each in numbers]
    found = read(file)
    assert found["d"].to_pylist() == expected
    assert found.schema.field("d").type in (
        (pa.decimal128(precision, scale),) if precision <= 38 else (pa.decimal256(precision, scale),)
    )
    assert read(file, limits=bow.DEFAULT_LIMITS.replace(window_bytes=1))["d"].to_pylist() == expected
    with bow.parquet.read(file, columns=["id"], filters=[("d", ">=", 0)]) as stream:
        kept = [place for place, each in enumerate(numbers) if each is not None and each >= 0]
        assert stream.read_all()["id"].to_pylist() == kept
    if length is None:
        return
    beyond = [
        *numbers,
        data.draw(st.sampled_from([1, -1])) * data.draw(st.integers(most + 1, 2 ** (8 * length - 1) - 1)),
    ]
    wrong = stored_decimals(beyond, precision, length, scale)
    with pytest.raises(InvalidBody, match=f"does not fit.*column d, row {len(numbers)}"):
        read(wrong)
    assert read(wrong, columns=["id"]).num_rows == len(beyond)


def test_long_decimals_in_byte_array_that_do_not_fit() -> None:
    """A BYTE_ARRAY of too many bytes that are not the sign, and one of none, are errors that name the column."""
    for wrong in (2**200, -(2**200)):
        with pytest.raises(InvalidBody, match=r"does not fit.*column d, row 1"):
            read(stored_decimals([1, wrong, None], 10, None))
    fields: dict[str, Any] = {"logical": decimal_type(5, 2)}
    empty = patched(pa.table({"d": [b""]}), lambda schema: [schema[0], schema[1]._replace(**fields)])
    with pytest.raises(InvalidBody, match="column d, row 0"):
        read(empty)


def renamed(schema: list[SchemaElement], name: str, **fields: Any) -> list[SchemaElement]:
    return [each._replace(**fields) if each.name == name else each for each in schema]


BAD: dict[str, tuple[pa.Array, Change]] = {
    "a logical type where it may not be": (
        pa.array([1]),
        lambda schema: renamed(schema, "bad", logical=simple_type("STRING")),
    ),
    "a converted type where it may not be": (
        pa.array([1.5]),
        lambda schema: renamed(schema, "bad", converted=CONVERTED.index("DATE")),
    ),
    "digits beyond Arrow's": (
        pa.array([b"x" * 40], pa.binary(40)),
        lambda schema: renamed(schema, "bad", logical=decimal_type(90, 0)),
    ),
    "an unknown unit": (
        pa.array([1]),
        lambda schema: renamed(
            schema, "bad", logical=LogicalType(8, (Field(1, 2, value=False), Field(2, 12, b"\x4c\0\0")))
        ),
    ),
    "a group that is text": (
        pa.array([{"x": 1, "y": 2}]),
        lambda schema: renamed(schema, "bad", logical=simple_type("STRING")),
    ),
    "a list of two things": (
        pa.array([{"x": 1, "y": 2}]),
        lambda schema: renamed(schema, "bad", logical=simple_type("LIST"), converted=CONVERTED.index("LIST")),
    ),
    "a map of one column": (
        pa.array([{"x": {"y": 1}}]),
        lambda schema: renamed(schema, "bad", logical=simple_type("MAP"), converted=CONVERTED.index("MAP")),
    ),
    "a map whose pairs are not repeated": (
        pa.array([{"x": {"y": 1, "z": 2}}]),
        lambda schema: renamed(schema, "bad", logical=simple_type("MAP"), converted=CONVERTED.index("MAP")),
    ),
    "a list that is not repeated": (
        pa.array([{"x": {"y": 1}}]),
        lambda schema: renamed(schema, "bad", converted=CONVERTED.index("LIST")),
    ),
    "fixed bytes of no width": (
        pa.array([b"ab"], pa.binary(2)),
        lambda schema: renamed(schema, "bad", length=0),
    ),
    "fixed bytes of a negative width": (
        pa.array([b"ab"], pa.binary(2)),
        lambda schema: renamed(schema, "bad", length=-4),
    ),
    "a variant of numbers": (
        pa.array([1]),
        lambda schema: renamed(schema, "bad", logical=LogicalType(16)),
    ),
    "parameters of another type": (
        pa.array([1]),
        lambda schema: renamed(
            schema, "bad", logical=LogicalType(5, (Field(1, I32, -3), Field(2, I32, 500)))
        ),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_column_that_cannot_be_read_refuses_itself(name: str) -> None:
    """It is an error that names the column; all other columns are read, filtered, and in the schema."""
    array, change = BAD[name]
    table = pa.table({"id": [1], "bad": array, "z": ["x"]})
    file = patched(table, change)
    with pytest.raises((Unsupported, InvalidMetadata), match="bad"):
        read(file)
    with pytest.raises((Unsupported, InvalidMetadata), match="bad"):
        bow.parquet.read(file, columns=["bad"])
    assert read(file, columns=["z", "id"]).to_pylist() == [{"z": "x", "id": 1}]
    assert read(file, columns=["z"], filters=[("id", "==", 1)]).num_rows == 1
    assert read(file, columns=["z"], filters=[("id", ">", 1)]).num_rows == 0
    found = bow.parquet.read_schema(file).columns
    assert {column.path[0] for column in found if column.arrow is None} == {"bad"}
    assert {column.path[0] for column in found if column.arrow is not None} == {"id", "z"}


def test_what_is_read_in_two_ways_is_let_go_of_at_once() -> None:
    """Decimals that pyarrow refuses at first leave no memory behind that waits for the garbage collector."""
    table = pa.table({"d": pa.array([bytes(40)] * 100_000, pa.binary())})
    fields: dict[str, Any] = {"logical": decimal_type(10, 2), "precision": 10, "scale": 2}
    file = patched(table, lambda schema: renamed(schema, "d", **fields))
    gc.collect()
    gc.disable()
    try:
        before = pa.total_allocated_bytes()
        assert read(file).nbytes > 1 << 20
        deadline = time.monotonic() + 10
        while pa.total_allocated_bytes() - before > 1 << 19 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert pa.total_allocated_bytes() - before <= 1 << 19
    finally:
        gc.enable()


@pytest.mark.parametrize("is_wide", [False, True])
def test_pages_that_cannot_be_read_name_their_column(*, is_wide: bool) -> None:
    """An error of pyarrow when it decodes says which column it was, whole and in pieces; the others are read."""
    table = pa.table({"id": range(1000), "bad": range(1000), "z": range(1000)})
    fields: dict[str, Any] = {}
    if is_wide:  # decimals that may have more bytes than pyarrow takes, which are tried in two ways
        table = table.set_column(2, "z", pa.array([bytes(40)] * 1000, pa.binary()))
        fields = {"logical": decimal_type(10, 2), "precision": 10, "scale": 2}
    file = patched(
        table, lambda schema: renamed(schema, "z", **fields), compression="none", use_dictionary=False
    )
    chunk = pq.read_metadata(pa.BufferReader(file)).row_group(0).column(1)
    data = bytearray(file)
    data[chunk.data_page_offset : chunk.data_page_offset + 20] = b"\xff" * 20
    for limits in (bow.DEFAULT_LIMITS, bow.DEFAULT_LIMITS.replace(window_bytes=1)):
        with pytest.raises(InvalidData, match="column bad"):
            read(bytes(data), limits=limits)
        assert read(bytes(data), columns=["id", "z"], limits=limits).num_rows == 1000


class Keys(pe.KmsClient):
    """Keys that are wrapped by nothing."""

    def wrap_key(self, key: bytes, name: str) -> bytes:
        return base64.b64encode(name.encode() + key)

    def unwrap_key(self, wrapped: bytes, name: str) -> bytes:
        return base64.b64decode(wrapped)[len(name) :]


def encrypted(table: pa.Table, columns: list[str], **options: Any) -> bytes:
    """Return a file with encrypted columns, and a plain footer."""
    properties = pe.CryptoFactory(lambda _: Keys()).file_encryption_properties(
        pe.KmsConnectionConfig(),
        pe.EncryptionConfiguration(footer_key="f", column_keys={"c": columns}, plaintext_footer=True),
    )
    file = io.BytesIO()
    with pq.ParquetWriter(file, table.schema, encryption_properties=properties, **options) as writer:
        writer.write_table(table)
    return file.getvalue()


def test_encrypted_columns_are_unsupported_by_name() -> None:
    """All encrypted columns that are asked for are named; the others are read, and the schema shows both."""
    table = pa.table(
        {
            "secret": [1, 2],
            "open": ["x", "y"],
            "s": [{"a": 1, "b": 2}] * 2,
            "t": pa.array([1, 2], pa.time64("us")),
        }
    )
    file = encrypted(table, ["secret", "s.b"])
    for columns, names in ((None, ["secret", "s.b"]), (["s"], ["s.b"]), (["open", "secret"], ["secret"])):
        with pytest.raises(Unsupported, match="encrypted.*" + ".*".join(names)):
            bow.parquet.read(file, columns=columns)
    assert read(file, columns=["open", "t", "s.a"]).num_rows == 2
    with pytest.raises(Unsupported, match=r"encrypted.*secret"):
        bow.parquet.read(file, columns=["open"], filters=[("secret", ">", 1)])
    assert read(file, columns=["open"], filters=[("open", "==", "y")])["open"].to_pylist() == ["y"]
    found = bow.parquet.read_schema(file)
    assert [".".join(column.path) for column in found.columns if column.arrow is None] == ["secret", "s.b"]


@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_group_without_columns_is_refused_by_name(place: int) -> None:
    """It cannot be read with the other columns; these can be without it."""

    def change(schema: list[SchemaElement]) -> list[SchemaElement]:
        schema[0] = schema[0]._replace(children=3)
        return [*schema[:place], SchemaElement("g", repetition=OPTIONAL, children=0), *schema[place:]]

    file = patched(pa.table({"a": [1, 2], "b": [3, 4]}), change)
    with pytest.raises(Unsupported, match=r"no columns inside; found \['g'\]"):
        read(file)
    assert read(file, columns=["b", "a"]).to_pydict() == {"b": [3, 4], "a": [1, 2]}
