"""The dictionaries of a stream or a file on the reading side: which are known, and what deltas add to them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.interchange.source import without_rows
from bowstring.columnar.nodes import Kind
from bowstring.columnar.parts import Dictionary, batch_parts, derived, make_batch
from bowstring.columnar.spans import buffer_of
from bowstring.errors import InvalidBody, InvalidMetadata, Unsupported
from bowstring.memory import Buffer, Device

if TYPE_CHECKING:
    from bowstring.columnar.layout import Layout

    Nodes = npt.NDArray[np.int64]

_FIRST_CAPACITY = 1024
_GROW_IN_PLACE = (
    (Kind.VALIDITY, Kind.DATA),
    (Kind.VALIDITY, Kind.OFFSETS32, Kind.BYTES),
    (Kind.VALIDITY, Kind.OFFSETS64, Kind.BYTES),
)


class Arrival(enum.Enum):
    """What the message of a dictionary did to the values that were known before."""

    NEW = "first"
    DELTA = "added to"
    REPLACEMENT = "replaced"


class DictionaryMemo:
    """Remembers dictionaries by their id.

    Dictionaries whose values use dictionaries themselves are put together when a batch uses them, with the inner
    ones as they are then. So the inner ones may come before or after them.

    Parameters
    ----------
    layout
        Of the batches that use the dictionaries; see :meth:`expect` if it is not known yet.

    Examples
    --------
    >>> from bowstring.columnar.layout import Layout
    >>> memo = DictionaryMemo(Layout.of(pa.schema({"a": pa.dictionary(pa.int8(), pa.string())})))
    >>> list(memo.layout.dictionaries)
    [0]
    """

    def __init__(self, layout: Layout | None = None) -> None:
        self.layout = layout
        self._values: dict[int, GrowingValues] = {}
        # As batches use them, and what they were made of: nothing where none has come.
        self._used: dict[int, tuple[Dictionary, Batch | None]] = {}

    def expect(self, layout: Layout) -> None:
        """Take note of the schema, and forget the dictionaries of another one."""
        self.layout = layout
        self._values.clear()
        self._used.clear()

    @property
    def num_known(self) -> int:
        """How many dictionaries have come."""
        return len(self._values)

    def layout_of(self, id_: int) -> Layout:
        layouts = {} if self.layout is None else self.layout.dictionaries
        if id_ not in layouts:
            raise InvalidMetadata("no field has a dictionary of this id", expected=list(layouts), found=id_)
        return layouts[id_]

    def take(self, id_: int, values: Batch, *, is_delta: bool) -> Arrival:
        """Remember the values of one message; the dictionaries that they use are not looked at yet."""
        known = self._values.get(id_)
        if is_delta:
            if known is None:
                raise InvalidMetadata("a delta for a dictionary that was never sent", found=f"id {id_}")
            known.append(values)
            return Arrival.DELTA
        # A new object each time: batches that were read keep the one they were given.
        self._values[id_] = GrowingValues(values)
        return Arrival.NEW if known is None else Arrival.REPLACEMENT

    def complete(
        self, layout: Layout, nodes: Nodes, known: dict[Layout, Dictionary] | None = None
    ) -> dict[int, Dictionary]:
        """Return the dictionaries that a batch of these nodes uses; each of those `known` lies in many others.

        Those of columns that are all null may come later (Columnar.rst, Dictionary Messages): they are empty.
        """
        ids = layout.dictionaries
        if not ids:
            return {}
        if not self._values.keys() >= ids.keys():
            for node, (length, nulls) in zip(layout.nodes, nodes.tolist(), strict=False):
                id_ = node.dictionary_id
                if id_ is not None and id_ not in self._values and length != nulls:
                    raise InvalidMetadata(
                        "a batch uses a dictionary that has not been sent",
                        found=f"id {id_}",
                        where=".".join(node.path),
                    )
        known = {} if known is None else known
        return {id_: self._dictionary(id_, values, known) for id_, values in ids.items()}

    def all(self, layout: Layout) -> dict[int, Dictionary] | None:
        """Return the dictionaries that any batch may use; None where one of them has not come."""
        if not self._values.keys() >= layout.dictionaries.keys():
            return None
        by_layout: dict[Layout, Dictionary] = {}
        return {id_: self._dictionary(id_, values, by_layout) for id_, values in layout.dictionaries.items()}

    def _dictionary(self, id_: int, layout: Layout, known: dict[Layout, Dictionary]) -> Dictionary:
        if layout in known:
            return known[layout]
        growing = self._values.get(id_)
        values = None
        if growing is not None:
            values = growing.batch(self.complete(layout, growing.nodes, known))
        used = self._used.get(id_)
        # The same object for as long as nothing changes: a writer of the batches writes it once.
        if used is None or used[1] is not values:
            used = Dictionary(id_, without_rows(layout, Batch) if values is None else values), values
            self._used[id_] = used
        known[layout] = used[0]
        return used[0]


class GrowingValues:
    """The values of one dictionary, and those that deltas append to them, on one device.

    Numbers, times, text and bytes without nulls grow in place. pyarrow joins others once for all deltas between two
    batches, and again when a dictionary that the values use changes.
    """

    def __init__(self, first: Batch) -> None:
        self._first = first
        self._deltas: list[Batch] = []
        self._batch: Batch | None = None
        self._made_of: object = None
        self._flat: _FlatColumn | None = None

    @property
    def nodes(self) -> npt.NDArray[np.int64]:
        total: npt.NDArray[np.int64] = sum(
            (batch_parts(delta).nodes for delta in self._deltas), batch_parts(self._first).nodes
        )
        return total

    def append(self, delta: Batch) -> None:
        # One message may have been decompressed by a device, and the next have come to the host as it is.
        self._deltas.append(delta.to_device(self._first.device))

    def batch(self, dictionaries: Mapping[int, Dictionary] | None = None) -> Batch:
        """Return all values: the same object for as long as nothing changes."""
        if dictionaries:
            made_of = len(self._deltas), dict(dictionaries)
            if self._batch is None or self._made_of != made_of:
                parts = [
                    derived(part, batch_parts(part), part.num_rows, dictionaries)
                    for part in (self._first, *self._deltas)
                ]
                self._batch = _join(parts) if self._deltas else parts[0]
                self._made_of = made_of
        elif self._deltas or self._batch is None:
            try:
                whole = self._joined() if self._deltas else self._first
                self._batch, self._first, self._deltas = whole, whole, []
            except BaseException:
                self._flat = None  # which has a part of them, maybe
                raise
        return self._batch

    def _joined(self) -> Batch:
        nodes, parts = self._first.layout.nodes, [self._first, *self._deltas]
        has_nulls = any(batch_parts(part).nodes[0, 1] for part in parts)  # -1 is unknown
        if len(nodes) > 1 or nodes[0].buffer_kinds not in _GROW_IN_PLACE or has_nulls:
            self._flat = None
            return _join(parts)
        if self._flat is None:
            self._flat = _FlatColumn(self._first)
        for delta in self._deltas:
            self._flat.append(delta)
        return self._flat.batch()


def _join(parts: list[Batch]) -> Batch:
    """Return the values of some batches of one column one after the other, in new memory: pyarrow joins them."""
    columns = [part.to_arrow().column(0) for part in parts]
    try:
        for column in columns:  # pyarrow follows offsets and children wherever they lead
            column.validate(full=True)
    except pa.ArrowException as error:
        raise InvalidBody(f"a dictionary that is added to is malformed: {error}") from error
    try:
        values = pa.concat_arrays(columns)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise Unsupported(f"delta dictionaries of {columns[0].type}: {error}") from error
    whole = Batch.from_arrow(pa.RecordBatch.from_arrays([values], schema=parts[0].schema))
    return whole.to_device(parts[0].device)


class _GrowingBuffer:
    """Bytes that are appended to; what was written once never changes."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._bytes = device.xp.empty(_FIRST_CAPACITY, np.uint8)
        self._used = 0

    def put(self, data: Any, at: int) -> None:
        end = at + len(data)
        if end > len(self._bytes):
            larger = self._device.xp.empty(max(end, 2 * len(self._bytes)), np.uint8)
            larger[: self._used] = self._bytes[: self._used]
            self._bytes = larger
        self._bytes[at:end] = data
        self._used = end

    def buffer(self, nbytes: int) -> Buffer | None:
        return buffer_of(self._bytes[:nbytes], self._device) if nbytes else None


class _FlatColumn:
    """A column without children and nulls whose buffers are bytes, or offsets and bytes."""

    def __init__(self, first: Batch) -> None:
        # Not the batch: its memory may be another process's, which waits for its release.
        self._layout, self._device = first.layout, first.device
        node = first.layout.nodes[0]
        self._is_text = node.buffer_kinds[1] is not Kind.DATA
        self._offset_type = np.dtype("<i4" if node.buffer_kinds[1] is Kind.OFFSETS32 else "<i8")
        self._width = self._offset_type.itemsize if self._is_text else node.bits >> 3
        with self._device.use():
            self._buffers = [_GrowingBuffer(self._device) for _ in node.buffer_kinds[1:]]
        self._length = self._text = 0
        self.append(first)

    def append(self, part: Batch) -> None:
        rows = part.num_rows
        if not rows:
            return
        spans, dtype = batch_parts(part).spans, self._offset_type
        with self._device.use():
            data = spans.array(1)[: rows * self._width]
            if self._is_text:
                offsets = spans.array(1, dtype)[: rows + 1]
                first, last = self._device.to_host(offsets[::rows]).tolist()
                if self._text + last - first > np.iinfo(dtype).max:
                    raise InvalidBody(
                        "a dictionary and its deltas are too many bytes for their offsets",
                        expected=f"at most {np.iinfo(dtype).max}",
                        found=self._text + last - first,
                    )
                # Those in between may be anything: they wrap as they like, and full validation looks at them.
                data = (offsets + np.array(self._text - first, np.int64).astype(dtype)).view(np.uint8)
                self._buffers[1].put(spans.array(2)[first:last], self._text)
                self._text += last - first
            self._buffers[0].put(data, self._length * self._width)
        self._length += rows

    def batch(self) -> Batch:
        count = self._length + (self._is_text and self._length > 0)  # offsets are one more
        sizes = (count * self._width, self._text)
        buffers = [each.buffer(nbytes) for each, nbytes in zip(self._buffers, sizes, strict=False)]
        nodes = np.array([[self._length, 0]], np.int64)
        return make_batch(Batch, self._layout, self._length, nodes, [None, *buffers], device=self._device)
