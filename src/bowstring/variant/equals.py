"""Equality of Variants by their meaning."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Column
from bowstring.columnar.slots import check_order
from bowstring.errors import BowstringError, UsageError
from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch
from bowstring.kernels.variant.equals import SAME, UNKNOWN, WORDS, compare_values
from bowstring.limits import Limits, limits_or_default
from bowstring.variant.codec.decode import decode, decode_names
from bowstring.variant.codec.primitives import Value
from bowstring.variant.codec.rows import in_row
from bowstring.variant.column import column_of, dictionary_of
from bowstring.variant.json.writer import Names, Rows, block_of, rows_of
from bowstring.variant.shredded.unshred import open_column
from bowstring.variant.status import Status, first_error, raise_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bowstring.memory import Device

_EXACT_NUMERIC: Final = frozenset(("int8", "int16", "int32", "int64", "decimal4", "decimal8", "decimal16"))
_NAMES_KEPT: Final = 64
_LONG_NAME: Final = 256
"""Names of more bytes, with their quotes, are compared by number."""
_NANOSECONDS: Final = {"timestamp": 1000, "timestamp_ns": 1, "timestamp_ntz": 1000, "timestamp_ntz_ns": 1}


def equals(left: Any, right: Any, *, plain: bool = False, limits: Limits | None = None) -> Column:
    """Return whether the Variants in each row of two columns mean the same.

    Bytes do not count, meaning does, by the equivalence classes of the specification: 1, 1.00 and any width of
    them are one number; a float and a double are not; timestamps are one instant in micro- or nanoseconds, with
    or without a zone are two things; the order of an object's fields and of its dictionary is nothing. A NaN
    equals a NaN, and 0.0 equals -0.0.

    Parameters
    ----------
    left, right
        Variant columns of one length and on one device, or their Arrow arrays. The result is there too.
    plain
        Take structs that are not marked as Variants.
    limits
        As for :func:`bowstring.variant.to_json`.

    Returns
    -------
    Column
        ``bool``; null where either row is an SQL NULL. A Variant null equals a Variant null.

    Raises
    ------
    UsageError
        The columns are not of one length.
    InvalidBody, Truncated, Unsupported, LimitExceeded
        As for :func:`bowstring.variant.to_json`; of a row the left side is looked at first.
    NotOnDevice
        The columns are on two devices.

    Examples
    --------
    >>> from bowstring.variant.json.read import from_json
    >>> left, right = from_json(["1", '{"a": 1}', "1"]), from_json(["1.00", '{"a": 2}', None])
    >>> equals(left, right).to_arrow().to_pylist()
    [True, False, None]
    """
    limits = limits_or_default(limits)
    sides = open_column(left, plain=plain), open_column(right, plain=plain)
    with sides[0].column.device.use():
        if sides[0].rows != sides[1].rows:
            raise UsageError("columns of different lengths", expected=sides[0].rows, found=sides[1].rows)
        for side in sides:
            check_order(side.value, side.column.device, side.column.name)
        rows = [rows_of(side, dictionary_of(side), limits=limits) for side in sides]
        statuses = [each.measured()[0] for each in rows]
        device = sides[0].column.device
        errors = [(error, k) for k in (0, 1) if (error := first_error(statuses[k], device)) is not None]
        if errors:
            first, k = min(errors, key=lambda each: each[0][0])  # of one row the left side
            raise_error(sides[k], *first, limits)
        both = (statuses[0] == np.uint8(Status.OK)) & (statuses[1] == np.uint8(Status.OK))
        verdicts = _verdicts(rows, names_for_comparing([each.names for each in rows], device), statuses)
        unknown = device.to_host(device.xp.flatnonzero(both & (verdicts == UNKNOWN)))
        if len(unknown):
            _decide(rows, unknown, verdicts, limits)
        field = pa.field(sides[0].column.name, pa.bool_())
        return column_of(sides[0].column, field, bitmap.packed(both), bitmap.packed(verdicts == SAME))


def _verdicts(sides: list[Rows], names: list[Names], statuses: list[Any]) -> Any:
    device, rows = sides[0].device, len(statuses[0])
    block, depth = block_of(rows, device), sides[0].depth
    items = -(-rows // block)
    verdicts = device.xp.empty(rows, np.uint8)
    arguments: list[Any] = []
    for side, known, status in zip(sides, names, statuses, strict=True):
        arguments += side.starts, side.stops, side.data, side.metadata_ids
        arguments += known.bases, known.ends, known.text, status
    scratch = device.xp.empty(items * depth * int(WORDS), np.uint64)
    launch(compare_values, items, block, *arguments, depth, scratch, verdicts)
    return verdicts


def _decide(sides: list[Rows], unknown: Any, verdicts: Any, limits: Limits) -> None:
    """Write the verdicts on rows that the kernel left open, by their decoded values."""
    # Rows of the same metadata one after the other, of which only the last are kept parsed.
    ids = [side.device.to_host(side.metadata_ids)[unknown] for side in sides]
    order = np.lexsort(ids[::-1])
    chosen = unknown[order].tolist()
    left, right = (
        _trees(side, chosen, known[order].tolist(), limits) for side, known in zip(sides, ids, strict=True)
    )
    for row, one, other in zip(chosen, left, right, strict=True):
        verdicts[row : row + 1] = np.uint8(same(one, other))


def _trees(side: Rows, chosen: list[int], ids: list[int], limits: Limits) -> Iterator[Value]:
    """Yield some rows as trees, `ids` say of which metadata; no other row is copied or looked at."""
    names = functools.lru_cache(_NAMES_KEPT)(lambda number: decode_names(_slot(side, side.metadata, number)))
    for row, number in zip(chosen, ids, strict=True):
        try:
            yield decode(names(number), _slot(side, (side.starts, side.stops, side.data), row), limits=limits)
        except BowstringError as error:
            raise in_row(error, row) from error


def _slot(side: Rows, slots: tuple[Any, Any, Any], slot: int) -> bytes:
    start, stop = (int(side.device.to_host(each[slot : slot + 1])[0]) for each in slots[:2])
    found: bytes = side.device.to_host(slots[2][start:stop]).tobytes()
    return found


def names_for_comparing(sides: list[Names], device: Device) -> list[Names]:
    """Return quoted names of which long ones are replaced by a number, the same for the same names.

    Rows compare names again and again: what each comparison reads must not be longer than a row may pay for.
    """
    longs = [
        device.to_host(device.xp.flatnonzero(each.ends[1:] - each.ends[:-1] > np.int64(_LONG_NAME)))
        for each in sides
    ]
    if not any(map(len, longs)):
        return sides
    numbers: dict[bytes, int] = {}
    replaced = []
    for side, long in zip(sides, longs, strict=True):
        ends, text = device.to_host(side.ends), device.to_host(side.text).tobytes()
        saved = np.zeros(len(ends), np.int64)
        pieces: list[bytes] = []
        at = 0
        for begin, end, name in zip(ends[long].tolist(), ends[long + 1].tolist(), long.tolist(), strict=True):
            number = numbers.setdefault(text[begin:end], len(numbers))
            # No name has such bytes, for they are no UTF-8; as long as a name and its quotes.
            pieces += text[at:begin], b',"\xff' + number.to_bytes(8, "little") + b'":'
            saved[name + 1] = end - begin - len(pieces[-1])
            at = end
        pieces.append(text[at:])
        shorter = np.frombuffer(b"".join(pieces), np.uint8)
        replaced.append(
            side._replace(ends=device.xp.asarray(ends - np.cumsum(saved)), text=device.xp.asarray(shorter))
        )
    return replaced


def same(left: Value, right: Value) -> bool:
    """Return whether two trees mean the same."""
    work = [(left, right)]
    while work:
        left, right = work.pop()
        if _class(left.type) != _class(right.type):
            return False
        if left.type == "object":
            if left.value.keys() != right.value.keys():
                return False
            work.extend((child, right.value[key]) for key, child in left.value.items())
        elif left.type == "array":
            if len(left.value) != len(right.value):
                return False
            work.extend(zip(left.value, right.value, strict=True))
        elif left.type in _NANOSECONDS:
            if left.value * _NANOSECONDS[left.type] != right.value * _NANOSECONDS[right.type]:
                return False
        elif left.value != right.value:
            both_nan = left.type in ("double", "float") and math.isnan(left.value) and math.isnan(right.value)
            if not both_nan:
                return False
    return True


def _class(type_: str) -> str:
    if type_ in _EXACT_NUMERIC:
        return "exact numeric"
    return type_.removesuffix("_ns")
