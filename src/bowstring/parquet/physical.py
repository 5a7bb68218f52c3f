"""Values in the form that a file has, made into the Arrow type that they mean, and the other way round.

pyarrow reads and writes INTERVAL as 12 bytes, INT96 with an overflow that it does not see, and decimals never in
BYTE_ARRAY; a column that is UNKNOWN it does not read at all. It is given Variants as groups of bytes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bowstring.columnar.batch import Batch
from bowstring.columnar.marks import VariantStorage, is_variant, marked_field
from bowstring.errors import InvalidBody, Unsupported
from bowstring.geo.column import marked
from bowstring.parquet.annotations import annotation
from bowstring.parquet.columns import (
    children_of,
    holds_variant,
    rebased,
    storage_of,
    with_child_arrays,
    with_inner,
    within,
)
from bowstring.variant.shredded.layout import open_shredded
from bowstring.variant.shredded.schema import WIDENED

_PARTS: Final = np.dtype([("months", "<u4"), ("days", "<u4"), ("millis", "<u4")])
_INTERVAL: Final = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])
_INT96: Final = np.dtype([("nanos", "<i8"), ("day", "<i4")])
_JULIAN_EPOCH: Final = 2440588
_DAY: Final = 86400
_NANOS: Final = 1_000_000_000
_MILLI: Final = 1_000_000
_MOST: Final = {"us": 1_000_000, "ns": _NANOS}
_GREATEST: Final = (1 << 63) - 1
_BLOCK: Final = 64 * 1024


def as_type(array: Any, type_: pa.DataType) -> Any:
    """Return an array that pyarrow read as the type that the schema says, also inside nested types."""
    if array.type.equals(type_):
        return array
    if not len(array):
        return pa.nulls(0, type_)
    if isinstance(array.type, pa.BaseExtensionType) and not isinstance(type_, pa.BaseExtensionType):
        return as_type(array.storage, type_)
    found = array.type
    if pa.types.is_null(type_):
        if array.null_count != len(array):
            values = f"{len(array) - array.null_count} of {len(array)}"
            raise InvalidBody("a column that is UNKNOWN is null", expected="no values", found=values)
        return pa.nulls(len(array))
    if pa.types.is_fixed_size_binary(found) and found.byte_width == 12:
        if type_.id == pa.lib.Type_INTERVAL_MONTH_DAY_NANO:
            return _intervals(array)
        if pa.types.is_timestamp(type_):
            return _timestamps(array, type_)
    if pa.types.is_decimal(type_) and (pa.types.is_binary(found) or pa.types.is_fixed_size_binary(found)):
        return _decimals(array, type_)
    if pa.types.is_map(type_) and pa.types.is_list(found):
        return _map(array, type_)
    if pa.types.is_nested(found) and found.id == type_.id:
        return with_child_arrays(array, type_, lambda child, field, _: as_type(child, field.type))
    return array.cast(type_)


def _interval_bytes(array: Any) -> Any:
    """Return intervals as INTERVAL has them: months, days and milliseconds, unsigned."""
    parts = _elements(array, _INTERVAL)
    valid = _valid(array)
    whole, left = np.divmod(parts["nanos"], _MILLI)
    wrong = (parts["months"] < 0) | (parts["days"] < 0) | (whole < 0) | (whole > 0xFFFFFFFF) | (left != 0)
    if (wrong & valid).any():
        row = int((wrong & valid).argmax())
        raise Unsupported(
            "an interval cannot be written as INTERVAL",
            expected="months, days and whole milliseconds, none of them negative, of 32 bits each",
            found=str(array[row].as_py()),
            where=f"row {row}",
        )
    out = np.zeros(len(array), _PARTS)
    for name, values in (("months", parts["months"]), ("days", parts["days"]), ("millis", whole)):
        out[name] = np.where(valid, values, 0)
    return _fixed(out, array, pa.binary(12))


def decimal_bytes(array: Any) -> Any:
    """Return decimals as two's complement, big-endian, in the fewest bytes that hold each (*DECIMAL*)."""
    width = array.type.byte_width
    data = memoryview(array.buffers()[1] or b"")[array.offset * width : (array.offset + len(array)) * width]
    numbers = [
        int.from_bytes(data[at : at + width], "little", signed=True) for at in range(0, len(data), width)
    ]
    # Of negative ones, a power of two takes one bit less than its bits are.
    sizes = [(number + (number < 0)).bit_length() // 8 + 1 for number in numbers]
    values = [number.to_bytes(size, "big", signed=True) for number, size in zip(numbers, sizes, strict=True)]
    return pc.if_else(array.is_valid(), pa.array(values, pa.binary()), pa.scalar(None, pa.binary()))


def _map(array: Any, type_: pa.DataType) -> Any:
    offsets, pairs = rebased(array)
    keys, items = pairs.field(0), pairs.field(1)
    if keys.null_count:
        at = keys.is_null().index(pa.scalar(True)).as_py()
        row = int(np.searchsorted(offsets.to_numpy(), at, "right")) - 1
        raise InvalidBody("a key of a map is null", expected="a value", found="a null", where=f"row {row}")
    mask = array.is_null() if array.null_count else None
    return pa.MapArray.from_arrays(
        offsets, as_type(keys, type_.key_type), as_type(items, type_.item_type), type=type_, mask=mask
    )


def _decimals(array: Any, type_: pa.DataType) -> Any:
    """Return big-endian two's complement of any length as decimals: bytes in front may repeat the sign only."""
    width, end, out = type_.byte_width, 10**type_.precision, bytearray()
    for begin in range(0, len(array), _BLOCK):
        for row, value in enumerate(array.slice(begin, _BLOCK).to_pylist(), begin):
            number = 0 if value is None else int.from_bytes(value, "big", signed=True)
            if value == b"" or abs(number) >= end:
                raise InvalidBody(
                    "a decimal does not fit its type",
                    expected=str(type_),
                    found=f"0x{value.hex()}"[:200],
                    where=f"row {row}",
                )
            out += number.to_bytes(width, "little", signed=True)
    return _fixed(out, array, type_)


def _intervals(array: Any) -> Any:
    parts = _elements(array, _PARTS)
    valid = _valid(array)
    wrong = ((parts["months"] > 0x7FFFFFFF) | (parts["days"] > 0x7FFFFFFF)) & valid
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidBody(
            "an INTERVAL has more months or days than Arrow's 32 bits with a sign hold",
            expected="at most 2147483647 of each",
            found=f"{parts['months'][row]} months, {parts['days'][row]} days",
            where=f"row {row}",
        )
    out = np.zeros(len(array), _INTERVAL)
    for name in ("months", "days"):
        out[name] = np.where(valid, parts[name], 0)
    out["nanos"] = np.where(valid, parts["millis"].astype(np.int64) * _MILLI, 0)
    return _fixed(out, array, pa.month_day_nano_interval())


def _timestamps(array: Any, type_: pa.DataType) -> Any:
    """Return INT96, nanoseconds of a Julian day and its number, as timestamps."""
    instants = _elements(array, _INT96)
    valid = _valid(array)
    per = _MOST[type_.unit]
    # Nanoseconds may be more than those of a day, or negative: seconds and the rest are exact whatever they are.
    seconds, rest = np.divmod(instants["nanos"], _NANOS)
    seconds += (instants["day"].astype(np.int64) - _JULIAN_EPOCH) * _DAY
    rest //= _NANOS // per
    wrong = _beyond(seconds, rest, per)
    if wrong.any() and type_.unit == "us":
        # Spark counts microseconds of Julian days in 64 bits, which for years beyond 287,000 wrap around when it
        # writes. What is in their range and out of that of timestamps is such a year, and wraps back.
        wrong &= _beyond(seconds + _JULIAN_EPOCH * _DAY, rest, per)
    if wrong.any() and (wrong & valid).any():
        row = int((wrong & valid).argmax())
        raise InvalidBody(
            "an INT96 is beyond the range of the timestamp that it is read as",
            expected=f"{type_} of 64 bits",
            found=f"day {instants['day'][row]} of Julian days, {instants['nanos'][row]} ns",
            where=f"row {row}",
            hint='Microseconds, int96="us", reach 292,000 years in either direction.'
            if type_.unit == "ns"
            else "",
        )
    seconds *= per
    seconds += rest
    return _fixed(seconds, array, type_)


def _beyond(seconds: Any, rest: Any, per: int) -> Any:
    """Return whether seconds, and a rest of so many parts of one, are more than 64 bits of such parts hold."""
    most, most_rest = divmod(_GREATEST, per)
    greater = (seconds > most) | (seconds == most) & (rest > most_rest)
    return greater | (seconds < ~most) | (seconds == ~most) & (rest < per - 1 - most_rest)


def _elements(array: Any, dtype: np.dtype[Any]) -> Any:
    return np.frombuffer(array.buffers()[1] or b"", dtype)[array.offset : array.offset + len(array)]


def _valid(array: Any) -> Any:
    """Return whether each value is there, as something that NumPy combines with an array."""
    if not array.null_count:
        return np.True_
    return array.is_valid().to_numpy(zero_copy_only=False)


def _bitmap(array: Any) -> Any:
    if not array.null_count:
        return None
    return array.is_valid().buffers()[1]


def _fixed(values: Any, array: Any, type_: pa.DataType) -> Any:
    return pa.Array.from_buffers(type_, len(array), [_bitmap(array), pa.py_buffer(values)])


# What stands in the place of nulls: metadata without names; a value that is null is a Variant null.
_MISSING: Final = {"metadata": b"\x01\x00\x00", "value": b"\x00"}


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema that is written for a schema."""
    return pa.schema([_stored_field(field) for field in schema], metadata=schema.metadata)


def stored_array(array: Any, field: pa.Field) -> Any:
    """Return an array as it is written."""
    array = storage_of(array)
    if array.type.equals(field.type) and not holds_variant(field):
        return array
    if is_variant(field):
        return _stored_variant(array, field)
    if isinstance(array.type, pa.BaseExtensionType) and not isinstance(field.type, pa.BaseExtensionType):
        array = array.storage
    if not len(array):
        return pa.nulls(0, field.type)
    if children_of(field.type) and array.type.id == field.type.id:
        return with_child_arrays(array, field.type, lambda inner, child, _: stored_array(inner, child))
    if array.type.id == pa.lib.Type_INTERVAL_MONTH_DAY_NANO and field.type == pa.binary(12):
        return _interval_bytes(array)
    if pa.types.is_decimal(array.type) and pa.types.is_binary(field.type):
        return decimal_bytes(array)
    return array.cast(field.type)


def _stored_field(field: pa.Field) -> pa.Field:
    type_ = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
    # pyarrow ends the process for the first, and has no words of its own for the second.
    if (pa.types.is_fixed_size_list(type_) and not type_.list_size) or (
        pa.types.is_fixed_size_binary(type_) and not type_.byte_width
    ):
        raise Unsupported(
            "types of no width cannot be written as Parquet", found=str(type_), where=f"column {field.name}"
        )
    if isinstance(field.type, VariantStorage):
        field = marked_field(field.with_type(field.type.storage_type))
    children = children_of(field.type)
    if is_variant(field) and pa.types.is_struct(field.type):
        by_name = {child.name: child for child in children}
        if "typed_value" in by_name:
            metadata = by_name["metadata"].with_type(_plain(by_name["metadata"].type)).with_nullable(False)
            value = pa.field("value", _plain(by_name["value"].type) if "value" in by_name else pa.binary())
            # There are shredded columns that no reader takes from a file.
            none = pa.RecordBatch.from_arrays([pa.nulls(0, field.type)], schema=pa.schema([field]))
            with within(f"column {field.name}"):
                open_shredded(Batch.from_arrow(none)[0])
            return field.with_type(pa.struct([metadata, value, _widened(by_name["typed_value"])]))
        binary = [
            pa.field(name, _plain(by_name[name].type), nullable=False, metadata=by_name[name].metadata)
            for name in _MISSING
            if name in by_name
        ]
        return field.with_type(pa.struct(binary))
    if children:
        return with_inner(field, map(_stored_field, children))
    leaf = annotation(field)
    if leaf is None or leaf.stored.equals(field.type):
        return field
    if leaf.wkb is not None:  # an extension type, which pyarrow would annotate in its own way
        field = marked(field, leaf.wkb)
    return field.with_type(leaf.stored)


def _widened(field: pa.Field) -> pa.Field:
    """Return a typed column with the signed integers that files have in the place of unsigned ones."""
    if field.type in WIDENED:
        return field.with_type(WIDENED[field.type])
    return with_inner(field, map(_widened, children_of(field.type)))


def _plain(type_: pa.DataType) -> pa.DataType:
    """Return a type of bytes that pyarrow can write; dictionaries of it are written as dictionaries."""
    if pa.types.is_run_end_encoded(type_):
        return _plain(type_.value_type)
    if pa.types.is_dictionary(type_):
        return pa.dictionary(pa.int32(), _plain(type_.value_type))
    return pa.large_binary() if pa.types.is_large_binary(type_) else pa.binary()


def _stored_variant(array: Any, field: pa.Field) -> Any:
    mask = array.is_null() if array.null_count else None
    inner = []
    for child in field.type:
        if array.type.get_field_index(child.name) < 0:  # a value that is null in every row
            inner.append(pa.nulls(len(array), child.type))
            continue
        stored = array.field(child.name)
        if child.name in _MISSING:
            if pa.types.is_run_end_encoded(stored.type):
                stored = pc.run_end_decode(stored)
            stored = stored if stored.type.equals(child.type) else stored.cast(child.type)
            if not child.nullable:
                stored = _filled(stored, _MISSING[child.name])
        else:
            stored = as_type(stored, child.type)
        inner.append(stored)
    return pa.StructArray.from_arrays(inner, fields=list(field.type), mask=mask)


def _filled(array: Any, missing: bytes) -> Any:
    if not array.null_count:
        return array
    if not pa.types.is_dictionary(array.type):
        return pc.fill_null(array, missing)
    values = pa.concat_arrays([array.dictionary, pa.array([missing], array.type.value_type)])
    indices = pc.fill_null(array.indices, len(array.dictionary))
    return pa.DictionaryArray.from_arrays(indices, values)
