"""Print how many functions of Bowstring some calls enter: ``python scripts/depth.py [--list NAME]``.

Each call is made four times, and the last is counted by ``sys.setprofile``: the functions that were entered, each
once; how often they were in all; and the files that they are in. ``--list`` prints those of one row.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa

import bowstring as bow
from bowstring.depot.daemon import new_depot
from bowstring.depot.launch import Paths

_PACKAGE: Final = str(Path(bow.__file__).resolve().parent)
_KERNELS: Final = str(Path(_PACKAGE, "kernels").resolve())
_WARM: Final = 3
_ROWS: Final = 1000


class Depth(NamedTuple):
    """What one call entered: functions, how often in all, and their files."""

    functions: int
    calls: int
    files: int


class Function(NamedTuple):
    """A function, and where it is."""

    file: str
    line: int
    name: str


def depth_of(entered: collections.Counter[Function]) -> Depth:
    """Return the counts of some functions.

    Examples
    --------
    >>> depth_of(collections.Counter([Function("depth.py", 40, "depth_of")] * 3))
    Depth(functions=1, calls=3, files=1)
    """
    return Depth(len(entered), entered.total(), len({function.file for function in entered}))


def is_ours(code: CodeType) -> bool:
    """Whether a function is one of the package.

    Examples
    --------
    >>> is_ours(bow.connect.__code__), is_ours(is_ours.__code__)
    (True, False)
    """
    return code.co_filename.startswith((_PACKAGE, _KERNELS))


class Counter:
    """Counts what is entered in this thread, and in those that begin while it is in use."""

    def __init__(self) -> None:
        self.here: collections.Counter[Function] = collections.Counter()
        self.elsewhere: collections.Counter[Function] = collections.Counter()
        self._thread = threading.get_ident()
        self._is_counting = False

    def __enter__(self) -> Self:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if self._is_counting and event == "call" and is_ours(code):
            is_here = threading.get_ident() == self._thread
            function = Function(code.co_filename, code.co_firstlineno, code.co_qualname)
            (self.here if is_here else self.elsewhere)[function] += 1

    def begin(self) -> None:
        """Count from here on."""
        self.here.clear()
        self.elsewhere.clear()
        self._is_counting = True

    def end(self) -> None:
        """Count no more."""
        self._is_counting = False

    def count(self, call: Callable[[], Any]) -> None:
        """Make a call some times, and count the last."""
        for _ in range(_WARM):
            _let_go(call())
        self.begin()
        try:
            found = call()
        finally:
            self.end()
        _let_go(found)


def _let_go(found: Any) -> None:
    """Close a stream that a call has opened, and release its batch."""
    if isinstance(found, tuple):
        stream, batch = found
        stream.close()
        batch.release()


def table() -> pa.Table:
    """Return eight columns of numbers, flags and text."""
    rows = range(_ROWS)
    columns: dict[str, Any] = {
        "integers": pa.array(rows),
        "some": pa.array([row if row % 5 else None for row in rows]),
        "floats": pa.array([row / 2 for row in rows]),
        "short": pa.array([row % 9 for row in rows], pa.int16()),
        "flags": pa.array([row % 3 == 0 for row in rows]),
        "days": pa.array(rows, pa.date32()),
        "text": pa.array([f"text {row % 7}" for row in rows]),
        "binary": pa.array([b"x" * (row % 4) for row in rows]),
    }
    return pa.table(columns)


def _stream(compression: str | None) -> bytes:
    sink = io.BytesIO()
    with bow.ipc.new_stream(
        sink, table().schema, options=bow.ipc.IpcWriteOptions(compression=compression)
    ) as writer:
        writer.write_table(table())
    return sink.getvalue()


Case = Callable[[], contextlib.AbstractContextManager[Callable[[], Any]]]


@contextlib.contextmanager
def publishing() -> Iterator[Callable[[], Any]]:
    """Publish a table."""
    data = table()
    with bow.Server() as server:
        yield lambda: server.publish("depth", data, replace=True)


@contextlib.contextmanager
def connecting() -> Iterator[Callable[[], Any]]:
    """Connect, and read the first batch."""
    with bow.Server() as server:
        endpoint = server.publish("depth", table(), readers=None)

        def read() -> Any:
            stream = bow.connect(endpoint)
            batch = stream.read_next_batch()
            return stream, batch

        yield read


@contextlib.contextmanager
def connecting_and_closing() -> Iterator[Callable[[], Any]]:
    """Connect, read the first batch, and let both go."""
    with bow.Server() as server:
        endpoint = server.publish("depth", table(), readers=None)

        def read() -> Any:
            with bow.connect(endpoint) as stream:
                return stream.read_next_batch()

        yield read


@contextlib.contextmanager
def exporting() -> Iterator[Callable[[], Any]]:
    """Make a batch of eight columns pyarrow's."""
    (batch,) = table().to_batches()
    yield bow.Batch.from_arrow(batch).to_arrow


@contextlib.contextmanager
def opening() -> Iterator[Callable[[], Any]]:
    """Open a stream of a schema that was not seen."""
    number = iter(range(100))

    def fresh() -> bytes:
        sink = pa.BufferOutputStream()
        fields = [pa.field(f"{field.name} {next(number)}", field.type) for field in table().schema]
        pa.ipc.new_stream(sink, pa.schema(fields)).close()
        return sink.getvalue().to_pybytes()

    streams = iter([fresh() for _ in range(_WARM + 1)])
    yield lambda: bow.ipc.open_stream(next(streams)).schema.names


@contextlib.contextmanager
def writing(compression: str | None = None) -> Iterator[Callable[[], Any]]:
    """Write one batch to a stream."""
    (batch,) = table().to_batches()
    ours = bow.Batch.from_arrow(batch)
    options = bow.ipc.IpcWriteOptions(compression=compression)
    with bow.ipc.new_stream(io.BytesIO(), batch.schema, options=options) as writer:
        yield lambda: writer.write_batch(ours)


@contextlib.contextmanager
def reading() -> Iterator[Callable[[], Any]]:
    """Open a stream of LZ4 bodies, and read its first batch."""
    data = _stream("lz4")
    yield lambda: bow.ipc.open_stream(data).read_next_batch()


@contextlib.contextmanager
def getting() -> Iterator[Callable[[], Any]]:
    """Get a path of a column of Variants."""
    column = bow.variant.from_json([f'{{"user": {{"id": {row}}}}}' for row in range(100)])
    yield lambda: bow.variant.get(column, "$.user.id", pa.int64())


@contextlib.contextmanager
def decoding() -> Iterator[Callable[[], Any]]:
    """Read a Vortex stream of eight columns to Arrow."""
    sink = io.BytesIO()
    with bow.vortex.new_stream(sink, table().schema) as writer:
        writer.write_table(table())
    data = sink.getvalue()
    yield lambda: [batch.to_arrow() for batch in bow.vortex.open_stream(data)]


@contextlib.contextmanager
def partitions() -> Iterator[Callable[[], Any]]:
    """Write a partition of a data set to a depot of another process."""
    with tempfile.TemporaryDirectory() as folder, bow.depot.connect(folder=folder) as depot:
        try:
            yield writer(depot)
        finally:
            depot.stop()


def writer(depot: bow.depot.Depot) -> Callable[[], Any]:
    """Return what writes one more partition."""
    data, numbers = table(), iter(range(100))

    def write() -> None:
        with depot.begin(
            application="depth", dataset="depth", partition=next(numbers), schema=data.schema
        ) as attempt:
            attempt.write(data)
            attempt.commit()

    return write


CASES: Final[dict[str, Case]] = {
    "publish": publishing,
    "connect and read_next_batch": connecting,
    "connect, read_next_batch and close": connecting_and_closing,
    "to_arrow of 8 columns": exporting,
    "open a schema of 8 columns": opening,
    "write a batch": writing,
    "write a batch, LZ4": lambda: writing("lz4"),
    "read a batch, LZ4, opening included": reading,
    "variant.get": getting,
    "Vortex stream of 8 columns to Arrow": decoding,
    "a partition of a data set: worker": partitions,
}


SERVED: Final = "a server, while one connects and reads"
DEPOT: Final = "a partition of a data set: depot"
NAMES: Final = (*CASES, SERVED, DEPOT)


def serve(what: str) -> None:
    """Be a server or a depot; then, as lines ask for it, count what this process enters, and print that."""
    with Counter() as counter, contextlib.ExitStack() as ends:
        if what == SERVED:
            server = ends.enter_context(bow.Server())
            print(server.publish("depth", table(), readers=None), flush=True)
        else:
            folder = ends.enter_context(tempfile.TemporaryDirectory())
            depot = new_depot(Paths(folder), bow.depot.Options(memory_budget=1 << 28, disk_budget=0))
            ends.callback(depot.run)
            ends.callback(depot.stop)
            print(folder, flush=True)
        for line in sys.stdin:
            if line == "begin\n":
                counter.begin()
                print(flush=True)
            else:
                counter.end()
                print(json.dumps(list((counter.here + counter.elsewhere).items())), flush=True)


def served(what: str) -> Counter:
    """Return what a server or depot in another process enters, by any thread, for a client: the least of some."""
    least = Counter()
    command = [sys.executable, __file__, "--serve", what]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program,  # noqa: S603  this script
        contextlib.ExitStack() as ends,
    ):
        assert program.stdin is not None
        assert program.stdout is not None
        ends.callback(program.stdin.close)
        where = program.stdout.readline().strip()
        write = None
        if what == DEPOT:
            write = writer(ends.enter_context(bow.depot.connect(start=False, folder=where)))
        for turn in range(_WARM + 12):
            print("begin", file=program.stdin, flush=True)
            program.stdout.readline()
            with contextlib.nullcontext() if write is not None else bow.connect(where) as stream:
                batch = write() if write is not None else stream.read_next_batch()
                time.sleep(0.1)  # until the other has done what follows
                print("end", file=program.stdin, flush=True)
                del batch
                entered = {Function(*each): count for each, count in json.loads(program.stdout.readline())}
            time.sleep(0.1)  # what follows the release is not counted
            if turn > _WARM and (not least.here or len(entered) < len(least.here)):
                least.here = collections.Counter(entered)
    return least


def measured(name: str) -> Counter:
    """Return what one of the cases entered."""
    if name in (SERVED, DEPOT):
        return served(name)
    with Counter() as counter, CASES[name]() as call:
        counter.count(call)
    return counter


def main() -> None:
    """Print a table, or the functions of one row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", choices=NAMES, help="print the functions of this row")
    parser.add_argument("--serve", choices=(SERVED, DEPOT), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    chosen = options.list
    print("| call | functions | calls | files | in other threads |\n|---|---|---|---|---|")
    for name in [chosen] if chosen else NAMES:
        counter = measured(name)
        here, elsewhere = depth_of(counter.here), depth_of(counter.elsewhere)
        print(f"| {name} | {here.functions} | {here.calls} | {here.files} | {elsewhere.functions} |")
        if chosen:
            for function, count in sorted(counter.here.items()):
                where = function.file.rpartition("bowstring/")[2]
                print(f"{count:6} {where}:{function.line} {function.name}")


if __name__ == "__main__":
    main()
