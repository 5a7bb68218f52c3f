"""Variant columns from Python objects, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.column import Column
from bowstring.errors import BowstringError, LimitExceeded, UsageError
from bowstring.limits import Limits, limits_or_default
from bowstring.variant.build import BLOCK_ROWS, column_of, storage_array, variant_field
from bowstring.variant.codec.rows import in_row
from bowstring.variant.drafts import Block

_LARGEST: Final = (1 << 31) - 1


class VariantBuilder:
    """Builds a Variant column row by row.

    Parameters
    ----------
    name
        That of the column.
    limits
        ``depth`` bounds the nesting of a row, ``extracted_bytes`` the values of the column.

    Examples
    --------
    >>> builder = VariantBuilder("event")
    >>> builder.append({"id": 1, "tags": ["new"]})
    >>> builder.extend([None, 2.5])
    >>> len(builder), builder.finish().name
    (3, 'event')
    """

    def __init__(self, name: str = "variant", *, limits: Limits | None = None) -> None:
        limits = limits_or_default(limits)
        self._name = name
        self._limits = limits
        self._start()

    def _start(self) -> None:
        self._most = min(self._limits.extracted_bytes, _LARGEST)
        self._block = Block(self._limits.depth)
        self._metadata: dict[bytes, int] = {}
        self._numbers: list[int] = []
        self._values: list[bytes] = []
        self._sizes: list[np.ndarray[Any, Any]] = []
        self._valid: list[np.ndarray[Any, Any]] = []
        self._rows = self._nbytes = 0

    def __len__(self) -> int:
        return self._rows + len(self._block.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the values, without the heads of objects whose names have no ids yet."""
        return self._nbytes + self._block.nbytes

    def append(self, thing: Any) -> None:
        """Add a row: an object as :func:`from_python` takes it, read now; None is an SQL NULL.

        Raises
        ------
        UsageError
            An object, or a key, that no Variant can hold; the error says the row and the place.
        LimitExceeded
            Too deep, or the values take more than the limits, or than 2 GiB.
        """
        block = self._block
        try:
            block.append(thing)
        except BowstringError as error:
            raise in_row(error, len(self)) from error
        if self._nbytes + block.nbytes > self._most:
            raise self._too_large()
        if len(block.rows) == BLOCK_ROWS:
            self._flush()

    def extend(self, things: Iterable[Any]) -> None:
        """Add rows, one for each object of an iterable.

        Raises
        ------
        UsageError, LimitExceeded
            As for :meth:`append`; or it is no iterable of rows.
        """
        _refuse_one(things)
        for thing in things:
            self.append(thing)

    def _too_large(self) -> LimitExceeded:
        return LimitExceeded(
            "the values of a Variant column take too many bytes",
            expected=f"at most {self._most} bytes",
            found=self.nbytes,
            where=f"row {len(self) - 1}",
            hint="Make several columns of fewer rows."
            if self._most == _LARGEST
            else "Make several columns of fewer rows, or raise Limits.extracted_bytes.",
        )

    def _flush(self) -> None:
        """Encode the block."""
        block, self._block = self._block, Block(self._limits.depth)
        if not block.rows:
            return
        metadata, values = block.finish()
        self._numbers.append(self._metadata.setdefault(metadata, len(self._metadata)))
        self._valid.append(np.array([value is not None for value in values], np.bool_))
        self._sizes.append(np.array([0 if value is None else len(value) for value in values], np.int64))
        self._values.append(b"".join(value for value in values if value is not None))
        self._rows += len(values)
        self._nbytes += len(self._values[-1])
        if self._nbytes > self._most:
            raise self._too_large()

    def finish(self) -> Column:
        """Return the column, and start anew.

        Returns
        -------
        Column
            As of :func:`from_python`.

        Raises
        ------
        LimitExceeded
            The values take more than the limits, or than 2 GiB.
        """
        self._flush()
        valid = np.concatenate([np.zeros(0, np.bool_), *self._valid])
        offsets = np.concatenate([np.zeros(1, np.int64), *self._sizes]).cumsum().astype(np.int32)
        data = b"".join(self._values)
        indices = np.repeat(np.array(self._numbers, np.int32), BLOCK_ROWS)[: self._rows]
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        values = pa.Array.from_buffers(pa.binary(), self._rows, buffers, null_count=0)
        mask = None if valid.all() else pa.array(~valid)
        metadata = self._metadata
        self._start()
        return column_of(storage_array(indices, metadata, values, mask), variant_field(self._name))


def from_python(things: Iterable[Any], *, name: str = "variant", limits: Limits | None = None) -> Column:
    """Return Python objects as a Variant column, one row each.

    Parameters
    ----------
    things
        An iterable of objects, one for each row; a dict or a str alone is refused. Objects are None, ``pandas.NA``
        and ``NaT`` (an SQL NULL as a row, a Variant null inside of one), bool, int (the narrowest type that holds
        it; beyond 64 bits a decimal of 38 digits), float, :class:`decimal.Decimal`, str, bytes, :class:`uuid.UUID`,
        date, time, datetime (aware: an instant; naive: a local time), NumPy's and pandas' scalars, mappings
        with text for keys, lists, tuples and NumPy arrays; and :class:`Value`, which says its type itself:
        ``Value("null", None)`` at the top is a Variant null.
    name
        That of the column.
    limits
        ``depth`` bounds the nesting.

    Returns
    -------
    Column
        ``struct<metadata: dictionary<int32, binary>, value: binary>``, marked ``arrow.parquet.variant``. Every
        65,536 rows share one dictionary of names.

    Raises
    ------
    UsageError
        No iterable of rows; an object, or a key, that no Variant can hold.
    LimitExceeded
        Too deep, or more than 2 GiB of values.

    Examples
    --------
    >>> from bowstring.variant.python_objects import to_python
    >>> column = from_python([{"id": 1, "tags": ["a", None]}, None])
    >>> column.field.metadata[b"ARROW:extension:name"], to_python(column)
    (b'arrow.parquet.variant', [{'id': 1, 'tags': ['a', None]}, None])
    """
    limits = limits_or_default(limits)
    builder = VariantBuilder(name, limits=limits)
    builder.extend(things)
    return builder.finish()


def _refuse_one(things: object) -> None:
    """Refuse what is one row, and what would be iterated by its keys, letters or names of columns."""
    is_table = hasattr(things, "columns")
    is_row = isinstance(things, Mapping | str | bytes | bytearray | memoryview)
    if is_table or is_row or not isinstance(things, Iterable):
        raise UsageError(
            "from_python() takes an iterable of rows",
            expected="a list, or another iterable of objects, one for each row",
            found=f"a {type(things).__name__} alone",
            hint='Give table.to_pylist(), or frame.to_dict("records").'
            if is_table
            else "For one row give [row].",
        )
