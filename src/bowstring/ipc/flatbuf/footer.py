r"""Footers of Arrow IPC files (File.fbs): where the batches are, and the schema once more.

A file is ``ARROW1\0\0``, a stream, the footer, its length as int32, and ``ARROW1``.

A footer holds the table ``Schema`` just as a schema message does, and everything in a flatbuffer is found by
relative distances. So a footer is made by putting its own tables in front of a schema message.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidMetadata, LimitExceeded, Truncated, Unsupported
from bowstring.ipc.flatbuf.builder import Builder, Reference, Scalar
from bowstring.ipc.flatbuf.message import MetadataVersion, decode_message
from bowstring.ipc.flatbuf.reader import KeyValueMetadata, Tables
from bowstring.ipc.flatbuf.schema import DecodedSchema, decode_schema_at
from bowstring.limits import Limits

if TYPE_CHECKING:
    from bowstring.ipc.source import Source

FILE_MAGIC = b"ARROW1"
FILE_START = FILE_MAGIC + b"\0\0"  # what a file begins with; the first message follows

_LENGTH = struct.Struct("<i")
_BLOCK = np.dtype(
    {
        "names": ["offset", "metadata_length", "body_length"],
        "formats": ["<i8", "<i4", "<i8"],
        "offsets": [0, 8, 16],
        "itemsize": 24,
    }
)


class Block(NamedTuple):
    """Where a message is in a file."""

    offset: int  # of its prefix, from the start of the file
    metadata_length: int  # bytes of prefix, metadata and padding
    body_length: int


class Footer(NamedTuple):
    """The content of a footer; its blocks are checked when they are read."""

    schema: DecodedSchema
    dictionaries: npt.NDArray[np.void]  # shape (blocks,), with the fields of `Block`
    batches: npt.NDArray[np.void]  # likewise
    metadata: KeyValueMetadata | None
    start: int  # of the footer in the file: messages end before


def read_footer(source: Source, end: int, limits: Limits) -> Footer:
    """Read the footer of the file whose last byte stands before ``end``."""
    tail = _LENGTH.size + len(FILE_MAGIC)
    if end < len(FILE_START) + tail:
        raise InvalidMetadata("this is too short for an Arrow file", found=f"{end} bytes")
    source.seek(0)
    _expect_magic(source.read(len(FILE_MAGIC)), "byte 0")
    source.seek(end - tail)
    last = source.read(tail)
    _expect_magic(last[_LENGTH.size :], f"byte {end - len(FILE_MAGIC)}")
    length: int = _LENGTH.unpack_from(last)[0]
    where = f"byte {end - tail}"
    if length <= 0:
        raise InvalidMetadata("the length of the footer is not positive", found=length, where=where)
    start = end - tail - length
    if start < len(FILE_START):
        raise Truncated(
            "the footer is longer than the file",
            expected=f"at most {end - tail - len(FILE_START)} bytes",
            found=f"{length} bytes",
            where=where,
        )
    if length > limits.metadata_bytes:
        raise LimitExceeded(
            "the footer is too large",
            expected=f"at most {limits.metadata_bytes} bytes",
            found=f"{length} bytes",
            hint="Limits.metadata_bytes sets the bound.",
        )
    source.seek(start)
    data = source.read(length)
    if len(data) < length:
        raise Truncated("the file ends within its footer", where=f"byte {start}")
    tables = Tables(data)
    root = tables.follow(0, "Footer")
    version, schema, dictionaries, batches, metadata, *_ = tables.slots(root, "Footer")
    number = tables.scalar(root, version, "h", 0, "Footer.version")
    # Some writers leave it out, which means V1: what counts is the version of each message.
    if number > max(MetadataVersion):
        raise Unsupported(f"metadata version V{number + 1}", expected="V4 or V5", where="Footer.version")
    at = tables.reference(root, schema, "Footer.schema")
    if at < 0:
        raise InvalidMetadata("the footer has no schema", where="Footer.schema")
    return Footer(
        decode_schema_at(data, at, limits, is_footer=True)[0],
        _blocks(tables, root, dictionaries, "Footer.dictionaries"),
        _blocks(tables, root, batches, "Footer.recordBatches"),
        tables.key_values(root, metadata, "Footer.custom_metadata") if metadata else None,
        start,
    )


def _expect_magic(found: bytes, where: str) -> None:
    if found != FILE_MAGIC:
        raise InvalidMetadata(
            "this is not an Arrow file, or not a whole one", expected=FILE_MAGIC, found=found, where=where
        )


def _blocks(tables: Tables, root: int, slot: int, where: str) -> npt.NDArray[np.void]:
    start, count = tables.vector(root, slot, _BLOCK.itemsize, where)
    return np.frombuffer(tables.data, _BLOCK, count, start) if count else np.empty(0, _BLOCK)


def overlapping(blocks: npt.NDArray[np.void], end: int) -> npt.NDArray[np.bool_]:
    """Return which blocks overlap one that begins before, or that is listed before.

    They are what lets a small footer ask for the same bytes again and again. Blocks that do not lie before ``end``
    are not counted: reading them fails.
    """
    starts, metadata, bodies = (blocks[name] for name in _BLOCK.names or ())
    # Each number by itself first, so that the sums cannot overflow.
    real = (starts >= len(FILE_START)) & (metadata > 0) & (bodies >= 0) & (starts <= end) & (bodies <= end)
    real[real] = (starts + metadata + bodies)[real] <= end
    places = np.flatnonzero(real)
    order = places[np.argsort(starts[places], kind="stable")]
    ends = np.maximum.accumulate((starts + metadata + bodies)[order])
    result = np.zeros(len(blocks), np.bool_)
    result[order[1:]] = ends[:-1] > starts[order[1:]]
    return result


def encode_footer(
    schema: bytes,
    dictionaries: Sequence[Block],
    batches: Sequence[Block],
    metadata: Mapping[bytes, bytes] | None = None,
    version: MetadataVersion = MetadataVersion.V5,
) -> bytes:
    """Encode a footer, without its length and the magic behind it."""
    tail = schema + bytes(-len(schema) % 8)
    builder = Builder(tail)
    pairs = Reference(builder.key_values(metadata)) if metadata else None
    blocks = [Reference(builder.structs("qi4xq", rows)) for rows in (dictionaries, batches)]
    table = Reference(len(tail) - decode_message(schema).header)
    return builder.finish(builder.table([Scalar("h", version), table, *blocks, pairs]))
