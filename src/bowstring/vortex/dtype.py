"""Types of Vortex: logical, with nullability; the Arrow types that hold their values; and their flatbuffers.

Text and binary have one logical type each, which is read as views. The nullability of an extension is that of its
storage. Extensions that are not known here keep their storage, their name and their metadata.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.marks import NAME_KEY, SERIALIZED_KEY
from bowstring.errors import InvalidMetadata, LimitExceeded, Unsupported
from bowstring.ipc.flatbuf.builder import Builder, Field, Reference, Scalar
from bowstring.ipc.flatbuf.reader import Tables
from bowstring.limits import DEFAULT_LIMITS, Limits

COLUMN: Final = "c"
"""The name of the only column of a stream whose type is not a struct, or a struct that may be null."""

PTYPES: Final = tuple(
    np.dtype(f"<{each}") for each in ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]
)
"""Physical types by their number in Vortex."""

_NARROW_DECIMAL: Final = 38
_UNITS: Final = ("ns", "us", "ms", "s", "days")
TIMESTAMP, _DATE, _TIME = "vortex.timestamp", "vortex.date", "vortex.time"
_UUID, _ARROW_UUID, _UUID_BYTES = "vortex.uuid", b"arrow.uuid", 16


class Kind(enum.IntEnum):
    """Kinds of types, as the union in the flatbuffer numbers them."""

    NULL = 1
    BOOL = 2
    PRIMITIVE = 3
    DECIMAL = 4
    UTF8 = 5
    BINARY = 6
    STRUCT = 7
    LIST = 8
    EXTENSION = 9
    FIXED_SIZE_LIST = 10
    VARIANT = 11
    UNION = 12
    MAP = 13


@dataclasses.dataclass(frozen=True, slots=True)
class DType:
    """A logical type."""

    kind: Kind
    nullable: bool = False  # of an extension, that of its storage
    ptype: int = 0  # of a primitive type: its number, an index into `PTYPES`
    # precision, scale: of a decimal
    precision: int = 0
    scale: int = 0
    names: tuple[str, ...] = ()  # of the fields of a struct
    # Types of the fields of a struct; of the elements of a list; the storage of an extension.
    children: tuple[DType, ...] = ()
    size: int = 0  # elements of each list of a fixed size
    # id, metadata: of an extension
    id: str = ""
    metadata: bytes = b""

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The element type of a primitive type."""
        return PTYPES[self.ptype]

    @property
    def storage(self) -> DType:
        """What an extension is stored as, and any other type itself."""
        return self.children[0].storage if self.kind is Kind.EXTENSION else self

    def as_nullable(self, nullable: bool) -> DType:
        """Return the same type with another nullability."""
        if nullable == self.nullable:
            return self
        children = self.children
        if self.kind is Kind.EXTENSION:
            children = (children[0].as_nullable(nullable),)
        return dataclasses.replace(self, nullable=nullable, children=children)

    def __str__(self) -> str:
        kind, inside = self.kind, self.children
        if kind is Kind.EXTENSION:
            return f"{self.id}({inside[0]})"
        text = kind.name.lower()
        if kind is Kind.PRIMITIVE:
            text = f"{self.numpy.kind}{8 * self.numpy.itemsize}"
        elif kind is Kind.DECIMAL:
            text = f"decimal({self.precision},{self.scale})"
        elif kind is Kind.STRUCT:
            text = f"{{{', '.join(f'{name}={each}' for name, each in zip(self.names, inside, strict=True))}}}"
        elif kind is Kind.LIST:
            text = f"list({inside[0]})"
        elif kind is Kind.FIXED_SIZE_LIST:
            text = f"fixed_size_list({inside[0]})[{self.size}]"
        return text + "?" * self.nullable


BOOL: Final = DType(Kind.BOOL)
"""The type of validity."""


def primitive(name: str, nullable: bool = False) -> DType:
    """Return a primitive type by its name in NumPy."""
    return DType(Kind.PRIMITIVE, nullable, ptype=PTYPES.index(np.dtype(f"<{name}")))


# Arrow


def to_schema(dtype: DType) -> pa.Schema:
    """Return the schema of batches of a type: its fields, or one column ``c`` if not a struct, or nullable."""
    if dtype.kind is Kind.STRUCT and not dtype.nullable:
        return pa.schema(list(map(to_field, dtype.names, dtype.children)))
    return pa.schema([to_field(COLUMN, dtype)])


def to_field(name: str, dtype: DType) -> pa.Field:
    """Return the Arrow field of a column; an extension that is not known is in its metadata."""
    metadata = None
    if dtype.kind is Kind.EXTENSION and known(dtype) is None:
        metadata = {NAME_KEY: dtype.id.encode(), SERIALIZED_KEY: dtype.metadata}
        inner = dtype.children[0]
        if inner.kind is Kind.EXTENSION and known(inner) is None:
            raise Unsupported("an extension of an extension", found=f"{dtype.id} of {inner.id}", where=name)
    return pa.field(name, _to_type(dtype), dtype.nullable, metadata)


def _to_type(dtype: DType) -> pa.DataType:
    kind = dtype.kind
    if kind is Kind.PRIMITIVE:
        return pa.from_numpy_dtype(dtype.numpy)
    if kind is Kind.DECIMAL:
        wide = dtype.precision > _NARROW_DECIMAL
        return (pa.decimal256 if wide else pa.decimal128)(dtype.precision, dtype.scale)
    if kind is Kind.STRUCT:
        return pa.struct(list(map(to_field, dtype.names, dtype.children)))
    if kind is Kind.LIST:
        return pa.list_(to_field("item", dtype.children[0]))
    if kind is Kind.FIXED_SIZE_LIST:
        if dtype.size >= 1 << 31:
            raise Unsupported(
                "lists of a fixed size of 2^31 or more, which Arrow does not have", found=dtype.size
            )
        return pa.list_(to_field("item", dtype.children[0]), dtype.size)
    if kind is Kind.EXTENSION:
        return known(dtype) or _to_type(dtype.children[0])
    return _SIMPLE[kind]


_SIMPLE: Final = {
    Kind.NULL: pa.null(),
    Kind.BOOL: pa.bool_(),
    Kind.UTF8: pa.string_view(),
    Kind.BINARY: pa.binary_view(),
}


def decoded_name(text: bytes) -> str:
    """Return a name that is stored as UTF-8."""
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise InvalidMetadata("a name is not UTF-8", found=repr(text[:40])) from error


def known(dtype: DType) -> pa.DataType | None:
    """Return the Arrow type of a date, a time, a timestamp or a UUID; ``None`` for other extensions."""
    metadata, storage = dtype.metadata, dtype.children[0]
    if dtype.id == _UUID and storage == _uuid_storage(storage.nullable):
        return pa.uuid()  # its metadata may have a version, which Arrow does not keep
    if dtype.id not in (TIMESTAMP, _DATE, _TIME, _UUID):
        return None
    number = metadata[0] if metadata else len(_UNITS)
    types, zone = _UNIT_TYPES.get((dtype.id, number)), None
    if types is not None and dtype.id == TIMESTAMP:
        size = int.from_bytes(metadata[1:3], "little")
        if len(metadata) < 3 + size:
            types = None
        zone = decoded_name(metadata[3 : 3 + size]) or None
    if types is None or storage.kind is not Kind.PRIMITIVE or storage.numpy != types[0]:
        raise InvalidMetadata(
            f"a {dtype.id} has other metadata or another storage than it must have",
            found=f"metadata {metadata[:16].hex() or 'empty'} over {storage}",
        )
    return pa.timestamp(_UNITS[number], zone) if dtype.id == TIMESTAMP else types[1]


_INT32, _INT64 = np.dtype("<i4"), np.dtype("<i8")
_UNIT_TYPES: Final[dict[tuple[str, int], tuple[np.dtype[np.generic], pa.DataType | None]]] = {
    (_DATE, 4): (_INT32, pa.date32()),
    (_DATE, 2): (_INT64, pa.date64()),
    (_TIME, 3): (_INT32, pa.time32("s")),
    (_TIME, 2): (_INT32, pa.time32("ms")),
    (_TIME, 1): (_INT64, pa.time64("us")),
    (_TIME, 0): (_INT64, pa.time64("ns")),
    **{(TIMESTAMP, number): (_INT64, None) for number in range(4)},
}


def _uuid_storage(nullable: bool) -> DType:
    return DType(Kind.FIXED_SIZE_LIST, nullable, children=(primitive("u1"),), size=_UUID_BYTES)


def units_per_second(dtype: DType) -> int:
    """Return how many units of a timestamp are a second."""
    if dtype.id != TIMESTAMP:
        raise InvalidMetadata("parts of a date and time make a timestamp only", found=str(dtype))
    return int(10 ** (9 - 3 * dtype.metadata[0]))


def of_schema(schema: pa.Schema) -> DType:
    """Return the type of a stream with the columns of a schema."""
    return DType(Kind.STRUCT, names=tuple(schema.names), children=tuple(map(of_arrow, schema)))


def of_arrow(field: pa.Field) -> DType:
    """Return the type of a column, by its field."""
    type_, metadata = field.type, dict(field.metadata or {})
    if isinstance(type_, pa.BaseExtensionType):
        storage = type_.storage_type
        serialized = type_.__arrow_ext_serialize__() if hasattr(type_, "__arrow_ext_serialize__") else b""
        metadata = {NAME_KEY: type_.extension_name.encode(), SERIALIZED_KEY: serialized}
        field = pa.field(field.name, storage, field.nullable)
        type_ = storage
    name = metadata.get(NAME_KEY)
    if name == _ARROW_UUID and type_ == pa.binary(_UUID_BYTES):
        storage = _uuid_storage(field.nullable)
        return DType(Kind.EXTENSION, field.nullable, children=(storage,), id=_UUID)
    dtype = _of_type(field, type_)
    if name is None:
        return dtype
    return DType(
        Kind.EXTENSION,
        dtype.nullable,
        children=(dtype,),
        id=name.decode(),
        metadata=metadata.get(SERIALIZED_KEY, b""),
    )


def _of_type(field: pa.Field, type_: pa.DataType) -> DType:
    nullable, types = field.nullable, pa.types
    if types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        return of_arrow(pa.field(field.name, type_.value_type, nullable))
    kind = _ARROW_KINDS.get(type_.id)
    if kind is Kind.LIST:
        return DType(kind, nullable, children=(of_arrow(type_.value_field),))
    if kind is not None:
        return DType(kind, nullable or kind is Kind.NULL)
    if types.is_integer(type_) or types.is_floating(type_):
        return DType(Kind.PRIMITIVE, nullable, ptype=PTYPES.index(np.dtype(type_.to_pandas_dtype())))
    if types.is_decimal(type_):
        return DType(Kind.DECIMAL, nullable, precision=type_.precision, scale=type_.scale)
    if types.is_struct(type_):
        fields = [type_.field(at) for at in range(type_.num_fields)]
        names = tuple(each.name for each in fields)
        return DType(Kind.STRUCT, nullable, names=names, children=tuple(map(of_arrow, fields)))
    if types.is_fixed_size_list(type_):
        element = of_arrow(type_.value_field)
        return DType(Kind.FIXED_SIZE_LIST, nullable, children=(element,), size=type_.list_size)
    if types.is_timestamp(type_):
        zone = (type_.tz or "").encode()
        metadata = bytes([_UNITS.index(type_.unit)]) + len(zone).to_bytes(2, "little") + zone
        return _extended(TIMESTAMP, "i8", nullable, metadata)
    for (name, number), (storage, arrow_type) in _UNIT_TYPES.items():
        if arrow_type is not None and arrow_type.equals(type_):
            return _extended(name, storage.str[1:], nullable, bytes([number]))
    raise Unsupported(
        f"columns of type {type_}: Vortex has no such type", where=field.name, hint="Cast the column first."
    )


_ARROW_KINDS: Final = {
    pa.lib.Type_NA: Kind.NULL,
    pa.lib.Type_BOOL: Kind.BOOL,
    **dict.fromkeys((pa.lib.Type_STRING, pa.lib.Type_LARGE_STRING, pa.lib.Type_STRING_VIEW), Kind.UTF8),
    **dict.fromkeys((pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY, pa.lib.Type_BINARY_VIEW), Kind.BINARY),
    **dict.fromkeys((pa.lib.Type_LIST, pa.lib.Type_LARGE_LIST), Kind.LIST),
    **dict.fromkeys((pa.lib.Type_LIST_VIEW, pa.lib.Type_LARGE_LIST_VIEW), Kind.LIST),
}


def _extended(name: str, storage: str, nullable: bool, metadata: bytes) -> DType:
    child = primitive(storage, nullable)
    return DType(Kind.EXTENSION, nullable, children=(child,), id=name, metadata=metadata)


# What the table of each kind holds, in its order, and how those that are numbers are stored.
_FIELDS: Final = {
    Kind.NULL: (),
    Kind.BOOL: ("nullable",),
    Kind.PRIMITIVE: ("ptype", "nullable"),
    Kind.DECIMAL: ("precision", "scale", "nullable"),
    Kind.UTF8: ("nullable",),
    Kind.BINARY: ("nullable",),
    Kind.STRUCT: ("names", "children", "nullable"),
    Kind.LIST: ("children", "nullable"),
    Kind.EXTENSION: ("id", "children", "metadata"),
    Kind.FIXED_SIZE_LIST: ("children", "size", "nullable"),
}
_SCALARS: Final = {"nullable": "B", "ptype": "B", "precision": "B", "scale": "b", "size": "I"}


def decode_dtype(data: bytes, limits: Limits = DEFAULT_LIMITS) -> DType:
    """Return the type that a flatbuffer describes."""
    root = Tables(data).follow(0, "DType")
    return _Reader(data, limits).read(root, 1)


class _Reader:
    def __init__(self, data: bytes, limits: Limits) -> None:
        self._tables = Tables(data)
        self._limits = limits
        self._count = 0

    def read(self, table: int, depth: int) -> DType:
        self._count += 1
        if self._count > self._limits.columns or depth > self._limits.depth:
            raise LimitExceeded(
                "the type of the stream has too many fields, or nests too deeply",
                expected=f"at most {self._limits.columns} fields and {self._limits.depth} levels",
            )
        tag_slot, type_slot, *_ = self._tables.slots(table, "DType")
        tag = self._tables.scalar(table, tag_slot, "B", 0, "DType.type_type")
        try:
            kind = Kind(tag)
        except ValueError as error:
            raise Unsupported("a type of Vortex that is not known here", found=f"number {tag}") from error
        if kind not in _FIELDS:
            raise Unsupported(f"columns of the Vortex type {kind.name.capitalize()}")
        inner = self._tables.reference(table, type_slot, "DType.type")
        if inner < 0:
            raise InvalidMetadata("a type has no description", found=kind.name, where="DType.type")
        slots = self._tables.slots(inner, kind.name)
        fields = zip(_FIELDS[kind], slots, strict=False)
        values = {name: self._value(kind, name, inner, slot, depth) for name, slot in fields}
        if kind is Kind.EXTENSION:
            values["nullable"] = values["children"][0].nullable
        dtype = DType(kind, bool(values.pop("nullable", kind is Kind.NULL)), **values)
        _check(dtype)
        return dtype

    def _value(self, kind: Kind, name: str, table: int, slot: int, depth: int) -> Any:
        tables = self._tables
        if name in _SCALARS:
            return tables.scalar(table, slot, _SCALARS[name], 0, name)
        if name == "metadata":
            start, count = tables.vector(table, slot, 1, name)
            return tables.data[start : start + count]
        if name == "id":
            return decoded_name(tables.string(table, slot, name) or b"")
        if name == "names":
            return tuple(map(decoded_name, tables.strings(table, slot, name)))
        if kind is Kind.STRUCT:
            return tuple(self.read(child, depth + 1) for child in tables.tables(table, slot, name))
        child = tables.reference(table, slot, name)
        if child < 0:
            raise InvalidMetadata("a type lacks the type inside it")
        return (self.read(child, depth + 1),)


def _check(dtype: DType) -> None:
    """Raise an error for what the fields of a flatbuffer may hold, and no type has."""
    if dtype.ptype >= len(PTYPES):
        raise InvalidMetadata("no such physical type", expected="0 to 10", found=dtype.ptype)
    if dtype.kind is Kind.DECIMAL and not 1 <= dtype.precision <= 76:
        raise InvalidMetadata(
            "a decimal has an impossible precision", expected="1 to 76", found=dtype.precision
        )
    if dtype.kind is Kind.STRUCT and len(dtype.names) != len(dtype.children):
        raise InvalidMetadata(
            "a struct has other numbers of names and types",
            expected=len(dtype.names),
            found=len(dtype.children),
        )
    if dtype.kind is Kind.EXTENSION:
        known(dtype)


def encode_dtype(dtype: DType) -> bytes:
    """Return the flatbuffer of a type."""
    builder = Builder()
    return builder.finish(_written(builder, dtype))


def _written(builder: Builder, dtype: DType) -> int:
    children = [_written(builder, child) for child in dtype.children]
    fields: list[Field] = []
    for name in _FIELDS[dtype.kind]:
        if name in _SCALARS:
            fields.append(Scalar(_SCALARS[name], int(getattr(dtype, name))))
        elif name == "metadata":  # vortex-data wants it also where it is empty
            fields.append(Reference(builder.elements(dtype.metadata, 1, 1)))
        elif name == "id":
            fields.append(Reference(builder.string(dtype.id)))
        elif name == "names":
            names = [builder.string(each) for each in dtype.names]
            fields.append(Reference(builder.references(names)))
        else:
            is_struct = dtype.kind is Kind.STRUCT
            fields.append(Reference(builder.references(children) if is_struct else children[0]))
    table = Reference(builder.table(fields))
    return builder.table([Scalar("B", dtype.kind), table])
