"""A reader that gets stuck at one step of the protocol with each of its connections.

Called with two endpoints: a data set to read, and one that is more than a socket holds. Prints a line for each
connection that is stuck; then does what it is told: ``read`` reads on where it can and prints what became of it.
"""

from __future__ import annotations

import sys

import bowstring as bow
from bowstring.dissociated.endpoint import Endpoint
from bowstring.dissociated.tags import Want
from bowstring.dissociated.wire import Hello
from bowstring.transport import Channel, Message, dial
from bowstring.transport.framing import Run
from bowstring.transport.header import pack_header

LIMITS = bow.Limits(heartbeat=0.1, reply_timeout=20.0)


def stuck(what: str) -> None:
    print(f"stuck {what}", flush=True)


def said(endpoint: Endpoint, *, ticket: bool) -> Channel:
    """Return a connection on which the hello was said, and maybe the ticket."""
    channel = dial(endpoint.locations[0].address)
    hello = Hello(window=1 << 30, pointers=channel.passes_memory is not None)
    channel.send([Message(Want.HELLO, [hello.pack()])], 10.0)
    if ticket:
        channel.send([Message(Want.DATA, [endpoint.ticket])], 10.0)
    return channel


def main() -> None:
    endpoint, large = (Endpoint.parse(uri) for uri in sys.argv[1:])
    keep: list[object] = [dial(endpoint.locations[0].address)]
    stuck("before the hello")
    keep.append(said(endpoint, ticket=False))
    stuck("after the hello")
    half = said(endpoint, ticket=False)
    header = pack_header(int(Want.DATA), 0, len(endpoint.ticket))
    begun = header + endpoint.ticket[:3]
    half.send_runs([Run([begun], len(begun))], 60.0)  # type: ignore[attr-defined]
    keep.append(half)
    stuck("inside the ticket")
    keep.append(said(endpoint, ticket=True))
    stuck("with everything unread")
    keep.append(said(large, ticket=True))
    stuck("with more unread than a socket holds")
    middle = bow.connect(endpoint, limits=LIMITS)
    batch = middle.read_next_batch()
    stuck("between batches")
    last = bow.connect(endpoint, limits=LIMITS)
    batches = list(last)
    stuck("after the end, before freeing")
    stopped = bow.connect(endpoint, limits=LIMITS)
    held = stopped.read_next_batch()
    stopped.close()
    stuck("after closing, before freeing")
    for line in sys.stdin:
        assert line.strip() == "look"
        views = [each["n"].values for each in (batch, *batches, held)]
        assert all((view == view[0]).all() for view in views)
        print(*(int(view[0]) for view in views), flush=True)
    del keep


main()
