"""A producer that gets stuck at the step of the protocol that the name of each data set says.

Called with an address and the number of steps. Prints the endpoint of each data set, then ``stuck`` whenever a
connection is.
"""

from __future__ import annotations

import collections
import os
import sys
import threading
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

import bowstring as bow
from bowstring.dissociated.wire import Outgoing
from bowstring.server.handshake import Prepared
from bowstring.server.session import Session
from bowstring.transport import listen
from bowstring.transport.framing import Run, as_messages, whole_messages
from bowstring.transport.header import pack_header

TLS = bow.TlsConfig(cert=os.environ["TESTS_TLS_CERT"]) if sys.argv[1].startswith("tls:") else None
ROWS = 20_000
said: collections.Counter[Session] = collections.Counter()
silent: set[Session] = set()
original = Session._send


def say_stuck() -> None:
    sys.stdout.write("stuck\n")
    sys.stdout.flush()


def is_stuck(session: Session, tag: int | None, body: bytes) -> bool:
    """Get stuck where the message that comes now is the one, in front of it or in the midst of it."""
    assert session._publication is not None
    if session in silent:
        return True
    kind, _, step = session._publication.name.partition("-")
    if said[session] == int(step):
        if kind == "half":
            whole = pack_header(tag, 0, len(body)) + body
            half = whole[: len(whole) // 2]
            session._channel.send_runs([Run([half], len(half))], 60.0)  # type: ignore[attr-defined]
        silent.add(session)
        say_stuck()
        return True
    said[session] += 1
    return False


def send_until_stuck(session: Session, outgoing: Sequence[Outgoing]) -> list[Outgoing]:
    for each in outgoing:
        (message,) = as_messages([each], session._channel)
        with session._sending:
            if is_stuck(session, message.tag, b"".join(bytes(view) for view in message.views())):
                threading.Event().wait()
        original(session, [each])
    return []


def send_first_until_stuck(session: Session, first: Prepared) -> None:
    """Send what is made for all readers message by message. A turn waits for nothing: it leaves out the rest."""
    answer = first.answer
    session._protocol.go_on(answer.sequence, answer.ledger, ended=answer.ended)
    for data, attachments in first.runs:
        for tag, beside, body in whole_messages(data, bow.DEFAULT_LIMITS, len(attachments)):
            if is_stuck(session, tag, body):
                return
            whole = pack_header(tag, beside, len(body)) + body
            run = Run([whole], len(whole), attachments if beside else ())
            session._channel.send_runs([run], 60.0)  # type: ignore[attr-defined]
    session._protocol.end_sent = answer.ended


def batch_of(number: int) -> pa.RecordBatch:
    return pa.record_batch({"n": np.full(ROWS, number), "s": pa.array([f"{number:04}"] * ROWS)})


def hear_nothing(query: str) -> None:
    """Listen without ever accepting, and accept without ever answering."""
    deaf, dumb = listen(sys.argv[1], tls=TLS), listen(sys.argv[1], tls=TLS)
    print(f"{deaf.uri}?{query}\n{dumb.uri}?{query}", flush=True)
    channel = dumb.accept(60.0)
    assert channel is not None
    channel.receive(60.0)
    say_stuck()
    threading.Event().wait()


def main() -> None:
    Session._send = send_until_stuck  # type: ignore[assignment,method-assign]
    Session._send_first = send_first_until_stuck  # type: ignore[assignment,method-assign]
    server = bow.Server(sys.argv[1], tls=TLS, limits=bow.Limits(heartbeat=60.0))
    table = pa.Table.from_batches([batch_of(number) for number in range(3)])
    for step in range(int(sys.argv[2])):
        for kind in ("at", "half"):
            endpoint = server.publish(f"{kind}-{step}", table)
            print(endpoint, flush=True)
    hear_nothing(str(endpoint).partition("?")[2])


main()
