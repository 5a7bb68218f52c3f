"""A reader takes the first offer of an endpoint that works, and says why not the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.dissociated.endpoint import Offer
from tests.client_server.conftest import read

TABLE = pa.table({"n": [1, 2, 3]})


def test_the_first_that_works(serve: Callable[..., bow.Server]) -> None:
    """Offers of other hosts, of sockets that are not there, and of servers that are gone are passed over."""
    gone = serve("tcp://127.0.0.1:0")
    nobody = gone.publish("t", TABLE).uri
    gone.close()
    there = serve("tcp://127.0.0.1:0").publish("t", TABLE)
    endpoint = dataclasses.replace(
        there,
        uri="unix:/elsewhere.sock?want_data=1",
        host="another host",
        elsewhere="unix:/not/there.sock?want_data=1",
        others=(Offer(nobody), Offer(there.uri), Offer("ucx://nobody:1?want_data=1")),
    )
    assert read(endpoint).equals(TABLE)
    with bow.connect(endpoint) as stream:
        assert stream.read_all().equals(TABLE)
        why = stream.stats.why
    assert "host another host" in why
    assert "nobody listens at /not/there.sock" in why
    assert "nobody listens" in why
    assert "ucx" not in why


def test_none_that_works(serve: Callable[..., bow.Server]) -> None:
    """Where no offer works the error is that of the last one, and says what is wrong with the others."""
    gone = serve("tcp://127.0.0.1:0")
    nobody = gone.publish("t", TABLE).uri
    gone.close()
    endpoint = bow.Endpoint(
        "unix:/not/there.sock?want_data=1", b"t", elsewhere=nobody, others=(Offer(nobody),)
    )
    with pytest.raises(
        bow.BrokenError,
        match=r"listens at tcp.*listens at /not/there.sock.*listens at tcp",
    ):
        bow.connect(endpoint)


def test_a_server_of_three_addresses(serve: Callable[..., bow.Server]) -> None:
    """A server that listens on several addresses offers all of them, in the order in which it was told of them."""
    server = serve("unix:")
    more = [server.listen_too("tcp://127.0.0.1:0") for _ in range(2)]
    endpoint = server.publish("t", TABLE)
    assert [each.address for each in endpoint.offers] == [server.address, *more]
    for offer in endpoint.offers:
        assert read(bow.Endpoint(offer.uri, endpoint.ticket)).equals(TABLE)
