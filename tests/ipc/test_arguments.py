"""What is no source, no sink, no bound or no device is refused in words, before anything is opened."""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bowstring import Batch, ipc
from bowstring.errors import UsageError

TABLE = pa.table({"a": [1, 2, 3]})
OPEN: dict[str, Callable[..., Any]] = {
    "stream": ipc.open_stream,
    "file": ipc.open_file,
    "tensor": ipc.read_tensor,
    "message": ipc.read_message,
}
NEW: dict[str, Callable[..., Any]] = {
    "stream": lambda sink: ipc.new_stream(sink, TABLE.schema),
    "file": lambda sink: ipc.new_file(sink, TABLE.schema),
    "tensor": lambda sink: ipc.write_tensor(np.eye(2), sink),
}


def written(new: Any) -> bytes:
    sink = io.BytesIO()
    with new(sink, TABLE.schema) as writer:
        writer.write_table(TABLE)
    return sink.getvalue()


class Says:
    """A file that gives something else than bytes."""

    def __init__(self, what: object) -> None:
        self.what = what

    def read(self, _count: int = -1) -> object:
        return self.what


class PathOf5:
    def __fspath__(self) -> Any:
        return 5


def closed(file: Any) -> Any:
    file.close()
    return file


def released(view: memoryview) -> memoryview:
    view.release()
    return view


def closed_map() -> mmap.mmap:
    found = mmap.mmap(-1, 4096)
    found.close()
    return found


SOURCES: dict[str, Callable[[Path], Any]] = {
    "nothing": lambda _: None,
    "a number": lambda _: 5,
    "a closed file": lambda path: closed(path.open("rb")),
    "closed bytes": lambda _: closed(io.BytesIO(b"x")),
    "a closed file of pyarrow": lambda path: closed(pa.OSFile(str(path))),
    "a closed map": lambda _: closed_map(),
    "a released view": lambda _: released(memoryview(b"abc")),
    "a zero byte": lambda _: "/tmp/a\0b",
    "a zero byte in a path": lambda _: Path("/tmp/a\0b"),
    "half a character": lambda _: "/tmp/\ud800",
    "a path of a number": lambda _: PathOf5(),
    "every other byte": lambda _: memoryview(bytes(4096))[::2],
    "every other byte of an array": lambda _: np.zeros(4096, np.uint8)[::2],
    "objects": lambda _: np.array([object()]),
    "text": lambda path: path.open(encoding="latin-1"),
}


@pytest.mark.parametrize("what", SOURCES)
@pytest.mark.parametrize("kind", OPEN)
def test_sources(tmp_path: Path, no_leaks: None, kind: str, what: str) -> None:
    """What cannot be read from is refused, and stays as it was."""
    path = tmp_path / "x"
    path.write_bytes(written(ipc.new_stream))
    source = SOURCES[what](path)
    with pytest.raises(UsageError):
        OPEN[kind](source)
    if what == "text":
        source.close()


@pytest.mark.parametrize("kind", ["stream", "tensor", "message"])
def test_files_that_cannot_be_read(tmp_path: Path, kind: str) -> None:
    """A file that was opened for writing, or gives no bytes, is refused with what it is."""
    with (tmp_path / "x").open("wb") as file, pytest.raises(UsageError, match="not opened for reading"):
        OPEN[kind](file)
    with (
        pa.OSFile(str(tmp_path / "y"), "wb") as file,
        pytest.raises(UsageError, match="not opened for reading"),
    ):
        OPEN[kind](file)
    for what in ("text", 5):
        with pytest.raises(UsageError, match="something else than bytes"):
            OPEN[kind](Says(what))


@pytest.mark.parametrize("kind", NEW)
def test_sinks(tmp_path: Path, kind: str) -> None:
    """So is what cannot be written to."""
    path = tmp_path / "x"
    path.write_bytes(b"x")
    for sink in (closed(path.open("rb")), closed(io.BytesIO()), "/tmp/a\0b", "/tmp/\ud800", PathOf5()):
        with pytest.raises((UsageError, TypeError)):
            NEW[kind](sink)
    with path.open("rb") as file, pytest.raises(UsageError, match="not opened for writing"):
        NEW[kind](file)
    assert path.read_bytes() == b"x"


@pytest.mark.parametrize(
    "wrong",
    [{"limits": {}}, {"memory_pool": 5}, {"device": 5}, {"options": 5}],
    ids=str,
)
@pytest.mark.parametrize("kind", ["stream", "file"])
def test_options(kind: str, wrong: dict[str, Any]) -> None:
    """Bounds, pools, devices and options are of their kinds; nothing was read of the source."""
    source = io.BytesIO(written(getattr(ipc, f"new_{kind}")))
    with pytest.raises(UsageError):
        OPEN[kind](source, **wrong)
    assert source.tell() == 0


@pytest.mark.parametrize("offset", ["x", -1, 1.5, 1 << 70, True, []], ids=repr)
def test_footer_offsets(offset: Any) -> None:
    """An end of a file is a number of bytes within its source."""
    with pytest.raises(UsageError, match="footer_offset"):
        ipc.open_file(written(ipc.new_file), offset)


@pytest.mark.parametrize("number", ["x", 1.5, None, -1, 1], ids=repr)
def test_numbers_of_batches(number: Any) -> None:
    """A batch of a file has a number."""
    with ipc.open_file(written(ipc.new_file)) as reader, pytest.raises(UsageError, match="no such batch"):
        reader.get_batch(number)


def test_chosen_columns() -> None:
    """Columns of a batch are chosen by a list."""
    with pytest.raises(UsageError, match="by a list"):
        Batch.from_arrow(TABLE).select(5)  # type: ignore[arg-type]
