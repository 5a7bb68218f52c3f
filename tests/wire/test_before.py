"""A build of today and an earlier one understand each other, both ways.

The earlier one is that of commit 6da4e3a, or of ``BOWSTRING_BEFORE``; ``scripts/before.sh`` makes its environment.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pytest

from tests.wire.program import FAILURE, TABLES, datasets

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("program.py")
WAIT: Final = 60.0
# The earlier build: that of the first commit whose protocol and pickles later ones promise to understand.
BEFORE = os.environ.get("BOWSTRING_BEFORE", "6da4e3a")
ADDRESSES = ("unix:", "unix:+separate", "tcp://127.0.0.1:0", "tcp://127.0.0.1:0+separate")
WHOLE = [name for name in datasets() if name not in ("failing", "once")]


class Program:
    """A server or a reader, in a process of one of the builds."""

    def __init__(self, python: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            # Nothing of this checkout may be imported by the earlier build.
            [python, "-P", str(PROGRAM), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=PROGRAM.parent,
            env=os.environ if python == sys.executable else {**os.environ, "PYTHONPATH": ""},
        )

    def hear(self) -> dict[str, Any]:
        """Return the next object that it prints; fail where none comes."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], WAIT)
        assert ready, "no answer in time"
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def tell_build(self) -> str:
        """Return where it has its Bowstring from."""
        return str(self.hear()["build"])

    def ask(self, **question: Any) -> dict[str, Any]:
        """Return the answer to a question."""
        assert self._process.stdin is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)
        return self.hear()

    def close(self) -> int:
        """End it, and return its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        status = self._process.wait(WAIT)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._process.kill()
        status = self.close()
        assert kind is not None or status == 0


@pytest.fixture(scope="session")
def python_before() -> str:
    """Return the Python of an environment with the earlier build; it is made once."""
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        [ROOT / "scripts" / "before.sh", BEFORE], capture_output=True, text=True, env=environment, timeout=600
    )
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return str(ROOT / done.stdout.strip())


class Pair:
    """A server and a reader, and what the server publishes."""

    def __init__(self, server: Program, reader: Program, folder: Path) -> None:
        self.server, self.reader = server, reader
        self.builds = server.tell_build(), reader.tell_build()
        self.uris = server.hear()
        self._to = folder / "read.arrows"

    def read(self, name: str, **question: Any) -> pa.Table:
        """Return what the reader reads of a data set."""
        return self.result(uri=self.uris[name], **question)

    def result(self, **question: Any) -> pa.Table:
        """Return what the reader writes as its answer."""
        self._to.unlink(missing_ok=True)
        answer = self.reader.ask(to=str(self._to), **question)
        assert "error" not in answer, answer
        with pa.ipc.open_stream(self._to) as reader:
            return reader.read_all()

    def refused(self, uri: str, **options: Any) -> dict[str, Any]:
        """Return the error that the reader gets."""
        return self.reader.ask(uri=uri, options=options, to=str(self._to))


BUILDS = [
    pytest.param(("now", "now"), id="today to today"),
    pytest.param(("before", "now"), id="before to today"),
    pytest.param(("now", "before"), id="today to before"),
]


@pytest.fixture(scope="module", params=BUILDS)
def pythons(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Return the Pythons of server and reader."""
    server, reader = (
        sys.executable if build == "now" else str(request.getfixturevalue("python_before"))
        for build in request.param
    )
    return server, reader


@pytest.fixture(scope="module", params=ADDRESSES)
def pair(
    request: pytest.FixtureRequest, pythons: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """Return a server and a reader of two builds."""
    server, reader = pythons
    with Program(server, "serve", request.param) as one, Program(reader, "read") as other:
        yield Pair(one, other, tmp_path_factory.mktemp("wire"))


def expected(name: str) -> pa.Table:
    """Return the rows of a data set."""
    return TABLES[name.removeprefix("lazy ")] if not name.endswith(" file") else TABLES["numbers"]


def test_each_process_has_its_build(pair: Pair, pythons: tuple[str, str]) -> None:
    """The earlier build is imported from its own environment, and today's from elsewhere."""
    for build, python in zip(pair.builds, pythons, strict=True):
        assert build.startswith(str(ROOT / "build" / "before")) == (python != sys.executable)


@pytest.mark.parametrize("name", WHOLE)
def test_tables_arrive_whole(pair: Pair, name: str) -> None:
    """Every type, dictionaries that grow and change, lazy and compressed sources arrive equal."""
    table = pair.read(name)
    assert table.schema.equals(expected(name).schema, check_metadata=True)
    assert table.to_pylist() == expected(name).to_pylist()
    assert table.equals(expected(name)) or "dictionary" in name


@pytest.mark.parametrize("columns", [["string", "int64"], ["dictionary"], []])
def test_columns_are_selected(pair: Pair, columns: list[str]) -> None:
    """The columns that a reader asks for arrive, in its order, and no others."""
    table = pair.read("types", options={"columns": columns})
    assert table.column_names == columns
    assert not columns or table.equals(TABLES["types"].select(columns))


@pytest.mark.parametrize("name", ["types", "numbers"])
def test_copies_can_be_asked_for(pair: Pair, name: str) -> None:
    """A reader that wants copies gets the same rows."""
    assert pair.read(name, options={"mode": "copy"}).equals(TABLES[name])


def test_a_reader_may_stop_early(pair: Pair) -> None:
    """A reader that takes one batch and goes has that batch, and the server serves the next reader."""
    assert pair.read("numbers", first=True).equals(TABLES["numbers"].slice(0, 5000))
    assert pair.read("numbers").equals(TABLES["numbers"])


@pytest.mark.parametrize("name", ["numbers", "changing dictionary", "lazy numbers"])
def test_data_sets_of_many_endpoints(pair: Pair, name: str) -> None:
    """Several endpoints of one server are read as one data set, over one stream where both builds can do that."""
    table = pair.result(uris=[pair.uris[each] for each in (name, name, name)])
    assert table.to_pylist() == expected(name).to_pylist() * 3


def test_a_failed_producer_is_reported(pair: Pair) -> None:
    """A reader hears that the code that makes the batches failed, and why."""
    answer = pair.refused(pair.uris["failing"])
    assert answer["error"] == "ProducerFailed"
    assert FAILURE in answer["what"]


def test_unknown_names_are_refused(pair: Pair, pythons: tuple[str, str]) -> None:
    """A name and a column that are not there are errors of their own, as far as both builds know such."""
    server, reader = (python == sys.executable for python in pythons)
    kind = "UnknownTicket" if not server else "UnknownName" if reader else "BrokenError"
    assert pair.refused(pair.uris["types"], name="nobody")["error"] == kind
    assert pair.refused(pair.uris["types"], columns=["nothing"])["error"] == "UnknownColumn"


def test_a_wrong_token_is_refused(pair: Pair) -> None:
    """A reader with another token than the server's is not let in."""
    uri = pair.uris["types"]
    if not uri.startswith("tcp:"):
        pytest.skip("the socket's file mode keeps others out")
    assert pair.refused(uri.replace("token=a-token", "token=b-token"))["error"] == "AccessDenied"


def test_memory_comes_back(pair: Pair) -> None:
    """A data set for one reader is released once that has read it, let it go, and left."""
    assert pair.read("once").equals(TABLES["numbers"])
    assert pair.server.ask(released="once") == {"released": True}


@pytest.mark.parametrize("address", ADDRESSES)
def test_kept_views_outlive_their_server(pythons: tuple[str, str], address: str, tmp_path: Path) -> None:
    """Batches that a reader keeps are as they were when stream, connection and server are gone."""
    server, reader = pythons
    with Program(reader, "read") as other:
        with Program(server, "serve", address) as one:
            pair = Pair(one, other, tmp_path)
            assert set(pair.uris) >= set(TABLES)
            for name in TABLES:
                answer = other.ask(uri=pair.uris[name], keep=name)
                assert "error" not in answer, answer
        for name, table in TABLES.items():
            assert pair.result(kept=name).to_pylist() == table.to_pylist()
