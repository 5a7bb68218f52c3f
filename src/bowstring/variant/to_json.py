"""JSON text of a Variant column, by kernels on the column's device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from bowstring.columnar.column import Column
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.variant.column import open_column
from bowstring.variant.json.rules import Rules, check_rules
from bowstring.variant.json.writer import texts_of
from bowstring.variant.result import Gathered, batch_of, buffer_or_none, validity_of
from bowstring.variant.row_errors import first_error, raise_error
from bowstring.variant.walk import Places, check_order, classes_of

__all__ = ["to_json"]


def to_json(
    column: Any, *, rules: Rules = "plain", plain: bool = False, limits: Limits = DEFAULT_LIMITS
) -> Column:
    """Return each row of a Variant column as JSON text.

    Parameters
    ----------
    column
        A Variant column, or its Arrow array. It stays where it is, and so does the result.
    rules
        ``"plain"``: decimals with all their digits, ISO 8601 with ``T``, six or nine digits and ``Z`` for
        instants, shortest doubles as Python writes them. ``"spark"``: as Spark's ``to_json`` in UTC: decimals
        without trailing zeros, a blank between date and time and no trailing zeros of a second, doubles in
        Java's notation (with the shortest digits, as Java 19 on). Both: binary as Base64, NaN and infinities as
        strings, keys in the order of the object, text as it is but for what JSON must escape.
    plain
        Take a struct that is not marked as a Variant.
    limits
        ``depth`` bounds the nesting, ``decompression_ratio`` how many times larger than their bytes values may
        be that are views of the same ones.

    Returns
    -------
    Column
        ``string``; null where the row is an SQL NULL, ``null`` where it is a Variant null.

    Raises
    ------
    InvalidBody, Truncated, Unsupported, LimitExceeded
        A value is not what the specification says, or too deep, or an object has thousands of keys in no order;
        the error says the row. Or the text takes more than 2 GiB.

    Examples
    --------
    >>> from bowstring.variant.json.read import from_json
    >>> column = from_json(['{"b": 1.50, "a": [true, null]}', None])
    >>> to_json(column).to_arrow().to_pylist()
    ['{"a":[true,null],"b":1.50}', None]
    """
    check_rules(rules)
    opened = open_column(column, plain=plain)
    with opened.column.device.use():
        check_order(opened, opened.value)
        texts = texts_of(opened, classes_of(opened), rules=rules, limits=limits)
        device = opened.column.device
        row = first_error(texts.statuses, device)
        if row is not None:
            raise_error(opened, row, texts.statuses, limits)
        arrays = texts.offsets.astype(np.int32), texts.data
        buffers = [
            validity_of(Places(None, texts.statuses), device),
            *(buffer_or_none(each, device) for each in arrays),
        ]
        field = pa.field(opened.column.name, pa.string())
        return batch_of([Gathered(field, [(opened.rows, -1)], buffers)], opened)[0]
