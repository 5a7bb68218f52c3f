"""Variant columns from JSON text, read column-wise by kernels.

Parts of the rows are read into nodes and numbered keys (:mod:`bowstring.kernels.json.read`); the keys of all parts
of a block are joined and sorted; then nodes are measured and written, fields in the order of their keys.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from bowstring.columnar.column import Column
from bowstring.errors import UsageError
from bowstring.kernels.json.format import NOTHING
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.variant.json.column import Building
from bowstring.variant.json.errors import error_of
from bowstring.variant.json.plan import parts_of, waves_of
from bowstring.variant.json.rules import Rules, check_rules
from bowstring.variant.json.source import Texts, texts_of
from bowstring.variant.json.waves import Read, Waves

__all__ = ["from_json"]


def from_json(
    texts: Any,
    *,
    rules: Rules = "plain",
    on_error: Literal["raise", "null"] = "raise",
    name: str = "variant",
    limits: Limits = DEFAULT_LIMITS,
) -> Column:
    """Return JSON texts as a Variant column.

    Integers take the narrowest type that holds them. Numbers without an exponent that have at most 38 digits,
    and as many behind the point, become decimals with exactly these digits, integers beyond 64 bits among them;
    all others the nearest double. An object with a key twice is refused, and so are ``NaN``, ``Infinity`` and
    half a surrogate pair.

    It is JSON as RFC 8259 has it, and nothing else. Every 65,536 rows, counted from the first, have a dictionary of
    keys of their own, in the order of their UTF-8; the result does not depend on how many threads there are.

    Parameters
    ----------
    texts
        A column of text of any type (or binary: UTF-8): a Column, a Batch or Arrow data of one, an Arrow array;
        or an iterable of str, bytes and None. Null rows become SQL NULLs.
    rules
        ``"plain"``: a number beyond the doubles is refused, ``-0.0`` stays a double. ``"spark"``: it becomes an
        infinity, ``-0.0`` the decimal 0.0, as with Spark's ``parse_json``; what is behind the value is refused,
        where Spark does not look at it.
    on_error
        What becomes of a text that is refused: ``"raise"``, or ``"null"`` for an SQL NULL.
    name
        That of the column.
    limits
        ``depth`` bounds the nesting, ``json_bytes`` the text of a row, and
        ``decompression_ratio`` how many times larger than its buffer text may be that rows share;
        ``decompression_floor`` the rows of nulls and of runs, which take no bytes of their own.

    Returns
    -------
    Column
        As of :func:`bowstring.variant.from_python`, on the device of the texts.

    Raises
    ------
    InvalidBody
        A text is no JSON, or one of the above; the error says its row, and the byte.
    LimitExceeded
        Nested too deeply, a text too long, more than 2 GiB of values, or rows that share too much text.
    MissingDependency
        numba is not installed.

    Examples
    --------
    >>> from bowstring.variant.python.convert import to_python
    >>> to_python(from_json(['{"a": [1, 2.50, 1e3]}', "null"]))
    [{'a': [1, Decimal('2.50'), 1000.0]}, None]
    """
    check_rules(rules)
    if on_error not in ("raise", "null"):
        raise UsageError("on_error", expected="'raise' or 'null'", found=repr(on_error))
    source = texts_of(texts, limits)
    with source.device.use():
        parts = parts_of(source)
        waves = Waves(source, parts, spark=rules == "spark", limits=limits)
        building = Building(source)
        for group in waves_of(parts):
            reads = [waves.read(wave) for wave in group]
            if on_error == "raise":
                for read in reads:
                    _raise_first(read, source, limits)
            ranks = building.join(parts, group, reads)
            for k, wave in enumerate(group):
                # Of a block that takes several waves only the keys were kept.
                read = reads[k] if len(group) == 1 else waves.read_again(wave, reads[k])
                building.add(waves, read, ranks[k])
        return building.column(name)


def _raise_first(read: Read, texts: Texts, limits: Limits) -> None:
    """Raise the error of the first row of a wave that was refused."""
    refused = np.flatnonzero(read.statuses > NOTHING)
    if len(refused):
        first = int(refused[0])
        row = read.rows.start + first
        text = texts.data[int(texts.starts[row]) : int(texts.stops[row])]
        raise error_of(
            int(read.statuses[first]),
            texts.device.to_host(text).tobytes(),
            int(read.places[first]),
            row,
            limits,
        )
