"""Memory that peers read: what this process lets be read, and what it reads of others.

The lender of memory may take it back, because a lease has expired, and the reader may read at that very time: no
connection that ends stops it on one host. So each end that lends has a *mark*, a number of 8 bytes that it lets be
read as well. It is changed before any memory is taken back, and a reader looks at it after each read: while it is
what it was, all that was read before was there.
"""

from __future__ import annotations

import contextlib
import ctypes
import secrets
import struct
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from bowstring.errors import ProtocolError, UsageError
from bowstring.memory import KeyedHandle
from bowstring.transport.ucx.attendant import call_soon
from bowstring.transport.ucx.context import Context, Failure, Mapped, Request
from bowstring.transport.ucx.worker import Endpoint, RemoteKey

if TYPE_CHECKING:
    from bowstring.memory import Region
    from bowstring.memory.device import Slab

_MARK: Final = struct.Struct("<QQ")
_WORDS: Final = 512
_WORD_BYTES: Final = 8
# So much is under way at a time.
_AT_ONCE: Final = 16 << 20

_lock: Final = threading.Lock()
_registered: Final[weakref.WeakKeyDictionary[Context, weakref.WeakKeyDictionary[Slab, Mapped]]] = (
    weakref.WeakKeyDictionary()
)


def keyed_handle(context: Context, region: Region) -> KeyedHandle:
    """Return what a peer reads a region of the host with; it is registered at its first use, and until it goes."""
    slab = region.slab
    if slab is None:
        raise UsageError("only memory of Bowstring's own is read by peers", found=repr(region))
    with _lock:
        known = _registered.setdefault(context, weakref.WeakKeyDictionary())
        mapped = known.get(slab)
        if mapped is None:
            try:
                mapped = known[slab] = Mapped(context, slab.address, slab.nbytes)
            except Failure as failure:
                raise UsageError("UCX cannot register memory", found=str(failure)) from failure
            weakref.finalize(slab, call_soon, mapped.close).atexit = False
    device = region.device
    return KeyedHandle(
        slab.uuid, device.uuid, region.nbytes, device.arrow_device_type, region.address, mapped.key
    )


class _Page:
    """Numbers of 8 bytes, which live as long as the process, so that nothing else ever lies in their place."""

    def __init__(self, context: Context) -> None:
        self.words = np.zeros(_WORDS, np.uint64)
        self.free = list(range(_WORDS))
        self.mapped = Mapped(context, self.words.ctypes.data, self.words.nbytes)


_pages: Final[weakref.WeakKeyDictionary[Context, list[_Page]]] = weakref.WeakKeyDictionary()
# Never unmapped: a reader that was stopped may look at one at any time.
_for_good: Final[list[np.ndarray[tuple[int], np.dtype[np.uint64]]]] = []


class Mark:
    """Says to a peer that what it was lent is still there."""

    def __init__(self, page: _Page) -> None:
        self._page = page
        place = page.free.pop()
        value = secrets.randbits(64) | 1
        page.words[place] = value
        self._places = [place]  # until it is revoked
        address = page.words.ctypes.data + place * _WORD_BYTES
        self.packed = _MARK.pack(value, address) + page.mapped.key

    def revoke(self) -> None:
        """Change it, before memory that was lent is written; idempotent, and takes no lock."""
        with contextlib.suppress(IndexError):
            place = self._places.pop()
            self._page.words[place] = 0
            self._page.free.append(place)


def marked(context: Context) -> Mark | None:
    """Return a new mark, or nothing where UCX lets no memory be read."""
    with _lock:
        pages = _pages.setdefault(context, [])
        if not pages or not pages[-1].free:
            try:
                pages.append(_Page(context))
            except Failure:
                return None
            _for_good.append(pages[-1].words)
        return Mark(pages[-1])


class Piece(NamedTuple):
    """A part of a read: what it is read with, where from, how much, and where to."""

    key: bytes
    address: int
    nbytes: int
    offset: int


def pieces_of(reads: Sequence[tuple[bytes, int, int]], offsets: Sequence[int]) -> Iterator[list[Piece]]:
    """Yield what is read together, in order, none of it longer than what is under way at a time."""
    together: list[Piece] = []
    total = 0
    for (key, address, nbytes), offset in zip(reads, offsets, strict=True):
        for begin in range(0, nbytes, _AT_ONCE):
            piece = Piece(key, address + begin, min(_AT_ONCE, nbytes - begin), offset + begin)
            if total + piece.nbytes > _AT_ONCE and together:
                yield together
                together, total = [], 0
            together.append(piece)
            total += piece.nbytes
    if together:
        yield together


class RemoteReader:
    """Reads memory of the peer's; all calls under the lock of its worker."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.protocol = ""
        self._endpoint = endpoint
        self._keys: dict[bytes, RemoteKey] = {}
        self._mark: tuple[int, int, bytes] | None = None
        self._seen = ctypes.c_uint64()

    def learn(self, packed: bytes) -> None:
        """Take the mark of the peer out of its greeting, which may have none."""
        if len(packed) > _MARK.size:
            self._mark = (*_MARK.unpack_from(packed), packed[_MARK.size :])
            self._key(self._mark[2])

    def begin(self, pieces: Sequence[Piece], address: int, kept: object) -> list[Request]:
        """Begin to read into memory at an address; return what is not done yet."""
        begun = [
            self._key(piece.key).get(address + piece.offset, piece.nbytes, piece.address, kept=kept)
            for piece in pieces
        ]
        self.protocol = self.protocol or begun[-1].protocol()
        return [request for request in begun if not request.done]

    def look(self) -> Request | None:
        """Begin to look at the mark, after what was read is there; nothing where the peer has none."""
        if self._mark is None:
            return None
        _, address, key = self._mark
        return self._key(key).get(ctypes.addressof(self._seen), _WORD_BYTES, address, kept=self._seen)

    @property
    def holds(self) -> bool:
        """Whether the peer had taken nothing back when `look` was done."""
        return self._mark is None or self._seen.value == self._mark[0]

    def _key(self, packed: bytes) -> RemoteKey:
        if packed not in self._keys:
            try:
                self._keys[packed] = RemoteKey(self._endpoint, packed)
            except Failure as failure:
                raise ProtocolError(
                    "a key for remote memory cannot be read", expected="an rkey of UCX", found=str(failure)
                ) from failure
        return self._keys[packed]
