"""Decoding: the registry of encodings, and what their rules are made of.

A rule is a function of a decoder, a node, the type and the number of rows that the node above hands down. It asks
the decoder for buffers, children and validity, which are checked against what the rule says about them, and returns
:class:`~bowstring.vortex.values.Values`. Whatever it allocates is counted against ``Limits`` before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.errors import InvalidBody, InvalidMetadata, LimitExceeded, Unsupported
from bowstring.kernels import bitmap
from bowstring.kernels.vortex.faults import check_faults, new_faults
from bowstring.limits import most_decompressed
from bowstring.memory.arrays import last_of
from bowstring.vortex.dtype import BOOL, PTYPES, DType, Kind
from bowstring.vortex.protobuf import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from bowstring.limits import Limits
    from bowstring.memory import Device
    from bowstring.vortex.message import ArrayNode, Body
    from bowstring.vortex.values import Values

RULES: Final[dict[str, Callable[[Decoder, ArrayNode, DType, int], Values]]] = {}
_MOST_ROWS: Final = 1 << 62


def encoding(*ids: str) -> Callable[[Any], Any]:
    """Register a function as the rule of one or several encodings."""

    def register(rule: Any) -> Any:
        for each in ids:
            RULES[each] = rule
        return rule

    return register


class Decoder:
    """Decodes nodes of one body on the device where it lies."""

    def __init__(self, body: Body, limits: Limits, rows: int, room: int | None = None) -> None:
        self.body = body
        self.limits = limits
        self.rows = rows
        self.device: Device = body.buffer.device
        self.xp = self.device.xp
        self._whole = body.buffer.array()
        self._address = body.buffer.address
        self.faults = new_faults(self._whole)  # what kernels note in; looked at by `finish`
        self.room = most_decompressed(body.buffer.nbytes, limits) if room is None else room

    def decode(self, node: ArrayNode, dtype: DType, rows: int) -> Values:
        rule = RULES.get(node.encoding)
        if rule is None:
            raise Unsupported(
                f"the Vortex encoding {node.encoding!r}",
                hint="Other columns and batches of the stream can be read.",
            )
        if not 0 <= rows <= _MOST_ROWS:
            raise LimitExceeded("an array has too many rows", found=rows, where=node.encoding)
        return rule(self, node, dtype, rows)

    def finish(self, where: str) -> None:
        """Raise what kernels noted while they decoded a column: one read by the host."""
        check_faults(self.device.to_host(self.faults), where)

    # What rules ask for

    def expect(self, node: ArrayNode, dtype: DType, *kinds: Kind) -> DType:
        """Return the storage of a type, which must be of one of these kinds."""
        storage = dtype.storage
        if storage.kind not in kinds:
            raise InvalidMetadata(
                "an encoding does not fit its type",
                expected=" or ".join(kind.name for kind in kinds),
                found=str(dtype),
                where=node.encoding,
            )
        return storage

    def metadata(self, node: ArrayNode) -> Message:
        return Message(node.metadata, f"the metadata of {node.encoding}")

    def ptype(self, node: ArrayNode, number: int, *, kinds: str = "u") -> DType:
        """Return a primitive type by its number in metadata; absent means ``u8``."""
        # kinds: those allowed, as letters of NumPy: u unsigned, i signed, f floating-point
        number = int(number)
        if number >= len(PTYPES) or PTYPES[number].kind not in kinds:
            raise InvalidMetadata(
                "metadata name a physical type that cannot be here", found=number, where=node.encoding
            )
        return DType(Kind.PRIMITIVE, ptype=number)

    def allocate(self, nbytes: int) -> None:
        """Count memory that is about to be allocated."""
        self.room -= nbytes
        if self.room < 0:
            raise LimitExceeded(
                "decoding the array takes too much memory for its size",
                expected=f"at most {self.limits.decompression_ratio:g} times its "
                f"{self.body.buffer.nbytes} bytes, or {self.limits.decompression_floor}",
                found=f"{nbytes} more bytes",
                hint="Raise Limits.decompression_ratio or decompression_floor where the stream is trusted.",
            )

    def buffer(self, node: ArrayNode, at: int, dtype: Any = np.uint8, count: int | None = None) -> Any:
        """Return one of the node's own buffers as an array; it is copied where it is not aligned to `dtype`."""
        # count: how many elements there must be, more are left out; all by default
        size = np.dtype(dtype).itemsize
        if not 0 <= at < len(node.buffers):
            raise InvalidBody(
                "a node lacks a buffer", expected=f"buffer {at}", found=len(node.buffers), where=node.encoding
            )
        nbytes = None if count is None else count * size
        index = node.buffers[at]
        raw = self.body.array(index, self._whole, self.limits, nbytes, max(self.room, 0))
        if nbytes is None and len(raw) % size:
            raise InvalidBody(
                "a buffer does not hold whole elements",
                expected=np.dtype(dtype),
                found=len(raw),
                where=node.encoding,
            )
        stored = self.body.stored[index]
        if stored.compression:
            self.allocate(len(raw))
        elif (self._address + stored.offset) % size and len(raw):
            self.allocate(len(raw))
            raw = raw.copy()
        return raw if size == 1 and dtype is np.uint8 else raw.view(dtype)

    def stored_bytes(self, node: ArrayNode, at: int) -> bytes:
        """Return one of the node's own buffers as bytes of the host, such as an encoded scalar."""
        return bytes(self.device.to_host(self.buffer(node, at)))

    def last(self, integers: Any) -> int:
        """Return the last of some integers: one read by the host."""
        return last_of(integers)

    def child(self, node: ArrayNode, at: int, dtype: DType, rows: int) -> Values:
        if not 0 <= at < len(node.children):
            raise InvalidMetadata(
                "a node lacks a child", expected=f"child {at}", found=len(node.children), where=node.encoding
            )
        return self.decode(node.children[at], dtype, rows)

    def numbers(self, node: ArrayNode, at: int, dtype: DType, rows: int) -> Any:
        """Return the values of a child that are numbers of which none is null, as an array."""
        values = self.child(node, at, dtype, rows)
        if values.validity is not None and self.count_valid(values.validity, values.length) < values.length:
            raise InvalidBody(
                "numbers that an encoding needs are null", where=f"child {at} of {node.encoding}"
            )
        return values.arrays[0]

    def count_valid(self, validity: Any | None, rows: int) -> int:
        """Return how many rows are not null: one read by the host where there is a bitmap."""
        if validity is None:
            return rows
        return int(self.device.to_host(bitmap.count_set(validity, 0, rows))[0])

    def validity(self, node: ArrayNode, at: int, rows: int) -> Any | None:
        """Return the bitmap of the validity child at a position, or ``None`` where it is absent: all are valid."""
        self.only_children(node, at + 1)
        if at >= len(node.children):
            return None
        return self.child(node, at, BOOL, rows).arrays[0]

    def only_children(self, node: ArrayNode, most: int) -> None:
        """Refuse a node that has more children than its encoding."""
        if len(node.children) > most:
            raise InvalidMetadata(
                "a node has too many children",
                expected=f"at most {most}",
                found=len(node.children),
                where=node.encoding,
            )

    def check_below(self, array: Any, bound: int, what: str) -> None:
        """Refuse integers below 0 and those that reach a bound: one read by the host."""
        if len(array) and self.any((array < 0) | (array >= bound)):
            raise InvalidBody(f"{what} point outside", expected=f"0 to {bound - 1}")

    def any(self, flags: Any) -> bool:
        """Whether a flag is set: one read by the host."""
        return bool(self.device.to_host(self.xp.any(flags).reshape(1))[0])
