"""What is particular to ``inproc:``: names, and objects that travel by reference."""

from __future__ import annotations

import contextlib
import gc
import os
import weakref

import pytest

from bowstring.errors import BrokenError, DeadlineExceeded, UsageError
from bowstring.transport import Message, dial, is_loopback, listen
from tests.transport.kit.harness import PATIENCE, SOON, in_thread


class Thing:
    pass


def test_names() -> None:
    """A name is free until somebody listens, survives percent-encoding, and is free again afterwards."""
    with pytest.raises(BrokenError):
        dial("inproc:a name")
    with listen("inproc:a name") as listener:
        assert listener.uri == "inproc:a%20name"
        assert is_loopback(listener.uri)
        with pytest.raises(UsageError):
            listen("inproc:a%20name")
        dial(listener.uri).close()
    listen("inproc:a name").close()
    for bad in ("inproc:a?b=1", "inproc:a#b"):
        with pytest.raises(UsageError):
            listen(bad)


def test_dropped_listener_frees_its_name() -> None:
    """A listener that is collected without closing gives its name back."""
    listener = listen("inproc:dropped")
    del listener
    gc.collect()
    listen("inproc:dropped").close()


def test_objects_by_reference() -> None:
    """An attachment arrives as the object itself, and nothing else holds it afterwards."""
    with listen("inproc:") as listener, dial(listener.uri) as here:
        there = listener.accept(PATIENCE)
        assert there is not None
        thing = Thing()
        gone = weakref.ref(thing)
        here.send([Message(None, [b"x"], (thing, None))], PATIENCE)
        received = there.receive(PATIENCE)
        assert received is not None
        assert received.attachments == (thing, None)
        assert received.attachments[0] is thing
        del thing, received
        assert gone() is None
        there.close()


def test_unread_objects_are_dropped_at_the_end() -> None:
    """Objects in messages that nobody will receive go when the receiving end closes, outside of any lock."""
    with listen("inproc:") as listener, dial(listener.uri) as here:
        there = listener.accept(PATIENCE)
        assert there is not None
        thing = Thing()
        weakref.finalize(thing, here.close)
        here.send([Message(None, [b"x"], (thing,))], PATIENCE)
        del thing
        closing = in_thread(there.close)
        closing.result(PATIENCE)
        assert here.closed


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_dropped_end_is_an_end() -> None:
    """An end that is collected without closing ends the connection, and wakes who waits."""
    with listen("inproc:") as listener, dial(listener.uri) as here:
        there = listener.accept(PATIENCE)
        waiting = in_thread(here.receive, PATIENCE)
        del there
        gc.collect()
        with pytest.raises(BrokenError):
            waiting.result()


def test_end_of_listener_ends_who_waits_in_line() -> None:
    """Connections that were never accepted are broken when the listener closes."""
    with listen("inproc:") as listener, dial(listener.uri) as here:
        listener.close()
        with pytest.raises(BrokenError):
            here.receive(PATIENCE)


def _dial_many(uri: str, in_line: contextlib.ExitStack) -> None:
    for _ in range(5000):
        in_line.enter_context(dial(uri, deadline=SOON))


def test_line_is_bounded() -> None:
    """Who dials a listener that accepts nobody is told after the deadline."""
    with listen("inproc:") as listener, contextlib.ExitStack() as in_line:
        with pytest.raises(DeadlineExceeded):
            _dial_many(listener.uri, in_line)
        waiting = in_thread(dial, listener.uri)
        accepted = listener.accept(PATIENCE)
        waiting.result().close()
        assert accepted is not None
        accepted.close()


def test_peer() -> None:
    """The peer is this process, which never counts as gone."""
    with listen("inproc:") as listener, dial(listener.uri) as here:
        assert here.peer.pid == os.getpid()
        assert here.peer.uid == os.geteuid()
        assert not here.peer.exited(0.0)
