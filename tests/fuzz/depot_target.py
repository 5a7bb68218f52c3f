"""The depot as a target: what clients ask, changed, to a live depot of this process.

An input is a byte that says how the client comes, and frames as those of conversations, which follow its hello:
what tasks of Spark, their driver and readers ask. Attempts, micro-batches appended to a name, jobs that run.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

import bowstring as bow
from bowstring.depot.daemon import new_depot
from bowstring.depot.launch import Paths
from bowstring.depot.manifest import pack_part
from bowstring.depot.protocol import COMPLETE, MESSAGES, RUNNING, STAY, VERSION, DepotConnection, Verb, texts
from bowstring.depot.service import DepotProcess
from bowstring.dissociated.listing import DatasetInfo
from bowstring.ipc.flatbuf.schema import encode_schema
from tests.fuzz.conversation_target import other_frame, packed, say, unpacked
from tests.fuzz.mutators import rearranged
from tests.peer.wire import Frame, dialled, receive

_REMOTE, _SILENT = 1, 8
_SECONDS: Final = 30.0
_MOST_FRAMES: Final = 60
_MOST_DATA: Final = 64 << 20
_BATCH: Final = pa.record_batch({"n": range(10)})
_DATASET: Final = bow.Dataset((bow.Endpoint("unix:/nowhere?want_data=1", b"t"),), _BATCH.schema).to_json()
_APP: Final = {"application": "app", "dataset": "data"}
_NAMED: Final = {"application": "app", "name": "n", "version": "v", "dataset": _DATASET}


def depot_requests(data: bytes) -> None:
    """Ask a depot; it fails at nothing, and keeps neither the client nor, once its application ends, memory."""
    depot = _depot()
    failures: list[Any] = []
    threading.excepthook, before = failures.append, threading.excepthook
    try:
        answers = _asked(depot, data[0] if data else 0, list(unpacked(data[1:])))
        _wait(lambda: not depot.status().clients, "the depot keeps a client that is gone")
    finally:
        threading.excepthook = before
    assert not failures, failures
    # In these words it tells of errors that nobody meant.
    assert b"the depot failed" not in answers, answers
    if depot.stopping or depot.status().memory_lost > _MOST_DATA // 2:
        depot.stop()
        depot.run()
        _depot.cache_clear()
    else:
        _tidied(depot)


def _frame(verb: Verb, fields: dict[str, Any]) -> Frame:
    return Frame.of(verb, MESSAGES[verb][0].pack(fields))


def _asked(depot: DepotProcess, kind: int, frames: list[Frame]) -> bytes:
    """Return all that a depot answers to some frames behind a hello."""
    address, _, token = str(depot.remote_address).partition("?token=")
    with contextlib.closing(dialled(address if kind & _REMOTE else depot.paths.control)) as sock:
        sock.settimeout(_SECONDS)
        last = _frame(Verb.ABORT, {"kept": b""})  # else slabs are lost while this process lives
        say(sock, [_frame(Verb.HELLO, {"version": VERSION, "token": token}), *frames, last])
        if not kind & _SILENT:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
            return b"".join(_answers(sock))
    return b""


def _answers(sock: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(ConnectionError):
        while (found := receive(sock)) is not None:
            for each in found[1]:
                os.close(each)
            yield found[0].data


def _tidied(depot: DepotProcess) -> None:
    """End what clients began."""
    with contextlib.closing(DepotConnection(depot.paths.control, _SECONDS)) as client:
        for name in texts("names", client.ask(Verb.LIST, {}, _SECONDS).fields["names"]):
            client.ask(Verb.DROP, {"name": DatasetInfo.unpack(name.encode()).name}, _SECONDS)
        for name in depot.status().applications:
            client.ask(Verb.END, {"application": name}, _SECONDS)
    _wait(lambda: not depot.slab_pool.figures()["memory_data"], "an application that ended keeps memory")


def _wait(done: Any, what: str) -> None:
    end = time.monotonic() + _SECONDS
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.001)


@functools.cache
def _depot() -> DepotProcess:
    options = bow.depot.Options(memory_budget=_MOST_DATA, disk_budget=0)
    depot = new_depot(Paths(tempfile.mkdtemp(prefix="bow-fuzz-")), options)
    depot.listen_too("tcp://127.0.0.1:0")
    return depot


def mutated_requests_of_depots(data: bytes, rng: random.Random) -> bytes:
    """Return requests of which one is another, left out, repeated or moved, or that end as another client's."""
    kind, frames = data[0], list(unpacked(data[1:]))
    if rng.random() < 0.1:
        kind ^= rng.choice((_REMOTE, _SILENT))
    if rng.random() < 0.1:
        frames[rng.randrange(len(frames) + 1) :] = unpacked(rng.choice([*depot_seeds().values()])[1:])
    elif rng.random() < 0.1:
        frames = [Frame.of(rng.choice([*Verb]), each.body) for each in frames]
    frames = rearranged(frames, lambda each: other_frame(each, rng), rng, 0.35)
    return bytes([kind]) + b"".join(map(packed, frames[:_MOST_FRAMES]))


def depot_seeds() -> dict[str, bytes]:
    """Return what clients of each kind ask."""
    message = bytes(pa.ipc.read_message(_BATCH.serialize()).metadata)
    parts = [
        b"".join(pack_part(*told))
        for told in (
            (encode_schema(_BATCH.schema), np.zeros((0, 3), np.int64)),
            (message, np.array([[0, 0, 0], [0, 64, 80]])),
        )
    ]
    attempt: list[Any] = [
        (Verb.HOLD, {"application": "app", "lease_seconds": 60.0}),
        (Verb.BEGIN, _APP | {"partition": 0, "attempt": 0, "readers": 2, "mapped": bytes(16)}),
        (Verb.BORROW, {"nbytes": 800, "wait": 0.0, "wanted": 4096}),
        (Verb.PARTS, parts[0]),
        (Verb.COMMIT, {"kept": np.array([0], "<i8").tobytes(), "parts": parts[1]}),
        (Verb.OFFERED, {"dataset": "data"}),
        (Verb.SETTLE, {"dataset": "data", "tickets": ["00ff"], "ttl": 1.5, "name": "n"}),
        (Verb.RELEASE, {"dataset": "data", "final": True}),
        (Verb.WAIT_RELEASED, {"dataset": "data", "timeout": 0.01}),
    ]
    names: list[Any] = [
        (Verb.CHECK_NAME, {"name": "n", "application": "app", "new": True}),
        (Verb.ANNOUNCE, _NAMED | {"new": True, "part": "data", "depots": ["tcp://h:1?token=t"], "ttl": 60.0}),
        (Verb.ANNOUNCE, _NAMED | {"append": True, "batch": 3, "part": "data"}),
        (Verb.LOOKUP, {"name": "n", "first": 0, "last": 9, "joined": True}),
        (Verb.LIST, {}),
        (Verb.DROP, {"name": "n"}),
        (Verb.END, {"application": "app", "stays": [STAY.pack({"name": "data", "seconds": 1.0})]}),
    ]
    job: list[Any] = [
        (Verb.ANNOUNCE, _NAMED | {"state": RUNNING, "part": "data"}),
        (Verb.ANNOUNCE, _NAMED | {"append": True, "batch": 0, "state": RUNNING, "note": "first"}),
        (Verb.ANNOUNCE, _NAMED | {"append": True, "once": "0", "state": RUNNING, "note": "second"}),
        (Verb.LOOKUP, {"name": "n", "first": 1}),
        (Verb.ANNOUNCE, _NAMED | {"append": True, "state": COMPLETE}),
        (Verb.STATUS, {}),
        (Verb.STOP, {"application": "app", "if_empty": True}),
    ]
    found = {}
    for name, asked in {"attempt": attempt, "names": names, "job": job}.items():
        frames = [Frame.of(verb, body) if verb is Verb.PARTS else _frame(verb, body) for verb, body in asked]
        for kind in (0, _REMOTE) if name != "attempt" else (0,):
            found[f"{name} {kind}"] = bytes([kind]) + b"".join(map(packed, frames))
    return found
