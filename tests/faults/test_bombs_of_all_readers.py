"""Small files that claim or unfold to gigabytes: each reader stays within its limits and a constant."""

from __future__ import annotations

import functools
import os
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.vortex.dtype import DType, Kind
from tests.parquet import test_bombs as parquet_bombs
from tests.parquet import test_footer_bombs as footer_bombs
from tests.parquet import test_page_bodies as body_bombs
from tests.parquet.footers import MOST, NUMBERS, file, page
from tests.vortex.streams import stream_of
from tests.vortex.test_stored import zstd

MIB = 1 << 20
LIMITS = bow.Limits(decompression_floor=64 * MIB, decompression_ratio=64, window_bytes=64 * MIB)
CONSTANT = 256 * MIB
"""What a reader may have beside: threads, and copies of what is within the limits."""
# First a file of its kind that is no bomb, which loads what the reader needs.
PROGRAM = """
import resource, sys
from tests.faults.test_bombs_of_all_readers import BOMBS, CONSTANT, LIMITS, READERS
import bowstring as bow
kind, name, path = sys.argv[1:]
read = READERS[kind]
for make in (BOMBS[kind, "nothing"], BOMBS[kind, name]):
    with open(path, "wb") as sink:
        sink.write(make())
    if make is not BOMBS[kind, "nothing"]:
        held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        most = held + LIMITS.decompression_floor + LIMITS.window_bytes + CONSTANT
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        done = f"{read(path)} rows"
    except bow.BowstringError as error:
        assert not isinstance(error.__cause__, MemoryError), error
        done = type(error).__name__
print(done)
"""


def read_parquet(path: str) -> int:
    with bow.parquet.read(path, limits=LIMITS) as stream:
        return sum(batch.num_rows for batch in stream)


def read_file(path: str) -> int:
    with bow.ipc.open_file(path, limits=LIMITS) as reader:
        return sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))


def read_vortex(path: str) -> int:
    with open(path, "rb") as source, bow.vortex.open_stream(source, limits=LIMITS) as reader:
        return sum(batch.decode().num_rows for batch in reader)


def read_json(path: str) -> int:
    return len(bow.variant.from_json(path=path, limits=LIMITS, on_error="null"))


READERS: dict[str, Callable[[str], int]] = {
    "parquet": read_parquet,
    "file": read_file,
    "vortex": read_vortex,
    "json": read_json,
}


def arrow_file(claimed: int, size: int = MIB) -> bytes:
    """Return an IPC file whose buffer, of zeros in ZSTD, claims another length."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"a": pa.array(np.zeros(size // 8, np.int64))})
    with pa.ipc.new_file(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes().replace(size.to_bytes(8, "little"), claimed.to_bytes(8, "little"))


def vortex(body: bytes, rows: int) -> bytes:
    return stream_of(DType(Kind.BINARY), (zstd([body], None), rows))


def plain(codec: str | None = None, **claims: Any) -> bytes:
    return file([page(NUMBERS, 6, codec, **claims)], 6, 6, codec)


BOMBS: dict[tuple[str, str], Callable[[], bytes]] = {
    ("parquet", "nothing"): lambda: parquet_bombs.bomb("small"),
    ("parquet", "dictionary"): lambda: parquet_bombs.bomb("text"),
    ("parquet", "lists"): lambda: parquet_bombs.bomb("lists"),
    ("parquet", "one row"): lambda: parquet_bombs.bomb("one row"),
    ("parquet", "zeros"): lambda: file(
        [page(bytes(512 * MIB), 64 * MIB, "zstd")], 64 * MIB, 64 * MIB, "zstd"
    ),
    ("parquet", "claimed size"): lambda: plain("zstd", raw=MOST),
    ("parquet", "claimed size of plain bytes"): lambda: plain(raw=MOST),
    ("parquet", "claimed values"): lambda: file([page(NUMBERS, 6)], 1 << 40, 1 << 40),
    ("parquet", "claimed dictionary"): lambda: file([page(NUMBERS, MOST, kind=2)], 6, 6, dictionary=True),
    **{
        ("parquet", f"claimed {claim}"): functools.partial(body_bombs.claiming, claim)
        for claim in body_bombs.CLAIMS
    },
    ("parquet", "skewed list"): lambda: parquet_bombs.bomb("skewed list"),
    ("parquet", "claimed text"): lambda: parquet_bombs.bomb("claimed text"),
    ("parquet", "dense"): lambda: parquet_bombs.bomb("dense"),
    ("parquet", "columns of one chunk"): lambda: body_bombs.sharing(
        page(random.Random(1).randbytes(MIB // 4) + bytes(8 * MIB - MIB // 4), MIB, "zstd"), 400, MIB, MIB, 6
    ),
    ("parquet", "lists of one chunk"): lambda: body_bombs.sharing(
        body_bombs.one_list(4 * MIB), 100, 1, 4 * MIB, repetition=2
    ),
    ("parquet", "arrow schema"): lambda: footer_bombs.bomb("arrow schema", 400_000),
    ("parquet", "row groups"): lambda: footer_bombs.bomb("groups", 900_000),
    ("parquet", "pairs"): lambda: footer_bombs.bomb("pairs", 900_000),
    ("file", "nothing"): lambda: arrow_file(MIB),
    ("file", "zeros"): lambda: arrow_file(512 * MIB, 512 * MIB),
    ("file", "claimed size"): lambda: arrow_file(1 << 40),
    ("vortex", "nothing"): lambda: vortex(bytes(40), 10),
    ("vortex", "zeros"): lambda: vortex(bytes(512 * MIB), 128 * MIB),
    ("vortex", "claimed rows"): lambda: vortex(bytes(40), (1 << 32) - 1),
    ("json", "nothing"): lambda: b'{"a": 1}\n',
    ("json", "blank lines"): lambda: b"\n" * (4 * MIB),
    ("json", "nested"): lambda: b"[" * (4 * MIB) + b"\n",
    ("json", "many keys"): lambda: b"{" + b",".join(b'"%d":0' % each for each in range(300_000)) + b"}\n",
    ("json", "short rows"): lambda: b"0\n" * (2 * MIB),
}


FAST = ("claimed size", "blank lines", "claimed rows", "claimed lengths of no bits", "claimed long prefixes")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(*each, marks=() if each[1] in FAST else pytest.mark.slow)
        for each in BOMBS
        if each[1] != "nothing"
    ],
)
def test_no_file_takes_more_than_the_limits_and_a_constant(kind: str, name: str, tmp_path: Any) -> None:
    """A child that has no more memory than that reads the file, or refuses it by an error of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, name, str(tmp_path / "file")],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))},
    )
    assert done.returncode == 0, done.stderr[-3000:]
