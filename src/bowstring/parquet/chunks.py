"""The column chunks of a footer, where they are and what they say, read without pyarrow.

pyarrow ends the process where it is asked about a column chunk whose size statistics contradict the schema, and
makes hundreds of bytes of memory of one byte of a footer. So a kernel passes over the footer before.
"""

from __future__ import annotations

import base64
import dataclasses
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.errors import BowstringError, InvalidMetadata, LimitExceeded, Truncated
from bowstring.ipc.flatbuf.message import decode_message
from bowstring.ipc.flatbuf.schema import decode_schema
from bowstring.kernels.launch import launch
from bowstring.kernels.parquet import footer as kernel
from bowstring.kernels.parquet import thrift
from bowstring.parquet.logical import PHYSICAL, WIDTHS
from bowstring.parquet.thrift import LIST, Reader, encode_integer

if TYPE_CHECKING:
    from collections.abc import Collection

    from bowstring.limits import Limits
    from bowstring.parquet.footer import Footer

# Numbers of fields in parquet.thrift.
_SCHEMA, _ROW_GROUPS = 2, 4
_DEPTH: Final = 64
_MIB: Final = 1 << 20
SMALL: Final = _MIB // 16
"""The size of a footer of which pyarrow makes at most 40 MiB, whatever is in it."""
# How much memory pyarrow may need for a byte of a footer, all in all: real ones need 5 to 30.
_MOST_RATIO: Final = 64
_MOST_METADATA: Final = 16
_MOST_ROWS: Final = 1 << 62
# Of a message: a continuation, and its length.
_PREFIX: Final = 8


def group_reader(footer: Footer) -> Reader | None:
    """Return a reader at the list of the row groups, ``None`` where the footer has none."""
    reader = Reader(footer.rest, _DEPTH)
    last = _SCHEMA
    while (header := reader.header(last)) is not None:
        last, kind = header
        if last == _ROW_GROUPS and kind == LIST:
            return reader
        reader.skip(kind)
    return None


class Chunks:
    """The facts of the column chunks of a footer, read in one pass that bounds what a footer may be."""

    def __init__(self, footer: Footer, limits: Limits) -> None:
        # pyarrow's memory for the footer is at most 16 times `metadata_bytes`, and 64 bytes for each byte.
        leaves = [each for each in footer.schema if each.physical is not None]
        self._physical = [each.physical for each in leaves]
        self._widths = [WIDTHS.get(PHYSICAL[each.physical or 0], each.length or 0) for each in leaves]
        columns = len(self._physical)
        reader = group_reader(footer)
        groups = 0 if reader is None else reader.list_header()[0]
        rest = footer.rest
        most = min(_MOST_METADATA * limits.metadata_bytes, _MOST_RATIO * max(len(rest), _MIB))
        # Each chunk takes a byte of the footer, and counts as memory of which there is no more.
        held = min(groups * columns, len(rest), most // int(kernel.CHUNK_BYTES))
        facts = np.empty(held * int(kernel.FACTS), np.int64)
        counts = np.zeros(int(kernel.COUNTS), np.int64)
        room = np.empty(_DEPTH * int(thrift.LEVEL), np.int64)
        launch(
            kernel.read_footer, 1, np.frombuffer(rest, np.uint8), columns, most, _DEPTH, room, facts, counts
        )
        _check_counts(counts, columns, most)
        at, size = int(counts[kernel.SCHEMA_AT]), int(counts[kernel.SCHEMA_BYTES])
        if size:
            _check_arrow_schema(rest[at : at + size], limits)
        groups = int(counts[kernel.GROUPS])
        # See `bowstring.kernels.parquet.footer`; array of int64, shape (row groups, columns, FACTS).
        self.facts = facts[: groups * columns * int(kernel.FACTS)].reshape(groups, columns, int(kernel.FACTS))

    def with_a_row_more(self, footer: Footer) -> Footer:
        """Return the footer with one row more in each row group that has column chunks."""
        parts, begin = [], 0
        for at in self.facts[:, :1, kernel.ROWS_AT].ravel().tolist():
            reader = Reader(footer.rest, _DEPTH)
            reader.position = at
            rows = reader.zigzag() if at >= 0 else -1
            if 0 <= rows < _MOST_ROWS:
                parts += [footer.rest[begin:at], encode_integer(rows + 1)]
                begin = reader.position
        return dataclasses.replace(footer, rest=b"".join([*parts, footer.rest[begin:]]))

    def encrypted(self, leaves: Collection[int]) -> list[int]:
        """Return those of some columns of values that have a chunk that is encrypted."""
        chosen = sorted(leaves)
        flags = np.bitwise_or.reduce(self.facts[:, chosen, kernel.FLAGS], axis=0) & kernel.ENCRYPTED
        return [leaf for leaf, flag in zip(chosen, flags.tolist(), strict=True) if flag]

    def short_bounds(self, leaf: int) -> Any:
        """Return for each row group whether bounds have fewer bytes than a value: pyarrow ends at them."""
        bound = self.facts[:, leaf, kernel.BOUND]
        return (bound >= 0) & (bound < self._widths[leaf])

    def check(self, schema: Any, leaves: Collection[int]) -> None:
        """Raise an error for column chunks that pyarrow must not be asked about; none of them is encrypted."""
        for leaf in leaves:
            column = schema.column(leaf)
            facts = self.facts[:, leaf]
            wanted = np.array(
                [self._physical[leaf], column.max_repetition_level + 1, column.max_definition_level + 1]
            )
            found = facts[:, [kernel.TYPE, kernel.REPETITIONS, kernel.DEFINITIONS]]
            wrong = found != wanted
            wrong[:, 1:] &= found[:, 1:] > 0
            text = (facts[:, kernel.TEXT_BYTES] != -1) & (column.physical_type != "BYTE_ARRAY")
            missing = facts[:, kernel.FLAGS] & kernel.HAS_METADATA == 0
            levels = "a histogram of levels contradicts the schema"
            for bad, what, expected, there in (
                (missing, "a column chunk has no metadata", None, None),
                (wrong[:, 0], "a column chunk has another physical type", wanted[0], found[:, 0]),
                (text, "a column chunk counts bytes of text", "BYTE_ARRAY", None),
                (wrong[:, 1], levels, f"{wanted[1]} levels", found[:, 1]),
                (wrong[:, 2], levels, f"{wanted[2]} levels", found[:, 2]),
            ):
                if bad.any():
                    group = int(bad.argmax())
                    raise InvalidMetadata(
                        what,
                        expected=expected,
                        found=None if there is None else there[group],
                        where=f"row group {group}, column {column.path}",
                    )


def _check_arrow_schema(text: bytes, limits: Limits) -> None:
    """Raise an error for an Arrow schema of more fields than the limits: they may be one, many times."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidMetadata("the Arrow schema of a footer is not base64", found=str(error)) from error
    begin = _PREFIX if data.startswith(b"\xff\xff\xff\xff") else _PREFIX // 2
    size = int.from_bytes(data[begin - 4 : begin], "little")
    message = decode_message(data[begin : begin + size], limits)
    try:
        decode_schema(message, limits)
    except BowstringError as error:
        error.where = "the Arrow schema of the footer" + (f", {error.where}" if error.where else "")
        raise


def _check_counts(counts: Any, columns: int, most: int) -> None:
    """Raise the error of a footer that the kernel did not pass over."""
    status = int(counts[kernel.STATUS])
    where = f"byte {int(counts[kernel.PLACE])} after the schema of the footer"
    if status == thrift.TRUNCATED:
        raise Truncated("a footer ends inside a value", where=where)
    if status == thrift.MALFORMED:
        raise InvalidMetadata(
            "a footer has no such Thrift type, or a field twice, out of order or with elements of another type",
            expected="types 1 to 13, field numbers that ascend, and the elements of parquet.thrift",
            where=where,
        )
    if status == kernel.TOO_DEEP:
        raise LimitExceeded("a footer nests too deeply", expected=f"at most {_DEPTH} levels", where=where)
    if status == kernel.TOO_LARGE:
        raise LimitExceeded(
            "a footer has too many row groups, column chunks, key-value pairs or other parts",
            expected=f"at most {most} bytes of memory for them",
            found=f"{int(counts[kernel.CHUNKS])} chunks in {int(counts[kernel.GROUPS])} row groups, and more",
            where=where,
            hint="It depends on the size of the footer, and on Limits.metadata_bytes.",
        )
    if status == kernel.MISMATCH:
        raise InvalidMetadata(
            "a row group has more or fewer column chunks than there are columns",
            expected=columns,
            where=f"row group {int(counts[kernel.GROUPS]) - 1}, {where}",
        )
