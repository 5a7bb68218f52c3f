"""Casts as Spark's ``try_variant_get`` does them, in UTC: the launches that do them."""

from __future__ import annotations

import dataclasses
import decimal
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch
from bowstring.kernels.variant import numbers
from bowstring.kernels.variant.nested import copy_slots
from bowstring.kernels.variant.spark.decimals import spark_decimals, spark_text_decimals
from bowstring.kernels.variant.spark.format import IS_HOLDER, measure_spark_strings, write_spark_strings
from bowstring.kernels.variant.spark.numbers import IS_TEXT, spark_numbers
from bowstring.kernels.variant.spark.parse import IS_LONG, spark_text_numbers, spark_text_reals
from bowstring.kernels.variant.spark.times import spark_text_times
from bowstring.variant.cast import SparkDecimals, SparkNumbers, SparkText
from bowstring.variant.json.writer import rows_of
from bowstring.variant.nested import bounds_of, ends_of
from bowstring.variant.status import Status

if TYPE_CHECKING:
    from bowstring.variant.nested import Source
    from bowstring.variant.walk import Located

__all__ = ["spark_decimals_at", "spark_numbers_at", "spark_strings_at"]

_INTEGERS: Final = (int(numbers.BOOLEAN), int(numbers.INTEGER))
_LARGEST: Final = float(np.finfo(np.float32).max)
_REALS: Final = (int(numbers.FLOAT), int(numbers.DOUBLE))


def spark_numbers_at(source: Source, located: Located, target: SparkNumbers) -> Any:
    """Return what values become, as the one buffer of the type."""
    xp, rows = source.device.xp, len(located.statuses)
    out = xp.empty(rows, np.int64)
    what = target.family, target.low, target.high
    launch(spark_numbers, rows, source.data, located.positions, *what, located.statuses, out)
    # Text is rare and slow: it has kernels of its own, which run only where there is some.
    if _any(source, located, IS_TEXT):
        if target.family in _INTEGERS:
            launch(spark_text_numbers, rows, source.data, located.positions, *what, located.statuses, out)
        elif target.family in _REALS:
            launch(
                spark_text_reals, rows, source.data, located.positions, target.family, located.statuses, out
            )
            _long_reals(source, located, out, single=target.family == int(numbers.FLOAT))
        else:
            _text_times(source, located, out, target.family)
    if target.bits:
        return bitmap.packed(out != np.int64(0))
    return out.astype(target.dtype)


def _text_times(source: Source, located: Located, out: Any, family: int) -> None:
    """Read text as dates and timestamps; a time without a date is one of today."""
    # Zones take time to import, and are seldom asked for.
    from bowstring.variant.spark.zones import settle_regions

    now, rows = int(time.time()), len(located.statuses)
    zones = source.device.xp.empty(rows, np.int64)
    launch(spark_text_times, rows, source.data, located.positions, family, now, located.statuses, out, zones)
    settle_regions(source, located, out, zones, family, now)


def spark_decimals_at(source: Source, located: Located, target: SparkDecimals) -> Any:
    """Return what values become, as the one buffer of the type."""
    rows = len(located.statuses)
    out = source.device.xp.empty(2 * rows, np.uint64)
    what = target.scale, target.bound >> 64, target.bound & (2**64 - 1)
    launch(spark_decimals, rows, source.data, located.positions, *what, located.statuses, out)
    if _any(source, located, IS_TEXT):
        launch(spark_text_decimals, rows, source.data, located.positions, *what, located.statuses, out)
    return out if target.repeat == 2 else out[::2].astype(target.dtype)


def spark_strings_at(source: Source, located: Located, metadata_ids: Any, target: SparkText) -> list[Any]:
    """Return offsets and bytes of what values are written as."""
    rows, xp = len(located.statuses), source.device.xp
    sizes = xp.empty(rows, np.int64)
    nowhere = xp.empty(1, np.uint8)
    launch(measure_spark_strings, rows, source.data, located.positions, located.statuses, nowhere, sizes)
    texts = None
    if _any(source, located, IS_HOLDER):
        holds = located.statuses == np.uint8(IS_HOLDER)
        indices = metadata_ids if len(metadata_ids) else source.dictionary.indices
        inside = dataclasses.replace(source.dictionary, indices=indices)
        starts, stops = bounds_of(source, located)
        stops = xp.where(holds, stops, starts)
        bounds = {"starts": starts, "stops": stops, "wanted": bitmap.packed(holds)}
        texts = rows_of(source.opened, inside, **bounds, rules="spark", limits=source.limits).texts()
        located.statuses[...] = xp.where(holds, texts.statuses, located.statuses)
        sizes = xp.where(holds, texts.offsets[1:] - texts.offsets[:-1], sizes)
    offsets, total = ends_of(source, sizes, large=target.large)
    out = xp.empty(total, np.uint8)
    launch(write_spark_strings, rows, source.data, located.positions, located.statuses, offsets, out)
    if texts is not None:
        launch(copy_slots, rows, texts.offsets[:-1], texts.offsets[1:], texts.data, offsets, out)
    return [offsets if target.large else offsets.astype(np.int32), out]


def _any(source: Source, located: Located, status: Any) -> bool:
    return bool(source.device.to_host((located.statuses == np.uint8(status)).sum(keepdims=True))[0])


def _long_reals(source: Source, located: Located, out: Any, *, single: bool) -> None:
    """Work out floats of more than 19 digits that are nearly between two: on the host, they are that rare."""
    if not _any(source, located, IS_LONG):
        return
    device, xp = source.device, source.device.xp
    rows = xp.flatnonzero(located.statuses == np.uint8(IS_LONG))
    found = []
    for at in device.to_host(located.positions[rows]).tolist():
        head = device.to_host(source.data[at : at + 5])
        first, size = (at + 1, int(head[0]) >> 2) if head[0] & 3 else (at + 5, int(head[1:].view("<u4")[0]))
        found.append(_real(bytes(device.to_host(source.data[first : first + size])), single=single))
    bits = np.array(found, np.float32 if single else np.float64).view(np.int32 if single else np.int64)
    out[rows] = xp.asarray(bits.astype(np.int64))
    located.statuses[rows] = np.uint8(Status.OK)


def _real(text: bytes, *, single: bool) -> float:
    number = text.decode("ascii").strip("".join(map(chr, range(33)))).rstrip("dDfF")
    if not single:
        return float(number)
    # The bits of positive floats count them, up to the infinite one.
    nearest = np.float32(min(abs(float(number)), _LARGEST))
    bits, exact = int(nearest.view(np.uint32)), decimal.Decimal(number).copy_abs()
    below, above = _middle(bits - 1), _middle(bits)
    if exact > above or (exact == above and bits % 2):
        bits += 1
    elif exact < below or (exact == below and bits % 2):
        bits -= 1
    found = float(np.uint32(bits).view(np.float32))
    return -found if number.startswith("-") else found


def _middle(bits: int) -> decimal.Decimal:
    """Return what is half way from a float to the next."""
    with decimal.localcontext(prec=400):
        return (_exactly(bits) + _exactly(bits + 1)) / 2


def _exactly(bits: int) -> decimal.Decimal:
    found = float(np.uint32(max(bits, 0)).view(np.float32))
    return decimal.Decimal(found if found <= _LARGEST else 2**128)
