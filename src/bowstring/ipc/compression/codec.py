"""Compressed buffers: pyarrow's reader decompresses them, several at once, and its codecs compress them.

A compressed buffer is its length (int64, always little-endian) and one LZ4 or ZSTD frame, or -1 and plain bytes
(Message.fbs, BodyCompression); an empty one may have no bytes. pyarrow's codecs accept an LZ4 frame that is too
short and return uninitialised memory for the rest; its reader refuses it, and copies nothing. So the buffers of a
body go to the reader as the data buffers of one column of binary views without rows.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from bowstring.columnar.layout import Layout
from bowstring.errors import InvalidBody, LimitExceeded, Unsupported
from bowstring.ipc.flatbuf.message import CODECS, Message, MetadataVersion, RecordBatchHeader
from bowstring.ipc.flatbuf.template import Template
from bowstring.ipc.framing import frame
from bowstring.kernels.threads import in_threads, thread_count

PREFIX_BYTES = 8  # of the length before each buffer
STORED = -1  # the length that says that a buffer is not compressed

_OLDER_KEY = b"ARROW:experimental_compression"
_NATURAL = 8
_VIEWS = pa.schema([pa.field("buffers", pa.binary_view())])
_VIEWS_MESSAGE: bytes = _VIEWS.serialize().to_pybytes()
_FIXED = 2  # validity and views, both empty
_TEMPLATE = Template(Layout.of(_VIEWS))
_INT64 = struct.Struct("<q")
_MARK = 0x6B72616D20612073  # found nowhere else in a message
_NO_ROWS = np.zeros((1, 2), np.int64)
_WORTH_THREADS = 1 << 18
_PLACE_BYTES = 16


class Claims(NamedTuple):
    """The lengths of the buffers of a batch, decompressed."""

    lengths: list[int]  # bytes of each buffer
    framed: list[int]  # indices of the buffers that are frames
    stored: list[int]  # indices of those that are plain bytes behind their prefix
    total: int  # bytes of all


class DecompressOptions(NamedTuple):
    """How buffers are decompressed on the host."""

    use_threads: bool = True
    memory_pool: pa.MemoryPool | None = None  # None for pyarrow's default pool; it must outlive the buffers

    def for_bytes(self, nbytes: int) -> DecompressOptions:
        """Return the same without threads where waking them costs more than they take over."""
        pays = self.use_threads and nbytes >= _WORTH_THREADS and thread_count() > 1
        return self if pays else self._replace(use_threads=False)


DEFAULT_DECOMPRESSION: Final = DecompressOptions()  # pyarrow's threads and its default pool


class _Pieces:
    """A stream that lies in two places, as pyarrow reads files, so that the body need not be copied."""

    closed = False

    def __init__(self, head: bytes, body: pa.Buffer) -> None:
        self._head = head
        self._body = body

    def read(self, nbytes: int) -> bytes | pa.Buffer:
        if self._head:
            part, self._head = self._head[:nbytes], self._head[nbytes:]
            return part
        piece, self._body = self._body[:nbytes], self._body[nbytes:]
        return piece

    def close(self) -> None:
        """Do nothing: pyarrow calls it."""


@functools.lru_cache(64)
def _message_around(count: int, codec: str) -> tuple[bytes, bytes, bytes]:
    """Return what stands before, between and after the length of the body and the places of so many buffers."""
    table = np.zeros((_FIXED + count, 2), np.int64)
    table[_FIXED:] = _MARK
    metadata = _TEMPLATE.encode_batch(0, _NO_ROWS, table, _MARK, (count,), compression=codec)
    before, _, rest = frame(metadata, alignment=_NATURAL).partition(_INT64.pack(_MARK))
    between, _, after = rest.partition(table[_FIXED:].tobytes())
    return before, between, after


def decompressed(
    body: pa.Buffer, places: bytes, codec: str, decompression: DecompressOptions = DEFAULT_DECOMPRESSION
) -> list[pa.Buffer]:
    """Decompress buffers of a body on the host, each into memory of its own, aligned to 64 bytes.

    `places` is pairs of little-endian int64: offset in the body (a multiple of 8) and length with prefix. What is
    allocated is not bounded here: see :mod:`bowstring.ipc.compression.body`.
    """
    before, between, after = _message_around(len(places) // _PLACE_BYTES, codec)
    message = b"".join((before, _INT64.pack(body.size), between, places, after))
    try:
        file = pa.PythonFile(_Pieces(_VIEWS_MESSAGE + message, body), mode="r")
        options = pa.ipc.IpcReadOptions(use_threads=decompression.use_threads)
        stream = pa.ipc.open_stream(file, options=options, memory_pool=decompression.memory_pool)
        batch = stream.read_next_batch()
    except MemoryError as error:
        raise LimitExceeded("there is no memory for a decompressed body", found=str(error)) from error
    except (OSError, pa.ArrowException) as error:
        raise InvalidBody(f"a buffer cannot be decompressed: {error}") from error
    buffers: list[pa.Buffer] = batch.column(0).buffers()[_FIXED:]
    return buffers


def with_older_compression(header: RecordBatchHeader, message: Message) -> RecordBatchHeader:
    """Return the header of a message with the codec that Arrow 0.17 named beside it, if it did."""
    if message.version is not MetadataVersion.V4 or not message.custom_metadata:
        return header
    name = message.custom_metadata.get(_OLDER_KEY)
    if name is None or header.compression is not None:
        return header
    codec = name.decode(errors="replace").lower()
    if codec not in CODECS.values():
        raise Unsupported(f"bodies compressed with {codec}", expected=" or ".join(CODECS.values()))
    return header._replace(compression=codec)


def all_compressed(
    buffers: Sequence[Any], codec: pa.Codec, *, use_threads: bool = True
) -> list[tuple[bytes, Any]]:
    """Return buffers as a compressed body has them: a prefix, and a frame or, if that is shorter, themselves."""

    def compressed(buffer: Any) -> tuple[bytes, Any]:
        nbytes = memoryview(buffer).nbytes
        smaller = codec.compress(buffer)
        if smaller.size < nbytes:
            return nbytes.to_bytes(PREFIX_BYTES, "little"), smaller
        return STORED.to_bytes(PREFIX_BYTES, "little", signed=True), buffer

    return in_threads(compressed, buffers) if use_threads else [compressed(buffer) for buffer in buffers]
