"""Whether there is a value at a path, or a null, and how long an array is; and columns one behind the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Column
from bowstring.columnar.slots import check_order
from bowstring.errors import NotOnDevice, UsageError
from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch, launch_shared
from bowstring.kernels.variant.encoding import ARRAY
from bowstring.kernels.variant.slots import copy_slots, name_kinds
from bowstring.limits import DEFAULT_LIMITS, Limits, limits_or_default
from bowstring.variant.column import VariantColumn, column_of, values_batch, variant_of
from bowstring.variant.get import located_at
from bowstring.variant.nested import Source, child_counts, ends_of
from bowstring.variant.path import AnyStep
from bowstring.variant.shredded.unshred import open_column
from bowstring.variant.status import Status, validity_of


def exists(column: Any, path: str | Sequence[AnyStep], *, plain: bool = False) -> Column:
    """Return whether there is a value at a path; a Variant null is one.

    Parameters
    ----------
    column, path, plain
        As for :func:`bowstring.variant.get`, without ``[*]``.

    Returns
    -------
    Column
        ``bool``; null where the row is an SQL NULL, or what the path leads through is malformed.

    Raises
    ------
    UsageError, Unsupported
        As for :func:`bowstring.variant.get`.

    Examples
    --------
    >>> from bowstring.variant.json.read import from_json
    >>> exists(from_json(['{"a": null}', "{}", None]), "$.a").to_pylist()
    [True, False, None]
    """
    opened, located = located_at(column, path, "exists", plain=plain)
    with opened.column.device.use():
        statuses = located.statuses
        is_missing = statuses == np.uint8(Status.MISSING)
        is_there = (statuses == np.uint8(Status.OK)) | (statuses == np.uint8(Status.VARIANT_NULL))
        return _flags(opened, is_there | is_missing, is_there)


def is_null(column: Any, path: str | Sequence[AnyStep] = "$", *, plain: bool = False) -> Column:
    """Return whether the value at a path is a Variant null.

    Parameters
    ----------
    column, path, plain
        As for :func:`bowstring.variant.get`, without ``[*]``.

    Returns
    -------
    Column
        ``bool``; null where there is no value: SQL NULL, missing, and what is malformed.

    Raises
    ------
    UsageError, Unsupported
        As for :func:`bowstring.variant.get`.

    Examples
    --------
    >>> from bowstring.variant.json.read import from_json
    >>> is_null(from_json(['{"a": null}', '{"a": 1}', "{}"]), "$.a").to_pylist()
    [True, False, None]
    """
    opened, located = located_at(column, path, "is_null", plain=plain)
    with opened.column.device.use():
        kinds = opened.column.device.xp.empty(len(located.statuses), np.int8)
        launch(name_kinds, len(kinds), opened.value.data, located.positions, located.statuses, kinds)
        return _flags(opened, kinds >= np.int8(0), kinds == np.int8(0))


def array_length(column: Any, path: str | Sequence[AnyStep] = "$", *, plain: bool = False) -> Column:
    """Return how many elements the array at a path has.

    Parameters
    ----------
    column, path, plain
        As for :func:`bowstring.variant.get`, without ``[*]``.

    Returns
    -------
    Column
        ``int64``; null where there is no array, or a malformed one.

    Raises
    ------
    UsageError, Unsupported
        As for :func:`bowstring.variant.get`.

    Examples
    --------
    >>> from bowstring.variant.json.read import from_json
    >>> array_length(from_json(['{"a": [1, 2]}', '{"a": {}}', "5"]), "$.a").to_pylist()
    [2, None, None]
    """
    opened, located = located_at(column, path, "array_length", plain=plain)
    with opened.column.device.use():
        counts = child_counts(Source(opened, DEFAULT_LIMITS), located, ARRAY)
        field = pa.field(opened.column.name, pa.int64())
        return column_of(opened.column, field, validity_of(located.statuses), counts)


def _flags(opened: VariantColumn, valid: Any, flags: Any) -> Column:
    field = pa.field(opened.column.name, pa.bool_())
    return column_of(opened.column, field, bitmap.packed(valid), bitmap.packed(flags))


def concat(
    columns: Iterable[Any], *, name: str | None = None, plain: bool = False, limits: Limits | None = None
) -> Column:
    """Return Variant columns one behind the other, as one column.

    Parameters
    ----------
    columns
        Variant columns of one device, or their Arrow arrays; shredded ones are put together first. The result is
        there, too. Values are copied as they are, and each keeps its metadata.
    name
        That of the result; by default that of the first.
    plain
        Take structs that are not marked as Variants.
    limits
        ``extracted_bytes`` bounds the values, and the metadata.

    Returns
    -------
    Column
        As of :func:`bowstring.variant.from_python`.

    Raises
    ------
    UsageError
        No column, or one that is no Variant.
    NotOnDevice
        The columns are on two devices.
    LimitExceeded
        The result takes more than the limits, or than 2 GiB.

    Examples
    --------
    >>> from bowstring.variant.json.read import from_json
    >>> from bowstring.variant.python_objects import to_python
    >>> to_python(concat([from_json(['{"a": 1}', None]), from_json(['{"b": [2]}'])]))
    [{'a': 1}, None, {'b': [2]}]
    """
    limits = limits_or_default(limits)
    opened = [open_column(each, plain=plain) for each in columns]
    if not opened:
        raise UsageError("concat() takes columns", expected="one or more", found="none")
    device = opened[0].column.device
    for each in opened:
        if each.column.device is not device:
            raise NotOnDevice(
                "columns on two devices",
                expected=device.name,
                found=each.column.device.name,
                hint="Move one.",
            )
    with device.use():
        xp = device.xp
        sources = [Source(each, limits, name or opened[0].column.name) for each in opened]
        valid, sizes = zip(*map(_sizes, opened), strict=True)
        offsets, total = ends_of(sources[0], xp.concatenate(sizes), large=False)
        data, first = xp.zeros(total, np.uint8), 0
        blobs = [source.metadata_as(pa.large_binary())[0] for source in sources]
        indices, known = [], 0
        for each, source, blob in zip(opened, sources, blobs, strict=True):
            starts = each.value.starts[: each.rows].astype(np.int64)
            stops = each.value.stops[: each.rows].astype(np.int64)
            ends = offsets[first : first + each.rows + 1]
            launch_shared(copy_slots, each.rows, starts, stops, each.value.data, ends, data)
            # Behind the distinct metadata are the empty ones, for rows that have none.
            none = np.int32(len(blob) - 1)
            ids = source.dictionary.indices
            indices.append(xp.where(ids < np.int32(0), none, ids).astype(np.int32) + np.int32(known))
            first, known = first + each.rows, known + len(blob)
        texts = xp.concatenate([each.offsets[1:] - each.offsets[:-1] for each in blobs])
        ends, _ = ends_of(sources[0], texts.astype(np.int64), large=False)
        text = xp.concatenate([each.raw_values for each in blobs])
        metadata = values_batch(pa.binary(), ends.astype(np.int32), text, device)
        validity = bitmap.packed(xp.concatenate(valid))
        return variant_of(sources[0].name, validity, xp.concatenate(indices), metadata, offsets, data)


def _sizes(opened: VariantColumn) -> tuple[Any, Any]:
    """Return which rows have a value, and how many bytes: one, for a Variant null, where nothing is stored."""
    check_order(opened.value, opened.column.device, opened.column.name)
    xp, rows = opened.column.device.xp, opened.rows
    valid = bitmap.expanded(opened.validity, 0, rows) if len(opened.validity) else xp.ones(rows, np.uint8)
    valid = valid.astype(np.bool_)
    sizes = (opened.value.stops[:rows] - opened.value.starts[:rows]).astype(np.int64)
    if len(opened.value.validity):
        held = bitmap.expanded(opened.value.validity, 0, rows).astype(np.bool_)
        sizes = xp.where(held, sizes, np.int64(1))
    return valid, xp.where(valid, sizes, np.int64(0))
