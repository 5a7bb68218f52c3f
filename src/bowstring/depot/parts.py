"""Parts: how an attempt describes what it wrote, as the bytes of a message.

Each part is one message of an Arrow stream: its metadata, as IPC encodes it, and where the buffers of its body lie:
(slab, offset, length) of each, the slabs numbered as they were borrowed. One follows another::

    u32 length of the metadata | u32 number of buffers | metadata, padded to 8 | i64 × 3 for each buffer
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

__all__ = ["Told", "pack_part", "unpack_parts"]

_HEAD: Final = struct.Struct("<II")
_ROW: Final = 3
_ROW_BYTES: Final = 24


class Told(NamedTuple):
    """One part.

    Attributes
    ----------
    metadata
        The raw flatbuffer.
    table : ndarray of int64, shape (buffers, 3)
        Slab, offset and length of each buffer.
    """

    metadata: bytes
    table: npt.NDArray[np.int64]


def pack_part(part: Told) -> list[bytes]:
    """Return the pieces of one part.

    Examples
    --------
    >>> pieces = pack_part(Told(b"abc", np.array([[0, 64, 8]])))
    >>> [(part.metadata, part.table.tolist()) for part in unpack_parts(b"".join(pieces))]
    [(b'abc', [[0, 64, 8]])]
    """
    metadata = part.metadata
    head = _HEAD.pack(len(metadata), len(part.table))
    table = np.ascontiguousarray(part.table, "<i8")
    return [head, metadata, bytes(-len(metadata) % 8), table.tobytes()]


def unpack_parts(body: Any) -> Iterator[Told]:
    """Yield the parts of a message.

    Raises
    ------
    ProtocolError
        The bytes end inside a part.
    """
    view = memoryview(body).cast("B")
    at = 0
    while at < len(view):
        if len(view) - at < _HEAD.size:
            raise _short(len(view))
        length, count = _HEAD.unpack_from(view, at)
        start = at + _HEAD.size
        rows = start + -(-length // 8) * 8
        end = rows + count * _ROW_BYTES
        if end > len(view):
            raise _short(len(view))
        table = np.frombuffer(view, "<i8", count * _ROW, rows).reshape(-1, _ROW).astype(np.int64)
        yield Told(bytes(view[start : start + length]), table)
        at = end


def _short(found: int) -> ProtocolError:
    return ProtocolError("a part of an attempt is cut short", found=f"a message of {found} bytes")
