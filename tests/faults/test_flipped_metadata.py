"""Metadata with flipped bits in front of pointers into a region: an error, or a batch that lies in the region."""

from __future__ import annotations

import queue
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bowstring.client.connection.assembler import Assembler
from bowstring.columnar.batch import Batch
from bowstring.columnar.parts import batch_parts
from bowstring.dissociated.events import Announced, Part
from bowstring.dissociated.producer import ProducerProtocol
from bowstring.dissociated.reader import ReaderProtocol
from bowstring.dissociated.tags import Control, Want
from bowstring.dissociated.wire import Welcome
from bowstring.errors import BowstringError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import Pool
from bowstring.server.materialized import MaterializedSource

TABLE = pa.table(
    {
        "i": [1, None, 3],
        "s": ["a", None, "ccc"],
        "l": [[1, 2], None, []],
        "st": [{"x": 1.5}, None, {"x": None}],
        "d": pa.array(["u", "v", "u"]).dictionary_encode(),
        "v": pa.array(["short", "something longer than twelve", None], pa.string_view()),
        "b": [True, None, False],
    }
)
Said = tuple[int | None, bytes, tuple[Any, ...]]


def said(table: pa.Table, pool: Pool) -> list[Said]:
    """Return the messages of a stream with bodies of type 1, and regions beside them."""
    protocol = ProducerProtocol(DEFAULT_LIMITS)
    protocol.receive(Want.HELLO, b'{"version": 1}')
    protocol.receive(Want.DATA, b"t")
    protocol.pointers = True
    source = MaterializedSource(table.schema, [Batch.from_arrow(each) for each in table.to_batches()], pool)
    outgoing = []
    for item in source.items(None, pointers=True, make_room=lambda _: False):
        outgoing += protocol.send(item)
    return [
        (
            each.tag,
            b"".join(bytes(piece) for piece in each.pieces),
            () if each.attachment is None else (each.attachment,),
        )
        for each in outgoing + protocol.end()
    ]


def read(messages: list[Said]) -> list[Batch]:
    """Return the batches of some messages, as a receiver makes them."""
    protocol = ReaderProtocol(DEFAULT_LIMITS)
    protocol.receive(Control.WELCOME, Welcome(charged=False, path="", why="").pack())
    assembler = Assembler(DEFAULT_LIMITS, protocol, queue.SimpleQueue())
    batches = []
    for tag, body, attachments in messages:
        for event in protocol.receive(tag, body, attachments):
            match event:
                case Announced(base=base, attachment=region):
                    assembler.announced.check(base, region.nbytes)
                    assembler.announced.add(base, region, region.nbytes)
                case Part():
                    assembled = assembler.take(event)
                    if assembled is not None:
                        batches.append(assembled.batch)
    return batches


def inside(batch: Batch) -> bool:
    """Whether each buffer of a batch lies in its region, and its dictionaries' buffers do."""
    spans = batch_parts(batch).spans
    sizes = np.array([region.nbytes for region in spans.regions] or [0])
    table = spans.table
    good = (table[:, 1:] >= 0).all() and (table[:, 1] <= sizes[table[:, 0]] - table[:, 2]).all()
    return bool(good) and all(inside(each.values) for each in batch.dictionaries.values())


def examine(messages: list[Said]) -> bool:
    """Read messages; say whether they were taken, and see to it that what was taken can be used."""
    try:
        batches = read(messages)
        for batch in batches:
            assert inside(batch)
            batch.validate(full=True)
            batch.to_arrow().validate(full=True)
    except (BowstringError, pa.ArrowException):
        return False
    return True


def test_the_stream_is_good() -> None:
    """Without a flip everything is taken."""
    pool = Pool(budget=16 << 20)
    assert examine(said(TABLE, pool))


@pytest.mark.parametrize("pieces", [1, 3, 16])
@pytest.mark.parametrize("rounds", [4000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_flipped_bits(pieces: int, rounds: int) -> None:
    """Flipped bits in metadata and pairs never make a batch that reaches outside its regions."""
    pool = Pool(budget=16 << 20)
    messages = said(TABLE, pool)
    chosen = random.Random(pieces)
    taken = 0
    for _ in range(rounds):
        index = chosen.choice([place for place, message in enumerate(messages) if not message[2]])
        tag, body, attachments = messages[index]
        flipped = bytearray(body)
        for _ in range(pieces):
            flipped[chosen.randrange(len(flipped))] ^= 1 << chosen.randrange(8)
        fault: Said = (tag, bytes(flipped), attachments)
        taken += examine([*messages[:index], fault, *messages[index + 1 :]])
    assert taken < rounds


def test_numbers_that_matter() -> None:
    """Each 8 bytes of each message, replaced by numbers that overflow, reach nothing outside either."""
    pool = Pool(budget=16 << 20)
    messages = said(TABLE, pool)
    for index, (tag, body, attachments) in enumerate(messages):
        if attachments:
            continue
        for offset in range(5 % 8, len(body) - 7, 8):
            for number in (2**63 - 1, 2**64 - 8):
                fault = body[:offset] + number.to_bytes(8, "little") + body[offset + 8 :]
                examine([*messages[:index], (tag, fault, attachments), *messages[index + 1 :]])
