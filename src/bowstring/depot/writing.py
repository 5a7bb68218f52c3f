"""A task's attempt at one partition of a data set, written into slabs that it borrows one after the other.

A slab may be lent again because of a promise: when an attempt reports that it is over, nothing in this process
writes any of its slabs again, unless that slab is lent to it again. Slabs of which a view is still held are named,
and never lent again.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

import numpy as np

from bowstring.columnar.batch import batches
from bowstring.columnar.copy_pieces import Pieces, fill_on_host
from bowstring.columnar.layout import Layout
from bowstring.columnar.materialize import placed
from bowstring.depot.manifest import pack_part
from bowstring.depot.protocol import Verb
from bowstring.dissociated.endpoint import Endpoint
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ForkedError,
    InvalidRegion,
    NotPicklable,
    ProtocolError,
    UsageError,
)
from bowstring.memory import Buffer, Region, cpu
from bowstring.memory.slab import close_descriptor, identity_of
from bowstring.memory.writable_memfd import map_writable_slab
from bowstring.server.encoder import Encoder, known_of
from bowstring.transport.descriptors import close_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    import numpy.typing as npt
    import pyarrow as pa

    from bowstring.columnar.batch import Batch
    from bowstring.columnar.parts import Dictionary
    from bowstring.depot.protocol import DepotConnection
    from bowstring.ipc.body.encode import BatchEncoder
    from bowstring.memory import Device, Slab

_MOST_BYTES: Final = 512 << 20
# Each attempt names them all to the depot.
_MOST: Final = 256
UUID_BYTES: Final = 16
_ALIGNMENT: Final = cpu().alignment


class WarmMappings:
    """Writable mappings of slabs by UUID: those that nobody writes now."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._idle: collections.OrderedDict[bytes, Slab] = collections.OrderedDict()

    def open(self, fd: int, nbytes: int, uuid: bytes) -> Slab:
        """Return the slab that was lent, mapped for writing; takes ownership of `fd`."""
        with self._lock:
            known = self._idle.pop(uuid, None)
        if known is None:
            identity = identity_of(fd)
            slab = map_writable_slab(fd, nbytes, uuid)
            slab.identity = identity
            _mapped.add(slab)
            return slab
        try:
            if known.identity != identity_of(fd) or known.nbytes != nbytes:
                raise InvalidRegion("another slab is lent under the name of an earlier one", found=uuid.hex())
        finally:
            close_descriptor(fd)
        return known

    def put(self, slab: Slab) -> None:
        """Keep the mapping of a slab that nobody here writes any more."""
        with self._lock:
            self._idle[slab.uuid] = slab
            while (
                len(self._idle) > _MOST or sum(each.nbytes for each in self._idle.values()) > self._most_bytes
            ):
                self._idle.popitem(last=False)

    def names(self) -> bytes:
        with self._lock:
            return b"".join(self._idle)

    def forget(self, names: bytes) -> None:
        with self._lock:
            for at in range(0, len(names), UUID_BYTES):
                self._idle.pop(names[at : at + UUID_BYTES], None)

    def clear(self) -> None:
        with self._lock:
            self._idle.clear()


_warm = WarmMappings()
_mapped: weakref.WeakSet[Slab] = weakref.WeakSet()
_of_parent: list[object] = []


def warm_mappings() -> WarmMappings:
    """Return the warm mappings of this process."""
    return _warm


def _forget_parent() -> None:
    global _warm  # noqa: PLW0603  the child of a fork starts with mappings (and a lock) of its own
    # It does not have the memory mapped, and must never unmap what lies there now instead.
    _of_parent.extend(slab.memory for slab in _mapped)
    _mapped.clear()
    _warm = WarmMappings()


os.register_at_fork(after_in_child=_forget_parent)


_LARGEST: Final = 64 << 20


class LentAllocator:
    """Cuts buffers from borrowed slabs: what :class:`bowstring.memory.Allocator` is for a pool.

    ``borrow(needed, wanted)`` returns (number, slab), mapped for writing.
    """

    def __init__(self, borrow: Callable[[int, int], tuple[int, Slab]]) -> None:
        self._borrow = borrow
        self._wanted = 0
        self._lock = threading.RLock()
        self._region: Region | None = None
        self._next = 0
        self._numbers: dict[int, int] = {}
        # What is mapped: its use tells whether anything can write there still.
        self._slabs: dict[int, tuple[Slab, weakref.ref[Region]]] = {}

    @property
    def device(self) -> Device:
        return cpu()

    def allocate(self, nbytes: int) -> Buffer:
        if nbytes < 0:
            raise UsageError("a buffer cannot have a negative size", found=nbytes)
        region, offset = self.take(nbytes)
        return Buffer.fresh(region, offset, nbytes)

    def take(self, nbytes: int) -> tuple[Region, int]:
        """Return fresh bytes: the region, and the offset there, at the device's alignment."""
        with self._lock:
            if self._region is None or self._next + nbytes > self._region.nbytes:
                self._region = None
                self._put_back()
                self._open(nbytes)
            region, offset = self._region, self._next
            assert region is not None
            self._next = offset + -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return region, offset

    def _open(self, nbytes: int) -> None:
        number, slab = self._borrow(nbytes, self._wanted)
        self._region, self._next = Region.of_slab(slab), 0
        # Twice the last: an attempt of any size asks few times, and leaves about half of it empty at most.
        self._wanted = min(2 * slab.nbytes, _LARGEST)
        self._slabs[number] = slab, weakref.ref(self._region)
        # No other one lies there now: what lay there before was unmapped.
        self._numbers[slab.address] = number

    def _put_back(self) -> None:
        """Keep the mappings of what is full and written no more, for the next time."""
        for number, (slab, use) in list(self._slabs.items()):
            if use() is None:
                del self._slabs[number]
                warm_mappings().put(slab)

    def number_of(self, region: Region) -> int:
        return self._numbers[region.address]

    def let_go(self) -> list[int]:
        """Write nothing any more; return the numbers of the slabs that somebody holds still."""
        with self._lock:
            self._region = None
            self._put_back()
            held = list(self._slabs)
            self._slabs = {}
        return held


# What is told early is checked while the task still writes, and the commit does not wait for it.
_TOGETHER: Final = 256 << 10
_PARTS: Final = 8
_ANSWER_SECONDS: Final = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Committed:
    """What an attempt committed. It pickles.

    Attributes
    ----------
    endpoint
        Where it can be read.
    partition, attempt
        Which part of the data set, and which try.
    num_rows, num_batches, nbytes
        How much it is.
    """

    endpoint: Endpoint
    partition: int
    attempt: int
    num_rows: int
    num_batches: int
    nbytes: int

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Self:
        """Return what the depot says of a stream."""
        uri, ticket, elsewhere, host, *counts = fields.values()
        return cls(Endpoint(uri, ticket, None, elsewhere, host), *counts)


class Attempt:
    """One try to write one partition, from :meth:`Depot.begin`. Nobody sees anything of it before `commit`.

    Left by an exception, or not committed, it is aborted.

    Examples
    --------
    >>> import pyarrow as pa, bowstring as bow
    >>> with bow.depot.connect() as depot:  # doctest: +SKIP
    ...     with depot.begin(application="app", dataset="app/numbers", partition=0, attempt=0) as attempt:
    ...         attempt.write(pa.table({"n": [1, 2, 3]}))
    ...         endpoint = attempt.commit().endpoint
    """

    def __init__(
        self,
        connection: DepotConnection,
        take_back: Callable[[DepotConnection], None],
        schema: pa.Schema | None,
        wait: float,
    ) -> None:
        self._take_back = take_back
        self._connection: DepotConnection | None = connection
        self._wait = wait
        self._pid = os.getpid()
        self._allocator = LentAllocator(self._borrow)
        self._known: weakref.WeakKeyDictionary[Dictionary, Dictionary] = weakref.WeakKeyDictionary()
        self._encoder: Encoder | None = None
        self._layout: Layout | None = None
        self._kernel: BatchEncoder | None = None
        self._told: list[bytes] = []
        self._told_bytes = self._told_parts = 0
        self.schema: pa.Schema | None = None
        self.num_rows = self.num_batches = self.nbytes = 0
        if schema is not None:
            self._take_schema(schema)

    def write(self, data: Any) -> None:
        """Copy batches into what the depot lends.

        Parameters
        ----------
        data
            Anything that a :class:`bowstring.Server` publishes: a batch, a table, a reader, a generator of batches.

        Raises
        ------
        UsageError
            It is no Arrow data, or has another schema than what was written before.
        OutOfBudget
            The depot had no room in time, or waiting for it could never end.
        """
        self._open()
        schema, source = batches(data, self.schema)
        if self.schema is None:
            self._take_schema(schema)
        assert self._encoder is not None
        for batch in source:
            nbytes = self._copy(batch)
            if nbytes < 0:
                there = placed(batch, self._allocator, self._known, in_place=False)  # type: ignore[arg-type]
                nbytes = there.nbytes
                for item in self._encoder.encode(there):
                    assert item.spans is not None
                    numbers = [self._allocator.number_of(region) for region in item.regions] or [0]
                    table = item.spans.copy()
                    table[:, 0] = np.array(numbers, np.int64)[table[:, 0]]
                    self._tell(item.metadata, table)
                del there
            self.num_rows += batch.num_rows
            self.num_batches += 1
            self.nbytes += nbytes
            del batch

    def _take_schema(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._layout = layout = Layout.of(schema)
        self._encoder = Encoder(schema, None, pointers=True, charged=False)
        known = known_of(layout)
        self._kernel = known.encoder
        self._tell(known.schema.metadata, np.zeros((0, 3), np.int64))

    def _copy(self, batch: Batch) -> int:
        """Copy a batch by a kernel, in one pass; return its bytes, -1 where it must go the general way."""
        ordinary = self._kernel is not None and batch.layout is self._layout and not batch.custom_metadata
        laid = self._kernel.lay_out(batch) if ordinary and self._kernel is not None else None
        if laid is None:
            return -1
        sizes = laid.sizes
        present = sizes > 0
        ends = (-(-sizes // _ALIGNMENT) * _ALIGNMENT).cumsum()
        starts = ends - -(-sizes // _ALIGNMENT) * _ALIGNMENT
        table = np.zeros((len(sizes), 3), np.int64)
        if present.any():
            region, offset = self._allocator.take(int(ends[-1]))
            pieces = Pieces(laid.addresses[present], sizes[present], starts[present], ends[present])
            fill_on_host(region.address + offset, pieces)
            table[present, 0] = self._allocator.number_of(region)
            table[present, 1] = starts[present] + offset
            table[:, 2] = sizes
        self._tell(laid.metadata, table)
        return int(sizes.sum())

    def _tell(self, metadata: bytes, table: npt.NDArray[np.int64]) -> None:
        pieces = pack_part(metadata, table)
        self._told += pieces
        self._told_bytes += sum(map(len, pieces))
        self._told_parts += 1
        if self._told_bytes >= _TOGETHER or self._told_parts >= _PARTS:
            self._flush()

    def _flush(self) -> None:
        if self._told:
            self._open().tell(self._told)
            self._told, self._told_bytes, self._told_parts = [], 0, 0

    def _borrow(self, nbytes: int, wanted: int) -> tuple[int, Slab]:
        asked = {"nbytes": nbytes, "wanted": wanted, "wait": self._wait}
        answer = self._open().ask(Verb.BORROW, asked, self._wait + _ANSWER_SECONDS)
        try:
            if len(answer.descriptors) != 1:
                raise ProtocolError("a slab is one descriptor", found=len(answer.descriptors))
        except BaseException:
            close_all(answer.descriptors)
            raise
        fields = answer.fields
        return fields["slab"], warm_mappings().open(answer.descriptors[0], fields["nbytes"], fields["uuid"])

    def commit(self) -> Committed:
        """Let everybody see what was written, at once.

        Returns
        -------
        Committed
            The ticket, and how much it is.

        Raises
        ------
        RefusedError
            The data set was settled or released meanwhile, or the depot refuses what was written.
        UsageError
            Nothing was written, and no schema given to `begin`.
        BrokenError
            The depot is gone.
        """
        connection = self._open()
        if self.schema is None:
            raise UsageError("nothing was written, so there is no schema", hint="Give begin(…, schema=…).")
        return Committed.of(self._end(connection, Verb.COMMIT, b"".join(self._told)))

    def abort(self) -> None:
        """Give everything back unseen. Does nothing after the end of the attempt."""
        connection = self._connection
        if connection is None or self._pid != os.getpid():
            return
        with contextlib.suppress(BowstringError):
            self._end(connection, Verb.ABORT)

    def _end(self, connection: DepotConnection, verb: Verb, parts: bytes = b"") -> Any:
        self._connection = None
        self._encoder = self._kernel = None
        self._known.clear()
        self._told = []
        kept = np.array(self._allocator.let_go(), "<i8").tobytes()
        try:
            answer = connection.ask(verb, {"kept": kept, "parts": parts}, _ANSWER_SECONDS)
        except BaseException:
            connection.close()
            raise
        self._take_back(connection)
        return answer.fields

    def _open(self) -> DepotConnection:
        if self._pid != os.getpid():
            raise ForkedError("the attempt belongs to the parent process", hint="Begin one in the child.")
        if self._connection is None:
            raise ClosedError("the attempt is over")
        return self._connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def __reduce__(self) -> NoReturn:
        raise NotPicklable("an Attempt belongs to its process", hint="Send what commit() returned.")

    def __repr__(self) -> str:
        state = "over" if self._connection is None else f"{self.num_batches} batches, {self.nbytes} bytes"
        return f"<Attempt {state}>"
