"""Values that grow: a dictionary and its deltas, joined at a cost that is linear in what comes.

Batches that were read keep the values that they were given. So what grows is only ever appended to: room is taken
ahead, twice as much each time it runs out, and values that were handed out before are the beginning of those handed
out later, in the same memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.concat import can_concatenate, concatenate
from bowstring.columnar.nodes import Kind
from bowstring.errors import InvalidBody, Unsupported
from bowstring.memory import Buffer, wrap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bowstring.columnar.dictionary import Dictionary

__all__ = ["GrowingValues", "join"]

Bytes = npt.NDArray[np.uint8]

_FIRST_ROOM = 1024


class GrowingValues:
    """The values of one dictionary, and those that deltas append to them.

    Numbers, times, text and bytes are appended in place. Values of other types are joined by pyarrow, once for all
    deltas that came between two batches; those that use dictionaries themselves anew when one of these changes.

    Parameters
    ----------
    first
        A batch of one column; on a device it is joined there, by one copy.

    Examples
    --------
    >>> words = [Batch.from_arrow(pa.record_batch({"values": [word]})) for word in "abc"]
    >>> values = GrowingValues(words[0])
    >>> values.append(words[1])
    >>> before = values.batch()
    >>> values.append(words[2])
    >>> before[0].to_arrow().to_pylist(), values.batch()[0].to_arrow().to_pylist()
    (['a', 'b'], ['a', 'b', 'c'])
    """

    def __init__(self, first: Batch) -> None:
        self._first = first
        self._deltas: list[Batch] = []
        self._batch: Batch | None = None
        self._made_of: object = None
        self._flat: _Flat | None = None

    @property
    def nodes(self) -> npt.NDArray[np.int64]:
        """Length and null count of each node, in all parts together."""
        total: npt.NDArray[np.int64] = sum((delta.nodes for delta in self._deltas), self._first.nodes)
        return total

    def append(self, delta: Batch) -> None:
        """Append the values of a delta; they are joined when somebody asks for them."""
        # One message may have been decompressed by a device, and the next have come to the host as it is.
        self._deltas.append(delta.to_device(self._first.device))

    def batch(self, dictionaries: Mapping[int, Dictionary] | None = None) -> Batch:
        """Return all values: the same object for as long as nothing changes.

        Parameters
        ----------
        dictionaries
            Those that the values use themselves.

        Raises
        ------
        Unsupported
            pyarrow cannot join values of this type.
        InvalidBody
            The values are too many bytes for their offsets.
        """
        if dictionaries:
            return self._bound(dictionaries)
        if self._deltas or self._batch is None:
            deltas, self._deltas = self._deltas, []
            self._batch = self._first = self._joined(deltas)
        return self._batch

    def _bound(self, dictionaries: Mapping[int, Dictionary]) -> Batch:
        made_of = len(self._deltas), dict(dictionaries)
        if self._batch is None or self._made_of != made_of:
            parts = [
                part.derived(part.parts, part.num_rows, dictionaries) for part in (self._first, *self._deltas)
            ]
            self._batch = join(parts) if self._deltas else parts[0]
            self._made_of = made_of
        return self._batch

    def _joined(self, deltas: list[Batch]) -> Batch:
        first = self._first
        if not deltas:
            return first
        if not (first.device.is_host and can_concatenate(first)):
            return join([first, *deltas])
        if self._flat is None:
            self._flat = _Flat(first)
        for delta in deltas:
            self._flat.append(delta)
        return self._flat.batch()


def join(parts: list[Batch]) -> Batch:
    """Return the values of some batches of one column one after the other, in new memory.

    Raises
    ------
    InvalidBody
        The values are none of their type: pyarrow joins nested ones by what is in them, and believes it.
    Unsupported
        pyarrow cannot join values of this type.

    Examples
    --------
    >>> parts = [Batch.from_arrow(pa.record_batch({"values": [word]})) for word in "ab"]
    >>> join(parts)[0].to_arrow().to_pylist()
    ['a', 'b']
    """
    device = parts[0].device
    if not device.is_host and can_concatenate(parts[0]):
        return concatenate(parts)
    columns = [_valid(part.to_arrow().column(0)) for part in parts]
    try:
        values = pa.concat_arrays(columns)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise Unsupported(f"delta dictionaries of {columns[0].type}: {error}") from error
    # Where the device's own way does not know the type, the host does it.
    return Batch.from_arrow(pa.RecordBatch.from_arrays([values], schema=parts[0].schema)).to_device(device)


def _valid(values: pa.Array) -> pa.Array:
    try:
        values.validate(full=True)
    except pa.ArrowException as error:
        raise InvalidBody(f"a dictionary that is added to is malformed: {error}") from error
    return values


class _Room:
    """Bytes with room behind them; what was written once never changes, but for bits beyond the last."""

    def __init__(self) -> None:
        self._bytes: Bytes = np.empty(_FIRST_ROOM, np.uint8)
        self._used = 0

    def put(self, data: Bytes, at: int) -> None:
        """Write bytes behind all others, or over the last one."""
        end = at + len(data)
        if end > len(self._bytes):
            larger = np.empty(max(end, 2 * len(self._bytes)), np.uint8)
            larger[: self._used] = self._bytes[: self._used]
            self._bytes = larger
        self._bytes[at:end] = data
        self._used = end

    def byte(self, at: int) -> int:
        return int(self._bytes[at])

    def buffer(self, nbytes: int) -> Buffer:
        view = self._bytes[:nbytes]
        view.flags.writeable = False
        return wrap(view)


class _Flat:
    """A column without children whose buffers are bytes, or offsets and bytes."""

    def __init__(self, first: Batch) -> None:
        self._layout = first.layout  # not the batch: its memory may be somebody else's, who waits for it
        node = first.layout.nodes[0]
        self._kinds = node.buffer_kinds
        self._width = node.bits >> 3
        self._rooms = [_Room() for _ in self._kinds]
        self._length = self._nulls = self._text = 0
        self.append(first)

    def append(self, part: Batch) -> None:
        rows = part.num_rows
        if rows:
            self._append_validity(part, rows)
            if self._kinds[1] is Kind.DATA:
                self._rooms[1].put(part.spans.array(1)[: rows * self._width], self._length * self._width)
            else:
                self._append_text(part, rows)
            self._length += rows

    def batch(self) -> Batch:
        validity = self._rooms[0].buffer((self._length + 7) >> 3) if self._nulls else None
        if self._kinds[1] is Kind.DATA:
            rest = [self._rooms[1].buffer(self._length * self._width)]
        else:
            ends = (self._length + 1) * self._offset_type.itemsize if self._length else 0
            rest = [self._rooms[1].buffer(ends), self._rooms[2].buffer(self._text)]
        return Batch.from_parts(
            self._layout,
            self._length,
            np.array([[self._length, self._nulls]], np.int64),
            [validity, *rest],
        )

    @property
    def _offset_type(self) -> np.dtype[np.signedinteger[Any]]:
        return np.dtype("<i4" if self._kinds[1] is Kind.OFFSETS32 else "<i8")

    def _append_validity(self, part: Batch, rows: int) -> None:
        bitmap = part.spans.array(0)
        if len(bitmap) and part.nodes[0, 1]:
            bits = np.unpackbits(bitmap, count=rows, bitorder="little")
        else:
            bits = np.ones(rows, np.uint8)
        start, odd = divmod(self._length, 8)
        if odd:
            kept = np.unpackbits(
                np.array([self._rooms[0].byte(start)], np.uint8), count=odd, bitorder="little"
            )
            bits = np.concatenate((kept, bits))
        self._rooms[0].put(np.packbits(bits, bitorder="little"), start)
        self._nulls += rows - int(np.count_nonzero(bits[odd:]))

    def _append_text(self, part: Batch, rows: int) -> None:
        dtype = self._offset_type
        offsets = part.spans.array(1, dtype)[: rows + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        if self._text + last - first > np.iinfo(dtype).max:
            raise InvalidBody(
                "a dictionary and its deltas are too many bytes for their offsets",
                expected=f"at most {np.iinfo(dtype).max}",
                found=self._text + last - first,
            )
        # Those in between may be anything: they wrap as they like, and are looked at by full validation.
        moved = offsets + np.array(self._text - first, np.int64).astype(dtype)
        self._rooms[1].put(moved.view(np.uint8), self._length * dtype.itemsize)
        self._rooms[2].put(part.spans.array(2)[first:last], self._text)
        self._text += last - first
