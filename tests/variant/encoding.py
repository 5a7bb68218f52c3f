"""An encoder of Variants for tests, from the specification alone: any widths of ids, offsets and counts, and flags
that lie. Bowstring writes the narrowest widths only.
"""

from __future__ import annotations

import dataclasses
import decimal
import itertools
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa

import bowstring as bow
from bowstring.columnar import Column
from bowstring.variant import Value

_SHORT_STRING, _OBJECT, _ARRAY = 1, 2, 3
_SMALL_COUNT: Final = 255
# Of each primitive type its number, and how many bytes its number takes.
_WHOLE: Final = {
    "int8": (3, 1),
    "int16": (4, 2),
    "int32": (5, 4),
    "int64": (6, 8),
    "date": (11, 4),
    "timestamp": (12, 8),
    "timestamp_ntz": (13, 8),
    "time": (17, 8),
    "timestamp_ns": (18, 8),
    "timestamp_ntz_ns": (19, 8),
}
_DECIMALS: Final = {"decimal4": (8, 4), "decimal8": (9, 8), "decimal16": (10, 16)}
_REAL: Final = {"double": (7, "<d"), "float": (14, "<f")}
_NULL, _TRUE, _FALSE, _BINARY, _STRING, _UUID = 0, 1, 2, 15, 16, 20
STORAGE: Final = (
    pa.field("metadata", pa.dictionary(pa.int32(), pa.binary()), nullable=False),
    pa.field("value", pa.binary(), nullable=False),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Widths:
    """The least number of bytes for ids, offsets and counts; more are taken where the numbers need them."""

    ids: int = 1
    offsets: int = 1
    large: bool = False


_NARROWEST: Final = Widths()


def metadata_bytes(names: Sequence[str], *, width: int = 1, sorted_flag: bool | None = None) -> bytes:
    """Return the metadata component that holds names in this order; its flag is true by default."""
    encoded = [name.encode() for name in names]
    if sorted_flag is None:
        sorted_flag = bool(encoded) and all(one < next_ for one, next_ in itertools.pairwise(encoded))
    offsets = _offsets(encoded)
    width = max(width, _needed(max(offsets[-1], len(names))))
    header = 1 | sorted_flag << 4 | (width - 1) << 6
    numbers = (len(names), *offsets)
    return bytes((header,)) + _packed(numbers, width) + b"".join(encoded)


def primitive_bytes(value: Value) -> bytes:
    """Return a primitive value; texts below 64 bytes are short strings."""
    held = value.value
    match value.type:
        case "null":
            return bytes((_NULL << 2,))
        case "boolean":
            return bytes(((_TRUE if held else _FALSE) << 2,))
        case "string" if len(encoded := held.encode()) < 64:
            return bytes((_SHORT_STRING | len(encoded) << 2,)) + encoded
        case "string" | "binary":
            number, held = (_STRING, held.encode()) if value.type == "string" else (_BINARY, bytes(held))
            return bytes((number << 2,)) + len(held).to_bytes(4, "little") + held
        case "uuid":
            return bytes((_UUID << 2,)) + bytes(held.bytes)
        case "double" | "float":
            number, form = _REAL[value.type]
            return bytes((number << 2,)) + struct.pack(form, held)
        case "decimal4" | "decimal8" | "decimal16":
            number, width = _DECIMALS[value.type]
            scale = max(0, -held.as_tuple().exponent)
            unscaled = int(held.scaleb(scale, decimal.Context(prec=64)))
            return bytes((number << 2, scale)) + unscaled.to_bytes(width, "little", signed=True)
    number, width = _WHOLE[value.type]
    return bytes((number << 2,)) + int(held).to_bytes(width, "little", signed=True)


def object_bytes(fields: Sequence[tuple[int, bytes]], widths: Widths = _NARROWEST) -> bytes:
    """Return an object of ids and encoded values, which come in the order of their names."""
    ids = [id_ for id_, _ in fields]
    values = [value for _, value in fields]
    offsets = _offsets(values)
    id_width = max(widths.ids, _needed(max(ids, default=0)))
    width = max(widths.offsets, _needed(offsets[-1]))
    large = widths.large or len(ids) > _SMALL_COUNT
    header = _OBJECT | ((width - 1) | (id_width - 1) << 2 | large << 4) << 2
    tables = _packed(ids, id_width) + _packed(offsets, width)
    return bytes((header,)) + _count(len(ids), large=large) + tables + b"".join(values)


def array_bytes(values: Sequence[bytes], widths: Widths = _NARROWEST) -> bytes:
    """Return an array of encoded values."""
    offsets = _offsets(values)
    width = max(widths.offsets, _needed(offsets[-1]))
    large = widths.large or len(values) > _SMALL_COUNT
    header = _ARRAY | ((width - 1) | large << 2) << 2
    return bytes((header,)) + _count(len(values), large=large) + _packed(offsets, width) + b"".join(values)


def encode(value: Value, widths: Widths = _NARROWEST) -> tuple[bytes, bytes]:
    """Return the metadata and the value of one tree."""
    names = names_in([value])
    ids = {name: index for index, name in enumerate(names)}
    return metadata_bytes(names, width=widths.offsets), encode_with(ids, value, widths)


def encode_with(ids: Mapping[str, int], value: Value, widths: Widths = _NARROWEST) -> bytes:
    """Return the value component of one tree, over a dictionary that holds all its keys."""
    done: list[bytes] = []
    # A container comes twice: first for its children to be put before it, then to be closed around them.
    work: list[tuple[Value, bool]] = [(value, False)]
    while work:
        value, children_done = work.pop()
        if value.type not in ("object", "array"):
            done.append(primitive_bytes(value))
            continue
        if not children_done:
            work.append((value, True))
            inside = value.value if value.type == "array" else [field for _, field in _in_order(value)]
            work.extend((child, False) for child in reversed(inside))
            continue
        first = len(done) - len(value.value)
        children = done[first:]
        del done[first:]
        if value.type == "array":
            done.append(array_bytes(children, widths))
        else:
            keys = [ids[name] for name, _ in _in_order(value)]
            done.append(object_bytes(list(zip(keys, children, strict=True)), widths))
    return done[0]


def _in_order(value: Value) -> list[tuple[str, Value]]:
    return sorted(value.value.items(), key=_key)


def _key(field: tuple[str, Value]) -> str:
    return field[0]


def _offsets(values: Sequence[bytes]) -> list[int]:
    return [0, *itertools.accumulate(map(len, values))]


def _needed(number: int) -> int:
    """Return how many bytes an unsigned number takes, at least one."""
    return max(1, (number.bit_length() + 7) // 8)


def _count(count: int, *, large: bool) -> bytes:
    return count.to_bytes(4 if large else 1, "little")


def _packed(numbers: Iterable[int], width: int) -> bytes:
    if width == 1:
        return bytes(numbers)
    return b"".join([number.to_bytes(width, "little") for number in numbers])


def names_in(values: Iterable[Value]) -> list[str]:
    """Return the keys of all objects in some trees, each once, in the order of their UTF-8."""
    found: set[str] = set()
    work = list(values)
    while work:
        value = work.pop()
        if value.type == "object":
            found.update(value.value)
            work.extend(value.value.values())
        elif value.type == "array":
            work.extend(value.value)
    # The order of code points is that of UTF-8.
    return sorted(found)


def variant_array(rows: Iterable[tuple[bytes, bytes] | None]) -> pa.StructArray:
    """Return encoded rows as the storage of a Variant column; None is an SQL NULL."""
    metadata: dict[bytes, int] = {}
    indices: list[int] = []
    values: list[bytes] = []
    nulls: list[bool] = []
    for row in rows:
        # The children of a null row are not null: it keeps the metadata before it, and an empty value.
        nulls.append(row is None)
        if row is None:
            indices.append(indices[-1] if indices else 0)
            values.append(b"")
        else:
            indices.append(metadata.setdefault(row[0], len(metadata)))
            values.append(row[1])
    mask = pa.array(nulls, pa.bool_()) if any(nulls) else None
    # Rows that are all null have indices, too.
    blobs = pa.array(list(metadata) or [metadata_bytes(())] * bool(indices), pa.binary())
    dictionary = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), blobs)
    return pa.StructArray.from_arrays(
        [dictionary, pa.array(values, pa.binary())], fields=list(STORAGE), mask=mask
    )


def variant_field(name: str) -> pa.Field:
    """Return the field of a Variant column."""
    mark = {"ARROW:extension:name": "arrow.parquet.variant", "ARROW:extension:metadata": ""}
    return pa.field(name, pa.struct(STORAGE), metadata=mark)


def column_of(array: pa.Array, field: pa.Field) -> Column:
    """Return an array as a column of a batch of its own."""
    return bow.Batch.from_arrow(pa.record_batch([array], schema=pa.schema([field])))[field.name]
