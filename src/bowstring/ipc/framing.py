"""Encapsulated messages: metadata and bodies one after the other in a stream of bytes.

A message is ``0xFFFFFFFF``, the length of its metadata as int32, the metadata padded, and the body. Before
Arrow 0.15 the first word was missing; that is read, never written. A length of 0 ends the stream.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bowstring.errors import InvalidMetadata, LimitExceeded, Truncated, UsageError
from bowstring.memory import Buffer, wrap

if TYPE_CHECKING:
    from bowstring.limits import Limits

__all__ = ["ALIGNMENT", "END_OF_STREAM", "Source", "frame", "open_source", "read_metadata"]

ALIGNMENT = 64
"""Bodies, and the buffers in them, begin at multiples of this, counted from the start of the stream."""
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"

_CONTINUATION = 0xFFFFFFFF
_WORD = struct.Struct("<I")
_INT32 = struct.Struct("<i")
_PREFIX = struct.Struct("<II")
_FILE_MAGIC = _WORD.unpack(b"ARRO")[0]
_NATURAL = 8


def frame(metadata: bytes, position: int = 0, alignment: int = ALIGNMENT) -> bytes:
    """Return metadata with their prefix, padded so that the body behind them is aligned.

    Parameters
    ----------
    metadata
        A message's flatbuffer.
    position
        Where in the stream the result will stand.
    alignment
        A multiple of 8.

    Examples
    --------
    >>> len(frame(bytes(100))), len(frame(bytes(100), position=8))
    (128, 120)
    """
    padding = -(position + _PREFIX.size + len(metadata)) % alignment
    return _PREFIX.pack(_CONTINUATION, len(metadata) + padding) + metadata + bytes(padding)


class Source(ABC):
    """Bytes to read messages from, front to back."""

    position = 0

    @abstractmethod
    def read(self, nbytes: int) -> bytes:
        """Return the next ``nbytes`` bytes, fewer only where the source ends."""

    @abstractmethod
    def body(self, nbytes: int) -> Buffer:
        """Return the next ``nbytes`` bytes as a buffer, aligned to 8 bytes, without a copy where that can be.

        Raises
        ------
        Truncated
            The source ends before.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the source. Buffers made from it live on."""


def open_source(source: Any) -> Source:
    """Return the reader of a source's bytes.

    Parameters
    ----------
    source
        A path (which is memory-mapped), anything with the buffer protocol, or a file opened for reading in
        binary mode; also ``pyarrow.Buffer`` and ``pyarrow.NativeFile``.

    Raises
    ------
    UsageError
        It is none of these.

    Examples
    --------
    >>> open_source(b"abc").read(2)
    b'ab'
    """
    if isinstance(source, Buffer):
        return _BufferSource(source)
    if isinstance(source, str | os.PathLike):
        return _open_path(source)
    if isinstance(source, pa.NativeFile):
        return _NativeSource(source)
    if hasattr(source, "read") and not isinstance(source, mmap.mmap):
        return _FileSource(source)
    try:
        return _BufferSource(wrap(source))
    except TypeError as error:
        raise UsageError(
            "this cannot be read from",
            expected="a path, bytes, a buffer or a binary file",
            found=type(source).__name__,
        ) from error


def read_metadata(source: Source, limits: Limits) -> bytes | None:
    """Read the next message up to its body; None at the end of the stream.

    A stream ends with its marker, or where the source ends between two messages.

    Raises
    ------
    Truncated
        The source ends within a message.
    LimitExceeded
        The metadata are larger than ``limits.metadata_bytes``.
    InvalidMetadata
        The length is negative, or the source is an Arrow file.

    Examples
    --------
    >>> from bowstring.limits import DEFAULT_LIMITS
    >>> source = open_source(frame(b"metadata", alignment=8) + b"the body" + END_OF_STREAM)
    >>> read_metadata(source, DEFAULT_LIMITS), source.body(8).to_arrow().to_pybytes()
    (b'metadata', b'the body')
    >>> read_metadata(source, DEFAULT_LIMITS) is None
    True
    """
    start = source.position
    word = source.read(_WORD.size)
    if not word:
        return None
    if len(word) == _WORD.size and _WORD.unpack(word)[0] == _CONTINUATION:
        word = source.read(_WORD.size)
    if len(word) < _WORD.size:
        raise Truncated("the stream ends within a message's prefix", where=f"byte {source.position}")
    length = _INT32.unpack(word)[0]
    if length == 0:
        return None
    where = f"byte {start}"
    if length == _FILE_MAGIC and start == 0:
        raise InvalidMetadata("this is an Arrow file, not a stream", where=where, hint="Open it as a file.")
    if length < 0:
        raise InvalidMetadata("the length of a message is negative", found=length, where=where)
    if length > limits.metadata_bytes:
        raise LimitExceeded(
            "the metadata of a message are too large",
            expected=f"at most {limits.metadata_bytes} bytes",
            found=f"{length} bytes",
            where=where,
            hint="Limits.metadata_bytes sets the bound.",
        )
    metadata = source.read(length)
    if len(metadata) < length:
        raise _cut("metadata", length, len(metadata), where)
    return metadata


class _BufferSource(Source):
    """Memory on the host; bodies are slices of it."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._bytes = buffer.to_host()

    def read(self, nbytes: int) -> bytes:
        data = self._bytes[self.position : self.position + nbytes].tobytes()
        self.position += len(data)
        return data

    def body(self, nbytes: int) -> Buffer:
        there = self._buffer.nbytes - self.position
        if nbytes > there:
            raise _cut("body", nbytes, there, f"byte {self.position}")
        body = self._buffer.slice(self.position, nbytes)
        self.position += nbytes
        return _aligned(body)

    def close(self) -> None:
        self._bytes = self._bytes[:0]
        self._buffer = self._buffer.slice(0, 0)
        self.position = 0


class _FileSource(Source):
    """A Python file; bodies are read into memory of their own."""

    def __init__(self, file: Any, *, owned: bool = False) -> None:
        self._file = file
        self._owned = owned

    def read(self, nbytes: int) -> bytes:
        parts: list[bytes] = []
        missing = nbytes
        while missing > 0:
            part = self._file.read(missing)
            if not part:
                break
            parts.append(bytes(part))
            missing -= len(parts[-1])
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.position += len(data)
        return data

    def body(self, nbytes: int) -> Buffer:
        target = _allocate(nbytes)
        into = target.data
        filled = 0
        while filled < nbytes:
            count = self._fill(into[filled:])
            if not count:
                raise _cut("body", nbytes, filled, f"byte {self.position}")
            filled += count
            self.position += count
        target.flags.writeable = False
        return wrap(target)

    def _fill(self, into: memoryview) -> int:
        if hasattr(self._file, "readinto"):
            return self._file.readinto(into) or 0
        part = self._file.read(len(into))
        into[: len(part)] = part
        return len(part)

    def close(self) -> None:
        if self._owned:
            self._file.close()
        self._file = _Nothing()


class _NativeSource(_FileSource):
    """A pyarrow file; bodies of memory maps and of buffers are slices."""

    def body(self, nbytes: int) -> Buffer:
        self._refuse_longer_than_the_file(nbytes)
        try:
            body = wrap(self._file.read_buffer(nbytes))
        except MemoryError as error:
            raise _too_large(nbytes) from error
        if body.nbytes < nbytes:
            raise _cut("body", nbytes, body.nbytes, f"byte {self.position}")
        self.position += nbytes
        return _aligned(body)

    def _refuse_longer_than_the_file(self, nbytes: int) -> None:
        there = nbytes
        with contextlib.suppress(OSError, pa.ArrowException):
            there = self._file.size() - self._file.tell()
        if nbytes > there:
            raise _cut("body", nbytes, there, f"byte {self.position}")


class _Nothing:
    """A file that was let go of."""

    def read(self, _nbytes: int) -> bytes:
        return b""


def _open_path(path: str | os.PathLike[str]) -> Source:
    file = open(path, "rb")  # noqa: SIM115  # the source owns it
    try:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (ValueError, OSError):
        return _FileSource(file, owned=True)
    file.close()
    return _BufferSource(wrap(mapped))


def _aligned(body: Buffer) -> Buffer:
    """The bytes at an address that is a multiple of 8: most types cannot be read elsewhere."""
    if not body.nbytes or body.address % _NATURAL == 0:
        return body
    target = _allocate(body.nbytes)
    target[:] = body.to_host()
    target.flags.writeable = False
    return wrap(target)


def _allocate(nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    # Pages are only taken as they are filled, so a body that claims to be huge costs no more than what comes.
    try:
        room = np.empty(nbytes + ALIGNMENT, dtype=np.uint8)
    except MemoryError as error:
        raise _too_large(nbytes) from error
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + nbytes]


def _too_large(nbytes: int) -> LimitExceeded:
    return LimitExceeded("there is no memory for the body of a message", found=f"{nbytes} bytes")


def _cut(what: str, expected: int, found: int, where: str) -> Truncated:
    return Truncated(
        f"the stream ends within the {what} of a message",
        expected=f"{expected} bytes",
        found=f"{found} bytes",
        where=where,
    )
