"""Assembling: the parts of a stream become batches, each a view of the memory that it came in."""

from __future__ import annotations

import contextlib
import functools
import operator
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.columnar.batch import Batch
from bowstring.columnar.parts import Dictionaries, Dictionary, make_batch
from bowstring.dissociated.addresses import AnnouncedRegions
from bowstring.dissociated.credits import Account
from bowstring.dissociated.events import Announced, Packed, Part, Pointers
from bowstring.dissociated.wire import PREFIX_BYTES, ROW_BYTES
from bowstring.errors import ProtocolError, Unsupported
from bowstring.ipc.body.check import check_offsets, check_pairs, leave_out_unused_bitmaps
from bowstring.ipc.body.decode import COUNT, FIRST, NBYTES, BatchDecoder
from bowstring.ipc.body.pack import unpack
from bowstring.ipc.compression.body import decompressed_batches
from bowstring.ipc.compression.codec import DEFAULT_DECOMPRESSION
from bowstring.ipc.dictionary.reader import DictionaryMemo
from bowstring.ipc.flatbuf.message import (
    MessageKind,
    MetadataVersion,
    RecordBatchHeader,
    decode_dictionary,
    decode_record_batch,
)
from bowstring.ipc.flatbuf.schema import decode_schema
from bowstring.memory import (
    CPU_DEVICE_TYPE,
    Handle,
    KeyedHandle,
    Lease,
    LentHandle,
    Region,
    mappings,
    used_here,
    wrap,
)
from bowstring.transport.descriptors import close_all

if TYPE_CHECKING:
    import queue
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from bowstring.client.connection.remote import RemoteMemory
    from bowstring.client.connection.wire import Run
    from bowstring.columnar.layout import Layout
    from bowstring.dissociated.reader import ReaderProtocol
    from bowstring.ipc.compression.device.decompress import DeviceBodies
    from bowstring.limits import Limits
    from bowstring.memory import Buffer, Device, OpenedEvent

# The bytes of all buffers of a body of pointers, and how many they are.
_HEAD: Final = struct.Struct("<QQ")
_ROWS: Final = operator.itemgetter(slice(ROW_BYTES, None))


class Assembled(NamedTuple):
    """A batch, its bytes, and the credit that it costs: until it is delivered, or until its lease ends."""

    batch: Batch
    nbytes: int
    credit: int
    until_delivered: bool
    awaited: OpenedEvent | None = None
    """What must come before anybody looks at it, or at dictionaries that it brought."""
    unchecked: tuple[Batch, ...] = ()
    """These, whose offsets nobody has looked at."""
    cost: int = 0
    """What its packed body takes of the credit until it is delivered, as the reader counts."""

    @property
    def is_ready(self) -> bool:
        """Whether nothing is to be waited for: neither the producer's work, nor a device."""
        return self.awaited is None and self.batch.device.is_host


class Assembler:
    """Turns the parts of one stream into batches."""

    def __init__(
        self,
        limits: Limits,
        protocol: ReaderProtocol,
        notes: queue.SimpleQueue[Any],
        bodies: DeviceBodies | None = None,
        *,
        private: bool = False,
        remote: RemoteMemory | None = None,
        allocation: Callable[[], Region] | None = None,
    ) -> None:
        self._limits = limits
        self._protocol = protocol
        self._private = private
        self._remote = remote
        self._allocation = allocation
        self._notes = notes
        self._bodies = bodies
        self.announced = AnnouncedRegions(limits)
        self.schema: pa.Schema | None = None
        self._layout: Layout | None = None
        self._kernel: BatchDecoder | None = None
        # Memory that others may free when we have hung up, and the devices that it was opened on.
        self.borrows = False
        self.lenders: set[Device] = set()
        # What batches must wait for; where there is such, they are checked when they are delivered.
        self.awaited: OpenedEvent | None = None
        self._unchecked: list[Batch] = []

    @functools.cached_property
    def _memo(self) -> DictionaryMemo:
        return DictionaryMemo(self._layout)

    def take(self, part: Part) -> Assembled | None:
        kind = part.message.kind
        if isinstance(part.body, Pointers):
            self._open_allocation()
        if kind is MessageKind.SCHEMA:
            decoded = decode_schema(part.message, self._limits)
            if decoded.endianness != "little":
                raise Unsupported("big-endian bodies")
            self.begin(decoded.schema, decoded.layout)
            return None
        assert self._layout is not None
        copied = self._protocol.follows or self._reads is not None or isinstance(part.body, Packed)
        if kind is MessageKind.DICTIONARY_BATCH:
            dictionary = decode_dictionary(part.message)
            values = self._batch(part, dictionary.batch, self._memo.layout_of(dictionary.id), resident=True)
            self._memo.take(dictionary.id, values, is_delta=dictionary.is_delta)
            if copied:
                self._protocol.credit += self._credit(dictionary.batch)
            return None
        header = decode_record_batch(part.message)
        batch = self._batch(part, header, self._layout)
        credit, cost = self._credit(header), 0
        if isinstance(part.body, Packed):
            lengths = header.buffers[:, 1]
            cost = Account.cost(credit or int(lengths.sum()), len(lengths), part.body.body.nbytes)
        unchecked, self._unchecked = tuple(self._unchecked), []
        awaited = self.awaited if unchecked else None
        return Assembled(batch, batch.nbytes, credit, copied, awaited, unchecked, cost)

    def take_run(self, run: Run) -> list[Assembled]:
        """Make batches of a run: those in front that are surely right."""
        taken: list[Assembled] = []
        layout, kernel, charged = self._layout, self._kernel, self._protocol.charged
        if layout is None or kernel is None or self._unchecked or not run.bodies.device.is_host:
            return taken
        dictionaries = self._memo.all(layout)
        while dictionaries is not None and len(taken) < len(run.tags):
            bodies = run.bodies.slice(len(taken) * run.body, (len(run.tags) - len(taken)) * run.body)
            decoded = kernel.run(run.messages[len(taken) :, PREFIX_BYTES:], bodies, run.body)
            if decoded is None or decoded.codec is not None:
                break
            batch = decoded.maker(layout, (bodies.region,), Dictionaries(dictionaries), None)
            taken += [
                Assembled(
                    batch(index),
                    head[NBYTES],
                    head[NBYTES] + self._protocol.beside if charged else 0,
                    until_delivered=True,
                    cost=Account.cost(head[NBYTES], head[COUNT], run.body),
                )
                for index, head in enumerate(decoded.heads)
            ]
        return taken

    def take_pairs(self, messages: Sequence[bytes], bodies: Sequence[bytes]) -> list[Assembled]:
        """Make batches of untagged messages and their bodies of pointers: those in front that are surely right."""
        layout, kernel = self._layout, self._kernel
        if layout is None or kernel is None or self._unchecked or self._remote is not None:
            return []
        if self._allocation is not None:
            self._open_allocation()
        dictionaries = self._memo.all(layout) if layout.dictionaries else {}
        if dictionaries is None:
            return []
        bodies = bodies[: kernel.most(max(map(len, bodies)) // ROW_BYTES)]
        # Rows of the buffers, behind the total and count of each body.
        named = np.frombuffer(b"".join(map(_ROWS, bodies)), "<u8").reshape(-1, 2)
        lengths, counts, at = named[:, 1].tolist(), [], 0
        for body in bodies:
            count = len(body) // ROW_BYTES - 1
            if _HEAD.unpack_from(body) != (sum(lengths[at : at + count]), count):
                break
            counts.append(count)
            at += count
        if not counts:
            return []
        named = named[:at]
        regions = tuple(self.announced.regions)
        try:
            spans = self.announced.resolve(named)
        except ProtocolError:  # the caller that looks at each of them says of which
            return []
        for region in regions:
            if not region.device.is_host:
                return []
        decoded = kernel.pointed(messages, PREFIX_BYTES, counts, spans, regions)
        if decoded is None:
            return []
        shared, addresses = Dictionaries(dictionaries), named[:, 0]
        # As an offset, 0 is as good as any: nothing is lent where the length is 0, too.
        is_lent = None if all(lengths[:at]) else (named != 0).any(axis=1)
        taken = []
        for head, nodes, variadic in zip(decoded.heads, decoded.nodes, decoded.counts, strict=False):
            where = slice(head[FIRST], head[FIRST] + head[COUNT])
            table = spans[where]
            used = regions if len(regions) <= 1 else _numbered(table, regions)
            credit = head[NBYTES] + self._protocol.beside if self._protocol.charged else 0
            follows = self._protocol.follows
            freed = addresses[where] if is_lent is None else addresses[where][is_lent[where]]
            lent = self._protocol.lend(freed, 0 if follows else credit)
            batch = make_batch(
                Batch,
                layout,
                head[0],
                nodes,
                spans=table,
                regions=used,
                variadic_counts=variadic,
                dictionaries=shared,
                lease=Lease(used, None if lent is None else self._notes, lent),
                device=used[0].device if used else None,
            )
            taken.append(Assembled(batch, head[NBYTES], credit, until_delivered=follows))
        return taken

    @property
    def _reads(self) -> RemoteMemory | None:
        """What bodies of pointers are read from into memory of this process; ``None`` where they are mapped."""
        return self._remote if self._remote is not None and self._remote.known else None

    def _credit(self, header: RecordBatchHeader) -> int:
        return int(header.buffers[:, 1].sum()) + self._protocol.beside if self._protocol.charged else 0

    def announce(self, event: Announced) -> bool:
        """Add a region of the peer; return whether this process had it mapped already."""
        attachment = event.attachment
        if isinstance(event.handle, KeyedHandle):
            if self._remote is None:
                raise ProtocolError("a region with a key, where no memory can be read with one")
            self._remote.announce(event.base, event.handle)
            return False
        try:
            self.announced.check(event.base, event.handle.nbytes)
        except BaseException:
            close_all((attachment,))
            raise
        cache = mappings()
        before = cache.hits
        self.borrows |= isinstance(event.handle, LentHandle)
        if attachment is None:
            assert isinstance(event.handle, LentHandle)
            region = cache.open_lent(event.handle)
        elif not isinstance(attachment, Region):
            assert isinstance(event.handle, Handle)
            private = self._private and event.handle.arrow_device_type == CPU_DEVICE_TYPE
            opened = cache.open_private if private else cache.open
            region = opened(event.handle, attachment)
        elif attachment.slab is None or attachment.uuid != event.handle.uuid:
            raise ProtocolError("a region is not the one that was announced", found=repr(attachment))
        else:
            # A use of our own: the producer's must be able to end while this stream goes on.
            region = Region.of_slab(used_here(attachment.slab) if attachment.lent else attachment.slab)
        if region.nbytes != event.handle.nbytes:
            raise ProtocolError(
                "a region has not the announced size", expected=event.handle.nbytes, found=region.nbytes
            )
        self.announced.add(event.base, region, event.handle.nbytes)
        if isinstance(event.handle, LentHandle):
            self.lenders.add(region.device)
        return cache.hits > before

    def _open_allocation(self) -> None:
        """Open what the server's URI lends, when the first body needs it."""
        opens, self._allocation = self._allocation, None
        if opens is None:
            return
        region = opens()
        self.borrows = True
        self.lenders.add(region.device)
        self.announced.add(0, region, region.nbytes)

    @property
    def way(self) -> str:
        """How bodies came from a server that does not report it."""
        if self.borrows:
            return "in place"
        return "packed" if self._reads is None or not self._reads.used else "read"

    def forget_regions(self) -> None:
        """Let go of the regions: only the batches that use them keep them now."""
        self.announced = AnnouncedRegions(self._limits)
        self.awaited = None
        if self._remote is not None:
            self._remote.forget()

    def finish(self) -> None:
        """Let go of the dictionaries: no more batches will need them."""
        self._unchecked.clear()
        self.__dict__.pop("_memo", None)

    def begin(self, schema: pa.Schema, layout: Layout) -> None:
        """Take the schema of the stream, and its layout, which were decoded before."""
        self.schema, self._layout = schema, layout
        self._kernel = BatchDecoder.of(layout, self._limits)

    def _batch(
        self, part: Part, header: RecordBatchHeader, layout: Layout, *, resident: bool = False
    ) -> Batch:
        # Those that a dictionary uses itself are looked for when a batch uses it.
        dictionaries = {} if resident else self._memo.complete(layout, header.nodes)
        landed = part.body
        if landed is None and part.message.body_length == 0:
            landed = Packed(wrap(b""))
        match landed:
            case Pointers():
                return self._pointed(part, landed, header, layout, dictionaries, resident=resident)
            case Packed(body=body):
                if body.nbytes != part.message.body_length:
                    raise ProtocolError(
                        "a packed body has another length than its metadata says",
                        expected=part.message.body_length,
                        found=body.nbytes,
                        where=f"message {part.sequence}",
                    )
                # Dictionaries grow on the host, and go to the device as they are when a batch uses them.
                if not body.device.is_host and (resident or header.compression is not None):
                    with body.device.aside():
                        body = wrap(body.to_host())
                lease = Lease((body.region,))
                with contextlib.nullcontext() if body.device.is_host else body.device.aside():
                    batch = None if resident else self._compiled(part, body, layout, dictionaries, lease)
                    if batch is not None:
                        return batch
                    return unpack(
                        header,
                        layout,
                        body,
                        version=part.message.version,
                        dictionaries=dictionaries,
                        lease=lease,
                        custom_metadata=part.message.custom_metadata,
                        limits=self._limits,
                        target=None if resident else self._bodies,
                    )
            case _:
                raise ProtocolError("a body is missing", where=f"message {part.sequence}")

    def _compiled(
        self, part: Part, body: Buffer, layout: Layout, dictionaries: dict[int, Dictionary], lease: Lease
    ) -> Batch | None:
        """Return the batch of a packed body that a kernel reads; None where it does not, or that is not right."""
        decoded = None if self._kernel is None else self._kernel.one(part.message.data, body)
        if decoded is None:
            return None
        if decoded.codec is None:
            batch = decoded.maker(layout, (body.region,), Dictionaries(dictionaries), lease)(0)
            if not body.device.is_host:
                check_offsets(batch)
            return batch
        if self._bodies is not None:
            return None
        batches = decompressed_batches(decoded, layout, body, dictionaries, lease, DEFAULT_DECOMPRESSION)
        return batches[0] if batches else None

    def resolve(self, pairs: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], tuple[Region, ...]]:
        """Turn the addresses and lengths of a body into memory of this process, which a batch can view."""
        if self._reads is not None:
            return self._reads.fetch(pairs)
        spans = self.announced.resolve(pairs)
        regions = _numbered(spans, self.announced.regions)
        devices = {region.device for region in regions}
        if len(devices) > 1:
            raise ProtocolError(
                "a body lies on several devices", found=", ".join(sorted(each.name for each in devices))
            )
        return spans, regions

    def _pointed(
        self,
        part: Part,
        body: Pointers,
        header: RecordBatchHeader,
        layout: Layout,
        dictionaries: dict[int, Dictionary],
        *,
        resident: bool,
    ) -> Batch:
        """Make a batch over the producer's memory, with the lease that says so when it ends."""
        if header.compression is not None or part.message.version is not MetadataVersion.V5:
            raise Unsupported("a body of pointers must be plain and of metadata version V5")
        check_pairs(header, layout, body.pairs[:, 1])
        spans, regions = self.resolve(body.pairs)
        addresses = body.addresses
        device = None if not regions or regions[0].device.is_host else regions[0].device
        is_held = not (resident or self._reads is not None or self._protocol.follows)
        lent = self._protocol.lend(addresses, self._credit(header) if is_held else 0, device)
        if self._reads is not None and lent is not None:  # what was read is not needed any more
            self._notes.put(lent)
            lent = None
        leave_out_unused_bitmaps(spans, header.nodes, layout, header.variadic_counts)
        batch = make_batch(
            Batch,
            layout,
            header.length,
            header.nodes,
            spans=spans,
            regions=regions,
            variadic_counts=header.variadic_counts,
            dictionaries=dictionaries,
            lease=Lease(regions, None if lent is None else self._notes, lent),
            custom_metadata=part.message.custom_metadata,
        )
        if self.awaited is not None and not batch.device.is_host:
            self._unchecked.append(batch)
            return batch
        # In the thread that hears the producer's questions: it must not wait for the user's kernels.
        with batch.device.aside():
            check_offsets(batch)
        return batch


def _numbered(spans: npt.NDArray[np.int64], regions: Sequence[Region]) -> tuple[Region, ...]:
    """Return those of some regions that some rows use, and number them so in the rows."""
    if len(regions) <= 1:
        return tuple(regions)
    present = spans[:, 2] != 0  # an empty buffer lies nowhere, whatever its row says
    used, numbers = np.unique(spans[present, 0], return_inverse=True)
    spans[present, 0] = numbers.reshape(-1)
    spans[~present, 0] = 0
    return tuple(regions[index] for index in used.tolist()) or (regions[0],)
