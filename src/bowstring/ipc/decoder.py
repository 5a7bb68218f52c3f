"""From messages to batches: what readers of streams, of files and of single messages have in common."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.ipc import Alignment

from bowstring.columnar.layout import Layout
from bowstring.columnar.materialize import dictionaries_placed, placed
from bowstring.columnar.parts import Dictionaries, Dictionary
from bowstring.errors import Unsupported, UsageError
from bowstring.ipc.body.check import check_counts, check_offsets
from bowstring.ipc.body.decode import BatchDecoder, Decoded, Head
from bowstring.ipc.body.pack import unpack
from bowstring.ipc.compression.body import decompressed_batches
from bowstring.ipc.compression.codec import DecompressOptions, with_older_compression
from bowstring.ipc.compression.device.decompress import DeviceBodies
from bowstring.ipc.dictionary.reader import Arrival, DictionaryMemo
from bowstring.ipc.flatbuf.message import (
    Message,
    MetadataVersion,
    RecordBatchHeader,
    decode_dictionary,
    decode_record_batch,
    without_bitmaps_of_4,
)
from bowstring.ipc.options import IpcReadOptions
from bowstring.limits import Limits
from bowstring.memory import Buffer, Device, device_by_name

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch
    from bowstring.ipc.flatbuf.schema import DecodedSchema

GROWTH: Final = 8
# Messages that are read at once: one at first, then so many times more each time, up to these.
MOST_AHEAD: Final = 256


class ReadAhead:
    """Messages that were read together. An interrupted read loses none of their batches."""

    __slots__ = ("batch", "heads", "taken")

    def __init__(
        self, heads: Sequence[Head] = (), batch: Callable[[int], Batch | None] = lambda _: None
    ) -> None:
        # `batch(index)` returns None if it was decompressed and returned before
        self.heads, self.batch = heads, batch
        self.taken = 0  # messages that the stream's reader has returned


class Selection:
    """Some columns of a layout."""

    def __init__(self, whole: Layout, columns: Sequence[int]) -> None:
        self.whole = whole
        self._columns = sorted(set(columns))
        count = len(whole.columns)
        if self._columns and self._columns[-1] >= count:
            raise UsageError(
                "included_fields names a column that is not there",
                expected=f"less than {count}",
                found=self._columns[-1],
            )
        self.layout, self._nodes, self._buffers = whole.select(self._columns, [0] * len(whole.variadic_nodes))
        chosen = set(self._nodes.tolist())
        self._is_chosen = [node in chosen for node in whole.variadic_nodes]

    def narrowed(self, header: RecordBatchHeader) -> RecordBatchHeader:
        check_counts(header, self.whole)
        buffers = self._buffers
        if header.variadic_counts:
            _, _, buffers = self.whole.select(self._columns, header.variadic_counts)
        counts = zip(header.variadic_counts, self._is_chosen, strict=True)
        return header._replace(
            nodes=header.nodes[self._nodes],
            buffers=header.buffers[buffers],
            variadic_counts=tuple(count for count, is_chosen in counts if is_chosen),
        )


class DeviceTarget:
    """The device that a reader brings its batches to; it brings each dictionary once."""

    def __init__(self, device: Device, *, trusted: bool) -> None:
        self.bodies = DeviceBodies(device, trusted=trusted)
        self._known: weakref.WeakKeyDictionary[Dictionary, Dictionary] = weakref.WeakKeyDictionary()

    @classmethod
    def of(cls, device: Device | str | None, *, trusted: bool) -> DeviceTarget | None:
        """Return the target for a device or its name; None for the host."""
        if isinstance(device, str):
            device = device_by_name(device)
        elif not isinstance(device, Device | None):
            expected = "a Device, or a name such as 'cuda:0'"
            raise UsageError("not a device", expected=expected, found=repr(device))
        return None if device is None or device.is_host else cls(device, trusted=trusted)

    def place(self, batch: Batch) -> Batch:
        bodies = self.bodies
        if batch.device is not bodies.device:
            return placed(batch, bodies.allocator, self._known, in_place=False)
        return dictionaries_placed(batch, bodies.allocator, self._known)


class Decoder:
    """Makes batches of the messages of one stream or file."""

    def __init__(
        self,
        decoded: DecodedSchema,
        options: IpcReadOptions,
        limits: Limits,
        memo: DictionaryMemo | None = None,
        target: DeviceTarget | None = None,
        memory_pool: pa.MemoryPool | None = None,
    ) -> None:
        self._is_big_endian = decoded.endianness == "big"
        if self._is_big_endian and not options.ensure_native_endian:
            raise Unsupported("batches in a foreign byte order", hint="Leave ensure_native_endian=True.")
        whole = decoded.layout
        self._selection = Selection(whole, options.included_fields) if options.included_fields else None
        # of the chosen columns, as `schema`
        self.layout = whole if self._selection is None else self._selection.layout
        # Schemas that are equal to pyarrow may differ, so it is the one that came.
        of_all = whole.schema if self._is_big_endian else decoded.schema
        self.schema = of_all if self._selection is None else self.layout.schema
        self._ids = whole.dictionaries.keys()
        self.memo = DictionaryMemo(self.layout) if memo is None else memo
        self._options = options
        self._decompression = DecompressOptions(options.use_threads, memory_pool)
        self._limits = limits
        self._target = target
        reads_as_is = not self._is_big_endian and options.ensure_alignment is Alignment.Any
        self._is_plain = reads_as_is and self._selection is None

    @functools.cached_property
    def _kernel(self) -> BatchDecoder | None:
        """What reads batches by the plan of the layout, which is derived for the first of them."""
        return BatchDecoder.of(self.layout, self._limits) if self._is_plain else None

    def batch(self, message: Message, body: Buffer) -> Batch:
        target, layout = self._target, self.layout
        decoded = self._kernel.one(message.data, body) if self._kernel is not None else None
        batch = None
        if decoded is not None and (decoded.codec is None or target is None):
            dictionaries = self.memo.complete(layout, decoded.nodes[0]) if layout.dictionaries else {}
            if decoded.codec is not None:
                batch = next(iter(self._decompressed(decoded, body, dictionaries)), None)
            else:
                batch = decoded.maker(layout, (body.region,), Dictionaries(dictionaries), body.lease)(0)
                if not body.region.device.is_host:
                    check_offsets(batch)
        if batch is None:  # the kernel does not know it, or it is not right
            header, version = self._header(message)
            batch = self._unpacked(
                header,
                layout,
                body,
                version=version,
                dictionaries=self.memo.complete(layout, header.nodes),
                custom_metadata=message.custom_metadata,
                target=None if target is None else target.bodies,
            )
        return batch if target is None else target.place(batch)

    def _decompressed(
        self, decoded: Decoded, memory: Buffer, dictionaries: Mapping[int, Dictionary]
    ) -> list[Batch]:
        return decompressed_batches(
            decoded, self.layout, memory, dictionaries, memory.lease, self._decompression
        )

    def reads_ahead(self, memory: Buffer) -> bool:
        """Whether batches can be read many at a time out of memory."""
        return self._is_plain and self._target is None and memory.device.is_host

    def ahead(
        self, memory: Buffer, first: int, most: int, blocks: npt.NDArray[np.int64] | None = None
    ) -> ReadAhead:
        """Return the next messages in memory; none if the first is wrong, or not known to the kernel.

        `first` is the place of the first, or with the blocks of a file its number: then those are
        decompressed one by one.
        """
        layout, kernel = self.layout, self._kernel
        dictionaries = self.memo.all(layout) if layout.dictionaries else {}
        if kernel is None or dictionaries is None:
            return ReadAhead()
        if blocks is None:
            decoded = kernel.stream(memory, memory.offset + first, most)
        else:
            decoded = kernel.listed(memory, blocks, first, most)
            if decoded is not None and decoded.codec is not None:
                decoded = decoded._replace(heads=decoded.heads[:1])
        if decoded is None:
            return ReadAhead()
        if decoded.codec is None:
            parts = layout, (memory.region,), Dictionaries(dictionaries), memory.lease
            return ReadAhead(decoded.heads, decoded.maker(*parts))
        batches = self._decompressed(decoded, memory, dictionaries)
        waiting: dict[int, Batch] = dict(enumerate(batches))
        return ReadAhead(decoded.heads[: len(batches)], lambda index: waiting.pop(index, None))

    @property
    def decompressed(self) -> str:
        return "" if self._target is None else str(self._target.bodies.counts)

    def parts_of_body(self, message: Message) -> npt.NDArray[np.int64] | None:
        """Return which parts of its body the batch of a message needs (offsets and lengths); None for all."""
        if self._selection is None:
            return None
        header, _ = self._header(message)
        return header.buffers

    def needs_dictionary(self, message: Message) -> bool:
        id_ = decode_dictionary(message).id
        return id_ not in self._ids or id_ in self.layout.dictionaries

    def take_dictionary(self, message: Message, body: Buffer) -> Arrival:
        id_, is_delta, header = decode_dictionary(message)
        header = with_older_compression(header, message)
        layout = self.memo.layout_of(id_)
        # Values with dictionaries of their own are put together when these are known: on the host.
        target = None if self._target is None or layout.dictionaries else self._target.bodies
        values = self._unpacked(header, layout, body, version=message.version, target=target)
        return self.memo.take(id_, values, is_delta=is_delta)

    def _unpacked(self, header: RecordBatchHeader, layout: Layout, body: Buffer, **details: Any) -> Batch:
        return unpack(
            header,
            layout,
            body,
            is_big_endian=self._is_big_endian,
            alignment=self._options.ensure_alignment,
            decompression=self._decompression,
            limits=self._limits,
            **details,
        )

    def _header(self, message: Message) -> tuple[RecordBatchHeader, MetadataVersion]:
        header = with_older_compression(decode_record_batch(message), message)
        if self._selection is None:
            return header, message.version
        if message.version is MetadataVersion.V4:
            header = without_bitmaps_of_4(header, self._selection.whole)
        return self._selection.narrowed(header), MetadataVersion.V5
