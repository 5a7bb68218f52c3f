"""Schema messages (Schema.fbs): read and written once per stream.

pyarrow is the model of a schema and the verifier of untrusted metadata. What it does not show is read here:
dictionary ids and endianness. That walk comes first, since it is also what bounds the work: references in a
flatbuffer may share what they point at, so a few kilobytes could otherwise unfold to gigabytes of fields.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from bowstring.columnar.layout import TOO_HEAVY, Layout, Recent
from bowstring.errors import BowstringError, InvalidMetadata, LimitExceeded, Unsupported, UsageError
from bowstring.ipc.flatbuf.builder import Builder, Reference, Scalar
from bowstring.ipc.flatbuf.message import Message, MessageKind, MetadataVersion, decode_message, expect_kind
from bowstring.ipc.flatbuf.reader import Tables
from bowstring.kernels.host import bound
from bowstring.kernels.ipc import schema as kernel
from bowstring.kernels.library import address_of
from bowstring.limits import DEFAULT_LIMITS, Limits

_MOST_KEPT: Final = 1 << 18  # bytes of a message that is kept
_MOST_LEVELS: Final = 64
_MOST_WORD: Final = 1 << 62
_EXTENSION: Final = b"ARROW:extension:name"
_CONTINUATION = 0xFFFFFFFF
_PREFIX = struct.Struct("<II")
_FILE_MAGIC = b"ARROW1"
_ORDER_AS_IT_IS = pa.ipc.IpcReadOptions(ensure_native_endian=False)
_TIMESTAMP = 10
_UNION = 14
# List, Struct_, Union, FixedSizeList, Map, LargeList, RunEndEncoded, ListView, LargeListView
_NESTED = frozenset((12, 13, _UNION, 16, 17, 21, 22, 25, 26))


class DecodedSchema(NamedTuple):
    """The content of a schema message."""

    schema: pa.Schema  # in the byte order that it came in
    dictionary_ids: tuple[int, ...]  # one per dictionary-encoded field, pre-order, as `Layout.of` takes them
    endianness: Literal["little", "big"]  # of the bodies; metadata are always little-endian
    layout: Layout  # in this machine's byte order, with these ids


def decode_schema(message: Message, limits: Limits = DEFAULT_LIMITS) -> DecodedSchema:
    """Decode a schema message."""
    expect_kind(message, MessageKind.SCHEMA)
    if message.body_length:
        raise InvalidMetadata("a schema message has a body", found=f"{message.body_length} bytes")
    # Many streams have one schema. What an extension is called is another matter: its type may get registered.
    key = message.data, limits
    if len(message.data) > _MOST_KEPT or _EXTENSION in message.data:
        return decode_schema_at(message.data, message.header, limits)[0]
    for decoded in _recent.of(key):
        return decoded
    decoded, weight = decode_schema_at(message.data, message.header, limits)
    _recent.keep(key, decoded, weight)
    return decoded


def decode_schema_message(data: bytes, limits: Limits) -> DecodedSchema:
    """Decode a schema message with its envelope, which needs no look where the same bytes came before."""
    key = data, limits
    for known, decoded, _ in _recent.kept:
        if known == key:
            return decoded
    return decode_schema(decode_message(data, limits), limits)


def in_native_order(schema: pa.Schema) -> pa.Schema:
    """Return a schema as one of this machine's byte order; schemas of two orders are never equal."""
    return pa.schema(list(schema), metadata=schema.metadata)


def decode_schema_at(
    data: bytes, table: int, limits: Limits, *, is_footer: bool = False
) -> tuple[DecodedSchema, int]:
    """Decode the table ``Schema`` of a message, or of the footer of a file; return its weight, too."""
    walked = _walked(data, table, limits)
    if walked is None:  # what is wrong, if anything is, is found here
        walked = _Walk(data, table, limits).walked()
    # Beside its message, as fields of one level: pyarrow repeats a field's content for each level around it, and
    # shared references unfold. Such a schema is too heavy to keep.
    size, weight = len(data), TOO_HEAVY
    if walked.nbytes <= size and walked.num_fields <= size >> 4:
        weight = max(walked.num_fields, size >> 7) * max(walked.depth - 1, 1)
    try:
        if is_footer:  # to open a file, Arrow C++ looks at nothing but its footer
            file = b"".join((_FILE_MAGIC, b"\0\0", data, struct.pack("<i", size), _FILE_MAGIC))
            # Schemas of two byte orders are never equal, and that of the stream in the file says its own one.
            schema = pa.ipc.open_file(pa.py_buffer(file), options=_ORDER_AS_IT_IS).schema
        else:
            schema = pa.ipc.read_schema(pa.py_buffer(_PREFIX.pack(_CONTINUATION, size) + data))
    except BowstringError:
        raise
    except NotImplementedError as error:
        raise Unsupported(f"this schema: {error}") from error
    # Arrow has no common root for its errors, and registered extension types run code of their own.
    except Exception as error:
        raise InvalidMetadata(f"not a valid schema: {error}") from error
    native = in_native_order(schema) if walked.order else schema
    if walked.is_plain and walked.num_fields and _EXTENSION not in data:
        layout = Layout.of(native, (), weight=weight, is_plain=True)
    else:
        try:
            layout = Layout.of(native, walked.ids, limits=limits, weight=weight)
        except UnicodeDecodeError as error:
            raise InvalidMetadata("a field's name is not UTF-8") from error
    return DecodedSchema(schema, walked.ids, "big" if walked.order else "little", layout), weight


class _Walked(NamedTuple):
    """What a walk found: dictionaries, fields, whether surely of a plain layout, levels, and bytes of vectors."""

    ids: tuple[int, ...]
    order: int
    num_fields: int
    is_plain: bool
    depth: int
    nbytes: int


def _walked(data: bytes, table: int, limits: Limits) -> _Walked | None:
    """Walk a schema by a kernel; None without a library of kernels, or where something is out of the ordinary."""
    call = bound(kernel.walk_schema)
    if call is None:
        return None
    levels, num_ids = int(kernel.FRAME) * min(limits.depth, _MOST_LEVELS), len(data) >> 4
    room = np.empty(levels + num_ids + int(kernel.STATE), np.int64)
    at = address_of(room)
    ids_at = at + 8 * levels
    state_at = ids_at + 8 * num_ids
    flatbuffer = np.frombuffer(data, np.uint8)
    bounds = min(limits.columns, _MOST_WORD), min(limits.depth, _MOST_WORD)
    call(
        address_of(flatbuffer), len(data), table, *bounds, at, levels, ids_at, num_ids, state_at, kernel.STATE
    )
    status, order, count, fields, is_plain, depth, nbytes = room[levels + num_ids :].tolist()
    if status != kernel.DONE:
        return None
    return _Walked(
        tuple(room[levels : levels + count].tolist()), order, fields, bool(is_plain), depth, nbytes
    )


# Schemas are of peers: few are kept, and few fields in all.
_recent: Final[Recent[DecodedSchema]] = Recent(64, 1 << 14)


def encode_schema(
    schema: pa.Schema,
    dictionary_ids: Sequence[int] | None = None,
    version: MetadataVersion = MetadataVersion.V5,
) -> bytes:
    """Encode a schema as a little-endian message, without length prefix.

    Without `dictionary_ids` (one per dictionary-encoded field, pre-order) they count up from 0.
    """
    try:
        data: bytes = pa.ipc.read_message(schema.serialize()).metadata.to_pybytes()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise Unsupported(f"writing this schema: {error}") from error
    if version is not MetadataVersion.V5:
        tables = Tables(data)
        message = tables.follow(0, "Message")
        changed = bytearray(data)
        struct.pack_into("<h", changed, message + tables.slots(message, "Message")[0], version)
        data = bytes(changed)
    return data if dictionary_ids is None else _renumber(data, dictionary_ids)


def check_dictionaries(layout: Layout) -> None:
    """Refuse dictionaries of an extension type.

    A field's metadata has one place for the type of both, and readers take it the other way round.
    """
    for values in layout.dictionaries.values():
        type_ = values.schema.field(0).type
        if isinstance(type_, pa.BaseExtensionType):
            raise Unsupported(
                f"writing a dictionary of values of the extension type {type_.extension_name}",
                hint="Encode the storage, and make the whole column one of the extension type.",
            )


class _Dictionary(NamedTuple):
    """A ``DictionaryEncoding``: its id, its table, and where the field refers to it."""

    id: int
    table: int
    id_slot: int
    reference: int


class _Walk:
    """One bounded pass over a schema's flatbuffer."""

    def __init__(self, data: bytes, table: int, limits: Limits) -> None:
        self.dictionaries: list[_Dictionary] = []
        self._tables = Tables(data)
        self._limits = limits
        self._fields = 0
        self._depth = 1
        endianness, fields, metadata, _features, *_ = self._tables.slots(table, "Schema")
        self.endianness = self._tables.scalar(table, endianness, "h", 0, "Schema.endianness")
        if self.endianness not in (0, 1):
            raise InvalidMetadata("no such byte order", expected="0 or 1", found=self.endianness)
        for field in self._tables.tables(table, fields, "Schema.fields"):
            self._field(field, 2)  # the batch is the first level
        self._tables.key_values(table, metadata, "Schema.custom_metadata")

    def walked(self) -> _Walked:
        """Return what was found; whether a layout is plain is left to :meth:`Layout.of`."""
        ids = tuple(entry.id for entry in self.dictionaries)
        return _Walked(ids, self.endianness, self._fields, False, self._depth, self._tables.nbytes)

    def _field(self, table: int, depth: int, is_real: bool = True) -> None:
        tables = self._tables
        self._fields += 1
        if self._fields > self._limits.columns:
            raise LimitExceeded("the schema has too many fields", expected=f"at most {self._limits.columns}")
        name, _nullable, kind, type_, encoding, children, metadata, *_ = tables.slots(table, "Field")
        depth += bool(encoding)  # the values of a dictionary are one level below it
        self._depth = max(self._depth, depth)
        if depth > self._limits.depth:
            raise LimitExceeded(
                "the schema is nested too deeply", expected=f"at most {self._limits.depth} levels"
            )
        if name:
            self._text(table, name, "Field.name")
        type_id = tables.scalar(table, kind, "B", 0, "Field.type_type")
        if type_ and type_id in (_TIMESTAMP, _UNION):  # whose tables hold something of variable length
            at = tables.reference(table, type_, "Field.type")
            if type_id == _TIMESTAMP:
                self._text(at, tables.slots(at, "Timestamp")[1], "Timestamp.timezone")
            else:
                tables.vector(at, tables.slots(at, "Union")[1], 4, "Union.typeIds")
        if encoding and is_real:
            reference = table + encoding
            at = tables.reference(table, encoding, "Field.dictionary")
            id_slot = tables.slots(at, "DictionaryEncoding")[0]
            id_ = tables.scalar(at, id_slot, "q", 0, "DictionaryEncoding.id")
            self.dictionaries.append(_Dictionary(id_, at, id_slot, reference))
        if metadata:
            tables.key_values(table, metadata, "Field.custom_metadata")
        # pyarrow reads the children of types that have none, and forgets them: they count, their ids do not.
        for child in tables.tables(table, children, "Field.children"):
            self._field(child, depth + 1, is_real and type_id in _NESTED)

    def _text(self, table: int, slot: int, where: str) -> None:
        text = self._tables.string(table, slot, where)
        try:
            (text or b"").decode()
        except UnicodeDecodeError as error:
            raise InvalidMetadata("text is not UTF-8", where=where) from error


def _renumber(data: bytes, ids: Sequence[int]) -> bytes:
    dictionaries = _Walk(data, decode_message(data).header, DEFAULT_LIMITS).dictionaries
    if len(ids) != len(dictionaries):
        raise UsageError("wrong number of dictionary ids", expected=len(dictionaries), found=len(ids))
    changed = bytearray(data)
    for id_, dictionary in zip(ids, dictionaries, strict=True):
        if dictionary.id_slot:
            struct.pack_into("<q", changed, dictionary.table + dictionary.id_slot, id_)
        elif id_:
            # Flatbuffers leave out a 0, so there is no place for another id: refer to a new table behind the rest.
            tables, where, builder, type_ = Tables(data), "DictionaryEncoding", Builder(), None
            _, index_type, ordered, *_ = tables.slots(dictionary.table, where)
            is_ordered = tables.scalar(dictionary.table, ordered, "B", 0, where)
            if index_type:
                table = tables.reference(dictionary.table, index_type, where)
                width_slot, signed_slot, *_ = tables.slots(table, "Int")
                width = tables.scalar(table, width_slot, "i", 0, "Int.bitWidth")
                signed = tables.scalar(table, signed_slot, "B", 0, "Int.is_signed")
                type_ = Reference(builder.table([Scalar("i", width), Scalar("B", signed)]))
            position = builder.table([Scalar("q", id_), type_, Scalar("B", is_ordered)])
            encoding = builder.data()
            changed += bytes(-(len(changed) + len(encoding)) % 8)
            at = len(changed) + len(encoding) - position
            struct.pack_into("<I", changed, dictionary.reference, at - dictionary.reference)
            changed += encoding
    return bytes(changed)
