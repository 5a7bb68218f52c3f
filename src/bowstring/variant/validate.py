"""Validation: a status for every row, whatever stands in its bytes, in time that their length bounds."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bowstring.columnar.batch import Column
from bowstring.columnar.slots import check_order
from bowstring.kernels.launch import launch
from bowstring.kernels.variant.validate import WORDS, validate_values
from bowstring.limits import Limits, limits_or_default
from bowstring.variant.column import MetadataDictionary, VariantColumn, batch_of, dictionary_of
from bowstring.variant.shredded.unshred import open_column
from bowstring.variant.status import status_column

# So many work items at most, for each needs scratch of its own.
_ITEMS: Final = 4096
_SMALLEST_BLOCK: Final = 64


def validate(column: Any, *, full: bool = True, plain: bool = False, limits: Limits | None = None) -> Column:
    r"""Return the status of every row of a Variant column.

    ``OK`` (a Variant null is a value like any other), ``SQL_NULL``, and ``VARIANT_NULL`` (a row that is not null,
    with nothing in its `value`: readers take it for a Variant null) are right. ``MALFORMED`` is wrong by the
    format, ``UNSUPPORTED`` holds a primitive type that the format does not name, ``TOO_DEEP`` is nested deeper
    than ``limits.depth``, or shares children so often that reading all of it would take longer than its length
    allows: no more values are visited than it has bytes, and no more than 16 times its bytes of text are read.

    Parameters
    ----------
    column, plain
        As for :func:`bowstring.variant.get`.
    full
        Look at every child: widths, counts, offsets, UTF-8, decimals and times in range, names in the order of
        their UTF-8 bytes and none twice, a flag for sorted names that does not lie. Otherwise only at the header
        of each value, and at the offsets of the metadata.
    limits
        ``depth`` bounds the nesting.

    Returns
    -------
    Column
        Named ``status``: uint8, as :class:`~bowstring.variant.Status` numbers them.

    Raises
    ------
    UsageError, Unsupported
        It is no Variant column, or it is shredded.
    InvalidBody
        The offsets of the column itself decrease.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bowstring.variant import type as variant_type
    >>> rows = [{"metadata": b"\x01\x00\x00", "value": value} for value in (bytes([12, 42]), bytes([12]))]
    >>> events = pa.record_batch({"event": pa.array(rows, variant_type().storage_type)})
    >>> validate(events, plain=True).values.tolist()
    [0, 6]
    """
    limits = limits_or_default(limits)
    opened = open_column(column, plain=plain)
    with opened.column.device.use():
        statuses = statuses_of(opened, dictionary_of(opened, full=full), full=full, limits=limits)
        return batch_of([status_column("status", statuses)], opened.column)[0]


def statuses_of(
    opened: VariantColumn, dictionary: MetadataDictionary, *, full: bool = True, limits: Limits
) -> Any:
    """Return the status of every row of a column whose metadata were inspected, as fully as values are now."""
    check_order(opened.value, opened.column.device, opened.column.name)
    device, rows = opened.column.device, opened.rows
    block = max(_SMALLEST_BLOCK, -(-rows // _ITEMS))
    items = -(-rows // block)
    scratch = device.xp.empty(items * limits.depth * int(WORDS), np.uint64)
    statuses = device.xp.empty(rows, np.uint8)
    value = opened.value
    slots = opened.validity, value.validity, value.starts, value.stops, value.data, dictionary.indices
    names = dictionary.starts, dictionary.stops, dictionary.data, dictionary.marks
    rule = int(full), limits.depth
    launch(validate_values, items, block, *slots, *names, *rule, scratch, statuses)
    return statuses
