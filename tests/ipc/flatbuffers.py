"""Fields of FlatBuffers, found from the specification of their format alone."""

from __future__ import annotations

import struct
from typing import Self

__all__ = ["Table", "record_batch_of"]


class Table:
    """A table in the bytes of a message.

    Parameters
    ----------
    data
        The whole buffer.
    at
        Where the table is.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    @classmethod
    def root(cls, data: bytes) -> Self:
        """Return the table that a buffer holds."""
        return cls(data, _unsigned(data, 0))

    def place(self, field: int) -> int | None:
        """Return where a field is, by its place in the schema; nothing where it is not set."""
        vtable = self.at - int(struct.unpack_from("<i", self.data, self.at)[0])
        size = int(struct.unpack_from("<H", self.data, vtable)[0])
        if 4 + 2 * field >= size:
            return None
        offset = int(struct.unpack_from("<H", self.data, vtable + 4 + 2 * field)[0])
        return self.at + offset if offset else None

    def number(self, field: int, form: str, default: int = 0) -> int:
        """Return a number."""
        place = self.place(field)
        return default if place is None else int(struct.unpack_from(f"<{form}", self.data, place)[0])

    def table(self, field: int) -> Table | None:
        """Return a table inside."""
        place = self.place(field)
        return None if place is None else Table(self.data, place + _unsigned(self.data, place))

    def inside(self, field: int) -> Table:
        """Return a table inside that must be there."""
        found = self.table(field)
        assert found is not None
        return found

    def element(self, field: int, index: int) -> Table:
        """Return a table of a vector of tables."""
        start, count = self.vector(field)
        assert index < count
        place = start + 4 * index
        return Table(self.data, place + _unsigned(self.data, place))

    def vector(self, field: int) -> tuple[int, int]:
        """Return where the first element of a vector is, and how many there are."""
        place = self.place(field)
        if place is None:
            return 0, 0
        start = place + _unsigned(self.data, place)
        return start + 4, _unsigned(self.data, start)


def _unsigned(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def record_batch_of(metadata: bytes) -> Table | None:
    """Return the record batch in the metadata of a message, also that of a dictionary."""
    message = Table.root(metadata)
    kind, header = message.number(1, "B"), message.table(2)
    assert header is not None
    return {2: header.table(1), 3: header}.get(kind)
