"""What Parquet files hold, as Spark would give it: what it might give otherwise is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bowstring.errors import InvalidData

if TYPE_CHECKING:
    from bowstring.parquet.file import OpenFile

__all__ = ["as_spark", "check_file", "is_same", "zones_of"]

_HINT: Final = "publish(…, scan='spark') lets Spark read the files."
_VERSION: Final = b"org.apache.spark.version"
_LEGACY: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_FIRST_PLAIN: Final = b"3.1.0"
_YEAR_1: Final = -62_135_596_800_000_000
_YEAR_10000: Final = 253_402_300_800_000_000
# The same numbers in a wider type, or the same bytes behind other offsets.
_WIDER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.time64("us"): pa.time64("ns"),
    pa.date64(): pa.date32(),
}


def check_file(file: OpenFile, names: list[str], wanted: pa.Schema, where: str) -> None:
    """Refuse a file in which Spark might find other columns, or other days, than pyarrow does.

    Raises
    ------
    InvalidData
        Says why.
    """
    found = [name.lower() for name in file.schema.names]
    for name in names:
        # Spark finds names whatever their case, gives nulls where there is none, and refuses two: not we.
        if name not in file.schema.names or found.count(name.lower()) != 1:
            raise InvalidData("a Parquet file lacks a column, or has it twice", expected=name, where=where)
    notes = file.metadata.metadata or {}
    version = notes.get(_VERSION)
    old = version is not None and version < _FIRST_PLAIN
    if (old or any(key in notes for key in _LEGACY)) and any(_has_days(field.type) for field in wanted):
        raise InvalidData(
            "a Parquet file counts days by a calendar that Spark converts from",
            found=f"written by Spark {(version or b'').decode(errors='replace')}",
            where=where,
            hint=_HINT,
        )


def zones_of(file: OpenFile) -> frozenset[str]:
    """Return the columns whose times are instants though their type has no zone: those of INT96."""
    nodes = file.footer.nodes()
    return frozenset(".".join(node.path) for node in nodes if node.element.physical_type == "INT96")


def as_spark(array: Any, field: pa.Field, where: str, *, instants: bool = False) -> Any:
    """Return a column in Spark's type.

    Parameters
    ----------
    array
        What the file holds.
    field
        What Spark gives.
    where
        The file, for errors.
    instants
        Whether the column is one of INT96, whose times are instants.

    Raises
    ------
    InvalidData
        The file holds another type, which Spark might read in its own way.
    """
    if array.type == field.type and not instants:
        return array
    try:
        if is_same(array.type, field.type, instants=instants):
            if instants:
                _check_years(array, f"{field.name} in {where}")
            # The same values under Spark's type: another zone for the same instants, not another number.
            return array.cast(field.type, safe=True)
        reason: Exception | None = None
    except pa.ArrowException as error:
        reason = error
    raise InvalidData(
        "a Parquet file holds another type than Spark gives",
        expected=str(field.type),
        found=str(array.type),
        where=f"{field.name} in {where}",
        hint=_HINT,
    ) from reason


def is_same(found: pa.DataType, wanted: pa.DataType, *, instants: bool = False) -> bool:
    """Whether a cast from one type to the other gives what Spark gives.

    Examples
    --------
    >>> is_same(pa.uint8(), pa.int16()), is_same(pa.int64(), pa.int32())
    (True, False)
    """
    if pa.types.is_dictionary(found):
        return is_same(found.value_type, wanted, instants=instants)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        zoned = instants or found.tz is not None
        return found.unit in ("ms", "us") and zoned == (wanted.tz is not None)
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        # Spark finds children by name, whatever their case and order, and gives nulls where there is none.
        return [each.name for each in found] == [each.name for each in wanted] and all(
            is_same(one.type, other.type) for one, other in zip(found, wanted, strict=True)
        )
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return is_same(found.key_type, wanted.key_type) and is_same(found.item_type, wanted.item_type)
    if _is_list(found) and pa.types.is_list(wanted):
        return is_same(found.value_type, wanted.value_type)
    if pa.types.is_fixed_size_binary(found):
        return bool(wanted == pa.binary())
    return bool(found == wanted or _WIDER.get(found) == wanted)


def _check_years(array: Any, where: str) -> None:
    # pyarrow takes days before 4713 BC for days far ahead.
    bounds = pc.min_max(array.cast(pa.int64()))
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    if least is not None and not _YEAR_1 <= least <= most < _YEAR_10000:
        raise InvalidData("a time is beyond the years that Spark has", where=where, hint=_HINT)


def _is_list(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)
    )


def _has_days(type_: pa.DataType) -> bool:
    if pa.types.is_nested(type_):
        return any(_has_days(type_.field(index).type) for index in range(type_.num_fields))
    return bool(pa.types.is_timestamp(type_) or pa.types.is_date(type_))
