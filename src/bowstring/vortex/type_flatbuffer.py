"""The flatbuffer of a type of Vortex: read within limits, and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bowstring.errors import InvalidMetadata, LimitExceeded, Unsupported
from bowstring.ipc.flatbuf.builder import Builder, Field, Reference, Scalar
from bowstring.ipc.flatbuf.reader import Tables, follow
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.vortex.dtype import PTYPES, DType, Kind, decoded_name, known

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDE_DECIMAL: Final = 76


def decode_dtype(data: bytes, limits: Limits = DEFAULT_LIMITS) -> DType:
    """Return the type that a flatbuffer describes."""
    root = follow(data, len(data), 0, "DType")
    return _Reader(data, limits).read(root, 1)


class _Reader:
    def __init__(self, data: bytes, limits: Limits) -> None:
        self._tables = Tables(data)
        self._limits = limits
        self._fields = 0

    def read(self, table: int, depth: int) -> DType:
        self._fields += 1
        if self._fields > self._limits.columns or depth > self._limits.depth:
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
        inner = self._tables.reference(table, type_slot, "DType.type")
        if inner < 0:
            raise InvalidMetadata("a type has no description", found=kind.name, where="DType.type")
        if kind in (Kind.VARIANT, Kind.UNION, Kind.MAP):
            raise Unsupported(f"columns of the Vortex type {kind.name.capitalize()}")
        return self._typed(kind, inner, depth)

    def _typed(self, kind: Kind, table: int, depth: int) -> DType:
        slots = self._tables.slots(table, kind.name)
        if kind is Kind.NULL:
            return DType(kind, nullable=True)
        if kind in (Kind.BOOL, Kind.UTF8, Kind.BINARY):
            return DType(kind, self._flag(table, slots[0]))
        if kind is Kind.PRIMITIVE:
            ptype = self._number(table, slots[0], "B", "Primitive.ptype")
            if ptype >= len(PTYPES):
                raise InvalidMetadata("no such physical type", expected="0 to 10", found=ptype)
            return DType(kind, self._flag(table, slots[1]), ptype=ptype)
        if kind is Kind.DECIMAL:
            return self._decimal(table, slots)
        if kind is Kind.STRUCT:
            return self._struct(table, slots, depth)
        if kind is Kind.EXTENSION:
            return self._extension(table, slots, depth)
        element = self._child(table, slots[0], "element_type", depth)
        if kind is Kind.LIST:
            return DType(kind, self._flag(table, slots[1]), children=(element,))
        size = self._number(table, slots[1], "I", "FixedSizeList.size")
        return DType(kind, self._flag(table, slots[2]), children=(element,), size=size)

    def _decimal(self, table: int, slots: Sequence[int]) -> DType:
        precision = self._number(table, slots[0], "B", "Decimal.precision")
        scale = self._number(table, slots[1], "b", "Decimal.scale")
        if not 1 <= precision <= _WIDE_DECIMAL:
            raise InvalidMetadata(
                "a decimal has an impossible precision", expected="1 to 76", found=precision
            )
        return DType(Kind.DECIMAL, self._flag(table, slots[2]), precision=precision, scale=scale)

    def _struct(self, table: int, slots: Sequence[int], depth: int) -> DType:
        names = tuple(map(decoded_name, self._tables.strings(table, slots[0], "Struct.names")))
        children = tuple(
            self.read(each, depth + 1) for each in self._tables.tables(table, slots[1], "Struct.dtypes")
        )
        if len(names) != len(children):
            raise InvalidMetadata(
                "a struct has other numbers of names and types", expected=len(names), found=len(children)
            )
        return DType(Kind.STRUCT, self._flag(table, slots[2]), names=names, children=children)

    def _extension(self, table: int, slots: Sequence[int], depth: int) -> DType:
        name = self._tables.string(table, slots[0], "Extension.id")
        storage = self._child(table, slots[1], "storage_dtype", depth)
        start, count = self._tables.vector(table, slots[2], 1, "Extension.metadata")
        dtype = DType(
            Kind.EXTENSION,
            storage.nullable,
            children=(storage,),
            id=decoded_name(name or b""),
            metadata=self._tables.data[start : start + count],
        )
        known(dtype)  # what is known must be right
        return dtype

    def _child(self, table: int, slot: int, where: str, depth: int) -> DType:
        child = self._tables.reference(table, slot, where)
        if child < 0:
            raise InvalidMetadata("a type lacks the type inside it", where=where)
        return self.read(child, depth + 1)

    def _flag(self, table: int, slot: int) -> bool:
        return bool(self._tables.scalar(table, slot, "B", 0, "nullable"))

    def _number(self, table: int, slot: int, code: str, where: str) -> int:
        return self._tables.scalar(table, slot, code, 0, where)


def encode_dtype(dtype: DType) -> bytes:
    """Return the flatbuffer of a type."""
    builder = Builder()
    return builder.finish(_written(builder, dtype))


def _written(builder: Builder, dtype: DType) -> int:
    kind = dtype.kind
    flag = Scalar("B", int(dtype.nullable))
    inner = [Reference(_written(builder, child)) for child in dtype.children]
    fields: list[Field]
    if kind is Kind.NULL:
        fields = []
    elif kind is Kind.PRIMITIVE:
        fields = [Scalar("B", dtype.ptype), flag]
    elif kind is Kind.DECIMAL:
        fields = [Scalar("B", dtype.precision), Scalar("b", dtype.scale), flag]
    elif kind is Kind.STRUCT:
        types = Reference(builder.references([each.position for each in inner]))
        names = Reference(builder.references([builder.string(name) for name in dtype.names]))
        fields = [names, types, flag]
    elif kind is Kind.EXTENSION:
        metadata = Reference(
            builder.elements(dtype.metadata, 1, 1)
        )  # vortex-data wants it also where it is empty
        fields = [Reference(builder.string(dtype.id)), inner[0], metadata]
    elif kind is Kind.LIST:
        fields = [inner[0], flag]
    elif kind is Kind.FIXED_SIZE_LIST:
        fields = [inner[0], Scalar("I", dtype.size), flag]
    else:
        fields = [flag]
    table = Reference(builder.table(fields))
    return builder.table([Scalar("B", kind), table])
