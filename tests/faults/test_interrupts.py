"""Ctrl-C at any line of ours: nothing is left behind, and the same call works at once."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import inspect
import itertools
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.memory import Pool, default_pool, mappings
from tests.faults.conftest import until
from tests.faults.interrupting import Interrupter, InterrupterAtDescriptors, InterrupterAtLocks

# A socket that an interrupt left without an owner is closed as it is collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

# Every line takes half an hour on a busy machine: each part ends well before the watch over tests that hang.
_PARTS: Final = 16
_ALL: Final = [
    pytest.param(range(part, 1 << 30, _PARTS), marks=pytest.mark.slow, id=f"every line, part {part}")
    for part in range(_PARTS)
]
_SOME: Final = pytest.param(8, id="some lines")
# Nothing is let go only because a producer did not answer in time.
_PATIENT: Final = bow.Limits(close_timeout=300.0)

_Interrupters = type[Interrupter] | type[InterrupterAtLocks]


def numbers(
    call: Callable[[], object], which: int | range | None, interrupters: _Interrupters = Interrupter
) -> Iterator[int]:
    """Yield the lines before which a call is to be interrupted: so many of them, those in a range, or all."""
    counted = interrupters(-1)
    assert not counted.run(call)
    if isinstance(which, range):
        return iter(which[: len(range(which.start, counted.lines, which.step))])
    step = 1 if which is None else counted.lines / which
    return itertools.takewhile(
        lambda number: number <= counted.lines, (1 + int(step * i) for i in itertools.count())
    )


def descriptors() -> dict[str, str]:
    """Return what this process has open."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found[entry.name] = str(entry.readlink())
        except FileNotFoundError:
            continue
    return found


def threads_of_streams() -> list[str]:
    """Return the threads that bring in streams."""
    return [each.name for each in threading.enumerate() if each.name.startswith("bowstring-client")]


def trim(pool: Pool) -> None:
    """Let go of all that is only kept warm."""
    gc.collect()
    for each in (pool, default_pool()):
        each.trim()
    mappings().clear()


def settle(pool: Pool, before: dict[str, str], place: str) -> None:
    """Wait until nothing is left of an interrupted call."""

    def left() -> list[Any]:
        trim(pool)
        opened = [f"{fd} -> {what}" for fd, what in descriptors().items() if before.get(fd) != what]
        return [*opened, *threads_of_streams()]

    until(lambda: not left(), f"interrupted before {place}, all is let go", 20.0)


def sweep(
    call: Callable[[], object],
    pool: Pool,
    which: int | range | None,
    forget: Callable[[], object] = lambda: None,
    interrupters: _Interrupters = Interrupter,
) -> None:
    """Interrupt a call at many lines; each time all is let go, and the call works again."""
    call()
    for number in list(numbers(call, which, interrupters)):
        trim(pool)
        before = descriptors()
        interrupter = interrupters(number)
        interrupter.run(call)
        forget()
        settle(pool, before, interrupter.place)
        call()


@pytest.fixture
def pool() -> Iterator[Pool]:
    """Give a pool that is closed after the test."""
    made = Pool(budget=64 << 20)
    yield made
    made.close()


@pytest.mark.parametrize("which", [_SOME, *_ALL])
@pytest.mark.parametrize("address", ["unix:", "tcp://127.0.0.1:0", "inproc:"])
def test_a_reader_that_is_interrupted(pool: Pool, address: str, which: int | range) -> None:
    """`connect` and reading leave no connection, thread or memory when they are interrupted at any line."""
    with bow.Server(address, pool=pool) as server:
        endpoint = server.publish("t", {"a": list(range(1000)), "b": ["x"] * 1000})

        def call() -> None:
            with bow.connect(endpoint, limits=_PATIENT) as stream:
                assert stream.read_all().num_rows == 1000

        sweep(call, pool, which)


def _read_one(stream: bow.Stream, got: list[bow.Batch]) -> None:
    got.append(stream.read_next_batch())


@pytest.mark.parametrize("address", ["unix:", "tcp://127.0.0.1:0", "inproc:"])
@pytest.mark.parametrize("how", ["as it comes", "checked", "copied"])
@pytest.mark.parametrize("reads", [0, 7])
def test_no_batch_is_lost_in_silence(address: str, how: str, reads: int) -> None:
    """Interrupted at any line of a read, a stream goes on with the batch that was to come, or says it cannot."""
    mode: Any = "copy" if how == "copied" else None
    options = bow.ConnectOptions(validate="full" if how == "checked" else "structure")
    rows = [pa.record_batch({"n": [number] * 20, "s": ["text"] * 20}) for number in range(8)]

    def number_of(batch: bow.Batch) -> int:
        return int(batch["n"].to_numpy()[0])

    with bow.Server(address, limits=_PATIENT) as server:
        endpoint = server.publish("t", pa.Table.from_batches(rows))
        judged, lines, number = set(), 1, 0
        while number < lines:
            with bow.connect(endpoint, mode=mode, options=options, limits=_PATIENT) as stream:
                found = [number_of(stream.read_next_batch()) for _ in range(reads)]
                interrupter = Interrupter(number)
                got: list[bow.Batch] = []
                was_interrupted = interrupter.run(functools.partial(_read_one, stream, got))
                assert was_interrupted == (number > 0) or interrupter.lines < number
                found += map(number_of, got)
                try:
                    found += map(number_of, stream)
                except bow.BrokenError:
                    assert found == list(range(reads)), interrupter.place
                    judged.add("broken")
                else:
                    assert found == list(range(8)), interrupter.place
                    judged.add("whole")
            lines = max(lines, interrupter.lines + 1)
            number += 1
        assert judged == {"broken", "whole"}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("reads", [0, 3])
def test_no_batch_of_many_endpoints_is_lost_in_silence(reads: int, *, ordered: bool) -> None:
    """Interrupted at any line of a read, a data set of several servers is read whole, or says that it cannot be."""
    schema, options = pa.schema({"n": pa.int64()}), bow.ConnectOptions(ordered=ordered)

    def number_of(batch: bow.Batch) -> int:
        return int(batch["n"].to_numpy()[0])

    with bow.Server("unix:", limits=_PATIENT) as one, bow.Server("unix:", limits=_PATIENT) as other:
        endpoints = [
            server.publish(
                "t", pa.Table.from_batches([pa.record_batch({"n": [first + i]}) for i in range(3)])
            )
            for server, first in ((one, 0), (other, 3))
        ]
        dataset = bow.Dataset(tuple(endpoints), schema)
        broken, lines, number = 0, 1, 0
        while number < lines:
            with bow.connect(dataset, options=options, limits=_PATIENT) as stream:
                found = [number_of(stream.read_next_batch()) for _ in range(reads)]
                interrupter = Interrupter(number)
                got: list[bow.Batch] = []
                interrupter.run(functools.partial(_read_one, stream, got))
                found += map(number_of, got)
                try:
                    found += map(number_of, stream)
                except bow.BrokenError:
                    broken += 1
                else:
                    assert sorted(found) == list(range(6)), interrupter.place
            lines = max(lines, interrupter.lines + 1)
            number += 1
        assert 0 < broken < number


@pytest.mark.parametrize("which", [_SOME, *_ALL])
def test_an_export_that_is_interrupted(pool: Pool, which: int | range) -> None:
    """Batches and columns that go to other libraries stay with nobody when that is interrupted at any line."""
    with bow.Server("inproc:", pool=pool) as server:
        data = {"a": list(range(1000)), "b": ["x"] * 1000}
        endpoint = server.publish(
            "t", pa.table(data).append_column("c", pa.array(data["b"]).dictionary_encode())
        )

        def call() -> None:
            with bow.connect(endpoint, limits=_PATIENT) as stream:
                batch = stream.read_next_batch()
                assert batch.to_arrow().num_rows == pa.record_batch(batch).num_rows == 1000
                assert len(pa.array(batch["c"])) == len(batch["a"].to_arrow()) == 1000
                assert len(batch.__arrow_c_device_array__()) == 2

        sweep(call, pool, which)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize(
    "which",
    [pytest.param(20, id="some lines"), pytest.param(None, id="every line", marks=pytest.mark.slow)],
)
def test_a_file_that_is_interrupted(pool: Pool, tmp_path: Path, which: int | None, *, before: bool) -> None:
    """A file that is written keeps its content when that is interrupted at any line, and nothing lies beside it."""
    path = tmp_path / "a.arrows"
    batch = pa.record_batch({"n": [1, 2, 3]})

    def call() -> None:
        if not before:
            path.unlink(missing_ok=True)
        with bow.ipc.new_stream(path, batch.schema) as writer:
            writer.write_batch(batch)

    def forget() -> None:
        gc.collect()
        assert os.listdir(tmp_path) in (["a.arrows"], [] if not before else None)
        if path.exists():
            with bow.ipc.open_stream(path) as reader:
                assert reader.read_all().num_rows == 3

    sweep(call, pool, which, forget)


@pytest.mark.parametrize("which", [_SOME, *_ALL])
def test_a_publication_that_is_interrupted(pool: Pool, which: int | range) -> None:
    """`publish` and `withdraw` leave no memory when they are interrupted at any line."""
    with bow.Server("unix:", pool=pool) as server:
        data = {"a": list(range(1000)), "b": ["x"] * 1000}

        def call() -> None:
            server.publish("t", data, replace=True)
            server.withdraw("t")

        def forget() -> None:
            with contextlib.suppress(bow.errors.UnknownTicket):
                server.withdraw("t")

        sweep(call, pool, which, forget)


def words(number: int) -> pa.RecordBatch:
    """Return a batch of one number and its word in a dictionary, of which there are two in turn."""
    known = pa.array([f"{number // 3 % 2} {each}" for each in range(3)])
    indices = pa.array([number % 3], pa.int32())
    return pa.record_batch({"n": [number], "d": pa.DictionaryArray.from_arrays(indices, known)})


@pytest.mark.parametrize("which", [pytest.param(60, id="some lines"), *_ALL])
@pytest.mark.parametrize("retain", [None, {"batches": 100, "seconds": 1000}])
def test_an_append_that_is_interrupted(
    pool: Pool, which: int | range, retain: dict[str, float] | None
) -> None:
    """`append` adds a batch or none when it is interrupted at any line; what comes behind it is true."""

    def interrupted(interrupter: Interrupter) -> None:
        with bow.Server(pool=pool) as server:
            server.append("t", words(0))
            with bow.connect(server, "t", follow=True, limits=_PATIENT) as stream:
                found = [stream.read_next_batch()]
                interrupter.run(lambda: server.append("t", words(3), retain=retain))
                for number in (4, 5, 6, 9):
                    server.append("t", words(number))
                server.finish("t")
                found += stream
                rows = [batch.to_arrow().to_pydict() for batch in found]
                expected = [words(number).to_pydict() for number in (0, 3, 4, 5, 6, 9)]
                assert rows in (expected, expected[:1] + expected[2:]), interrupter.place
                with bow.connect(server, "t", limits=_PATIENT) as again:
                    assert [batch.to_arrow().to_pydict() for batch in again] == rows, interrupter.place

    counted = Interrupter(-1)
    interrupted(counted)
    chosen = which if isinstance(which, range) else range(0, counted.lines, max(1, counted.lines // which))
    for behind in itertools.takewhile(lambda number: number < counted.lines, chosen):
        interrupted(Interrupter(counted.lines - behind))  # from the last line on


def answers(call: Callable[[], object]) -> bool:
    """Return whether a call in another thread ends: no lock that it takes is held."""
    ended = threading.Event()

    def other() -> None:
        call()
        ended.set()

    threading.Thread(target=other, daemon=True).start()
    return ended.wait(20.0)


@pytest.mark.parametrize("address", ["unix:", "tcp://127.0.0.1:0", "inproc:"])
def test_a_reader_that_is_interrupted_at_a_lock(pool: Pool, address: str) -> None:
    """`connect` and reading leave no lock held when they are interrupted where one is taken or given back."""
    with bow.Server(address, pool=pool) as server:
        endpoint = server.publish("t", {"a": list(range(1000)), "b": ["x"] * 1000})

        def call() -> None:
            with bow.connect(endpoint, limits=_PATIENT) as stream:
                assert stream.read_all().num_rows == 1000

        def forget() -> None:
            assert answers(lambda: server.stats)

        sweep(call, pool, None, forget, InterrupterAtLocks)


@pytest.mark.parametrize("address", ["unix:{}/s", "tcp://127.0.0.1:0", "inproc:"])
def test_no_descriptor_is_lost_where_it_is_opened(pool: Pool, address: str, tmp_path: Path) -> None:
    """An interrupt right behind the call that opens or receives a descriptor loses none."""
    folder = tmp_path / ("long" * 25)  # which connect() opens
    folder.mkdir(0o700)
    with bow.Server(address.format(folder), pool=pool) as server:

        def call() -> None:
            endpoint = server.publish("t", {"a": [1, 2, 3]})
            with bow.connect(endpoint, limits=_PATIENT) as stream:
                assert stream.read_all().num_rows == 3
            server.withdraw("t")

        def forget() -> None:
            with contextlib.suppress(bow.errors.UnknownTicket):
                server.withdraw("t")

        sweep(call, pool, None, forget, InterrupterAtDescriptors)


@pytest.mark.parametrize("address", ["unix:", "inproc:"])
def test_a_server_that_is_interrupted_at_a_lock(pool: Pool, address: str) -> None:
    """What a server is asked leaves no lock held when it is interrupted where one is taken or given back."""
    with bow.Server(address, pool=pool) as server:

        def call() -> None:
            server.publish("t", {"a": [1, 2, 3]}, replace=True, ttl=60.0)
            assert list(server.endpoints) == ["t"]
            server.wait(0.0)
            server.withdraw("t")
            server.wait_released("t", 20.0)

        def forget() -> None:
            assert answers(lambda: server.stats)
            with contextlib.suppress(bow.errors.UnknownTicket):
                server.withdraw("t")

        sweep(call, pool, None, forget, InterrupterAtLocks)


def test_what_was_not_made_is_deleted_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object whose making ends before its first line has nothing to let go of, and no error comes of that."""
    errors: list[str] = []
    monkeypatch.setattr(
        sys, "unraisablehook", lambda each: errors.append(f"{each.object}: {each.exc_value!r}")
    )
    made = 0
    ours = Path(bow.__file__).parent
    for path in ours.rglob("*.py"):
        if "def __del__" in path.read_text():
            name = ".".join(["bowstring", *path.relative_to(ours).with_suffix("").parts])
            for each in vars(importlib.import_module(name)).values():
                if not (isinstance(each, type) and each.__module__ == name and hasattr(each, "__del__")):
                    continue
                # A number is made with its value, or not at all; without one, it would close descriptor 0.
                if not (inspect.isabstract(each) or issubclass(each, int)):
                    made += each.__new__(each) is not None
    gc.collect()
    assert not errors
    assert made > 3


_FIRST_USE = """
import os, sys
import numpy, pyarrow
from tests.faults.interrupting import Interrupter

def call():
    import bowstring as bow
    endpoint = bow.put({"a": [1, 2, 3]})
    assert bow.get(endpoint).num_rows == 3
    bow.release(endpoint)

def in_fork(number):
    reading, writing = os.pipe()
    if os.fork() == 0:
        interrupter = Interrupter(number)
        interrupted = interrupter.run(call)
        try:
            call()
            answer = str(interrupter.lines)
        except BaseException as error:
            answer = f"interrupted before {interrupter.place}, then {error!r}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as answer:
        text = answer.read()
    os.wait()
    return text

first, parts, count = map(int, sys.argv[1:])
lines = int(in_fork(-1))
step = max(1, lines // count)
for number in range(1 + first * step, lines, parts * step):
    answer = in_fork(number)
    if not answer.isdigit():
        print(answer)
"""


@pytest.mark.parametrize(
    "which",
    [(0, 1, 3), *(pytest.param((part, 20, 1000), marks=pytest.mark.slow) for part in range(20))],
    ids=lambda which: "every {1}th of {2} lines, from {0}".format(*which),
)
def test_a_first_use_that_is_interrupted(which: tuple[int, int, int]) -> None:
    """What was interrupted while it was first imported and used works when it is used again."""
    program = textwrap.dedent(_FIRST_USE)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, which)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
