"""Variant columns from Python objects: blocks of plain rows, which kernels encode from what ``marshal`` writes."""

from __future__ import annotations

import marshal
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from bowstring.columnar.batch import Column
from bowstring.errors import BowstringError, UsageError
from bowstring.kernels import bitmap
from bowstring.kernels.json.keys import KEYS, LENGTH, NAME, NO_ROOM, POOL_END, START, STATE
from bowstring.kernels.json.tree import NODE
from bowstring.kernels.json.write import measure_rows, write_rows
from bowstring.kernels.launch import launch
from bowstring.kernels.variant import read_objects as objects
from bowstring.limits import Limits, limits_or_default
from bowstring.memory import device_by_name
from bowstring.variant.codec.rows import in_row
from bowstring.variant.column import BLOCK_ROWS, metadata_values, variant_of
from bowstring.variant.json.waves import Keys, join_keys
from bowstring.variant.python_values import LARGEST, PlainRows, too_large

_VERSION: Final = 4
"""Of what ``marshal`` writes: the one that names objects that occur again, and that every Python since 3.4 has."""
_LONGEST: Final = (1 << 32) - 1
# What most rows need. Memory that is not written takes none.
_NODES: Final = 1 << 15
_TABLE: Final = 512
_POOL: Final = 1 << 13
_MOST_SHARED: Final = 1 << 20
"""Nodes of a list in which containers occur again: else Python copies them, within its bounds."""
_Array = np.ndarray[Any, Any]


def _written(rows: Sequence[Any]) -> bytes:
    """Return what ``marshal`` would write of rows that are plain, however deep they are nested."""
    out: list[bytes] = []
    end = object()
    work: list[Any] = [rows]
    while work:
        thing = work.pop()
        if thing is end:
            out.append(b"0")
        elif type(thing) is dict:
            out.append(b"{")
            work.append(end)
            for key, child in reversed(thing.items()):
                work += child, key
        elif type(thing) is list:
            out.append(b"[" + len(thing).to_bytes(4, "little"))
            work += reversed(thing)
        else:
            out.append(marshal.dumps(thing, _VERSION))
    return b"".join(out)


class _Chunk(NamedTuple):
    """Rows that were read together."""

    data: _Array
    firsts: _Array
    counts: _Array
    nodes: _Array
    keys: Keys


class Block:
    """Rows that share a dictionary of names. `nbytes` counts values, a byte for the head of each container;
    `nodes` takes 32 bytes each until the block is finished.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._chunks: list[_Chunk] = []
        self._seed = secrets.randbits(64)
        self._nodes, self._slots, self._pool = _NODES, _TABLE, _POOL
        self._refs = np.empty(0, np.uint64)
        self.rows = self.nbytes = self.nodes = 0

    def take(self, rows: Sequence[Any], most: int, *, encoded: bool = False) -> bool:
        """Add rows; return False, and add none, where there is something among them that is not plain, or `nbytes`
        would be more than `most`. Bytes are values of their own if they are `encoded`.
        """
        try:
            stream = marshal.dumps(list(rows), _VERSION)
        except ValueError:  # of another type, or nested deeper than it goes
            if not encoded:
                return False
            stream = _written(rows)
        if len(stream) > _LONGEST:
            return False
        data = np.frombuffer(stream, np.uint8)
        firsts, counts = np.empty(len(rows), np.uint64), np.zeros(len(rows), np.uint64)
        if len(self._refs) < len(data):
            self._refs = np.empty(len(data), np.uint64)  # two words for each object, of two bytes at least
        while True:
            nodes = np.empty(self._nodes * int(NODE), np.uint64)
            table = np.zeros(self._slots, np.uint64)
            names = np.empty(self._slots // 2 * int(NAME), np.uint64)
            pool = np.empty(self._pool, np.uint8)
            states = np.zeros(int(STATE), np.uint64)
            plan = np.array([0, 0, 0, self._nodes, 0, self._slots, 0, self._pool], np.uint64)
            rule = int(objects.ENCODED) if encoded else 0
            scratch = self._refs, nodes, table, names, pool, states
            launch(
                objects.read_objects, 1, data, plan, rule, self._depth, self._seed, firsts, counts, *scratch
            )
            if states[NO_ROOM] == objects.KEYS_FULL:
                self._slots, self._pool = self._slots * 4, self._pool * 4
            elif states[NO_ROOM] == objects.NODES_FULL:
                # None takes less than a byte; more than these are containers that occur again, in each other.
                if self._nodes > min(most, max(_MOST_SHARED, len(data))):
                    self._nodes = _NODES
                    return False
                self._nodes *= 2
            else:
                break
        nbytes = self.nbytes + int(states[objects.BYTES])
        if states[objects.REFUSED] or nbytes > most:
            return False
        read = names.reshape(-1, int(NAME))[: int(states[KEYS])]
        text = pool[: int(states[POOL_END])].copy()
        starts, lengths = read[:, int(START)].copy(), read[:, int(LENGTH)].copy()
        keys = Keys(text, starts, lengths, np.array([len(read)]))
        self._chunks.append(_Chunk(data, firsts, counts, nodes, keys))
        used = int(firsts[-1] + counts[-1])
        self._nodes = max(_NODES, min(self._nodes, 2 * used))  # rows of a later list may be smaller
        self.nodes += used
        self.rows += len(rows)
        self.nbytes = nbytes
        return True

    def finish(self) -> tuple[bytes, _Array, _Array, list[_Array]]:
        """Return the metadata of the block, the size of each row, which rows are not null, and their values."""
        [metadata], ranks = join_keys(
            [chunk.keys for chunk in self._chunks], np.array([0, len(self._chunks)])
        )
        ends = np.cumsum([len(chunk.keys.starts) for chunk in self._chunks])
        sizes, values = [], []
        for chunk, ranked in zip(self._chunks, np.split(ranks, ends[:-1]), strict=True):
            rows = len(chunk.counts)
            children = np.empty(len(chunk.nodes) // int(NODE), np.uint64)
            measured = np.empty(rows, np.int64)
            read = chunk.firsts, chunk.counts
            bases = np.zeros(rows, np.uint64)
            launch(measure_rows, rows, *read, bases, ranked, chunk.nodes, children, measured)
            offsets = np.concatenate([np.zeros(1, np.int64), measured.cumsum()])
            out = np.empty(int(offsets[-1]), np.uint8)
            if len(out):
                # The text has no escapes: where its rows end is not looked at.
                stops = bases.view(np.int64)
                launch(write_rows, rows, chunk.data, stops, *read, offsets, chunk.nodes, children, out)
            sizes.append(measured)
            values.append(out)
        valid = np.concatenate([chunk.counts > 0 for chunk in self._chunks])
        return metadata, np.concatenate(sizes), valid, values


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
            row = self._plain.copy(thing)
        except BowstringError as error:
            self._plain.nbytes = before
            raise in_row(error, len(self)) from error
        self._waiting.append(row)
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
        is_table = hasattr(things, "columns")
        is_row = isinstance(things, Mapping | str | bytes | bytearray | memoryview)
        if is_table or is_row or not isinstance(things, Iterable):
            # It would be iterated by its keys, letters or names of columns.
            raise UsageError(
                "from_python() takes an iterable of rows",
                expected="a list, or another iterable of objects, one for each row",
                found=f"a {type(things).__name__} alone",
                hint='Give table.to_pylist(), or frame.to_dict("records").'
                if is_table
                else "For one row give [row].",
            )
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
        valid: Any = np.concatenate([np.zeros(0, np.bool_), *self._valid])
        offsets = np.concatenate([np.zeros(1, np.int64), *self._sizes]).cumsum().astype(np.int32)
        data = np.concatenate([np.zeros(0, np.uint8), *self._values])
        indices = np.repeat(np.array(self._numbers, np.int32), [len(each) for each in self._valid])
        metadata = metadata_values(self._metadata, self._rows, device_by_name("cpu"))
        self._start()
        validity = None if valid.all() else bitmap.packed(valid)
        return variant_of(self._name, validity, indices, metadata, offsets, data)


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
