"""The opening: what an ordinary reader asks and is answered, as one value each way, without any IO.

Ordinary is what most conversations begin with: one hello and one ticket, on a connection that passes descriptors,
for data that lie in regions. The bytes are those of the two state machines, which stay the whole conversation:
whatever is not ordinary is left to them, untouched.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from bowstring.dissociated import wire
from bowstring.dissociated.items import used_regions
from bowstring.dissociated.producer import ProducerProtocol
from bowstring.dissociated.tags import POINTERS, TYPE_SHIFT, Control, Want
from bowstring.errors import ProtocolError
from bowstring.memory import Handle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.dissociated.addresses import Ledger
    from bowstring.dissociated.items import IpcMessage
    from bowstring.limits import Limits
    from bowstring.memory import Region

MOST_BYTES: Final = 1 << 16
"""Of an answer, about; what is left of the stream follows it."""
MOST_REGIONS: Final = 8
"""That an answer announces."""

# Of each item: headers, prefix, and the head of a body. Rows of spans are longer than those of a body.
_BESIDE: Final = 128
_MOST_TICKET: Final = 4096
_FIRST: Final = wire.pack_prefix(wire.METADATA, 0)
_END: Final = bytes((wire.END,))
# Text as JSON has it where nothing is escaped, and numbers of at most 60 bits.
_FORMS: Final = {
    b"text": rb"[ !#-\[\]-~]",
    b"number": rb"0|[1-9][0-9]{0,17}",
    b"version": b"%d" % wire.VERSION,
}
_HELLO: Final = re.compile(
    rb'\{"columns": (?:null|\["(?P<columns>%(text)s*(?:", "%(text)s*)*)"\]), "window": (?P<window>%(number)s), '
    rb'"pointers": true, "token": (?:null|"(?P<token>%(text)s*)"), "version": %(version)s, '
    rb'"ipc": "(?P<ipc>%(text)s{1,200})", "tries": true, "events": false, "shard": null, "partitions": 0\}'
    % _FORMS
)
_WELCOME: Final = re.compile(
    rb'\{"charged": false, "path": "(%(text)s{1,200})", "why": "(%(text)s{1,500})", "num_rows": (%(number)s), '
    rb'"num_batches": (%(number)s), "nbytes": (%(number)s), "patience": ((?:0|[1-9][0-9]{0,8})\.[0-9]{1,9}), '
    rb'"version": %(version)s, "ticket": "(%(text)s{1,4096})"\}' % _FORMS
)


class Framed(NamedTuple):
    """A message that has come whole: its tag, how many attachments are its, and its bytes."""

    tag: int | None
    attachments: int
    body: bytes


class Ask(NamedTuple):
    """What an ordinary reader asks: its hello, and the ticket of a data set."""

    hello: wire.Hello
    ticket: bytes

    @classmethod
    def read(cls, messages: Sequence[Framed]) -> Ask | None:
        """Return what the messages of a reader ask, if that is ordinary and nothing else came."""
        if len(messages) != 2:
            return None
        (hello_tag, _, packed), (want, _, ticket) = messages
        if hello_tag != Want.HELLO or want != Want.DATA or len(ticket) > _MOST_TICKET:
            return None
        match = None if messages[0].attachments or messages[1].attachments else _HELLO.fullmatch(packed)
        if match is None:
            return None
        columns, window, token, ipc = match.group("columns", "window", "token", "ipc")
        names = None if columns is None else tuple(columns.decode().split('", "'))
        secret = None if token is None else token.decode()
        hello = wire.Hello(names, int(window), pointers=True, token=secret, ipc=ipc.decode(), tries=True)
        return cls(hello, ticket)


class Beginning(NamedTuple):
    """The first messages of an ordinary server, as the reader reads them together.

    Each region comes as (address in the stream, handle), with its file descriptor beside it. `schema` is the
    metadata of message 0, `messages` the number of messages up to it. `following` has tag and body of those behind
    that need no more, and nothing beside them; the last of them may be the end.
    """

    regions: list[tuple[int, Handle]]
    welcome: wire.Welcome
    schema: bytes
    messages: int
    following: list[tuple[int | None, bytes, tuple[()]]]

    @classmethod
    def read(cls, messages: Sequence[Framed]) -> Beginning | None:
        """Return what the messages of a server begin with, if that is ordinary, and has come with the schema."""
        regions: list[tuple[int, Handle]] = []
        while len(regions) < len(messages) and messages[len(regions)].tag == Control.REGION:
            _, attachments, body = messages[len(regions)]
            try:
                base, handle = wire.unpack_region(body)
            except ProtocolError:  # which the state machine raises, too
                return None
            if attachments != 1 or not isinstance(handle, Handle) or len(regions) == MOST_REGIONS:
                return None
            regions.append((base, handle))
        if len(messages) < len(regions) + 2:
            return None
        (tag, some, welcome), (untagged, others, schema) = messages[len(regions) : len(regions) + 2]
        match = _WELCOME.fullmatch(welcome)
        is_first = untagged is None and schema[: wire.PREFIX_BYTES] == _FIRST
        if tag != Control.WELCOME or match is None or not is_first or some or others:
            return None
        path, why, rows, batches, nbytes, patience, ticket = match.groups()
        following: list[tuple[int | None, bytes, tuple[()]]] = []
        for tag, some, body in messages[len(regions) + 2 :]:
            if some or not (tag is None or tag >> TYPE_SHIFT == POINTERS):
                break
            following.append((tag, body, ()))
            if tag is None and body[:1] == _END:
                break
        return cls(
            regions,
            wire.Welcome(
                charged=False,
                path=path.decode(),
                why=why.decode(),
                num_rows=int(rows),
                num_batches=int(batches),
                nbytes=int(nbytes),
                patience=float(patience),
                ticket=ticket.decode(),
            ),
            schema[wire.PREFIX_BYTES :],
            len(regions) + 2,
            following,
        )


class Answer(NamedTuple):
    """The first messages to an ordinary reader, and the state of its stream behind them.

    `items` counts the items of the data set among `outgoing`; `sequence` is the number of the next message,
    `ended` says that there is none. `ledger` has the addresses that a reader then holds: it is copied for each.
    """

    outgoing: Sequence[wire.Outgoing]
    items: int
    sequence: int
    ended: bool
    ledger: Ledger

    @classmethod
    def of(
        cls,
        hello: wire.Hello,
        regions: Sequence[Region],
        welcome: wire.Welcome,
        items: Sequence[IpcMessage],
        limits: Limits,
    ) -> Answer:
        """Return the answer to readers that say such a hello: `items`, up to those that are too much for one."""
        protocol = ProducerProtocol(limits)
        protocol.begin_asked(hello)
        protocol.pointers = True
        outgoing = [*protocol.announce(regions), *protocol.welcome(welcome)]
        known = {region.uuid for region in regions}
        left, sent = MOST_BYTES - sum(len(piece) for each in outgoing for piece in each.pieces), 0
        for item in items:
            left -= len(item.metadata) + (0 if item.spans is None else item.spans.nbytes) + _BESIDE
            used = () if item.spans is None else used_regions(item.spans)
            if left < 0 or any(item.regions[index].uuid not in known for index in used):
                break
            outgoing += protocol.send(item)
            sent += 1
        else:
            outgoing += protocol.end()
        return cls(outgoing, sent, protocol.sequence, protocol.ended, protocol.ledger)
