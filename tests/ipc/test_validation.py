"""What readers of files check: structure by default, every element where they are told so."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring as bow
from bowstring.cli import main

BAD = pa.record_batch({"t": pa.array([b"ok", b"\xff\xfe", b"x"]).view(pa.string()), "n": [1, 2, 3]})


def ipc_file() -> bytes:
    """Return a file whose text is none."""
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, BAD.schema) as writer:
        writer.write_batch(BAD)
    return sink.getvalue()


def ipc_stream(count: int = 40) -> bytes:
    """Return a stream of so many batches, of which only the last has text that is none."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, BAD.schema) as writer:
        for _ in range(count - 1):
            writer.write_batch(BAD.slice(0, 1))
        writer.write_batch(BAD)
    return sink.getvalue()


def parquet() -> bytes:
    """Return a Parquet file whose text is none."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_batches([BAD]), sink, use_dictionary=False)
    return sink.getvalue()


def vortex() -> bytes:
    """Return a Vortex stream whose text is none."""
    sink = io.BytesIO()
    with bow.vortex.new_stream(sink, BAD.schema) as writer:
        writer.write_batch(BAD)
    return sink.getvalue()


def batches_of_vortex(validate: Any) -> Iterator[bow.Batch]:
    """Return decoded batches."""
    with bow.vortex.open_stream(vortex(), **validate) as stream:
        return iter([each.decode() for each in stream])


READERS: dict[str, Callable[[Any], Any]] = {
    "file": lambda validate: bow.ipc.open_file(ipc_file(), **validate),
    "stream": lambda validate: bow.ipc.open_stream(ipc_stream(), **validate),
    "file object": lambda validate: bow.ipc.open_stream(io.BytesIO(ipc_stream(2)), **validate),
    "parquet": lambda validate: bow.parquet.read(parquet(), **validate),
    "vortex": batches_of_vortex,
}


@pytest.mark.parametrize("kind", READERS)
def test_files_are_checked_as_they_are_asked(kind: str) -> None:
    """By default a batch is delivered with its structure checked; in full, the column and the row are named."""
    for validate in ({}, {"validate": "structure"}):
        assert {batch.validated for batch in READERS[kind](validate)} == {"structure"}
    with pytest.raises(bow.InvalidData) as caught:
        list(READERS[kind]({"validate": "full"}))
    assert caught.value.where == "t, row 1"
    with pytest.raises(bow.UsageError, match="'full' or 'structure'"):
        READERS[kind]({"validate": "all"})


def test_every_way_out_of_a_reader_checks() -> None:
    """Tables, capsules and single batches of a reader that checks in full are checked, too."""
    calls: list[Callable[[], Any]] = [
        lambda: bow.ipc.open_file(ipc_file(), validate="full").get_batch(0),
        lambda: bow.ipc.open_file(ipc_file(), validate="full").read_all(),
        lambda: bow.ipc.open_stream(ipc_stream(), validate="full").read_all(),
        lambda: bow.parquet.read(parquet(), validate="full").read_all(),
        lambda: bow.vortex.open_stream(vortex(), validate="full").read_all(),
    ]
    for call in calls:
        with pytest.raises(bow.InvalidData, match="row 1"):
            call()
    with pytest.raises(pa.ArrowException, match="row 1"):
        pa.table(bow.parquet.read(parquet(), validate="full"))


def test_only_what_is_read_is_checked() -> None:
    """Columns that are left out are not looked at, and numbers have nothing that could be wrong."""
    chosen = bow.ipc.IpcReadOptions(included_fields=[1])
    [batch] = bow.ipc.open_file(ipc_file(), options=chosen, validate="full")
    assert (batch.validated, batch["n"].to_pylist()) == ("full", [1, 2, 3])
    [batch] = bow.parquet.read(parquet(), columns=["n"], validate="full")
    assert batch.validated == "full"


@pytest.mark.parametrize("rows", [3, 300_000], ids=["few", "many"])
def test_null_counts_are_checked(rows: int) -> None:
    """A null count that is not that of the bitmap is found, in columns of numbers too: pyarrow allocates by it."""
    bits = pa.py_buffer(np.packbits(np.arange(rows) != 1, bitorder="little").tobytes())
    wrong = pa.Array.from_buffers(pa.int64(), rows, [bits, pa.py_buffer(bytes(8 * rows))], null_count=2)
    sink = io.BytesIO()
    with bow.ipc.new_stream(sink, pa.schema({"n": pa.int64()})) as writer:
        writer.write_batch(pa.record_batch({"n": wrong}))
    with pytest.raises(bow.InvalidData, match="n"):
        list(bow.ipc.open_stream(sink.getvalue(), validate="full"))


def test_fetch_takes_the_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``bowstring fetch`` checks what it writes unless it is told that structure is enough."""
    target = tmp_path / "out.arrow"
    with bow.Server() as server:
        uri = str(server.publish("t", BAD))
        for choice in ([], ["--validate", "full"]):
            assert main(["fetch", uri, "--to", str(target), *choice]) == 1
            assert "t, row 1" in capsys.readouterr().err
            assert not target.exists()
        assert main(["fetch", uri, "--to", str(target), "--validate", "structure"]) == 0
        assert main(["fetch", uri, "--validate", "structure"]) == 1  # what is shown is checked
    assert bow.ipc.open_file(target).read_all().num_rows == 3
