"""The status of a row; results as columns; the error of a row; and values that became null, which calls warn of."""

from __future__ import annotations

import dataclasses
import enum
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import Dictionary, batch_parts, make_batch
from bowstring.columnar.spans import buffer_or_none
from bowstring.errors import BowstringError, InvalidBody, LimitExceeded, Unsupported, warn_caller
from bowstring.kernels import bitmap
from bowstring.variant.codec.decode import decode
from bowstring.variant.codec.rows import in_row, raw_row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bowstring.columnar.batch import Column
    from bowstring.limits import Limits
    from bowstring.memory import Buffer, Device
    from bowstring.variant.codec.primitives import Value
    from bowstring.variant.column import VariantColumn


class Status(enum.IntEnum):
    """The status of a row of a Variant column.

    SQL NULL, missing and the Variant null are three different things, and none of them is an error.

    Examples
    --------
    >>> Status(2).name, Status.MALFORMED.is_error
    ('MISSING', True)
    """

    OK = 0
    """There is a value."""
    SQL_NULL = 1
    """The row itself is null."""
    MISSING = 2
    """The path leads nowhere: no such field, no such element, or nothing to step into."""
    VARIANT_NULL = 3
    """The path leads to a Variant null."""
    TYPE_MISMATCH = 4
    """The value is of another kind than the type that was asked for."""
    OVERFLOW = 5
    """The value is of the right kind, and the type cannot hold it without loss."""
    MALFORMED = 6
    """The bytes are not what the format says."""
    UNSUPPORTED = 7
    """The value is of a primitive type that the format has no name for yet, or one that the cast cannot do."""
    TOO_DEEP = 8
    """The value is nested deeper than allowed, or shares its children so often that the work has no bound."""

    @property
    def is_error(self) -> bool:
        """Whether ``on_error="raise"`` raises."""
        return self > Status.VARIANT_NULL


_MOST_READ: Final = 1 << 21
"""The most bytes of a row that are read once more, in Python, to say where in it the fault lies."""


@dataclasses.dataclass(frozen=True, slots=True)
class Gathered:
    """One column, in the parts that a batch is put together from.

    `dictionaries` has, in pre-order, the id of one of the source's, or the values of a new one.
    """

    field: pa.Field
    nodes: list[tuple[int, int]]
    buffers: list[Buffer | None]
    variadic_counts: tuple[int, ...] = ()
    dictionaries: tuple[int | Batch, ...] = ()


def holding(field: pa.Field, node: tuple[int, int], buffers: list[Any], children: list[Gathered]) -> Gathered:
    """Return a column that holds others, in pre-order."""
    return Gathered(
        field,
        [node, *(each for child in children for each in child.nodes)],
        [*buffers, *(each for child in children for each in child.buffers)],
        tuple(count for child in children for count in child.variadic_counts),
        tuple(each for child in children for each in child.dictionaries),
    )


def part_of(column: Column) -> Gathered:
    """Return a column, or a child of one, in its parts as they are; its dictionaries are those of its batch."""
    first, end = column._index, column._node.end
    layout, nodes, buffers, counts = batch_parts(column.batch)
    bounds = layout.first_buffers(counts)
    counted = zip(layout.variadic_nodes, counts, strict=True)
    return Gathered(
        column.field,
        list(map(tuple, nodes[first:end].tolist())),
        list(buffers[int(bounds[first]) : int(bounds[end])]),
        tuple(count for node, count in counted if first <= node < end),
        layout.alone(first, column.field).dictionary_ids,
    )


def batch_of(columns: Sequence[Gathered], opened: VariantColumn) -> Batch:
    """Put columns together, beside the column that they were gathered from."""
    source = opened.column.batch.dictionaries
    known: dict[int, Dictionary] = {}
    made: dict[int, Dictionary] = {}
    fields: list[pa.Field] = []
    ids: list[int] = []
    nodes: list[tuple[int, int]] = []
    buffers: list[Buffer | None] = []
    counts: list[int] = []
    for column in columns:
        fields.append(column.field)
        nodes += column.nodes
        buffers += column.buffers
        counts += column.variadic_counts
        for each in column.dictionaries:
            if isinstance(each, int):
                known[each] = source[each]
                ids.append(each)
            else:
                new = max(source, default=-1) + 1 + len(made)
                dictionary = made.setdefault(id(each), Dictionary(new, each))
                known[dictionary.id] = dictionary
                ids.append(dictionary.id)
    table = np.array(nodes, np.int64).reshape(-1, 2)
    device = opened.column.device
    return make_batch(
        Batch, Layout.of(pa.schema(fields), ids), opened.rows, table, buffers, counts, known, device=device
    )


def status_column(name: str, statuses: Any, device: Device) -> Gathered:
    """Return the statuses as a column of uint8."""
    field = pa.field(name, pa.uint8(), nullable=False)
    return Gathered(field, [(len(statuses), 0)], [None, buffer_or_none(statuses, device)])


def validity_of(statuses: Any, device: Device) -> Buffer | None:
    """Return the bitmap of the rows with a value."""
    return buffer_or_none(bitmap.packed(statuses == np.uint8(Status.OK)), device)


def any_of(flags: Any, device: Device) -> bool:
    """Return whether a flag is set: one read by the host."""
    return bool(len(flags)) and bool(device.to_host(flags.max(keepdims=True))[0])


def first_error(statuses: Any, device: Device) -> int | None:
    """Return the first row of which the status is an error."""
    bad = device.xp.flatnonzero(statuses > np.uint8(Status.VARIANT_NULL))
    return int(device.to_host(bad[:1])[0]) if len(bad) else None


def tree_at(opened: VariantColumn, row: int, limits: Limits) -> Value | None:
    """Return one row as a typed tree, on the host, wherever the column is; errors name the row."""
    raw = raw_row(opened, row)
    try:
        return None if raw is None else decode(*raw, limits=limits)
    except BowstringError as error:
        raise in_row(error, row) from error


def _length(opened: VariantColumn, row: int) -> int:
    """Return how many bytes the value of a row and its metadata have."""
    device, place = opened.column.device, row
    if opened.indices is not None:
        place = int(device.to_host(opened.indices[row : row + 1])[0])
    found = 0
    for slots, slot in ((opened.value, row), (opened.metadata, max(place, 0))):
        for sign, each in ((-1, slots.starts), (1, slots.stops)):
            found += sign * sum(device.to_host(each[slot : slot + 1]).tolist())
    return found


def raise_error(opened: VariantColumn, row: int, statuses: Any, limits: Limits) -> NoReturn:
    """Raise the error of a row that has one: as :func:`tree_at` finds it, or by the status of a row that is too
    long to be read here.
    """
    if _length(opened, row) <= _MOST_READ:
        tree_at(opened, row, limits)
    status = Status(int(opened.column.device.to_host(statuses[row : row + 1])[0]))
    if status == Status.UNSUPPORTED:
        raise Unsupported("a Variant has a type that is not known", where=f"row {row}")
    if status == Status.TOO_DEEP:
        raise LimitExceeded(
            "a Variant is too deep, or an object has too many keys in no order",
            expected=f"at most {limits.depth} levels, and keys in the order of their UTF-8 bytes",
            where=f"row {row}",
        )
    raise InvalidBody("a Variant is not what the specification says", found=status.name, where=f"row {row}")


class _Loss(NamedTuple):
    """How many values became null, of how many, and where one of them is."""

    lost: int
    there: int
    example: str


class Losses:
    """What a call or a read has lost, by what was asked for. Threads may add to it."""

    def __init__(self) -> None:
        self._by_name: dict[str, _Loss] = {}
        self._lock = threading.Lock()

    def add(self, name: str, lost: int, there: int, example: str) -> None:
        """Count values; `name` says which, and as what they were read, and `example` where one is that was lost."""
        with self._lock:
            known = self._by_name.get(name, _Loss(0, 0, ""))
            self._by_name[name] = _Loss(known.lost + lost, known.there + there, known.example or example)

    def warn(self, advice: str) -> None:
        """Warn of the losses counted so far, if any, and reset them."""
        if self._by_name:
            warn_caller(self.texts(advice))

    def texts(self, advice: str) -> list[str]:
        """Return the text of a warning of the losses counted so far, if any, and reset them."""
        with self._lock:
            found = [(name, loss) for name, loss in self._by_name.items() if loss.lost]
            self._by_name.clear()
        lines = [
            f"{loss.lost} of {loss.there} values {name}, for example {loss.example}" for name, loss in found
        ]
        return [f"{'; '.join(lines)}. {advice}"] if lines else []


def counted(device: Device, statuses: Iterable[Any], holders: Iterable[Any] = ()) -> tuple[int, int]:
    """Return how many values became null, and of how many that are there.

    `statuses` are those of values; `holders` those of lists, structs and maps: these count where they are lost.
    """
    least = np.uint8(Status.VARIANT_NULL)
    lost = there = 0
    for each in statuses:
        xp = device.xp
        sums = xp.stack(
            [(each > least).sum(dtype=np.int64), (each == np.uint8(Status.OK)).sum(dtype=np.int64)]
        )
        bad, good = device.to_host(sums).tolist()
        lost, there = lost + bad, there + bad + good
    for each in holders:
        [bad] = device.to_host((each > least).sum(keepdims=True, dtype=np.int64)).tolist()
        lost, there = lost + bad, there + bad
    return lost, there


def first_lost(device: Device, statuses: Any) -> tuple[int, Status]:
    """Return the first row of which the status is an error, and that; there is one."""
    rows = device.xp.flatnonzero(statuses > np.uint8(Status.VARIANT_NULL))
    row = int(device.to_host(rows[:1])[0])
    return row, Status(int(device.to_host(statuses[row : row + 1])[0]))
