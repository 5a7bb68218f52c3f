"""Views of a stream that was opened with ``writable=True`` may be written, and nobody else sees what is written."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.testing import fake_device
from tests.client_server.conftest import read

ROWS = 100_000
TABLE = pa.table(
    {
        "n": pa.array(range(ROWS), pa.int64()),
        "f": pa.array(np.arange(ROWS) / 7),
        "t": pa.array(range(ROWS), pa.timestamp("us", "UTC")),
        "d": pa.array(range(ROWS), pa.duration("ms")),
        "nulls": pa.array([None if n % 3 else n for n in range(ROWS)], pa.int32()),
        "text": [str(n) for n in range(ROWS)],
        "category": pa.array([str(n % 5) for n in range(ROWS)]).dictionary_encode(),
    }
)


def overwrite(batch: bow.Batch) -> None:
    """Write over all numbers of a batch, in each way in which there is one."""
    batch["n"].values[:] = -1
    batch["f"].to_numpy()[:] = -1.0
    batch["t"].values[:] = np.datetime64(0, "us")
    np.asarray(batch["d"])[:] = np.timedelta64(0, "ms")
    batch["nulls"].raw_values[:] = -1
    batch["category"].raw_values[:] = 0


@pytest.mark.parametrize("token", [None, "0123456789abcdef"])
def test_what_is_written_is_seen_in_these_batches_alone(
    serve: Callable[..., bow.Server], address: str, token: str | None
) -> None:
    """Beside read-only views of the same data, in one process and in any order, the bytes of either are right."""
    server = serve(address, token=token)
    endpoint = server.publish("t", TABLE)
    with (
        bow.connect(endpoint) as before,
        bow.connect(endpoint, writable=True) as stream,
        bow.connect(endpoint, writable=True) as other,
    ):
        kept, mine, second = (each.read_next_batch() for each in (before, stream, other))
        overwrite(mine)
        assert mine["n"].values.max() == -1
        assert set(mine["category"].to_arrow().to_pylist()) == {"0"}
        assert mine["text"].to_arrow().equals(TABLE["text"].chunk(0))
        for untouched in (kept, second):
            assert pa.Table.from_batches([untouched.to_arrow()]).equals(TABLE)
        second["n"].values[::2] = 0
        assert mine["n"].values.min() == -1
        assert read(endpoint).equals(TABLE)
    assert mine["f"].values.tolist() == [-1.0] * ROWS
    assert second["n"].values[:4].tolist() == [0, 1, 0, 3]


def test_readers_of_other_batches_cannot_write(server: bow.Server) -> None:
    """Without `writable`, arrays are read-only as before, whether or not somebody else writes."""
    endpoint = server.publish("t", TABLE)
    with bow.connect(endpoint, writable=True) as stream, bow.connect(endpoint) as other:
        overwrite(stream.read_next_batch())
        batch = other.read_next_batch()
        for array in (batch["n"].values, batch["f"].to_numpy(), np.asarray(batch["t"])):
            assert not array.flags.writeable
        with pytest.raises(bow.NotExportable):
            batch["n"].__dlpack__()


def test_a_consumer_without_versions_writes_too(server: bow.Server) -> None:
    """The capsule of DLPack before 1.0, which knows no read-only data, is given out of writable batches."""
    with bow.connect(server.publish("t", TABLE), writable=True) as stream:
        column = stream.read_next_batch()["n"]

        class Old:
            def __dlpack__(self, **_: Any) -> Any:
                return column.__dlpack__()

            def __dlpack_device__(self) -> tuple[int, int]:
                return column.__dlpack_device__()

        for source in (Old(), column):
            array: Any = np.from_dlpack(source)
            if array.flags.writeable:  # NumPy takes some capsules as read-only
                array += 1
        assert np.shares_memory(array, column.values)


def test_statistics_say_what_was_copied(serve: Callable[..., bow.Server], address: str) -> None:
    """Memory that is mapped or landed is not copied; that of this process is, and the reason is there."""
    server = serve(address)
    with bow.connect(server.publish("t", TABLE), writable=True) as stream:
        overwrite(stream.read_next_batch())
        copied = stream.stats.copied
        assert (copied, "writable" in stream.stats.copied_why) == (
            ("copy", True) if address == "inproc:" else ("", False)
        )


def test_views_of_what_others_see_are_refused(serve: Callable[..., bow.Server]) -> None:
    """Over `inproc:` there are no private views: with ``mode="map"`` that is an error, as with ``decode``."""
    endpoint = serve("inproc:").publish("t", TABLE)
    with (
        bow.connect(endpoint, writable=True, mode="map") as stream,
        pytest.raises(bow.UsageError, match='mode="map"'),
    ):
        stream.read_next_batch()
    with pytest.raises(bow.UsageError, match="read-only"):
        bow.connect(endpoint, writable=True, options=bow.ConnectOptions(decode="device"))


def test_batches_of_a_device_are_copied(serve: Callable[..., bow.Server]) -> None:
    """Memory of a device is copied on it, and from it to the host where that was asked for."""
    device = fake_device()
    endpoint = serve("unix:", pool=bow.Pool(device, budget=64 << 20)).publish("t", TABLE.select(["n"]))
    with bow.connect(endpoint, writable=True) as stream:
        assert stream.read_next_batch().device is device
        assert stream.stats.copied
    with bow.connect(endpoint, writable=True, device="cpu") as stream:
        batch = stream.read_next_batch()
        batch["n"].values[:] = 5
    assert batch["n"].values.tolist() == [5] * ROWS
    assert read(endpoint).equals(TABLE.select(["n"]))


def test_a_written_batch_is_published_as_a_copy(server: bow.Server) -> None:
    """What is published of a batch that may be written is its contents at that time, whatever is written later."""
    with bow.connect(server.publish("t", TABLE), writable=True) as stream:
        batch = stream.read_next_batch()
    batch["n"].values[:] = 1
    again = server.publish("again", batch)
    batch["n"].values[:] = 2
    assert read(again)["n"].unique().to_pylist() == [1]


def test_many_small_batches(server: bow.Server) -> None:
    """Small batches that come many at a time are written one by one, and none changes another."""
    batches = [pa.record_batch({"n": np.full(10, number)}) for number in range(500)]
    with bow.connect(server.publish("t", batches), writable=True) as stream:
        kept = list(stream)
    for batch in kept[::2]:
        batch["n"].values[:] = -1
    values = [set(batch["n"].values.tolist()) for batch in kept]
    assert values == [{-1} if number % 2 == 0 else {number} for number in range(500)]


def test_a_process_survives_writing() -> None:
    """Another process writes to its batches in place and ends orderly; the producer's data stay."""
    with bow.Server() as server:
        endpoint = server.publish("t", TABLE)
        code = (
            "import sys, bowstring as bow\n"
            "with bow.connect(sys.argv[1], writable=True) as stream:\n"
            "    for batch in stream:\n"
            "        values = batch['n'].values\n"
            "        values += 1\n"
            "        print(int(values.sum()))\n"
        )
        command = [sys.executable, "-c", code, str(endpoint)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert int(printed) == sum(range(ROWS)) + ROWS
        assert read(endpoint).equals(TABLE)
