"""Bounded reading of flatbuffers tables, by hand.

Only what Arrow's metadata uses: tables, scalars, strings, vectors of scalars, structs and tables. Every offset
is checked against the size of the bytes and its alignment before it is followed, since flatbuffers has no
verifier in Python and ``struct.unpack_from`` reads from the end where an offset is negative.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from bowstring.errors import InvalidMetadata

Slots = tuple[int, ...]

MAX_SLOTS = 8
_PADDING = (0,) * MAX_SLOTS


class KeyValueMetadata(dict[bytes, bytes]):
    """Key-value pairs of metadata: a dict of the first value of each key, and every pair, repeated keys included.

    Attributes
    ----------
    pairs : tuple of (bytes, bytes)
        All pairs, in their order.

    Examples
    --------
    >>> found = KeyValueMetadata([(b"tag", b"a"), (b"unit", b"m"), (b"tag", b"b")])
    >>> found[b"tag"], found.get_all("tag"), len(found.pairs)
    (b'a', [b'a', b'b'], 3)
    """

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.pairs = tuple(pairs)
        super().__init__()
        for key, value in self.pairs:
            self.setdefault(key, value)

    def get_all(self, key: bytes | str) -> list[bytes]:
        """Return all values of a key, as ``pyarrow.KeyValueMetadata.get_all`` does."""
        wanted = key.encode() if isinstance(key, str) else key
        return [value for each, value in self.pairs if each == wanted]


_VTABLES = tuple(struct.Struct(f"<{count}H") for count in range(MAX_SLOTS + 1))
_HEADER = struct.Struct("<HH")
_INT32 = struct.Struct("<i")
_UINT32 = struct.Struct("<I")
_SCALARS = {code: struct.Struct(f"<{code}") for code in "bBHhiIqQ"}


class Tables:
    """Walks the tables of one flatbuffer.

    Strings and vectors are bounded together: shared references could unfold a small flatbuffer to any size.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self._budget = 16 * len(data) + 1024
        self.nbytes = 0  # of the strings and vectors that were read

    def slots(self, table: int, where: str) -> Slots:
        """Return the field offsets of the table at ``table``, relative to it, 0 where a field is absent.

        At least and at most the first ``MAX_SLOTS``; the offsets themselves are not checked yet.
        """
        if table & 3 or table < 0 or table + 4 > self.size:
            what = "a table is out of bounds or misaligned"
            raise InvalidMetadata(what, found=f"offset {table}", where=where)
        vtable = table - _INT32.unpack_from(self.data, table)[0]
        if vtable & 1 or vtable < 0 or vtable + 4 > self.size:
            what = "a vtable is out of bounds or misaligned"
            raise InvalidMetadata(what, found=f"offset {vtable}", where=where)
        length, _ = _HEADER.unpack_from(self.data, vtable)
        if length & 1 or length < 4 or vtable + length > self.size:
            raise InvalidMetadata("a vtable has an impossible size", found=f"{length} bytes", where=where)
        slots: Slots = _VTABLES[min((length - 4) >> 1, MAX_SLOTS)].unpack_from(self.data, vtable + 4)
        return slots + _PADDING

    def scalar(self, table: int, slot: int, code: str, default: int, where: str) -> int:
        """Return a number (``struct`` code ``code``), or its default where the field is absent."""
        if not slot:
            return default
        position, codec = table + slot, _SCALARS[code]
        if position + codec.size > self.size or position & (codec.size - 1):
            what = "a field is out of bounds or misaligned"
            raise InvalidMetadata(what, found=f"offset {position}", where=where)
        value: int = codec.unpack_from(self.data, position)[0]
        return value

    def follow(self, position: int, where: str) -> int:
        """Return the target of the unsigned offset at ``position``; it lies behind it and inside the flatbuffer."""
        if position & 3 or position + 4 > self.size:
            what = "a reference is out of bounds or misaligned"
            raise InvalidMetadata(what, found=f"offset {position}", where=where)
        distance: int = _UINT32.unpack_from(self.data, position)[0]
        if not 4 <= distance < self.size - position:
            what = "a reference points outside the metadata"
            raise InvalidMetadata(what, found=f"distance {distance}", where=where)
        return position + distance

    def reference(self, table: int, slot: int, where: str) -> int:
        """Return the position that a reference field points at, or -1 where the field is absent."""
        return self.follow(table + slot, where) if slot else -1

    def vector(self, table: int, slot: int, width: int, where: str) -> tuple[int, int]:
        """Return the position of the first element and the number of elements; (0, 0) where absent."""
        if not slot:
            return 0, 0
        start, what = self.follow(table + slot, where), "a vector is out of bounds or misaligned"
        if start & 3 or start + 4 > self.size:
            raise InvalidMetadata(what, found=f"offset {start}", where=where)
        count: int = _UINT32.unpack_from(self.data, start)[0]
        start += 4
        if start + count * width > self.size or (width >= 8 and start & 7 and count):
            raise InvalidMetadata(what, found=f"{count} elements at {start}", where=where)
        self.nbytes += count * width
        if self.nbytes > self._budget:
            raise InvalidMetadata(
                "the same bytes are referred to over and over",
                expected="metadata no larger than it looks",
                where=where,
            )
        return start, count

    def tables(self, table: int, slot: int, where: str) -> list[int]:
        """Return the positions of a vector of tables; empty where absent."""
        start, count = self.vector(table, slot, 4, where)
        return [self.follow(start + 4 * index, where) for index in range(count)]

    def string(self, table: int, slot: int, where: str) -> bytes | None:
        """Return the bytes of a string without its final zero, or None where absent."""
        if not slot:
            return None
        start, count = self.vector(table, slot, 1, where)
        end = start + count
        if end >= self.size or self.data[end]:
            raise InvalidMetadata(
                "a string has no zero behind it", found=f"{count} bytes at {start}", where=where
            )
        return self.data[start:end]

    def strings(self, table: int, slot: int, where: str) -> list[bytes]:
        """Return a vector of strings; empty where absent."""
        start, count = self.vector(table, slot, 4, where)
        # Each is read as the field of a table that begins 4 bytes before the reference.
        return [self.string(start + 4 * index - 4, 4, where) or b"" for index in range(count)]

    def key_values(self, table: int, slot: int, where: str) -> KeyValueMetadata:
        """Return a vector of KeyValue tables."""
        pairs: list[tuple[bytes, bytes]] = []
        for pair in self.tables(table, slot, where):
            slots = self.slots(pair, where)[:2]
            key, value = (self.string(pair, slot, where) for slot in slots)
            if key is None or value is None:
                raise InvalidMetadata("a pair has no key or no value", where=where)
            pairs.append((key, value))
        return KeyValueMetadata(pairs)
