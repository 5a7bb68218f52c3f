"""The footer of a Parquet file: the list of the schema is read and written, all else stays the bytes that it is.

The specification, ``parquet.thrift``, calls it ``FileMetaData``: a struct of version (1), schema (2), rows (3), row
groups (4), key-value pairs (5) and others. Reading row groups in Python takes 30 times as long as in pyarrow, which
reads them anyway; a footer with another schema needs no change to them.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from bowstring.errors import InvalidMetadata, LimitExceeded, Truncated, Unsupported
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.parquet.logical import CONVERTED, PHYSICAL, LogicalType
from bowstring.parquet.thrift import BINARY, I32, LIST, STRUCT, Field, Reader, encode_list, encode_struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
_TRAILER: Final = struct.Struct("<I4s")
AROUND: Final = len(MAGIC) + _TRAILER.size
"""How many bytes the shortest file has beside its footer."""
_SCHEMA: Final = 2
_NAME: Final = 4
_LOGICAL: Final = 10
# Schemas that were read, by their bytes and the limits that they were checked by, the last first.
_recent: collections.deque[tuple[bytes, tuple[int, int], Schema]] = collections.deque(maxlen=16)
_MOST_KEPT: Final = 1 << 16
_T = TypeVar("_T")
_REPETITIONS: Final = ("required", "optional", "repeated")
# type, type_length, repetition_type, num_children, converted_type, scale, precision, field_id: all of them int32.
_NUMBERS: Final = {
    1: "physical",
    2: "length",
    3: "repetition",
    5: "children",
    6: "converted",
    7: "scale",
    8: "precision",
    9: "field_id",
}


class SchemaElement(NamedTuple):
    """A column, a group, or the root of a schema."""

    name: str  # as the file has it; bytes that are not UTF-8 are kept as surrogates
    # physical, length, repetition, children, converted, scale, precision, field_id: The numbers of
    # ``parquet.thrift``, ``None`` where the field is missing. A group has no physical type, and says how
    # many children it has.
    physical: int | None = None
    length: int | None = None
    repetition: int | None = None
    children: int | None = None
    converted: int | None = None
    scale: int | None = None
    precision: int | None = None
    field_id: int | None = None
    logical: LogicalType | None = None
    unknown: tuple[Field, ...] = ()  # fields of later versions of the format, as they are

    @property
    def declared(self) -> LogicalType | None:
        """The logical type; ``None`` for UNKNOWN beside a converted type, such as INTERVAL, which then decides."""
        if self.converted is not None and self.logical is not None and self.logical.name == "UNKNOWN":
            return None
        return self.logical

    @property
    def physical_type(self) -> str | None:
        """The name of the physical type, with the length of a fixed one; ``None`` for a group."""
        if self.physical is None:
            return None
        name = PHYSICAL[self.physical]
        return f"{name}({self.length})" if name == "FIXED_LEN_BYTE_ARRAY" else name

    @property
    def logical_type(self) -> str | None:
        """The logical type as text; its old spelling where the file has no other, ``None`` without any."""
        if self.declared is not None:
            return str(self.declared)
        if self.converted is None:
            return None
        known = 0 <= self.converted < len(CONVERTED)
        name = CONVERTED[self.converted] if known else f"unknown converted type {self.converted}"
        return f"{name}(precision={self.precision}, scale={self.scale or 0})" if name == "DECIMAL" else name

    @property
    def occurs(self) -> str:
        """Whether a value is required, optional or repeated."""
        return _REPETITIONS[self.repetition or 0]


class Schema(tuple[SchemaElement, ...]):  # noqa: SLOT001  a tuple that has attributes
    """Elements that were read, with what was made of them since: files of one data set have one schema."""

    known: dict[Any, Any]


def once(function: Callable[[Footer], _T]) -> Callable[[Footer], _T]:
    """Keep what a function makes of nothing but the schema of a footer, as long as that."""

    @functools.wraps(function)
    def kept(footer: Footer) -> _T:
        if not isinstance(footer.schema, Schema):
            return function(footer)
        known = footer.schema.known
        if function not in known:
            known[function] = function(footer)
        found: _T = known[function]
        return found

    return kept


class Node(NamedTuple):
    """An element of a schema, and where it is."""

    position: int  # its number in the list of the schema
    path: tuple[str, ...]  # names from the first level on
    element: SchemaElement
    # How many columns of values come before it in the file; its own number, where it is one.
    first_leaf: int
    end_leaf: int  # one after its last column of values


@dataclasses.dataclass(frozen=True, slots=True)
class Footer:
    """What a footer consists of."""

    head: bytes  # the bytes in front of the schema, the header of its field included
    # The elements in the order of the file: a group, then all that is in it. The first one is the root.
    schema: tuple[SchemaElement, ...]
    rest: bytes  # the bytes after the schema, row groups among them

    @once
    def nodes(self) -> tuple[Node, ...]:
        """Return all elements but the root, each with its place in the schema."""
        nodes: list[Node] = []
        # Those that are open: the number of each, and its children to come.
        groups: list[tuple[int, int]] = []
        leaves = 0
        for position, element in enumerate(self.schema[1:], 1):
            path: tuple[str, ...] = (element.name,)
            if groups:
                number, left = groups[-1]
                path = (*nodes[number].path, element.name)
                groups[-1] = number, left - 1
            nodes.append(Node(position, path, element, leaves, leaves + 1))
            if element.children is None:
                leaves += 1
            else:
                groups.append((len(nodes) - 1, element.children))
            while groups and not groups[-1][1]:
                number, _ = groups.pop()
                nodes[number] = nodes[number]._replace(end_leaf=leaves)
        return tuple(nodes)


@once
def leaf_paths(footer: Footer) -> tuple[tuple[str, ...], ...]:
    """Return the path of each column of values."""
    return tuple(node.path for node in footer.nodes() if node.element.physical is not None)


def decode_footer(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Footer:
    """Read the schema of a footer."""
    if len(data) > limits.metadata_bytes:
        raise LimitExceeded(
            "a footer is too large", expected=f"at most {limits.metadata_bytes} bytes", found=len(data)
        )
    reader = Reader(data, limits.depth)
    last = 0
    while (header := reader.header(last)) is not None:
        number, kind = header
        # Row groups before the schema would be pyarrow's alone: none of our bounds would hold for them.
        if not last < number <= _SCHEMA:
            break
        last = number
        if number == _SCHEMA and kind == LIST:
            head = data[: reader.position]
            schema, end = _decode_schema(reader, limits)
            return Footer(head, schema, data[end:])
        reader.skip(kind)
    raise InvalidMetadata(
        "a footer has no schema behind its version",
        found="its end" if header is None else f"field {header[0]}",
        where=f"byte {reader.position} of the footer",
    )


def encode_footer(footer: Footer) -> bytes:
    """Return the bytes of a footer."""
    return footer.head + encode_schema(footer.schema) + footer.rest


def encode_schema(schema: Sequence[SchemaElement]) -> bytes:
    """Return the bytes of the schema of a footer."""
    return encode_list(STRUCT, [_encode_element(element) for element in schema])


def footer_bytes(source: Any, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Read the bytes of the footer at the end of a file."""
    size = source.size()
    if size < AROUND:
        raise Truncated("no Parquet file is as short", expected="12 bytes or more", found=f"{size} bytes")
    length, magic = _TRAILER.unpack(source.read_at(_TRAILER.size, size - _TRAILER.size))
    if magic == _ENCRYPTED:
        raise Unsupported("encrypted Parquet files")
    if magic != MAGIC:
        raise InvalidMetadata("not the end of a Parquet file", expected=MAGIC, found=magic)
    if length > limits.metadata_bytes:
        raise LimitExceeded(
            "a footer is too large", expected=f"at most {limits.metadata_bytes} bytes", found=length
        )
    if length > size - AROUND:
        raise Truncated(
            "a file is shorter than its footer", expected=f"{length} bytes", found=f"{size} bytes"
        )
    found: bytes = source.read_at(length, size - _TRAILER.size - length)
    return found


def framed(footer: bytes) -> bytes:
    """Return a footer with what is behind it in a file: its length, and the mark of the format."""
    return footer + _TRAILER.pack(len(footer), MAGIC)


def _decode_schema(reader: Reader, limits: Limits) -> tuple[Schema, int]:
    """Return a schema, and where it ends; one that was read before within the same limits as it is.

    A list's encoding ends itself, so bytes that begin like an earlier schema have that.
    """
    bounds = limits.columns, limits.depth
    for earlier, before, schema in list(_recent):
        if before == bounds and reader.data.startswith(earlier, reader.position):
            return schema, reader.position + len(earlier)
    begin = reader.position
    size, kind = reader.list_header()
    if kind != STRUCT or not size:
        raise InvalidMetadata(
            "a schema is a list of elements", expected="1 or more", found=f"{size} of type {kind}"
        )
    if size - 1 > limits.columns:  # the root is no column
        raise LimitExceeded(
            "a schema has too many elements",
            expected=f"at most Limits.columns = {limits.columns}",
            found=size - 1,
        )
    schema = Schema([_decode_element(reader) for _ in range(size)])
    schema.known = {}
    _check_tree(schema, limits)
    if reader.position - begin <= _MOST_KEPT:
        _recent.appendleft((reader.data[begin : reader.position], bounds, schema))
    return schema, reader.position


def _decode_element(reader: Reader) -> SchemaElement:
    known: dict[str, Any] = {}
    unknown: list[Field] = []
    last = 0
    while (header := reader.header(last)) is not None:
        last, kind = header
        value = reader.value(kind)
        if last in _NUMBERS and kind == I32:
            known[_NUMBERS[last]] = value
        elif last == _NAME and kind == BINARY:
            assert isinstance(value, bytes)
            known["name"] = value.decode() if value.isascii() else os.fsdecode(value)
        elif last == _LOGICAL and kind == STRUCT:
            assert isinstance(value, bytes)
            known["logical"] = LogicalType.decode(value)
        else:
            unknown.append(Field(last, kind, value))
    if "name" not in known:
        raise InvalidMetadata(
            "an element of a schema has no name", where=f"byte {reader.position} of the footer"
        )
    if unknown:
        known["unknown"] = tuple(unknown)
    return SchemaElement(**known)


def _check_tree(schema: Sequence[SchemaElement], limits: Limits) -> None:
    """Raise an error where the elements are no tree, or one that is too deep."""
    left: list[int] = []
    for index, element in enumerate(schema):
        _check_element(element, is_root=not index)
        if index:
            if not left:
                raise InvalidMetadata(
                    "a schema has elements after its end", expected=index, found=len(schema)
                )
            left[-1] -= 1
        if element.children is not None:
            left.append(element.children)
            if len(left) > limits.depth:
                raise LimitExceeded(
                    "a schema nests too deeply",
                    expected=f"at most Limits.depth = {limits.depth}",
                    where=element.name,
                )
        while left and not left[-1]:
            left.pop()
    if left:
        raise Truncated("a schema lacks elements", expected=f"{sum(left)} more", found=len(schema))


def _check_element(element: SchemaElement, *, is_root: bool) -> None:
    if (element.physical is None) == (element.children is None) and not (
        is_root and element.physical is None
    ):
        raise InvalidMetadata("an element is either a column or a group", where=element.name)
    if element.children is not None and element.children < 0:
        raise InvalidMetadata("a group has a negative count", found=element.children, where=element.name)
    if element.physical is not None and not 0 <= element.physical < len(PHYSICAL):
        raise InvalidMetadata(
            "no such physical type", expected="0 to 7", found=element.physical, where=element.name
        )
    if not 0 <= (element.repetition or 0) < len(_REPETITIONS):
        raise InvalidMetadata(
            "no such repetition", expected="0 to 2", found=element.repetition, where=element.name
        )


def _encode_element(element: SchemaElement) -> bytes:
    fields = [
        Field(number, I32, value)
        for number, name in _NUMBERS.items()
        if (value := getattr(element, name)) is not None
    ]
    fields.append(Field(_NAME, BINARY, os.fsencode(element.name)))
    if element.logical is not None:
        fields.append(Field(_LOGICAL, STRUCT, element.logical.encode()))
    fields += element.unknown
    return encode_struct(sorted(fields, key=lambda field: field.id))
