"""Compressed packed bodies of a plain server, which a client wants on a device."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.ipc.compression.device import nvcomp
from bowstring.memory import Pool
from bowstring.testing import fake_device
from bowstring.testing.fake_device import EXT_DEV
from tests.client_server.conftest import PATIENCE
from tests.client_server.test_plain import TABLE
from tests.ipc.fake_nvcomp import FakeNvComp
from tests.peer.plain import WAIT, PlainServer, messages_of

DEVICE = fake_device()


@pytest.fixture
def library() -> Iterator[FakeNvComp]:
    """Return a fake nvCOMP that is found for the fake device."""
    library = FakeNvComp()
    nvcomp.register_decompressor(EXT_DEV, lambda: nvcomp.NvComp(library, lambda: 0))
    yield library
    nvcomp.register_decompressor(EXT_DEV, None)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("kind", ["named", "pool"])
def test_compressed_bodies_land_on_the_device(
    address: str, library: FakeNvComp, codec: str, kind: str
) -> None:
    """Batches and dictionaries come to the device that was asked for, and the stats say how."""
    pool = Pool(DEVICE, budget=64 << 20)
    wanted: dict[str, Any] = (
        {"device": "fake:0"} if kind == "named" else {"options": bow.ConnectOptions(pool=pool)}
    )
    with (
        PlainServer(address, messages_of(TABLE, options={"compression": codec})) as server,
        bow.connect(server.uri, "t", limits=PATIENCE, **wanted) as stream,
    ):
        batches = list(stream)
        said = stream.stats.decompressed
    assert {batch.device for batch in batches} == {DEVICE}
    found = [batch.to_device("cpu").to_arrow() for batch in batches]
    assert pa.Table.from_batches(found).equals(TABLE)
    local = address.partition(":")[0] in ("unix", "inproc")
    assert ("by nvCOMP" in said) == (codec == "lz4" or local)
    assert (library.chunks > 0) == (codec == "lz4" or local)
    if kind == "pool":
        assert pool.stats.in_use > 0
        del batches, found, stream
        end = time.monotonic() + WAIT
        while pool.stats.in_use and time.monotonic() < end:  # until the stream's threads have ended
            gc.collect()
            time.sleep(0.01)
        assert pool.stats.in_use == 0


def test_without_nvcomp_the_stream_says_so(address: str) -> None:
    """The host decompresses, and the reason stands in the stats; a stream for the host says nothing."""
    for device, expected in (("fake:0", "on the host (nothing decompresses on fake:0)"), (None, "")):
        with (
            PlainServer(address, messages_of(TABLE, options={"compression": "lz4"})) as server,
            bow.connect(server.uri, "t", device=device, limits=PATIENCE) as stream,
        ):
            tables = [batch.to_device("cpu").to_arrow() for batch in stream]
            assert pa.Table.from_batches(tables).equals(TABLE)
            assert stream.stats.decompressed.endswith(expected)
            assert bool(stream.stats.decompressed) == bool(expected)
