"""One end of a data set that grows, which kills itself at a certain event.

Called with ``serve``, an address, a kind of event and its number; or with ``read``, an endpoint, and the same. An
event of ``message`` is the begin or the end of a call by which a socket sends or receives; one of ``append``, that
of a function of the list of batches; one of ``half``, that half of what a socket was to send has been sent. Prints
what it appended or read, and its position.
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
import sys
import threading
from types import FrameType
from typing import Any

import pyarrow as pa

import bowstring as bow

COUNT = 6
SENDS = {"send", "sendmsg", "recv", "recv_into", "recvmsg", "recvmsg_into"}
GROWTH = ("server/growth.py", "server/catalogue.py")
ROLE, WHERE, KIND, NUMBER = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
TLS = (
    bow.TlsConfig(cert=os.environ["TESTS_TLS_CERT"]) if WHERE.startswith("tls:") and ROLE == "serve" else None
)
LIMITS = bow.Limits(heartbeat=0.2)
lock = threading.Lock()
events = 0
is_armed = False


def is_last() -> bool:
    """Count an event; say whether this is the one to be killed at."""
    global events  # noqa: PLW0603  of all threads
    with lock:
        events += is_armed
        return is_armed and events == NUMBER


def halve(kind: type[socket.socket], name: str) -> None:
    """Have a method that sends be killed when it has sent half of its bytes."""
    send = getattr(kind, name)

    def send_half(sock: socket.socket, data: Any, *others: Any) -> int:
        if is_last():
            whole = data if name == "send" else b"".join(data)
            half = whole[: max(1, len(whole) // 2)]
            send(sock, half if name == "send" else [half], *others)
            os.kill(os.getpid(), signal.SIGKILL)
        sent: int = send(sock, data, *others)
        return sent

    setattr(kind, name, send_half)


def count(frame: FrameType, event: str, argument: Any) -> None:
    if KIND == "message":
        counts = event in ("c_call", "c_return") and argument.__name__ in SENDS
    else:
        counts = event in ("call", "return") and frame.f_code.co_filename.endswith(GROWTH)
    if counts and is_last():
        os.kill(os.getpid(), signal.SIGKILL)


def say(*words: object) -> None:
    print(*words, flush=True)


def batch_of(number: int) -> pa.RecordBatch:
    words = pa.array([f"{each}" for each in range(number + 1)]).dictionary_encode()
    return pa.record_batch({"n": [number] * (number + 1), "d": words})


def serve() -> None:
    global is_armed  # noqa: PLW0603
    with bow.Server(WHERE, tls=TLS, limits=LIMITS, token="0123456789abcdef") as server:
        say(0, server.append("t", batch_of(0)))
        say(server.endpoints["t"])
        sys.stdin.readline()
        is_armed = True
        for number in range(1, COUNT):
            say(number, server.append("t", batch_of(number)))
        server.finish("t")
        say("finished")
        sys.stdin.readline()


def read() -> None:
    global is_armed  # noqa: PLW0603
    is_armed = True
    with bow.connect(WHERE, follow=True, limits=LIMITS) as stream:
        for batch in stream:
            assert batch["d"].to_pylist() == [f"{each}" for each in range(batch["n"].to_pylist()[0] + 1)]
            say(batch["n"].to_pylist()[0], stream.position)
            del batch
    say("finished")


if KIND == "half":
    halve(socket.socket, "send")
    halve(socket.socket, "sendmsg")
    halve(ssl.SSLSocket, "send")
else:
    threading.setprofile(count)
    sys.setprofile(count)
serve() if ROLE == "serve" else read()
