"""Variant columns as kernels take them; shredded ones are put together first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.columnar.nodes import Kind
from bowstring.columnar.one_column import one_column
from bowstring.errors import InvalidBody
from bowstring.kernels.variant import shredded as codes
from bowstring.kernels.variant.shred import UNSIZED
from bowstring.limits import DEFAULT_LIMITS, Limits, limits_or_default
from bowstring.variant import column as columns
from bowstring.variant.column import VariantColumn
from bowstring.variant.nested import check_size
from bowstring.variant.shredded.encode import Names, bytes_of
from bowstring.variant.shredded.layout import flags_of, open_shredded

if TYPE_CHECKING:
    from bowstring.columnar.batch import Column
    from bowstring.memory import Device
    from bowstring.variant.shredded.encode import GroupBytes


_MOST_32: Final = (1 << 31) - 1
RULES: Final = {
    int(codes.CONFLICT): "a value beside a typed_value that is no object",
    int(codes.NOT_OBJECT): "a value that is no object beside shredded fields",
    int(codes.NO_NAME): "a shredded field whose name the metadata do not have",
    int(codes.BROKEN_VALUE): "a value that is no Variant value, or not within its buffer",
    int(codes.OUT_OF_RANGE): "a decimal or a time that is out of the range of its type",
    int(codes.TOO_LARGE): "an array or object of more than 4 GiB",
    int(codes.NO_TEXT): "a string that is not UTF-8",
    int(UNSIZED): "a value of a type that is not known",
    int(codes.TOO_MANY): "an object with a name twice, or whose fields share their bytes",
}


class Encoded(NamedTuple):
    """Variant values: `sizes` are negative where a rule is broken, and 0 where there is no value."""

    sizes: Any
    offsets: Any
    data: Any


def open_column(source: Any, *, plain: bool = False) -> VariantColumn:
    """Return a Variant column as kernels take it, without a copy of its values.

    Parameters
    ----------
    source
        A Column, a Batch of one column, or Arrow data of one column, marked ``arrow.parquet.variant`` or
        ``parquet.variant``. Its children are found by name: ``metadata`` and ``value``, each Binary, LargeBinary
        or BinaryView; the metadata may be dictionary- or run-end encoded. A row that is not null, and whose
        ``value`` is, has a Variant null: to every call, as Parquet says. A shredded column, which has a child
        ``typed_value``, is unshredded first: see :func:`bowstring.variant.unshred`.
    plain
        Take a struct that is not marked.

    Raises
    ------
    UsageError
        It is no Variant column.
    Unsupported
        It is shredded, and a column has a type that the specification does not have.
    InvalidBody
        Its offsets decrease, or a child is shorter than the column.
    LimitExceeded
        It has too many rows.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bowstring.variant import type
    >>> rows = pa.array([{"metadata": bytes([1, 0, 0]), "value": bytes([12, 42])}], type().storage_type)
    >>> open_column(pa.record_batch({"v": rows}), plain=True).rows
    1
    """
    column = one_column(source, "variant")
    with column.device.use():
        columns.check_mark(column, plain=plain)
        return columns.opened_of(unshredded(column) if columns.is_shredded(column) else column)


def unshred(column: Any, *, plain: bool = False, limits: Limits | None = None) -> Column:
    r"""Return a shredded Variant column as one of ``metadata`` and ``value``; any other Variant column as it is.

    A field that is in a typed column wins over one of its name in ``value``. What is missing where a value is
    required is a Variant null. The metadata are those of the column, not copied.

    Parameters
    ----------
    column, plain
        As for :func:`bowstring.variant.get`.
    limits
        ``extracted_bytes`` bounds the values.

    Returns
    -------
    Column

    Raises
    ------
    UsageError
        No Variant column.
    Unsupported
        A column has a type that the specification does not have; the error names the rule.
    InvalidBody
        A row breaks a rule of the specification; the error names both.
    LimitExceeded
        The values take more than the limits.

    Examples
    --------
    >>> import pyarrow as pa
    >>> type_ = pa.struct({"metadata": pa.binary(), "value": pa.binary(), "typed_value": pa.int64()})
    >>> rows = [{"metadata": b"\x01\x00\x00", "value": None, "typed_value": 34}]
    >>> from bowstring.variant.python_objects import to_python
    >>> to_python(unshred(pa.array(rows, type_), plain=True))
    [34]
    """
    limits = limits_or_default(limits)
    found = one_column(column, "variant")
    columns.check_mark(found, plain=plain)
    return unshredded(found, strict=True, limits=limits) if columns.is_shredded(found) else found


def unshredded(column: Column, *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> Column:
    """Return a shredded column with its values put together; unless `strict`, a row that breaks a rule has a
    value of no bytes.
    """
    with column.device.use():
        shredded = open_shredded(column)
        known = Names(column.device, columns.dictionary_of(shredded.opened))
        present = flags_of(column.device, len(column), column)
        encoded = encode(
            column.device,
            bytes_of(shredded.group, known),
            known.dictionary.indices,
            present,
            column.name,
            limits,
        )
        if strict:
            raise_rule(encoded.sizes, column)
        return with_values(column, encoded.offsets, encoded.data)


def encode(
    device: Device, source: GroupBytes, groups: Any, wanted: Any, name: str, limits: Limits
) -> Encoded:
    """Return the values of the slots that are `wanted`, within the limits."""
    xp = device.xp
    sizes = xp.where(wanted, source.measure(groups), np.int64(0))
    taken = xp.where(sizes > np.int64(0), sizes, np.int64(0))
    offsets = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(taken, dtype=np.int64)])
    total = int(device.to_host(offsets[-1:])[0])
    check_size(total, limits, name)
    data = xp.zeros(total, np.uint8)
    source.write(xp.where(sizes > np.int64(0), offsets[:-1], np.int64(-1)), data)
    return Encoded(sizes, offsets, data)


def raise_rule(sizes: Any, column: Column) -> None:
    """Raise for the first row whose size is the code of a rule that it breaks."""
    device = column.device
    wrong = device.xp.flatnonzero(sizes < np.int64(0))
    if len(wrong):
        row = int(device.to_host(wrong[:1])[0])
        code = int(device.to_host(sizes[row : row + 1])[0])
        raise InvalidBody(
            f"a row of a Variant column breaks a rule: {RULES[code]}",
            found=f"{len(wrong)} such rows",
            where=f"{column.name}, row {row}",
        )


def with_values(column: Column, offsets: Any, data: Any) -> Column:
    """Return a Variant column of the metadata of another, and of values."""
    values = columns.binary_values(offsets, data, large=len(data) > _MOST_32)
    [node] = columns.part_of(column).nodes[:1]
    gathered = columns.with_metadata(column, column.field, node, column._buffer(Kind.VALIDITY), [values])
    return columns.batch_of([gathered], column)[0]
