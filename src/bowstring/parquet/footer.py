"""The footer of a Parquet file: the list of the schema is read and written, all else stays the bytes that it is.

The specification, ``parquet.thrift``, calls it ``FileMetaData``: a struct of version (1), schema (2), rows (3), row
groups (4), key-value pairs (5) and others. Reading row groups in Python takes 30 times as long as in pyarrow, which
reads them anyway; a footer with another schema needs no change to them.
"""

from __future__ import annotations

import dataclasses
import os
import struct
from typing import TYPE_CHECKING, Any, Final

from bowstring.errors import InvalidMetadata, LimitExceeded, Truncated, Unsupported
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.parquet.logical import CONVERTED, PHYSICAL, LogicalType
from bowstring.parquet.thrift import BINARY, I32, LIST, STRUCT, Field, Reader, encode_list, encode_struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "MAGIC",
    "Footer",
    "Node",
    "SchemaElement",
    "decode_footer",
    "encode_footer",
    "footer_bytes",
    "framed",
    "with_logical_types",
]

MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
_TRAILER: Final = struct.Struct("<I4s")
_SCHEMA: Final = 2
_NAME: Final = 4
_LOGICAL: Final = 10
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


@dataclasses.dataclass(frozen=True, slots=True)
class SchemaElement:
    """A column, a group, or the root of a schema.

    Attributes
    ----------
    name
        As the file has it; bytes that are not UTF-8 are kept as surrogates.
    physical, length, repetition, children, converted, scale, precision, field_id
        The numbers of ``parquet.thrift``, ``None`` where the field is missing. A group has no physical type, and
        says how many children it has.
    logical
        The logical type.
    unknown
        Fields of later versions of the format, as they are.
    """

    name: str
    physical: int | None = None
    length: int | None = None
    repetition: int | None = None
    children: int | None = None
    converted: int | None = None
    scale: int | None = None
    precision: int | None = None
    field_id: int | None = None
    logical: LogicalType | None = None
    unknown: tuple[Field, ...] = ()

    @property
    def physical_type(self) -> str | None:
        """The name of the physical type, with the length of a fixed one; ``None`` for a group."""
        if self.physical is None:
            return None
        name = PHYSICAL[self.physical]
        return name if self.length is None else f"{name}({self.length})"

    @property
    def logical_type(self) -> str | None:
        """The logical type as text; its old spelling where the file has no other, ``None`` without any."""
        if self.logical is not None:
            return str(self.logical)
        if self.converted is None:
            return None
        known = 0 <= self.converted < len(CONVERTED)
        name = CONVERTED[self.converted] if known else f"unknown converted type {self.converted}"
        return f"{name}(precision={self.precision}, scale={self.scale or 0})" if name == "DECIMAL" else name

    @property
    def occurs(self) -> str:
        """Whether a value is required, optional or repeated."""
        return _REPETITIONS[self.repetition or 0]


@dataclasses.dataclass(frozen=True, slots=True)
class Footer:
    """What a footer consists of.

    Attributes
    ----------
    head
        The bytes in front of the schema, the header of its field included.
    schema
        The elements in the order of the file: a group, then all that is in it. The first one is the root.
    rest
        The bytes after the schema, row groups among them.
    """

    head: bytes
    schema: tuple[SchemaElement, ...]
    rest: bytes

    def nodes(self) -> Iterator[Node]:
        """Return all elements but the root, each with its place in the schema.

        Examples
        --------
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> sink = pa.BufferOutputStream()
        >>> pq.write_table(pa.table({"a": [{"b": 1}]}), sink)
        >>> footer = decode_footer(footer_bytes(pa.BufferReader(sink.getvalue())))
        >>> [(node.path, node.element.physical_type) for node in footer.nodes()]
        [(('a',), None), (('a', 'b'), 'INT64')]
        """
        open_groups = [_Open((), self.schema[0].children or 0)]
        leaves = 0
        for index, element in enumerate(self.schema[1:], 1):
            while not open_groups[-1].left:
                open_groups.pop()
            group = open_groups[-1]
            group.left -= 1
            path = (*group.path, element.name)
            yield Node(index, path, element, leaves)
            if element.children is None:
                leaves += 1
            else:
                open_groups.append(_Open(path, element.children))


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """An element of a schema, and where it is.

    Attributes
    ----------
    index
        Its number in the list of the schema.
    path
        Names from the first level on.
    element
        What the footer has.
    first_leaf
        How many columns of values come before it in the file; its own number, where it is one.
    """

    index: int
    path: tuple[str, ...]
    element: SchemaElement
    first_leaf: int


@dataclasses.dataclass(slots=True)
class _Open:
    path: tuple[str, ...]
    left: int


def decode_footer(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Footer:
    """Read the schema of a footer.

    Parameters
    ----------
    data
        The footer, without its length and without what is around it.
    limits
        ``metadata_bytes`` bounds its size, ``columns`` the elements of its schema, ``depth`` their nesting and that
        of all structs.

    Raises
    ------
    InvalidMetadata
        The bytes are not the encoding of a footer, or its schema is no tree.
    Truncated
        They end too early.
    LimitExceeded
        A bound would be passed.
    """
    if len(data) > limits.metadata_bytes:
        raise LimitExceeded(
            "a footer is too large", expected=f"at most {limits.metadata_bytes} bytes", found=len(data)
        )
    reader = Reader(data, limits.depth)
    last = 0
    while (header := reader.header(last)) is not None:
        last, kind = header
        if last == _SCHEMA and kind == LIST:
            head = data[: reader.position]
            schema = _decode_schema(reader, limits)
            return Footer(head, schema, data[reader.position :])
        reader.skip(kind)
    raise InvalidMetadata("a footer has no schema")


def encode_footer(footer: Footer) -> bytes:
    """Return the bytes of a footer.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> sink = pa.BufferOutputStream()
    >>> pq.write_table(pa.table({"a": [1]}), sink)
    >>> data = footer_bytes(pa.BufferReader(sink.getvalue()))
    >>> encode_footer(decode_footer(data)) == data
    True
    """
    elements = [_encode_element(element) for element in footer.schema]
    return footer.head + encode_list(STRUCT, elements) + footer.rest


def with_logical_types(footer: Footer, types: Mapping[int, LogicalType | None]) -> Footer:
    """Return a footer in which elements have other logical types.

    Parameters
    ----------
    footer
        The footer.
    types
        By the index of the element; ``None`` takes the type away, in its old spelling, too.
    """
    schema = list(footer.schema)
    for index, logical in types.items():
        # The old spelling would contradict the new type.
        schema[index] = dataclasses.replace(schema[index], logical=logical, converted=None)
    return dataclasses.replace(footer, schema=tuple(schema))


def footer_bytes(source: Any, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Read the bytes of the footer at the end of a file.

    Parameters
    ----------
    source
        A ``pyarrow.NativeFile`` that can be read anywhere.
    limits
        ``metadata_bytes`` bounds the size.

    Raises
    ------
    InvalidMetadata
        The file does not end as Parquet files do.
    Unsupported
        It is encrypted.
    Truncated
        It is shorter than its footer.
    LimitExceeded
        The footer is larger than the bound.
    """
    size = source.size()
    if size < len(MAGIC) + _TRAILER.size:
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
    if length > size - len(MAGIC) - _TRAILER.size:
        raise Truncated(
            "a file is shorter than its footer", expected=f"{length} bytes", found=f"{size} bytes"
        )
    found: bytes = source.read_at(length, size - _TRAILER.size - length)
    return found


def framed(footer: bytes) -> bytes:
    """Return a footer with what is behind it in a file: its length, and the mark of the format."""
    return footer + _TRAILER.pack(len(footer), MAGIC)


def _decode_schema(reader: Reader, limits: Limits) -> tuple[SchemaElement, ...]:
    size, kind = reader.list_header()
    if kind != STRUCT or not size:
        raise InvalidMetadata(
            "a schema is a list of elements", expected="1 or more", found=f"{size} of type {kind}"
        )
    if size > limits.columns:
        raise LimitExceeded(
            "a schema has too many elements",
            expected=f"at most Limits.columns = {limits.columns}",
            found=size,
        )
    schema = tuple(_decode_element(reader) for _ in range(size))
    _check_tree(schema, limits)
    return schema


def _decode_element(reader: Reader) -> SchemaElement:
    known: dict[str, Any] = {}
    unknown: list[Field] = []
    for field in reader.struct():
        number, kind, value = field
        if number in _NUMBERS and kind == I32:
            known[_NUMBERS[number]] = value
        elif number == _NAME and kind == BINARY:
            assert isinstance(value, bytes)
            known["name"] = os.fsdecode(value) if not value.isascii() else value.decode()
        elif number == _LOGICAL and kind == STRUCT:
            assert isinstance(value, bytes)
            known["logical"] = LogicalType.decode(value)
        else:
            unknown.append(field)
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
