"""A reader that is killed or stopped at each step of the protocol, as its producer sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.transport import Peer
from bowstring.transport.loop import Job, Loop
from tests.faults.conftest import LIMITS, WAIT, until
from tests.faults.program import Program
from tests.faults.tables import publish_again, table_of

STEPS = 8
HASTY = LIMITS.replace(connect_timeout=0.8, stall_timeout=0.8, heartbeat=0.1, lease_timeout=0.4)
LARGE = 4 << 20


def started(run: Callable[..., Program], server: bow.Server) -> Program:
    """Return a reader that is stuck at each step."""
    endpoint = server.publish("t", table_of())
    # So many metadata, or so large a body, that a socket cannot hold them.
    batches = pa.table({"n": pa.chunked_array([np.arange(2)] * 4000)})
    large = pa.table({"n": np.zeros(LARGE, np.uint8)})
    second = server.publish("large", batches if server.address.startswith("unix") else large)
    program = run("stuck_reader", str(endpoint), str(second))
    for _ in range(STEPS):
        assert program.hear().startswith("stuck ")
    return program


def serves_on(server: bow.Server) -> None:
    """See to it that a server goes on serving, and hands nothing out twice."""
    with bow.connect(server.publish("next", table_of(first=7)), limits=LIMITS) as stream:
        table = stream.read_all()
        publish_again(server, 10)
        assert table.equals(table_of(first=7))
        del table


def test_killed(
    serve: Callable[..., bow.Server], run: Callable[..., Program], between_processes: str
) -> None:
    """When a reader is killed, its connections end, and what it held is used again where its death is known."""
    server = serve(between_processes)
    program = started(run, server)
    assert server.stats.connections > STEPS - 3  # with packed bodies, some are through already
    program.kill()
    until(lambda: server.stats.connections == 0, "all sessions end")
    assert server.pool.stats.retired == 0
    serves_on(server)
    server.withdraw("t")
    server.withdraw("large")
    server.withdraw("next")
    server.wait_released()


def test_stopped(
    serve: Callable[..., bow.Server], run: Callable[..., Program], between_processes: str
) -> None:
    """When a reader is stopped for too long, its producer lets go of it, and never writes again what it held."""
    server = serve(between_processes, limits=HASTY)
    program = started(run, server)
    program.stop()
    until(lambda: server.stats.connections == 0, "all sessions end")
    server.withdraw("t")
    server.withdraw("large")
    server.wait_released()
    serves_on(server)
    publish_again(server)
    if between_processes == "unix:":
        assert server.pool.stats.retired > 0
    program.go_on()
    program.say("look")
    assert program.hear() == "0 0 1 2 0"


def test_stopped_for_a_moment(
    serve: Callable[..., bow.Server], run: Callable[..., Program], between_processes: str
) -> None:
    """A reader that goes on in time has lost nothing."""
    server = serve(between_processes, limits=LIMITS.replace(lease_timeout=WAIT))
    program = started(run, server)
    program.stop()
    publish_again(server, 10)
    program.go_on()
    program.say("look")
    assert program.hear() == "0 0 1 2 0"
    assert server.stats.lost == 0


def test_its_connection_is_closed_while_its_end_is_awaited(
    serve: Callable[..., bow.Server], run: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may close the connection of a lost reader right before its loop waits for that process's end."""
    peers: list[Peer] = []
    exited, wait_for = Peer.exited, Loop.wait_for

    def look(peer: Peer, wait: float) -> bool:
        peers.append(peer)
        return exited(peer, wait)

    def close_first(loop: Loop, job: Job, fds: Sequence[int], **options: bool) -> None:
        for peer in {peer for peer in peers if peer.pidfd in fds}:
            peer.close()  # as another thread may, right now
        wait_for(loop, job, fds, **options)

    server = serve("unix:")
    endpoint = server.publish("t", table_of(), readers=None)
    with monkeypatch.context() as patch:
        patch.setattr(Peer, "exited", look)
        patch.setattr(Loop, "wait_for", close_first)
        program = run("hanging_up_reader", str(endpoint), str(STEPS))
        assert program.hear() == f"hung up {STEPS}"
        until(lambda: server.stats.connections == 0, "all sessions end")
    server.withdraw("t")
    server.wait_released()
    serves_on(server)
