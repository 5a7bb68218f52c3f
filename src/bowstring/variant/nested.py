"""Where the elements of arrays and the fields of objects lie, for outputs that hold others."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.slots import Slots
from bowstring.errors import LimitExceeded
from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch, launch_shared
from bowstring.kernels.variant import slots as kernels
from bowstring.kernels.variant.encoding import ARRAY, OBJECT
from bowstring.kernels.variant.metadata import TEXT_ALONE, inspect_metadata
from bowstring.kernels.variant.slots import VALUE, copy_bytes, measure_bytes
from bowstring.variant.column import MetadataDictionary, dictionary_of, values_batch
from bowstring.variant.status import Status
from bowstring.variant.walk import Located, locate

if TYPE_CHECKING:
    from bowstring.limits import Limits
    from bowstring.memory import Device
    from bowstring.variant.column import VariantColumn
    from bowstring.variant.path import Path

_MOST_32: Final = (1 << 31) - 1
CHILD: Final = 16
"""Where a child lies, what became of it, and its metadata: it takes this much, whatever it becomes."""
_EMPTY_METADATA: Final = b"\x01\x00\x00"


class Parts(NamedTuple):
    """The statuses of all that a column consists of: of its `values`, and of the `holders` before these count."""

    values: list[Any]
    holders: list[Any]


@dataclasses.dataclass
class Source:
    """What values are gathered from, whatever slots they lie in; `name` is that of the column which they become."""

    opened: VariantColumn
    limits: Limits
    name: str = ""
    parts: Parts = dataclasses.field(default_factory=lambda: Parts([], []))

    @property
    def device(self) -> Device:
        return self.opened.column.device

    @property
    def data(self) -> Any:
        return self.opened.value.data

    @functools.cached_property
    def dictionary(self) -> MetadataDictionary:
        """The distinct metadata, and which is that of each row."""
        return dictionary_of(self.opened)

    @functools.cached_property
    def metadata(self) -> Batch:
        """The distinct metadata as the values of a dictionary, and behind them the empty ones."""
        return self.metadata_as(pa.large_binary())

    def metadata_as(self, type_: pa.DataType) -> Batch:
        """Return :attr:`metadata` as binary or large binary."""
        device, xp, large = self.device, self.device.xp, type_ == pa.large_binary()
        starts, stops = self.dictionary.starts, self.dictionary.stops
        offsets, data = copied(self, starts, stops, self.dictionary.data, large=large)
        empty = xp.asarray(np.frombuffer(_EMPTY_METADATA, np.uint8))
        data, ends = xp.concatenate([data, empty]), xp.concatenate([offsets, offsets[-1:] + np.int64(3)])
        return values_batch(type_, ends if large else ends.astype(np.int32), data, device)


def ends_of(source: Source, sizes: Any, width: int = 1, *, large: bool = True) -> tuple[Any, int]:
    """Return where slots of these sizes begin and the last ends, and that end; it is checked against the limits
    and, unless `large`, against 32-bit offsets.
    """
    xp, slots = source.device.xp, len(sizes)
    offsets = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(sizes, dtype=np.int64)])
    total = int(source.device.to_host(offsets[slots:])[0])
    check_size(total * width, source.limits, source.name)
    if total > _MOST_32 and not large:
        raise LimitExceeded(
            "the values are too long for 32-bit offsets",
            expected=f"at most {_MOST_32}",
            found=total,
            where=source.name,
            hint="Ask for large_string, large_binary or large_list, or take fewer rows.",
        )
    return offsets, total


def check_size(nbytes: int, limits: Limits, name: str) -> None:
    """Check that so many bytes are not more than ``Limits.extracted_bytes``."""
    if nbytes > limits.extracted_bytes:
        raise LimitExceeded(
            "the values are too long",
            expected=f"at most {limits.extracted_bytes} bytes",
            found=nbytes,
            where=name,
            hint="Take fewer rows, or raise Limits.extracted_bytes.",
        )


def copied(source: Source, starts: Any, stops: Any, data: Any, *, large: bool = True) -> tuple[Any, Any]:
    """Return offsets and bytes of slots, which lie in `data` or have no bytes."""
    xp = source.device.xp
    inside = (starts >= np.int64(0)) & (starts <= stops) & (stops <= np.int64(len(data)))
    sizes = xp.where(inside, stops - starts, np.int64(0))
    offsets, total = ends_of(source, sizes, large=large)
    out = xp.empty(total, np.uint8)
    launch_shared(kernels.copy_slots, len(starts), starts, stops, data, offsets, out)
    return offsets, out


def child_counts(source: Source, located: Located, kind: Any, wanted: int = int(kernels.ANY_COUNT)) -> Any:
    """Return how many children containers of a kind have; others, and those of another number than `wanted`, are
    mismatches.
    """
    rows = len(located.statuses)
    counts = source.device.xp.empty(rows, np.int64)
    launch(
        kernels.count_children, rows, source.data, located.positions, kind, wanted, located.statuses, counts
    )
    return counts


def sizes_at(source: Source, located: Located, family: int = int(VALUE), width: int = -1) -> Any:
    """Return how many bytes values of a family take; those of another one, or another width, are a mismatch."""
    rows = len(located.statuses)
    sizes = source.device.xp.empty(rows, np.int64)
    launch(measure_bytes, rows, source.data, located.positions, family, width, located.statuses, sizes)
    return sizes


def bytes_at(source: Source, located: Located, sizes: Any, family: int, *, large: bool) -> tuple[Any, Any]:
    """Return offsets and a copy of the bytes of values, whose sizes are known."""
    offsets, total = ends_of(source, sizes, large=large)
    out = source.device.xp.zeros(total, np.uint8)  # bytes that change meanwhile must not leave any unwritten
    slots = source.data, located.positions, family, located.statuses, offsets
    launch_shared(copy_bytes, len(sizes), *slots, out)
    return offsets, out


def elements(
    source: Source, located: Located, metadata_ids: Any, *, size: int | None = None, large: bool
) -> tuple[Any, Located, Any]:
    """Return offsets, located and metadata_ids of the elements of arrays, `size` in each where it is given.

    `metadata_ids` may be empty: then so are those of the elements.
    """
    counts = child_counts(source, located, ARRAY, int(kernels.ANY_COUNT) if size is None else size)
    if size is not None:
        counts = source.device.xp.full(len(counts), size, np.int64)
    offsets, total = ends_of(source, counts, CHILD, large=large)
    return offsets, *children_at(source, located, metadata_ids, offsets, total)


def children_at(
    source: Source, located: Located, metadata_ids: Any, offsets: Any, total: int
) -> tuple[Located, Any]:
    """Return where the children of containers lie, and their metadata where `metadata_ids` are known."""
    xp = source.device.xp
    inside = Located(xp.empty(total, np.uint64), xp.empty(total, np.uint8))
    groups = xp.empty(total if len(metadata_ids) else 0, np.int32)
    rows = len(offsets) - 1
    launch(kernels.place_children, rows, source.data, *located, metadata_ids, offsets, *inside, groups)
    return inside, groups


def check_names(source: Source, located: Located, metadata_ids: Any, counts: Any) -> tuple[Any, ...]:
    """Check that the fields of objects have names; return what the places of these are read from."""
    distinct = source.dictionary
    names = distinct.starts, distinct.stops, distinct.data
    marks = source.device.xp.empty(len(distinct.marks), np.uint8)
    launch(inspect_metadata, len(marks), *names, int(TEXT_ALONE), marks)
    slots = source.data, located.positions, metadata_ids, *names
    launch(kernels.measure_keys, len(counts), *slots, marks, located.statuses, counts)
    return slots


def bounds_of(source: Source, located: Located) -> tuple[Any, Any]:
    """Return where values begin and end; of no matter where there is none."""
    statuses = source.device.xp.zeros(len(located.statuses), np.uint8)
    starts = located.positions.view(np.int64)
    return starts, starts + sizes_at(source, Located(located.positions, statuses))


def fields(source: Source, located: Located, metadata_ids: Any, names: Sequence[str]) -> list[Located]:
    """Return where the fields of objects lie that have these names."""
    child_counts(source, located, OBJECT, int(kernels.ONLY_KIND))
    return below(source, located, metadata_ids, [(name,) for name in names]) if names else []


def below(source: Source, located: Located, metadata_ids: Any, paths: Sequence[Path]) -> list[Located]:
    """Return where paths lead in values; SQL NULL where there is no value."""
    slots = Slots(*bounds_of(source, located), source.data, source.device.xp.empty(0, np.uint8), shared=True)
    valid = bitmap.packed(located.statuses == np.uint8(Status.OK))
    inside = dataclasses.replace(source.dictionary, indices=metadata_ids)
    return locate(dataclasses.replace(source.opened, validity=valid, value=slots), inside, paths)


def keys(source: Source, located: Located, metadata_ids: Any) -> tuple[Any, Any, Any, Located, Any]:
    """Return offsets of the fields of objects, bounds of their names, and where their values lie."""
    rows, xp = len(located.statuses), source.device.xp
    counts = child_counts(source, located, OBJECT)
    slots = check_names(source, located, metadata_ids, counts)
    offsets, total = ends_of(source, counts, CHILD, large=False)
    inside, groups = children_at(source, located, metadata_ids, offsets, total)
    starts, stops = xp.zeros(total, np.int64), xp.zeros(total, np.int64)
    launch(kernels.place_keys, rows, *slots, located.statuses, offsets, starts, stops)
    return offsets, starts, stops, inside, groups


def merge(located: Located, offsets: Any, inside: Located) -> None:
    """Write into the statuses of rows the worst of what became of their children."""
    launch(kernels.worst_of, len(located.statuses), offsets, inside.statuses, located.statuses)
