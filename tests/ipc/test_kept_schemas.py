"""What is kept of schemas is bounded by what they unfold to, not by the bytes of their messages."""

from __future__ import annotations

import gc
import struct
import weakref

import pyarrow as pa
import pytest

import bowstring as bow

PREFIX = 8
FIELDS, CHILDREN = 1, 5
"""Places in the vtables of a schema and of a field."""


def number_at(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def slot_of(data: bytes, table: int, place: int) -> int:
    """Return where a field of a table of a flatbuffer is."""
    vtable = table - int(struct.unpack_from("<i", data, table)[0])
    return table + int(struct.unpack_from("<H", data, vtable + 4 + 2 * place)[0])


def followed(data: bytes, at: int) -> int:
    return at + number_at(data, at)


def nested(levels: int, name: str = "a name of a field") -> pa.Field:
    field = pa.field(name, pa.int8())
    for level in range(levels):
        field = pa.field(f"s{level}", pa.struct([field]))
    return field


def shared(levels: int, count: int, salt: int) -> bytes:
    """Return a stream without batches whose innermost field is referred to `count` times."""
    message = pa.schema([nested(levels)]).serialize().to_pybytes()[PREFIX:]
    message += struct.pack("<Q", salt)
    message += bytes(-len(message) % 8)
    # Schema is the third field of Message.
    table, place = followed(message, slot_of(message, followed(message, 0), 2)), FIELDS
    for _ in range(levels + 1):
        reference = slot_of(message, table, place)
        field = followed(message, followed(message, reference) + 4)
        table, place = field, CHILDREN
    # The vector, and behind it a copy of all, since references go forward.
    copy = len(message) + 4 + 4 * count
    copy += -copy % 8
    whole = bytearray(message) + bytes(copy - len(message)) + message
    at = len(message)
    struct.pack_into("<I", whole, at, count)
    for place in range(at + 4, at + 4 + 4 * count, 4):
        struct.pack_into("<I", whole, place, copy + field - place)
    struct.pack_into("<I", whole, reference, at - reference)
    return struct.pack("<II", 0xFFFFFFFF, len(whole)) + whole + struct.pack("<II", 0xFFFFFFFF, 0)


def plain(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize()) + struct.pack("<II", 0xFFFFFFFF, 0)


def kept(streams: list[bytes]) -> list[bool]:
    """Open and close streams; return of which the schema is still there."""
    found = []
    for stream in streams:
        with bow.ipc.open_stream(stream) as reader:
            assert reader.layout.num_nodes == reader.layout.num_buffers or reader.layout.depth > 1
            found.append(weakref.ref(reader.schema))
        del reader
    gc.collect()
    return [each() is not None for each in found]


@pytest.mark.parametrize(("levels", "count"), [(60, 40_000), (60, 2_000), (0, 60_000), (0, 900), (30, 1_500)])
def test_a_schema_that_unfolds_is_not_kept(levels: int, count: int) -> None:
    """A small message whose references share fields is opened, and nothing stays of it."""
    streams = [shared(levels, count, salt) for salt in range(3)]
    assert len(streams[0]) < 1 << 18
    with bow.ipc.open_stream(streams[0]) as reader:
        assert reader.layout.num_nodes == levels + count
    del reader
    assert kept(streams) == [False] * 3


def test_of_deep_schemas_few_are_kept() -> None:
    """What a field is called is held once for each level above it: the deeper schemas are, the fewer are kept."""
    wide = [pa.field(f"a field of some length {number}", pa.int32()) for number in range(50)]
    flat = [plain(pa.schema([*wide, pa.field(f"flat {number}", pa.int8())])) for number in range(16)]
    assert all(kept(flat))
    field = pa.struct(wide)
    for _ in range(50):
        field = pa.struct([pa.field("s", field)])
    deep = [plain(pa.schema([pa.field(f"deep {number}", field)])) for number in range(40)]
    # About 100 fields, each in 52 levels.
    assert 1 <= sum(kept(deep)) <= (1 << 16) // (100 * 51) + 1


def test_long_names_count_as_fields_do() -> None:
    """A deep schema with one name of 200 KB is not kept either."""
    assert kept([plain(pa.schema([nested(60, f"{number}" * 200_000)])) for number in range(3)]) == [False] * 3


def test_usual_schemas_are_kept() -> None:
    """A schema of many columns, or of some levels, is decoded once."""
    for schema in (
        pa.schema({f"column {number}": pa.float64() for number in range(2_000)}),
        pa.schema({f"column {number}": pa.list_(pa.struct({"x": pa.utf8()})) for number in range(100)}),
        pa.schema({"word": pa.dictionary(pa.int8(), pa.utf8()), "either": pa.dense_union([nested(3)])}),
    ):
        with bow.ipc.open_stream(plain(schema)) as first, bow.ipc.open_stream(plain(schema)) as second:
            assert first.schema is second.schema
            assert first.layout is second.layout
