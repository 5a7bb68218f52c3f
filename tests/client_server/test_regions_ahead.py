"""Regions that come before the welcome: to whom, which of them, and in how many calls of the system."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.columnar import placed
from bowstring.dissociated.tags import Control
from bowstring.memory import Pool
from tests.client_server.conftest import come_home, read
from tests.peer.raw import RawReader

TABLE = pa.table({"n": np.arange(1000), "s": ["a", "b"] * 500})


def heard(endpoint: bow.Endpoint, **wishes: object) -> list[int | None]:
    """Return the tags of all that a reader hears; it gives everything back."""
    with RawReader(endpoint) as reader:
        reader.hello(**wishes)
        reader.want()
        tags = [each.tag for each in reader.hear_all()]
        if addresses := reader.addresses():
            reader.free(addresses)
        return tags


def test_who_tries_them_has_them_first(serve: Callable[..., bow.Server]) -> None:
    """A reader that takes regions beforehand has them before the welcome, others later; the rest is the same."""
    endpoint = serve().publish("t", TABLE)
    tried, plain = heard(endpoint, tries=True), heard(endpoint)
    assert tried[:3] == [Control.REGION, Control.WELCOME, None]
    assert plain[:3] == [Control.WELCOME, None, Control.REGION]
    assert tried[2:] == [*plain[1:2], *plain[3:]]


def test_whoever_takes_bytes_has_none(serve: Callable[..., bow.Server], address: str) -> None:
    """A reader that maps nothing is told of no region, whatever else it says."""
    assert Control.REGION not in heard(serve(address).publish("t", TABLE), pointers=False, tries=True)


def test_lazy_batches_have_none_yet(serve: Callable[..., bow.Server]) -> None:
    """Where batches are made for their reader, the welcome comes first: nobody knows where they will lie."""
    endpoint = serve().publish("t", iter(TABLE.to_batches()))
    assert heard(endpoint, tries=True)[:3] == [Control.WELCOME, None, Control.REGION]


def test_only_the_first_are_known_first(serve: Callable[..., bow.Server]) -> None:
    """Of many regions those of the first messages come first, each other one before its batch, and each once."""
    pool = Pool()
    batches = [
        placed(bow.Batch.from_arrow(pa.record_batch({"n": [number]})), pool.allocator())
        for number in range(20)
    ]
    server = serve()
    endpoint = server.publish("t", batches)
    tags = heard(endpoint, tries=True)
    first = tags.index(Control.WELCOME)
    assert tags[:first] == [Control.REGION] * first
    assert 0 < first < 10
    assert tags.count(Control.REGION) == 20
    assert read(endpoint)["n"].to_pylist() == list(range(20))
    del batches
    server.withdraw("t")
    server.wait_released("t", 10)
    come_home(pool)


def test_they_go_out_with_all_that_follows(
    serve: Callable[..., bow.Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers with one call of the system: region, welcome, schema, batch and end together."""
    endpoint = serve().publish("t", TABLE)
    calls: list[tuple[int, int]] = []
    send = socket.socket.sendmsg

    def counted(self: socket.socket, views: Any, ancillary: Any, flags: int) -> int:
        calls.append((sum(len(numbers) for _, _, numbers in ancillary), sum(map(len, views))))
        return send(self, views, ancillary, flags)

    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "sendmsg", counted)
        with bow.connect(endpoint) as stream:
            sent = list(calls)
            assert stream.schema.equals(TABLE.schema)
    (asked, answered) = sent
    assert (asked[0], answered[0]) == (0, 1)
    assert answered[1] > 500
    assert read(endpoint).equals(TABLE)
