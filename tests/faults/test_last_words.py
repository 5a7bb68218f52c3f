"""What a reader said before it hung up counts, whatever its producer was about to say itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.dissociated.tags import Control
from bowstring.server.session import Session
from bowstring.transport import Received
from tests.faults.conftest import WAIT, until
from tests.faults.tables import table_of
from tests.peer.raw import RawReader


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Return what makes servers hear nothing: from when it is cleared until it is set."""
    hears = threading.Event()
    hears.set()
    hear = Session._hear

    def heard(session: Session, received: Received) -> None:
        assert hears.wait(WAIT)
        hear(session, received)

    monkeypatch.setattr(Session, "_hear", heard)
    yield hears
    hears.set()


def test_who_asks_before_it_hangs_up(serve: Callable[..., bow.Server], deaf: threading.Event) -> None:
    """A question that cannot be answered any more hides nothing of what follows it."""
    server = serve("unix:")
    with RawReader(server.publish("t", table_of())) as reader:
        reader.hello()
        reader.want()
        reader.hear_all()
        deaf.clear()
        reader.say(Control.PING)
        reader.free(reader.addresses())
        reader.say(Control.DONE)
    deaf.set()
    until(lambda: server.stats.connections == 0, "the session ends")
    server.withdraw("t")
    server.wait_released()
    assert server.pool.stats.retired == 0


def test_who_hangs_up_before_the_end(serve: Callable[..., bow.Server], deaf: threading.Event) -> None:
    """What is sent to nobody hides nothing of what came before."""
    server = serve("unix:")
    go_on = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": np.arange(1000)})
        assert go_on.wait(WAIT)

    with RawReader(server.publish("t", batches(), schema=pa.schema({"n": pa.int64()}))) as reader:
        reader.hello()
        reader.want()
        while not reader.addresses():
            reader.hear()
        deaf.clear()
        reader.say(Control.PING)
        reader.free(reader.addresses())
    go_on.set()
    until(lambda: "bowstring-server-sender" not in names_of_threads(), "the producer notices")
    deaf.set()
    until(lambda: server.stats.connections == 0, "the session ends")
    assert server.pool.stats.retired == 0


def names_of_threads() -> set[str]:
    return {each.name for each in threading.enumerate()}
