"""Readers whose memory is short: what could wait until the user lets some go is no reason to fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

import bowstring as bow
from bowstring.memory import Pool
from tests.client_server.conftest import PATIENCE, come_home
from tests.peer.plain import PlainServer, messages_of


def test_opening_waits_for_no_memory(address: str) -> None:
    """Whoever opens a stream of packed bodies waits for the first at most: the rest may need what he lets go."""
    pool = Pool(budget=2 << 20)
    batches = [pa.record_batch({"a": np.arange(100_000) + number}) for number in range(6)]
    with bow.Server(address, limits=PATIENCE) as server:
        endpoint = server.publish("t", pa.Table.from_batches(batches))
        plain = str(endpoint.uri).replace("&bow=1", "")
        began = time.monotonic()
        with bow.connect(
            plain, endpoint.ticket, options=bow.ConnectOptions(pool=pool), limits=PATIENCE
        ) as stream:
            assert time.monotonic() - began < PATIENCE.stall_timeout / 4
            for expected in batches:
                assert next(stream).to_arrow().equals(expected)
    come_home(pool)


def test_what_is_foreseen_makes_room() -> None:
    """Memory that was taken for batches to come does not keep out a dictionary that comes instead of them."""
    text = ["x" * 25 + str(number) for number in range(100_000)]
    dictionaries = [pa.array(text), pa.array(text[::-1])]
    indices = pa.array(np.zeros(60_000, np.int8))
    batches = [
        pa.record_batch({"d": pa.DictionaryArray.from_arrays(indices, values)})
        for values in dictionaries
        for _ in range(12)
    ]
    messages = messages_of(pa.Table.from_batches(batches))
    # Both dictionaries for a moment, 4 MiB each.
    pool = Pool(budget=8 << 20)
    with (
        PlainServer("tcp://127.0.0.1:0", messages) as server,
        bow.connect(server.uri, b"t", options=bow.ConnectOptions(pool=pool), limits=PATIENCE) as stream,
    ):
        # None of them is kept, not even while the next is waited for.
        firsts = [next(stream)["d"].to_arrow()[0].as_py() for _ in batches]
    assert firsts == [text[0]] * 12 + [text[-1]] * 12
    come_home(pool)


def test_read_all_copies_what_must_be_copied(serve: Callable[..., bow.Server], address: str) -> None:
    """`read_all` of batches that are produced lazily ends, though the producer's memory does not hold them all."""

    def produce() -> Iterator[pa.RecordBatch]:
        return (pa.record_batch({"n": np.full(1 << 16, number)}) for number in range(40))

    server = serve(address, pool=Pool(budget=8 << 20), limits=PATIENCE)
    endpoint = server.publish("t", produce)
    limits = PATIENCE.replace(window_bytes=2 << 20, outstanding_bytes=4 << 20)
    with bow.connect(endpoint, limits=limits) as stream:
        table = stream.read_all()
    assert table["n"].to_numpy().tolist() == np.repeat(np.arange(40), 1 << 16).tolist()
