"""Variant columns from Python objects, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.column import Column
from bowstring.errors import BowstringError, UsageError
from bowstring.limits import Limits, limits_or_default
from bowstring.variant.build import BLOCK_ROWS, column_of, storage_array, variant_field
from bowstring.variant.codec.rows import in_row
from bowstring.variant.python_blocks import Block
from bowstring.variant.python_rows import LARGEST, PlainRows, too_large

_MOST_NODES: Final = 1 << 22  # of a block: 128 MiB
# Rows that are read together: so many that little is left of what a call takes, and few enough for the caches.
_FIRST_ROWS, _MOST_ROWS, _CHUNK_BYTES = 256, 4096, 1 << 19


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
        self._most = min(self._limits.extracted_bytes, LARGEST)
        self._plain = PlainRows(self._limits.depth, self._most)
        self._block = Block(self._limits.depth)
        # Copies of rows that are not in the block yet.
        self._waiting: list[Any] = []
        self._metadata: dict[bytes, int] = {}
        self._numbers: list[int] = []
        self._values: list[np.ndarray[Any, Any]] = []
        self._sizes: list[np.ndarray[Any, Any]] = []
        self._valid: list[np.ndarray[Any, Any]] = []
        self._rows = self._nbytes = 0
        self._step = _FIRST_ROWS

    def __len__(self) -> int:
        return self._rows + self._block.rows + len(self._waiting)

    @property
    def nbytes(self) -> int:
        """Bytes of the values, with one byte for the head of each container that is not encoded yet."""
        return self._nbytes + self._block.nbytes + self._plain.nbytes

    def append(self, thing: Any) -> None:
        """Add a row: an object as :func:`from_python` takes it, read now; None is an SQL NULL.

        Raises
        ------
        UsageError
            An object, or a key, that no Variant can hold; the error says the row and the place.
        LimitExceeded
            Too deep, or the values take more than the limits, or than 2 GiB.
        """
        before = self._plain.nbytes
        try:
            made = self._plain.copy(thing)
        except BowstringError as error:
            self._plain.nbytes = before
            raise in_row(error, len(self)) from error
        self._waiting.append(made)
        if self.nbytes > self._most:
            raise self._too_large(len(self) - 1, self.nbytes)
        if len(self._waiting) in (_MOST_ROWS, BLOCK_ROWS - self._block.rows):
            self._take_waiting()

    def extend(self, things: Iterable[Any]) -> None:
        """Add rows, one for each object of an iterable.

        Raises
        ------
        UsageError, LimitExceeded
            As for :meth:`append`; or it is not an iterable of rows.
        """
        _refuse_one(things)
        if type(things) not in (list, tuple):
            # It may yield one object again and again, changed in between.
            for thing in things:
                self.append(thing)
            return
        self._take_waiting()
        first = 0
        while first < len(things):  # type: ignore[arg-type]  # it has a length
            before = self._block.nbytes
            part = things[first : first + min(self._step, BLOCK_ROWS - self._block.rows)]  # type: ignore[index]
            first += len(part)
            if self._take(part):
                taken = max(1, self._block.nbytes - before)
                self._step = max(1, min(_MOST_ROWS, len(part) * _CHUNK_BYTES // taken))
            else:
                for thing in part:
                    self.append(thing)
                self._take_waiting()

    def _take_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._plain.nbytes = 0
        self._take_encoded(waiting)

    def _take_encoded(self, rows: list[Any]) -> None:
        if rows and not self._take(rows, encoded=True):
            if len(rows) == 1:
                raise self._too_large(len(self), self._most + 1)
            half = len(rows) // 2
            self._take_encoded(rows[:half])
            self._take_encoded(rows[half:])

    def _take(self, rows: Any, *, encoded: bool = False) -> bool:
        """Add rows to the block; return False, and add none, where there is something that must be copied first."""
        taken = self._block.take(rows, self._most - self._nbytes, encoded=encoded)
        if self._block.rows == BLOCK_ROWS or self._block.nodes >= _MOST_NODES:
            self._flush()
        return taken

    def _too_large(self, row: int, nbytes: int) -> BowstringError:
        return in_row(too_large(self._most, nbytes), row)

    def _flush(self) -> None:
        """Encode the block."""
        block, self._block = self._block, Block(self._limits.depth)
        if not block.rows:
            return
        metadata, sizes, valid, values = block.finish()
        ends = self._nbytes + sizes.cumsum()
        if ends[-1] > self._most:
            over = int(np.searchsorted(ends, self._most, side="right"))
            raise self._too_large(self._rows + over, int(ends[over]))
        self._numbers.append(self._metadata.setdefault(metadata, len(self._metadata)))
        self._valid.append(valid)
        self._sizes.append(sizes)
        self._values += values
        self._rows += block.rows
        self._nbytes = int(ends[-1])

    def finish(self) -> Column:
        """Return the column, and start anew.

        Returns
        -------
        Column
            As of :func:`from_python`.

        Raises
        ------
        LimitExceeded
            The values take more than the limits, or they or the keys more than 2 GiB.
        """
        self._take_waiting()
        self._flush()
        valid = np.concatenate([np.zeros(0, np.bool_), *self._valid])
        offsets = np.concatenate([np.zeros(1, np.int64), *self._sizes]).cumsum().astype(np.int32)
        data = np.concatenate([np.zeros(0, np.uint8), *self._values])
        indices = np.repeat(np.array(self._numbers, np.int32), [len(each) for each in self._valid])
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
        ``struct<metadata: dictionary<int32, binary>, value: binary>``, marked ``arrow.parquet.variant``. Up to
        65,536 rows share one dictionary of names.

    Raises
    ------
    UsageError
        No iterable of rows; an object, or a key, that no Variant can hold.
    LimitExceeded
        Too deep, or more than 2 GiB of values or of keys.

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
