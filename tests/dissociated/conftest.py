"""Small streams, as the messages of a producer, for tests without a socket."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bowstring.dissociated.events import Event, Packed, Part, Pointers, Signal
from bowstring.dissociated.items import IpcMessage
from bowstring.dissociated.producer import ProducerProtocol
from bowstring.dissociated.reader import ReaderProtocol
from bowstring.dissociated.tags import Control, Want
from bowstring.dissociated.wire import Hello, Outgoing, Welcome
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.memory import Pool, Region

SCHEMA = pa.schema({"n": pa.int64(), "d": pa.dictionary(pa.int8(), pa.int64())})
NUMBERS = pa.schema({"n": pa.int64()})


@dataclasses.dataclass(frozen=True)
class Said:
    """One message as it travels: its tag, its bytes, and the region that goes beside it."""

    tag: int | None
    body: bytes
    attachments: tuple[Any, ...] = ()

    @classmethod
    def of(cls, outgoing: Outgoing) -> Said:
        """Return what arrives of a message."""
        region = outgoing.attachment
        return cls(outgoing.tag, b"".join(outgoing.pieces), () if region is None else (region,))


@functools.cache
def metadata_of(rows: int, *, dictionary: bool) -> bytes:
    """Return what pyarrow writes of a batch, or of a dictionary, of so many integers without nulls."""
    values = pa.array(np.arange(rows), pa.int64())
    if not dictionary:
        return bytes(pa.ipc.read_message(pa.record_batch([values], NUMBERS).serialize()).metadata)
    column = pa.DictionaryArray.from_arrays(pa.array([0] * (rows > 0), pa.int8()), values)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema({"d": column.type})) as writer:
        writer.write(pa.record_batch({"d": column}))
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    return next(bytes(each.metadata) for each in messages if each.type == "dictionary")


class Material:
    """Makes items: metadata of one int64 column with a body that says which item it is."""

    def __init__(self) -> None:
        # Regions that nobody writes to take no memory; examples that failed keep theirs for a while.
        self.pool = Pool(budget=1 << 30)
        self.schema = IpcMessage(pa.ipc.read_message(SCHEMA.serialize()).metadata.to_pybytes())

    @staticmethod
    def listener(
        *, ordered: bool = True, first: int = 0, limits: Limits = DEFAULT_LIMITS, welcome: bool = True
    ) -> Listener:
        """Return a consumer of a server that took a hello, and so keeps the order, or of one that did not.

        The former has heard nothing but WELCOME.
        """
        return Listener(ordered=ordered, first=first, limits=limits, welcome=welcome)

    @staticmethod
    def say(tag: int | None, body: bytes, *attachments: Any) -> Said:
        """Return any message."""
        return Said(tag, body, attachments)

    def region(self) -> Region:
        """Return a region that can be handed to somebody else."""
        return self.pool.region(1 << 20)

    def item(
        self,
        rows: int,
        region: Region | None = None,
        *,
        mark: int = 0,
        dictionary: bool = False,
        charged: bool = False,
        offset: int = 64,
    ) -> IpcMessage:
        """Return a batch or a dictionary whose one buffer, of 8 bytes a row, lies in a region."""
        return IpcMessage(
            metadata_of(rows, dictionary=dictionary),
            np.array([[0, 0, 0], [0, offset, 8 * rows]], np.int64),
            () if region is None else (region,),
            [mark.to_bytes(8, "little") * rows],
            8 * rows,
            charged,
        )

    def producer(
        self, *, pointers: bool = False, first: int = 0, window: int = 1 << 40, want: Want = Want.DATA
    ) -> ProducerProtocol:
        """Return a producer whose reader has said hello and asked for data."""
        producer = ProducerProtocol(DEFAULT_LIMITS)
        producer.sequence = first
        producer.receive(Want.HELLO, Hello(window=window, pointers=pointers).pack())
        producer.receive(want, b"ticket")
        producer.pointers = pointers
        return producer

    def stream(self, items: Sequence[IpcMessage], *, pointers: bool = False, first: int = 0) -> list[Said]:
        """Return all messages of a stream, as its producer says them."""
        producer = self.producer(pointers=pointers, first=first)
        said = [message for item in (self.schema, *items) for message in producer.send(item)]
        return [Said.of(message) for message in (*said, *producer.end())]

    def batches(self, count: int, *, pointers: bool = False, first: int = 0) -> list[Said]:
        """Return all messages of a stream of so many batches of one row."""
        region = self.region() if pointers else None
        items = [self.item(1, region, mark=number) for number in range(count)]
        return self.stream(items, pointers=pointers, first=first)


class Listener:
    """A consumer that is told messages and remembers what came out."""

    def __init__(
        self, *, ordered: bool = True, first: int = 0, limits: Limits = DEFAULT_LIMITS, welcome: bool = True
    ) -> None:
        self.protocol = ReaderProtocol(limits, extended=ordered, one_connection=True)
        self.protocol.sequence.take(first)  # as if so many had been read before
        if ordered and welcome:
            self.protocol.receive(Control.WELCOME, Welcome(charged=False, path="", why="").pack())
        self.events: list[Event] = []

    def hear(self, *messages: Said) -> None:
        """Take messages one after the other."""
        for message in messages:
            self.events += self.protocol.receive(message.tag, message.body, message.attachments)

    @property
    def parts(self) -> list[Part]:
        """The parts so far."""
        return [event for event in self.events if isinstance(event, Part)]

    @property
    def ends(self) -> int:
        """How many ends came out so far."""
        return sum(event is Signal.END for event in self.events)

    def bodies(self) -> list[Any]:
        """Return the bodies of the parts, comparable."""
        found: list[Any] = []
        for part in self.parts:
            match part.body:
                case Packed(body):
                    found.append(bytes(body))
                case Pointers(total, pairs):
                    found.append((total, pairs.tolist()))
                case None:
                    found.append(None)
        return found


@pytest.fixture(scope="session")
def material() -> Material:
    """Return what makes streams."""
    return Material()
