"""Messages that are prepared once and sent many times: what arrives is what arrives of them one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bowstring.errors import UsageError
from bowstring.testing.transport_kit.harness import PATIENCE, in_thread, next_from, pattern
from bowstring.transport import Channel, Message, dial, listen
from bowstring.transport.framing import Prepared

PIECES = st.lists(st.one_of(st.binary(max_size=20), st.integers(0, 300_000)), max_size=5)


def body_of(pieces: list[bytes | int]) -> list[bytes | memoryview]:
    """Return small pieces as bytes, and large ones as views."""
    return [piece if isinstance(piece, bytes) else memoryview(pattern(piece, piece)) for piece in pieces]


@contextlib.contextmanager
def pair(address: str) -> Iterator[tuple[Channel, Channel]]:
    """Give the two ends of a connection."""
    with listen(address) as listener:
        accepting = in_thread(listener.accept, PATIENCE)
        with dial(listener.uri) as near, accepting.result() as far:
            yield near, far


@pytest.mark.parametrize("address", ["unix:", "tcp://"])
@given(st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 2**56 - 1)), PIECES), max_size=6))
@settings(max_examples=30)
def test_the_same_arrives(address: str, said: list[tuple[int | None, list[bytes | int]]]) -> None:
    """However often, and between whatever else, prepared messages arrive as they are, in their order."""
    messages = [Message(tag, body_of(pieces)) for tag, pieces in said]
    prepared = Prepared(messages)
    expected = [(each.tag, b"".join(map(bytes, each.views()))) for each in messages]
    last = (9, b"last")
    with pair(address) as (near, far):
        sending = in_thread(
            near.send, [prepared, *messages, prepared, Message(*last[:1], [last[1]])], PATIENCE
        )
        for tag, body in [*expected * 3, last]:
            received = next_from(far)
            assert (received.tag, bytes(received.body)) == (tag, body)
        sending.result()


def test_only_sockets_take_them() -> None:
    """Where messages go as objects they are not prepared, and nothing is sent of what holds one that is."""
    with pair("inproc:") as (near, far):
        assert not near.takes_prepared
        with pytest.raises(UsageError, match="sockets"):
            near.send([Message(1, [b"x"]), Prepared([Message(2, [b"y"])])], PATIENCE)
        assert far.receive(0.0) is None
