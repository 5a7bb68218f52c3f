"""Encodings by libraries: pco and zstd. They hold the values that are not null; the host decodes them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.errors import BowstringError, InvalidBody, InvalidMetadata, LimitExceeded, MissingDependency
from bowstring.kernels import bitmap
from bowstring.vortex.decode import encoding
from bowstring.vortex.dtype import Kind
from bowstring.vortex.values import INLINE, Values

if TYPE_CHECKING:
    from bowstring.vortex.decode import Decoder
    from bowstring.vortex.dtype import DType
    from bowstring.vortex.nodes import ArrayNode

__all__: list[str] = []

_PREFIX_BYTES: Final = 4
_MOST_BYTES: Final = (1 << 31) - 1


@encoding("vortex.pco")
def pco(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Numbers compressed by pcodec, in its wrapped format.

    Metadata: 1 header, 2 chunks, each 1 pages, each 1 how many numbers it has. Buffers: the metadata of each chunk;
    then the pages. Children: validity, or none. Only what is not null is stored.
    """
    dtype = decoder.expect(node, dtype, Kind.PRIMITIVE)
    metadata = decoder.metadata(node)
    validity = decoder.validity(node, 0, rows)
    flags, count = _valid(decoder, validity, rows)
    chunks = [[page.uint(1) for page in chunk.messages(1)] for chunk in metadata.messages(2)]
    pages = sum(map(len, chunks))
    if len(node.buffers) != len(chunks) + pages or sum(map(sum, chunks)) < count:
        raise InvalidMetadata(
            "the pages of pco do not cover the rows",
            expected=f"{count} numbers in {len(node.buffers)} buffers",
            found=f"{sum(map(sum, chunks))} numbers in {len(chunks) + pages} buffers",
        )
    total = sum(map(sum, chunks))
    decoder.allocate((total + rows) * dtype.numpy.itemsize)
    buffers = [_host_bytes(decoder, node, at) for at in range(len(node.buffers))]
    found = np.empty(total, dtype.numpy)
    _read_pages(metadata.blob(1) or b"", chunks, buffers, found, str(dtype.as_nullable(False)))
    return _numbers(decoder, dtype, rows, validity, flags, found[:count])


def _read_pages(header: bytes, chunks: list[list[int]], buffers: list[bytes], found: Any, name: str) -> None:
    """Decompress all pages into one array."""
    wrapped = _library("pcodec", "pcodec.wrapped")
    at, page = 0, len(chunks)
    try:
        file, _ = wrapped.FileDecompressor.new(header)
        for sizes, data in zip(chunks, buffers, strict=False):
            chunk, _ = file.chunk_decompressor(data, name)
            for size in sizes:
                progress, _ = chunk.read_page_into(buffers[page], size, found[at : at + size])
                if progress.n_processed != size:
                    raise InvalidBody("a page of pco holds fewer numbers", expected=size)
                at, page = at + size, page + 1
    except BowstringError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        raise InvalidBody(f"pco cannot decode a page: {error}") from error
    except BaseException as error:
        # What is written in Rust panics where it meets the unexpected, and that is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        raise InvalidBody(f"pco cannot decode a page: {error}") from None


@encoding("vortex.zstd")
def zstd(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Values compressed by zstd, in frames that follow each other.

    Metadata: 1 bytes of a trained dictionary, 2 frames, each 1 how many bytes it holds, 2 how many values. Buffers:
    the dictionary where it has bytes; the frames. Children: validity, or none. Only what is not null is stored:
    numbers as they are, and of text and binary the length as ``u32`` before the bytes.
    """
    dtype = decoder.expect(node, dtype, Kind.PRIMITIVE, Kind.UTF8, Kind.BINARY)
    metadata = decoder.metadata(node)
    validity = decoder.validity(node, 0, rows)
    flags, count = _valid(decoder, validity, rows)
    sizes = [frame.uint(1) for frame in metadata.messages(2)]
    first = 1 if metadata.uint(1) else 0
    if len(node.buffers) != first + len(sizes):
        raise InvalidMetadata(
            "zstd has another number of frames than buffers",
            expected=len(sizes),
            found=len(node.buffers) - first,
        )
    decoder.allocate(2 * sum(sizes))
    trained = _host_bytes(decoder, node, 0) if first else None
    frames = [_host_bytes(decoder, node, first + at) for at in range(len(sizes))]
    data = b"".join(_frame(*each, trained) for each in zip(frames, sizes, strict=True))
    if dtype.kind is Kind.PRIMITIVE:
        if len(data) != count * dtype.numpy.itemsize:
            raise InvalidBody(
                "zstd holds another number of values than are not null",
                expected=f"{count * dtype.numpy.itemsize} bytes",
                found=len(data),
            )
        decoder.allocate(rows * dtype.numpy.itemsize)
        return _numbers(decoder, dtype, rows, validity, flags, np.frombuffer(data, dtype.numpy))
    decoder.allocate(16 * rows)
    views = _views_of(data, count)
    table: Any = views
    if flags is not None:
        table = np.zeros((rows, 2), np.uint64)
        table[flags] = views.reshape(-1, 2)
        table = table.reshape(-1)
    put = decoder.device.from_host
    return Values(dtype, rows, validity, (put(table), put(np.frombuffer(data, np.uint8))))


def _frame(data: bytes, size: int, trained: bytes | None) -> bytes:
    """Return what a frame holds, exactly as many bytes as are expected."""
    if trained is None:
        try:
            with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
                found: bytes = stream.read(size + 1)
        except (OSError, pa.ArrowException) as error:
            raise InvalidBody(f"a frame of zstd cannot be decompressed: {error}") from error
    else:
        library = _library("zstandard", "zstandard")
        dictionary = library.ZstdCompressionDict(trained)
        try:
            with library.ZstdDecompressor(dict_data=dictionary).stream_reader(data) as stream:
                found = stream.read(size + 1)
        except library.ZstdError as error:
            raise InvalidBody(f"a frame of zstd cannot be decompressed: {error}") from error
    if len(found) != size:
        raise InvalidBody(
            "a frame of zstd does not hold as many bytes as are declared", expected=size, found=len(found)
        )
    return found


def _views_of(data: bytes, count: int) -> Any:
    """Return views of values that have their lengths before them; each length says where the next one is."""
    if len(data) > _MOST_BYTES:
        raise LimitExceeded(
            "text or binary of one column of a batch", expected="below 2 GiB", found=len(data)
        )
    starts = np.empty(count, np.int64)
    ends = np.empty(count, np.int64)
    at, held = 0, len(data)
    for row in range(count):
        start = at + _PREFIX_BYTES
        at = start + int.from_bytes(data[at:start], "little")
        if at > held:
            raise InvalidBody("values in zstd are cut off", expected=f"{count} values", found=row)
        starts[row], ends[row] = start, at
    return _views(np.frombuffer(data, np.uint8), starts, ends)


def _views(data: Any, starts: Any, ends: Any) -> Any:
    lengths = ends - starts
    padded = np.concatenate([data, np.zeros(INLINE, np.uint8)])
    views = np.zeros((len(starts), 16), np.uint8)
    views[:, :4] = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
    at = np.arange(INLINE)
    views[:, 4:] = np.where(at < lengths[:, None], padded[starts[:, None] + at], 0)
    is_long = lengths > INLINE
    words = views.view("<u4")
    words[is_long, 2] = 0
    words[is_long, 3] = starts[is_long]
    return views.reshape(-1).view(np.uint64)


def _valid(decoder: Decoder, validity: Any | None, rows: int) -> tuple[Any | None, int]:
    """Return which rows are not null, on the host, and how many."""
    if validity is None:
        return None, rows
    flags = bitmap.expanded(decoder.device.to_host(validity), 0, rows)
    return flags, int(np.count_nonzero(flags))


def _numbers(
    decoder: Decoder, dtype: DType, rows: int, validity: Any | None, flags: Any | None, found: Any
) -> Values:
    if flags is not None:
        stored = found
        found = np.zeros(rows, dtype.numpy)
        found[flags] = stored
    return Values(dtype, rows, validity, (decoder.device.from_host(found),))


def _host_bytes(decoder: Decoder, node: ArrayNode, at: int) -> bytes:
    return bytes(decoder.device.to_host(decoder.buffer(node, at)))


def _library(package: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependency(
            f"this encoding of Vortex needs {package}", hint="pip install 'bowstring[vortex]'"
        ) from error
