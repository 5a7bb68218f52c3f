"""What the tests of the command line share: files to serve, and processes that never outlive their test."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

DEADLINE = 60.0

Start = Callable[..., "Program"]


class Program:
    """A running ``bowstring``, with a deadline for everything that is asked of it."""

    def __init__(self, arguments: Sequence[str], **options: Any) -> None:
        command = [sys.executable, "-m", "bowstring", *arguments]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process: Any = subprocess.Popen(command, **(pipes | options))
        self._ahead = b""

    def line(self) -> str:
        """Return the next line that it prints."""
        end = time.monotonic() + DEADLINE
        while b"\n" not in self._ahead:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the program printed nothing in time"
            part = self.process.stdout.read1(1 << 16)
            assert part, f"the program ended: {self.process.communicate(timeout=DEADLINE)[1].decode()}"
            self._ahead += part
        line, _, self._ahead = self._ahead.partition(b"\n")
        return line.decode()

    def end(self, number: int | None = None) -> tuple[int, str, str]:
        """Send a signal, if one is given; return (exit code, the rest of stdout, stderr)."""
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, (self._ahead + out).decode(), (err or b"").decode()

    def kill(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=DEADLINE)


@pytest.fixture
def start(forked: None) -> Iterator[Start]:
    """Start ``bowstring`` with some arguments."""
    programs: list[Program] = []

    def begin(*arguments: str, **options: Any) -> Program:
        programs.append(Program(arguments, **options))
        return programs[-1]

    yield begin
    for program in programs:
        program.kill()


@pytest.fixture(scope="session")
def table() -> pa.Table:
    """Return a table with nulls, text, a dictionary, timestamps and lists, in three batches."""
    rows = 3000
    columns = {
        "id": pa.array(range(rows), pa.int64()),
        "fare": pa.array([None if row % 7 == 0 else row / 4 for row in range(rows)], pa.float64()),
        "city": pa.array([None if row % 5 == 0 else f"city {row % 11}" for row in range(rows)]),
        "kind": pa.array([("bus", "train", "boat")[row % 3] for row in range(rows)]).dictionary_encode(),
        "when": pa.array(range(rows), pa.timestamp("us", "UTC")),
        "legs": pa.array([list(range(row % 4)) for row in range(rows)], pa.list_(pa.int32())),
        "ok": pa.array([row % 2 == 0 for row in range(rows)]),
    }
    return pa.Table.from_batches(pa.table(columns).to_batches(max_chunksize=1024))


@pytest.fixture(scope="session")
def files(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the table as files, by extension; ``.zstd.arrows`` is compressed."""
    folder = tmp_path_factory.mktemp("files")
    found = {
        extension: folder / f"trips{extension}"
        for extension in (".parquet", ".arrow", ".feather", ".arrows", ".zstd.arrows")
    }
    pq.write_table(table, found[".parquet"], row_group_size=1024)
    for extension in (".arrow", ".feather"):
        with pa.ipc.new_file(found[extension], table.schema) as writer:
            writer.write_table(table)
    with pa.ipc.new_stream(found[".arrows"], table.schema) as writer:
        writer.write_table(table)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(found[".zstd.arrows"], table.schema, options=options) as writer:
        writer.write_table(table)
    return found
