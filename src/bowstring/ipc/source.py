"""Sources: where messages are read from, paths, memory and files alike."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.errors import ClosedError, LimitExceeded, MissingFile, Truncated, UsageError
from bowstring.files import check_file, file_path
from bowstring.kernels.library import address_of
from bowstring.memory import Buffer, foreign_region, wrap

if TYPE_CHECKING:
    Parts = npt.NDArray[np.int64]

_PLACEMENT = 64


def open_source(source: Any, memory_pool: pa.MemoryPool | None = None, *, whole: bool = False) -> Source:
    """Return the reader of a source's bytes: with `whole`, memory also where a file is nothing else."""
    if isinstance(source, Buffer):
        return BufferSource(source)
    if isinstance(source, pa.Buffer):  # often, and what follows takes longer
        return BufferSource(wrap(source))
    if isinstance(source, str | os.PathLike):
        return _open_path(file_path(source), memory_pool)
    if hasattr(source, "read"):
        check_file(source, "readable")
    memory = _memory_of(source) if whole and memory_pool is None else None
    if memory is not None:
        return FollowedSource(source, memory)
    if isinstance(source, pa.NativeFile):
        return _NativeSource(source, memory_pool)
    if hasattr(source, "read") and not isinstance(source, mmap.mmap | io.TextIOBase):
        return _FileSource(source, memory_pool)
    try:
        if isinstance(source, np.ndarray) and source.dtype.hasobject:
            raise TypeError("its elements are references")
        return BufferSource(wrap(source))
    except ClosedError:
        raise
    except (TypeError, ValueError, BufferError) as error:
        raise UsageError(
            "this cannot be read from",
            expected="a path, bytes, a contiguous buffer or a binary file",
            found=f"{type(source).__name__}: {error}",
        ) from error


class BufferSource:
    """Memory on the host; bodies are slices of it."""

    position = 0

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        # Not an array: what reads a stream of one batch would fetch NumPy's code for nothing else.
        there: Any = buffer.to_arrow() if buffer.device.is_host else buffer.to_host()
        self._bytes = memoryview(there)

    def read(self, nbytes: int) -> bytes:
        """Return the next bytes, fewer only where the source ends."""
        data = bytes(self._bytes[self.position : self.position + nbytes])
        self.position += len(data)
        return data

    def size(self) -> int:
        return self._buffer.nbytes

    def seek(self, position: int) -> None:
        self.position = position

    def body(self, nbytes: int, parts: Parts | None = None) -> Buffer:  # noqa: ARG002  nothing is read here
        """Return the next bytes as a buffer, without a copy where that can be; at least these `parts`."""
        there = self._buffer.nbytes - self.position
        if nbytes > there:
            raise cut_off("body", nbytes, there, f"byte {self.position}")
        body = self._buffer.slice(self.position, nbytes)
        self.position += nbytes
        return body

    def memory(self) -> Buffer | None:
        """Return all bytes of a source that is memory of the host."""
        return self._buffer

    def give_up(self, start: int) -> None:
        """Read the message that begins at `start` again, or nothing: an interrupt has left it half read."""
        self.seek(start)

    def close(self) -> None:
        """Let go of the source; buffers made from it live on."""
        self._bytes = memoryview(b"")
        self._buffer = self._buffer.slice(0, 0)
        self.position = 0


def _memory_of(file: Any) -> Any:
    """Return all bytes of a file that is memory, and stays as it is while they are kept; None for any other."""
    if type(file) is io.BytesIO:
        data = file.getvalue()  # no copy, but while somebody may write to it
        return data if file.getvalue() is data else None
    if isinstance(file, pa.BufferReader) or (isinstance(file, pa.MemoryMappedFile) and not file.writable()):
        position = file.tell()
        file.seek(0)
        data = file.read_buffer(file.size())
        file.seek(position)
        return data
    return None


class FollowedSource(BufferSource):
    """A file that is memory; bodies are slices of it, and the position of the file is that of the source."""

    def __init__(self, file: Any, memory: Any) -> None:
        super().__init__(wrap(memory))
        self._file = file
        self._memory = memory if type(file) is io.BytesIO else None
        self.position = file.tell()

    def is_in_place(self) -> bool:
        """Whether nobody else has moved the file, or written to it."""
        file = self._file
        return file.tell() == self.position and (self._memory is None or file.getvalue() is self._memory)

    def as_file(self) -> Source:
        """Return a source that reads the file from where it is now."""
        source = (_NativeSource if self._memory is None else _FileSource)(self._file)
        source.position = self._file.tell()
        return source

    def read(self, nbytes: int) -> bytes:
        data = super().read(nbytes)
        self._file.seek(self.position)
        return data

    def seek(self, position: int) -> None:
        self.position = position
        self._file.seek(position)

    def body(self, nbytes: int, parts: Parts | None = None) -> Buffer:
        body = super().body(nbytes, parts)
        self._file.seek(self.position)
        return body

    def close(self) -> None:
        super().close()
        self._file = self._memory = None


class _FileSource:
    """A Python file; bodies are read into memory of their own."""

    position = 0

    def __init__(self, file: Any, memory_pool: pa.MemoryPool | None = None, *, owned: bool = False) -> None:
        self._file = file
        self._pool = memory_pool
        self._owned = owned

    def read(self, nbytes: int) -> bytes:
        if self._file is None:
            raise ClosedError(
                "an earlier read ended inside a message, and where the next one begins is not known",
                hint="Open the source again.",
            )
        parts: list[bytes] = []
        while nbytes > 0:  # unbuffered files and pipes give a part only
            part = self._file.read(nbytes)
            if part is None:
                raise self._without_data()
            if not part:
                break
            parts.append(part if type(part) is bytes else _bytes_of(part, self._file))
            nbytes -= len(parts[-1])
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.position += len(data)
        return data

    def memory(self) -> Buffer | None:
        return None

    def size(self) -> int:
        try:
            return int(self._file.seek(0, os.SEEK_END))
        except (AttributeError, OSError, TypeError, ValueError) as error:
            raise _cannot_seek(self._file) from error

    def seek(self, position: int) -> None:
        try:
            self._file.seek(position)
        except (AttributeError, OSError, ValueError) as error:
            raise _cannot_seek(self._file) from error
        self.position = position

    def body(self, nbytes: int, parts: Parts | None = None) -> Buffer:
        target, address, owner = _allocate(nbytes, self._pool)
        can_seek = getattr(self._file, "seekable", bool)
        # Hostile parts may lie over each other, and be more than all.
        if parts is None or not can_seek() or np.clip(parts[:, 1], 0, nbytes).sum() >= nbytes:
            self._read_into(target)
        else:
            end = self.position + nbytes
            # What lies outside of the body is refused where the parts are checked.
            for offset, length in np.clip(parts, 0, nbytes).tolist():
                self._skip_to(end - nbytes + offset)
                self._read_into(target[offset : offset + length])
            self._skip_to(end)
        return Buffer(foreign_region(address, nbytes, owner), 0, nbytes)

    def _skip_to(self, position: int) -> None:
        # The file need not have been at its beginning when it was opened here.
        if position != self.position:
            self._file.seek(position - self.position, os.SEEK_CUR)
            self.position = position

    def _read_into(self, into: memoryview) -> None:
        filled = 0
        while filled < len(into):
            rest = into[filled:]
            if hasattr(self._file, "readinto"):
                count = self._file.readinto(rest)
            else:
                part = self._file.read(len(rest))
                count = part if part is None else len(part)
                rest[: count or 0] = part or b""
            if count is None:
                raise self._without_data()
            if not count:
                raise cut_off("body", len(into), filled, f"byte {self.position}")
            filled += count
            self.position += count

    def _without_data(self) -> UsageError:
        self.give_up(self.position)
        return UsageError(
            "the file does not wait for its data",
            expected="a blocking file",
            found="read() returned None",
            hint="os.set_blocking(file.fileno(), True) makes it one.",
        )

    def give_up(self, start: int) -> None:  # noqa: ARG002  what lies before is not there any more
        # What a file has read of a message is lost with the interrupt.
        self.close()
        self._file = None

    def close(self) -> None:
        if self._owned and self._file is not None:
            self._file.close()
        self._file = io.BytesIO()


class _NativeSource(_FileSource):
    """A pyarrow file; bodies of memory maps and of buffers are slices."""

    def size(self) -> int:
        try:
            return int(self._file.size())
        except (OSError, pa.ArrowException) as error:
            raise _cannot_seek(self._file) from error

    def body(self, nbytes: int, parts: Parts | None = None) -> Buffer:
        there = nbytes
        with contextlib.suppress(OSError, pa.ArrowException):
            there = self._file.size() - self._file.tell()
        if nbytes > there:
            raise cut_off("body", nbytes, there, f"byte {self.position}")
        is_in_memory = isinstance(self._file, pa.MemoryMappedFile | pa.BufferReader)
        if not is_in_memory and (parts is not None or self._pool is not None):
            return super().body(nbytes, parts)
        try:
            body = wrap(self._file.read_buffer(nbytes))
        except MemoryError as error:
            raise _too_large(nbytes) from error
        if body.nbytes < nbytes:
            raise cut_off("body", nbytes, body.nbytes, f"byte {self.position}")
        self.position += nbytes
        return body


Source = BufferSource | _FileSource


def _bytes_of(part: Any, file: Any) -> bytes:
    if type(part) is bytes:
        return part
    try:
        return bytes(memoryview(part))
    except TypeError as error:
        raise UsageError(
            "the file gives something else than bytes", found=type(part).__name__, where=repr(file)[:120]
        ) from error


def _open_path(path: str, memory_pool: pa.MemoryPool | None) -> Source:
    try:
        file = open(path, "rb")  # noqa: SIM115  # the source owns it
    except FileNotFoundError as error:
        raise MissingFile("there is no such file", found=path) from error
    try:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (ValueError, OSError):
        return _FileSource(file, memory_pool, owned=True)
    file.close()
    return BufferSource(wrap(mapped))


def _allocate(nbytes: int, memory_pool: pa.MemoryPool | None) -> tuple[memoryview, int, object]:
    """Return memory for a body, its address, and what must be kept with it."""
    # Pages are only taken as they are filled, so a body that claims to be huge costs no more than what comes.
    try:
        if memory_pool is not None:
            buffer = pa.allocate_buffer(nbytes, memory_pool)
            return memoryview(buffer), buffer.address, kept_with(buffer, memory_pool)
        memory = np.empty(nbytes + _PLACEMENT, np.uint8)
    except MemoryError as error:
        raise _too_large(nbytes) from error
    address = address_of(memory)
    start = -address % _PLACEMENT
    return memory.data[start : start + nbytes], address + start, memory


def _cannot_seek(file: Any) -> UsageError:
    return UsageError(
        "an Arrow file is read from its end, and this cannot seek",
        expected="a path, bytes, a buffer or a file with seek()",
        found=type(file).__name__,
        hint="Read it whole first, or read it as a stream.",
    )


def _too_large(nbytes: int) -> LimitExceeded:
    return LimitExceeded("there is no memory for the body of a message", found=f"{nbytes} bytes")


def cut_off(what: str, expected: int, found: int, where: str) -> Truncated:
    """Return the error for a source that ends within a message."""
    return Truncated(
        f"the stream ends within the {what} of a message",
        expected=f"{expected} bytes",
        found=f"{found} bytes",
        where=where,
    )


def kept_with(buffers: Any, memory_pool: pa.MemoryPool | None) -> object:
    """Return an owner of buffers and of the pool that they come from; None is pyarrow's default pool."""
    # A tuple lets go of its last member first.
    return buffers if memory_pool is None else (memory_pool, buffers)
