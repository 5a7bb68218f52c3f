"""Writing flatbuffers by hand, the counterpart of :mod:`bowstring.ipc.flatbuf.reader`.

As in all builders, the end is written first, so that a reference always points forward. What comes out is byte for
byte what the code that ``flatc`` makes for C++ would write, as long as it is called in the same order: fields are
laid out by size, the last declared first, and tables of one shape share a vtable.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bowstring.ipc.flatbuf.reader import KeyValueMetadata

_REFERENCE_BYTES = 4
_UINT32 = struct.Struct("<I")


class Scalar(NamedTuple):
    """A number in a table, left out where it equals its default."""

    code: str  # as in :mod:`struct`
    value: int
    default: int = 0

    @property
    def rank(self) -> int:
        return struct.calcsize(self.code)


class Reference(NamedTuple):
    """A field that refers to something written before, by the position that the builder gave."""

    position: int


class Struct(NamedTuple):
    """A struct of numbers that lies in the table itself."""

    layout: str  # as in :mod:`struct`, padding spelled out
    values: tuple[int, ...]
    alignment: int = 8


Field = Scalar | Reference | Struct | None


class Builder:
    """Builds one flatbuffer, from its end: `tail` is bytes that are aligned already, a multiple of 8.

    Positions count from the end of the flatbuffer, so they stay valid while more is put before.
    """

    def __init__(self, tail: bytes = b"") -> None:
        self._backwards = bytearray(tail[::-1])
        self._largest = 1
        self._vtables: dict[bytes, int] = {}

    def string(self, text: str | bytes) -> int:
        data = text.encode() if isinstance(text, str) else text
        self._pad(len(data) + 1, 4)
        self._push(_UINT32.pack(len(data)) + data + b"\0")
        return len(self._backwards)

    def vector(self, code: str, values: Sequence[int]) -> int:
        return self.structs(code, [(value,) for value in values], struct.calcsize(code))

    def structs(self, layout: str, rows: Sequence[tuple[int, ...]], alignment: int = 8) -> int:
        codec = struct.Struct(f"<{layout}")
        return self.elements(b"".join(codec.pack(*row) for row in rows), codec.size, alignment)

    def elements(self, data: bytes, width: int, alignment: int = 8) -> int:
        """Write a vector whose elements of `width` bytes are there already; return its position."""
        if data:  # where there are no elements, none has to be aligned
            self._pad(len(data), 4)
            self._pad(len(data), alignment)
        return self._counted(len(data) // width, data)

    def key_values(self, pairs: Mapping[Any, Any]) -> int:
        """Write a vector of KeyValue tables, of text or bytes, repeated keys included; return its position."""
        items = pairs.pairs if isinstance(pairs, KeyValueMetadata) else pairs.items()
        return self.references(
            [self.table([Reference(self.string(key)), Reference(self.string(value))]) for key, value in items]
        )

    def references(self, positions: Sequence[int]) -> int:
        """Write a vector of references; return its position."""
        self._pad(_REFERENCE_BYTES * len(positions), _REFERENCE_BYTES)
        for position in reversed(positions):
            self._refer(position)
        return self._counted(len(positions), b"")

    def table(self, fields: Iterable[Field]) -> int:
        """Write a table: its fields in the order of the schema, None where one is absent."""
        end = len(self._backwards)
        places = {}
        present = [(slot, field) for slot, field in enumerate(fields) if field is not None]
        # The largest first, structs among the references whatever their size, and of one size the last first.
        ranks = {
            slot: field.rank if isinstance(field, Scalar) else _REFERENCE_BYTES for slot, field in present
        }
        for slot, field in sorted(present, key=lambda pair: (-ranks[pair[0]], -pair[0])):
            if self._field(field):
                places[slot] = len(self._backwards)
        self._put(bytes(4), 4)
        start = len(self._backwards)
        count = max(places, default=-1) + 1
        slots = [start - places[slot] if slot in places else 0 for slot in range(count)]
        vtable = struct.pack(f"<{2 + count}H", 2 * (2 + count), start - end, *slots)
        at = self._vtables.get(vtable)
        if at is None:
            self._push(vtable)
            at = self._vtables[vtable] = len(self._backwards)
        self._backwards[start - 4 : start] = struct.pack(">i", at - start)
        return start

    def finish(self, root: int) -> bytes:
        """Return the flatbuffer whose root is the table at `root`."""
        self._pad(_REFERENCE_BYTES, self._largest)
        self._refer(root)
        return self.data()

    def data(self) -> bytes:
        """Return all that was written, without a root."""
        return bytes(self._backwards[::-1])

    def _field(self, field: Scalar | Reference | Struct) -> bool:
        if isinstance(field, Reference):
            self._refer(field.position)
        elif isinstance(field, Struct):
            self._put(struct.pack(f"<{field.layout}", *field.values), field.alignment)
        elif field.value == field.default:
            return False
        else:
            self._put(struct.pack(f"<{field.code}", field.value), field.rank)
        return True

    def _refer(self, position: int) -> None:
        self._pad(0, _REFERENCE_BYTES)
        self._push(_UINT32.pack(len(self._backwards) + _REFERENCE_BYTES - position))

    def _counted(self, count: int, elements: bytes) -> int:
        self._push(elements)
        self._put(_UINT32.pack(count), 4)
        return len(self._backwards)

    def _put(self, data: bytes, alignment: int) -> None:
        self._pad(0, alignment)
        self._push(data)

    def _pad(self, nbytes: int, alignment: int) -> None:
        """Make what stands `nbytes` before the next byte aligned."""
        self._largest = max(self._largest, alignment)
        self._backwards += bytes(-(len(self._backwards) + nbytes) % alignment)

    def _push(self, data: bytes) -> None:
        self._backwards += data[::-1]
