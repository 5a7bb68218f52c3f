"""Encodings by libraries: pco and zstd. They hold the values that are not null; the host decodes them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.errors import BowstringError, InvalidBody, InvalidMetadata, LimitExceeded, MissingDependency
from bowstring.kernels import bitmap
from bowstring.kernels.vortex import decode_text
from bowstring.kernels.vortex.arrays import empty
from bowstring.kernels.vortex.faults import new_faults
from bowstring.vortex.decode import encoding
from bowstring.vortex.dtype import Kind
from bowstring.vortex.values import Values

if TYPE_CHECKING:
    from bowstring.vortex.decode import Decoder
    from bowstring.vortex.dtype import DType
    from bowstring.vortex.message import ArrayNode

_PREFIX_BYTES: Final = 4
_MOST_BYTES: Final = (1 << 31) - 1


@encoding("vortex.pco")
def pco(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Numbers compressed by pcodec, in its wrapped format."""
    # Metadata: 1 header, 2 chunks, each 1 pages, each 1 how many numbers it has. Buffers: the metadata of
    # each chunk; then the pages. Children: validity, or none. Only what is not null is stored.
    dtype = decoder.expect(node, dtype, Kind.PRIMITIVE)
    metadata = decoder.metadata(node)
    validity = decoder.validity(node, 0, rows)
    count = decoder.count_valid(validity, rows)
    chunks = [[page.uint(1) for page in chunk.messages(1)] for chunk in metadata.messages(2)]
    pages = sum(map(len, chunks))
    if len(node.buffers) != len(chunks) + pages or sum(map(sum, chunks)) < count:
        raise InvalidMetadata(
            "the pages of pco do not cover the rows",
            expected=f"{count} numbers in {len(node.buffers)} buffers",
            found=f"{sum(map(sum, chunks))} numbers in {len(chunks) + pages} buffers",
        )
    total = sum(map(sum, chunks))
    decoder.allocate(total * dtype.numpy.itemsize)
    buffers = [decoder.stored_bytes(node, at) for at in range(len(node.buffers))]
    numbers, at, page = np.empty(total, dtype.numpy), 0, len(chunks)
    wrapped = _library("pcodec", "pcodec.wrapped")
    try:
        file, _ = wrapped.FileDecompressor.new(metadata.blob(1) or b"")
        for sizes, data in zip(chunks, buffers, strict=False):
            chunk, _ = file.chunk_decompressor(data, str(dtype.as_nullable(False)))
            for size in sizes:
                progress, _ = chunk.read_page_into(buffers[page], size, numbers[at : at + size])
                if progress.n_processed != size:
                    raise InvalidBody("a page of pco holds fewer numbers", expected=size)
                at, page = at + size, page + 1
    except BowstringError:
        raise
    except BaseException as error:
        # What is written in Rust panics where it meets the unexpected, and that is no Exception.
        is_panic = type(error).__name__ == "PanicException"
        if not is_panic and not isinstance(error, RuntimeError | TypeError | ValueError):
            raise
        raise InvalidBody(f"pco cannot decode a page: {error}") from (None if is_panic else error)
    return _numbers(decoder, dtype, rows, validity, numbers[:count])


@encoding("vortex.zstd")
def zstd(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Values compressed by zstd, in frames that follow each other."""
    # Metadata: 1 bytes of a trained dictionary, 2 frames, each 1 how many bytes it holds, 2 how many
    # values. Buffers: the dictionary where it has bytes; the frames. Children: validity, or none. Only what
    # is not null is stored: numbers as they are, and of text and binary the length as ``u32`` before the
    # bytes.
    dtype = decoder.expect(node, dtype, Kind.PRIMITIVE, Kind.UTF8, Kind.BINARY)
    metadata = decoder.metadata(node)
    validity = decoder.validity(node, 0, rows)
    count = decoder.count_valid(validity, rows)
    sizes = [frame.uint(1) for frame in metadata.messages(2)]
    first = 1 if metadata.uint(1) else 0
    if len(node.buffers) != first + len(sizes):
        raise InvalidMetadata(
            "zstd has another number of frames than buffers",
            expected=len(sizes),
            found=len(node.buffers) - first,
        )
    is_text = dtype.kind is not Kind.PRIMITIVE
    size, expected = sum(sizes), count * (_PREFIX_BYTES if is_text else dtype.numpy.itemsize)
    if size < expected or (size > expected and not is_text):
        raise InvalidBody(
            "zstd holds another number of values than are not null",
            expected=f"{count} values in {'at least ' * is_text}{expected} bytes",
            found=size,
        )
    if is_text and size > _MOST_BYTES:
        raise LimitExceeded("text or binary of one column of a batch", expected="below 2 GiB", found=size)
    decoder.allocate(size + (max(sizes) if len(sizes) > 1 else 0) + 16 * rows * is_text)
    buffers = [decoder.device.to_host(decoder.buffer(node, at)) for at in range(len(node.buffers))]
    trained = buffers[0] if first else None
    if len(sizes) == 1:
        data = _frame(buffers[first], size, trained)
    else:
        data, at = empty(np.empty(0, np.uint8), size, np.uint8), 0
        for frame, length in zip(buffers[first:], sizes, strict=True):
            data[at : at + length] = _frame(frame, length, trained)
            at += length
    if not is_text:
        return _numbers(decoder, dtype, rows, validity, data.view(dtype.numpy))
    bits = None if validity is None else decoder.device.to_host(validity)
    faults = new_faults(data)
    views = decode_text.make_views_of_prefixed(data, rows, validity=bits, faults=faults)
    if faults.any():
        raise InvalidBody("values in zstd are cut off", expected=f"{count} values in {size} bytes")
    put = decoder.device.from_host
    return Values(dtype, rows, validity, (put(views), put(data)))


def _frame(data: Any, size: int, trained: Any) -> Any:
    """Return what a frame holds, exactly as many bytes as are expected."""
    try:
        if trained is None:
            # At once: a stream would also allocate the window that the frame asks for.
            whole = pa.Codec("zstd").decompress(pa.py_buffer(data), size)
            return np.frombuffer(whole, np.uint8)
        library = _library("zstandard", "zstandard")
        dictionary = library.ZstdCompressionDict(bytes(trained))
        with library.ZstdDecompressor(dict_data=dictionary).stream_reader(data) as stream:
            content: bytes = stream.read(size + 1)
    except (MemoryError, BowstringError):
        raise
    except (OSError, pa.ArrowException) as error:
        raise InvalidBody(
            f"a frame of zstd cannot be decompressed: {error}", expected=f"{size} bytes"
        ) from error
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        raise InvalidBody(f"a frame of zstd cannot be decompressed: {error}") from error
    if len(content) != size:
        raise InvalidBody(
            "a frame of zstd does not hold as many bytes as are declared", expected=size, found=len(content)
        )
    return np.frombuffer(content, np.uint8)


def _numbers(decoder: Decoder, dtype: DType, rows: int, validity: Any | None, stored: Any) -> Values:
    """Return numbers of which only those that are not null are stored."""
    if validity is not None:
        decoder.allocate(rows * (1 + dtype.numpy.itemsize))
        flags = bitmap.expanded(decoder.device.to_host(validity), 0, rows)
        numbers = np.zeros(rows, dtype.numpy)
        numbers[flags] = stored
        stored = numbers
    return Values(dtype, rows, validity, (decoder.device.from_host(stored),))


def _library(package: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependency(
            f"this encoding of Vortex needs {package}", hint="pip install 'bowstring[vortex]'"
        ) from error
