"""A file that is written replaces what its path names as a whole, when the writer is closed, or not at all."""

from __future__ import annotations

import gc
import io
import mmap
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring as bow
from bowstring.errors import ClosedError, MissingFile, UsageError
from bowstring.parquet import ParquetWriter

SCHEMA = pa.schema({"a": pa.int64()})
BATCH = pa.record_batch({"a": np.arange(20_000)}, SCHEMA)
OLD = b"what was there before" * 1000

WRITERS: dict[str, Callable[[Any], Any]] = {
    "IPC file": lambda sink: bow.ipc.new_file(sink, SCHEMA),
    "IPC stream": lambda sink: bow.ipc.new_stream(sink, SCHEMA),
    "Vortex": lambda sink: bow.vortex.new_stream(sink, SCHEMA),
    "compressed Vortex": lambda sink: bow.vortex.new_stream(sink, SCHEMA, compress=True),
    "Parquet": lambda sink: ParquetWriter(sink, SCHEMA),
}
READERS: dict[str, Callable[[Any], pa.Table]] = {
    "IPC file": lambda path: bow.ipc.open_file(path).read_all(),
    "IPC stream": lambda path: bow.ipc.open_stream(path).read_all(),
    "Vortex": lambda path: bow.vortex.open_stream(path).read_all(),
    "compressed Vortex": lambda path: bow.vortex.open_stream(path).read_all(),
    "Parquet": pq.read_table,
}
# Those that write all of it by one call.
WHOLE: dict[str, Callable[[Any], object]] = {
    "tensor": lambda sink: bow.ipc.write_tensor(np.arange(1000), sink),
    "sparse tensor": lambda sink: bow.ipc.write_sparse_tensor(
        pa.SparseCOOTensor.from_dense_numpy(np.eye(9)), sink
    ),
    "Parquet at once": lambda sink: bow.parquet.write(BATCH, sink),
}


class OfBytes:
    """A path of bytes, as `os.PathLike` allows."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __fspath__(self) -> bytes:
        return os.fsencode(self._path)


def fresh(folder: Path) -> Iterator[tuple[Any, Path, Path | None]]:
    """Yield paths to write to: with the file that they name and, where there is one, the link that does so."""
    folder.mkdir()
    (folder / "in").mkdir()
    for kind in (str, Path, OfBytes, os.path.relpath):
        file = folder / f"out é {kind.__name__}"
        yield kind(str(file)), file, None
        for name, link, file in (
            ("to it", folder / "in" / "target", folder / "in" / "target"),
            ("one beside", "beside", folder / "beside"),
            ("one below", "in/below", folder / "in" / "below"),
            ("twice", "to it", folder / "in" / "target"),
        ):
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(link)
            yield kind(str(folder / name)), file, folder / name


def names(folder: Path) -> set[str]:
    """Return the paths of all that is in a folder and below."""
    return {str(each.relative_to(folder)) for each in folder.rglob("*")}


def write_and_close(writer: Any) -> None:
    """Write a batch, and end well."""
    with writer:
        writer.write_batch(BATCH)


def write_and_fail(writer: Any) -> None:
    """Write a batch, and end by an error."""
    with pytest.raises(ZeroDivisionError), writer:  # noqa: PT012  the end of the block is what is tested
        writer.write_batch(BATCH)
        raise ZeroDivisionError


def write_another_schema(writer: Any) -> None:
    """Write a batch, and one that is refused."""
    with pytest.raises((UsageError, pa.ArrowInvalid)), writer:  # noqa: PT012  as above
        writer.write_batch(BATCH)
        writer.write_batch(pa.record_batch({"b": ["x"]}))


def write_and_abort(writer: Any) -> None:
    """Write a batch, and think better of it; `close` does nothing then."""
    writer.write_batch(BATCH)
    writer.abort()
    writer.abort()
    writer.close()
    with pytest.raises(ClosedError):
        writer.write_batch(BATCH)


def write_and_forget(writer: Any) -> None:
    """Write a batch, and let go of the writer."""
    writer.write_batch(BATCH)


ENDINGS = [write_and_close, write_and_fail, write_another_schema, write_and_abort, write_and_forget]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("exists", [True, False])
def test_a_path_is_replaced_whole_or_not_at_all(
    tmp_path: Path, writer: str, ending: Callable[[Any], None], exists: bool
) -> None:
    """Whatever names the file, however it ends: the old file is as it was, and the new one is there or is not."""
    folder = tmp_path / "x"
    for path, file, link in fresh(folder):
        file.unlink(missing_ok=True)
        if exists:
            file.write_bytes(OLD)
            file.chmod(0o640)
        before, to = names(folder), None if link is None else os.readlink(link)
        held = file.open("rb") if exists else io.BytesIO(OLD)
        made = WRITERS[writer](path)
        seen = file.read_bytes() if exists else OLD
        ending(made)
        del made
        gc.collect()
        assert seen == OLD
        assert held.read() == OLD
        held.close()
        assert link is None or os.readlink(link) == to
        if ending is write_and_close:
            assert READERS[writer](file)["a"].to_pylist() == BATCH["a"].to_pylist()
            assert names(folder) == before | {str(file.relative_to(folder))}
            umask = os.umask(0)
            os.umask(umask)
            assert stat.S_IMODE(file.stat().st_mode) == (0o640 if exists else 0o666 & ~umask)
        else:
            assert names(folder) == before
            assert not exists or file.read_bytes() == OLD


@pytest.mark.parametrize("writer", WHOLE)
def test_what_one_call_writes_replaces_a_path_as_a_whole(tmp_path: Path, writer: str) -> None:
    """A map of the old file stays as it was, and nothing is left beside the new one."""
    for path, file, _ in fresh(tmp_path / "x"):
        file.write_bytes(OLD)
        with file.open("rb") as old, mmap.mmap(old.fileno(), 0, access=mmap.ACCESS_READ) as view:
            before = names(tmp_path)
            WHOLE[writer](path)
            assert view[:] == OLD
        assert names(tmp_path) == before
        assert file.read_bytes() != OLD


@pytest.mark.parametrize("writer", WRITERS)
def test_a_table_is_read_changed_and_written_back(tmp_path: Path, writer: str) -> None:
    """What was read of a file is written to the same path, and what was read before goes on."""
    path = tmp_path / "x"
    write_and_close(WRITERS[writer](path))
    before = READERS[writer](path)
    for rows in (20_000, 10, 0):
        table = READERS[writer](path)
        with WRITERS[writer](path) as made:
            for batch in table.slice(0, rows).to_batches():
                made.write_batch(batch)
        assert READERS[writer](path).num_rows == rows
        assert before["a"].to_pylist() == BATCH["a"].to_pylist()
    assert names(tmp_path) == {"x"}


@pytest.mark.parametrize("writer", WRITERS)
def test_two_writers_of_one_path(tmp_path: Path, writer: str) -> None:
    """Each writes all of its own, and the one that is closed last stays."""
    path = tmp_path / "x"
    first, second = WRITERS[writer](path), WRITERS[writer](path)
    for made, rows in ((first, 7), (second, 9), (first, 7)):
        made.write_batch(BATCH.slice(0, rows))
    second.close()
    assert READERS[writer](path).num_rows == 9
    first.close()
    assert READERS[writer](path).num_rows == 14
    assert names(tmp_path) == {"x"}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_path_means_what_it_meant_when_it_was_opened(
    tmp_path: Path, writer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path is of the folder that was the current one, also when that one was renamed meanwhile."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "a")
    with WRITERS[writer]("x") as made:
        made.write_batch(BATCH)
        monkeypatch.chdir(tmp_path / "b")
        (tmp_path / "a").rename(tmp_path / "c")
    assert names(tmp_path) == {"b", "c", "c/x"}


@pytest.mark.parametrize("writer", [*WRITERS, *WHOLE])
def test_special_files_are_written_as_they_are(tmp_path: Path, writer: str) -> None:
    """A FIFO, a device and a descriptor of this process get the bytes, and are what they were."""

    def write(path: Any) -> None:
        if writer in WHOLE:
            WHOLE[writer](path)
        else:
            write_and_close(WRITERS[writer](path))

    write(tmp_path / "plain")
    wanted = (tmp_path / "plain").read_bytes()
    write("/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
    reader.start()
    write(fifo)
    reader.join()
    assert got == [wanted]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    kept = tmp_path / "kept"
    with kept.open("w+b") as file:
        inode = os.fstat(file.fileno()).st_ino
        (tmp_path / "stdout").symlink_to(f"/proc/self/fd/{file.fileno()}")
        for each in (f"/proc/self/fd/{file.fileno()}", f"/dev/fd/{file.fileno()}", tmp_path / "stdout"):
            file.truncate(0)
            write(each)
            assert kept.stat().st_ino == inode
            assert kept.read_bytes() == wanted
    assert names(tmp_path) == {"plain", "fifo", "kept", "stdout"}


class Failing(io.BytesIO):
    """A file object that takes so many bytes and no more."""

    left = 10_000

    def write(self, data: Any) -> int:
        if (size := memoryview(data).nbytes) > self.left:
            raise OSError(28, "No space left on device")
        self.left -= size
        return super().write(data)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_object_is_the_callers(tmp_path: Path, writer: str) -> None:
    """It is written as it is and stays open; behind an error, of the block or its own, it gets nothing more."""
    path = tmp_path / "x"
    with path.open("w+b") as file:
        write_and_close(WRITERS[writer](file))
        assert not file.closed
        inode = os.fstat(file.fileno()).st_ino
    assert path.stat().st_ino == inode
    assert READERS[writer](path).num_rows == BATCH.num_rows
    for ending in (write_and_fail, write_and_abort):
        sink = io.BytesIO()
        ending(WRITERS[writer](sink))
        size = len(sink.getvalue())
        assert size < path.stat().st_size or "Vortex" in writer
    full = Failing()
    made = WRITERS[writer](full)
    with pytest.raises(OSError, match="No space"):  # noqa: PT012  some writers keep all until the end
        for number in range(100):
            made.write_batch(pa.record_batch({"a": np.arange(500) + number}, SCHEMA))
        made.close()
    size, full.left = len(full.getvalue()), 1 << 20
    made.close()
    assert len(full.getvalue()) == size
    assert names(tmp_path) == {"x"}


@pytest.mark.parametrize("writer", [*WRITERS, *WHOLE])
def test_paths_that_cannot_be_written(tmp_path: Path, writer: str) -> None:
    """A folder that is not there is a missing file, a folder is none, and links in a circle are refused."""
    make = WHOLE.get(writer) or (lambda path: write_and_close(WRITERS[writer](path)))
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "nowhere").symlink_to("none/x")
    for path in (tmp_path / "none" / "x", tmp_path / "nowhere"):
        with pytest.raises(MissingFile, match="no such folder") as caught:
            make(path)
        assert isinstance(caught.value, FileNotFoundError | UsageError)
    for folder in (tmp_path, f"{tmp_path}/"):
        with pytest.raises(IsADirectoryError):
            make(folder)
    with pytest.raises(OSError, match="symbolic links"):
        make(tmp_path / "circle")
    assert names(tmp_path) == {"circle", "nowhere"}
    make(tmp_path / ("x" * 255))
    assert len(names(tmp_path)) == 3


CHILD = """
import atexit, errno, os, resource, shutil, signal, sys, tempfile
from pathlib import Path
import numpy as np, pyarrow as pa, bowstring as bow
from tests.test_replaced_files import BATCH, OLD, READERS, WRITERS, names, write_and_close

def forked(work):
    if pid := os.fork():
        return os.waitpid(pid, 0)[1]
    try:
        work()
    finally:
        os._exit(9)

for writer, make in WRITERS.items():
    folder = Path(tempfile.mkdtemp())
    path = folder / "x"
    path.write_bytes(OLD)
"""
IN_CHILDREN = {
    "killed": """
    def work():
        with make(path) as made:
            made.write_batch(BATCH)
            os.kill(os.getpid(), signal.SIGKILL)
    assert forked(work) == signal.SIGKILL
    [left] = names(folder) - {"x"}
    assert left.startswith(".x.") and left.endswith(".part")
    assert path.read_bytes() == OLD
    """,
    "a child that ends in the block": """
    with make(path) as made:
        def work():
            try:
                with made:
                    sys.exit()
            except SystemExit:
                made.__exit__(SystemExit, None, None)
        forked(work)
        assert len(names(folder)) == 2
        made.write_batch(BATCH)
    assert names(folder) == {"x"} and path.read_bytes() != OLD
    """,
    "a child that ends": """
    for ending in ("in the block", "with the program", "by collection"):
        with make(path) as made:
            made.write_batch(BATCH)
            if not (pid := os.fork()):
                if ending != "in the block":
                    made.__class__.__exit__ = lambda *_: None
                if ending == "by collection":
                    del made
                sys.exit(3)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
            made.write_batch(BATCH)
        assert names(folder) == {"x"}
        assert READERS[writer](str(path)) == pa.Table.from_batches([BATCH, BATCH])
    """,
    "no room": """
    def work():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            with make(path) as made:
                for number in range(100):
                    values = np.random.default_rng(number).integers(1 << 60, size=500)
                    made.write_batch(pa.record_batch({"a": values}))
        except OSError as error:
            assert error.errno == errno.EFBIG
            os._exit(3)
    assert os.waitstatus_to_exitcode(forked(work)) == 3
    assert names(folder) == {"x"} and path.read_bytes() == OLD
    """,
    "rights": """
    def work():
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        for sink, clause in ((path, "in this folder"), (other / "y", "this file may not be written")):
            try:
                make(sink)
            except bow.errors.NotWritable as error:
                assert isinstance(error, PermissionError)
                assert clause in str(error) and str(sink) in str(error), error
            else:
                os._exit(2)
        os._exit(3)
    other = folder / "other"
    other.mkdir()
    (other / "y").write_bytes(OLD)
    for each, mode in ((other, 0o777), (other / "y", 0o444), (path, 0o666), (folder, 0o555)):
        each.chmod(mode)
    assert os.waitstatus_to_exitcode(forked(work)) == 3
    assert names(folder) == {"x", "other", "other/y"} and path.read_bytes() == OLD
    """,
    "not closed when the program ends": """
    def work():
        made = make(path)
        made.write_batch(BATCH)
        assert len(names(folder)) == 2
        atexit._run_exitfuncs()
        os._exit(3)
    assert os.waitstatus_to_exitcode(forked(work)) == 3
    assert names(folder) == {"x"} and path.read_bytes() == OLD
    """,
}


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("what", IN_CHILDREN)
def test_programs_that_end_or_may_not(what: str) -> None:
    """A kill, a child, a full disk, missing rights and a program's end leave the old file, a kill also a part."""
    done = subprocess.run(
        [sys.executable, "-c", f"{CHILD}{IN_CHILDREN[what]}\n    shutil.rmtree(folder)"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
