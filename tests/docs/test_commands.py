"""What pages name is there: files of the repository, targets of make, commands and modules."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bowstring.cli import main

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "*/README.md", "benchmarks/results/README.md")
    for path in ROOT.glob(pattern)
    # The changelog tells of what went, too.
    if path.name != "CHANGELOG.md"
)
TOP = ("benchmarks", "docker", "docs", "examples", "kernels", "scripts", "src", "tests")
ROOMS = sorted(path.name for path in (ROOT / "src" / "bowstring").iterdir() if path.is_dir())
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
_BLOCK = re.compile(r"^```(\w*).*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PATH = re.compile(rf"(?:{'|'.join({*TOP, *ROOMS})})/[\w./-]*\w")


def texts_of(page: str) -> tuple[str, list[str]]:
    """Return what a page has for a shell, and its pieces of code within lines."""
    text = (ROOT / page).read_text(encoding="utf-8")
    shell = "".join(code for language, code in _BLOCK.findall(text) if language in ("sh", "bash", "console"))
    return shell, re.findall(r"`([^`\n]+)`", _BLOCK.sub("", text))


def paths_of(page: str) -> Iterator[str]:
    """Yield what looks like a path of the repository; capitals stand for what the reader puts there."""
    shell, pieces = texts_of(page)
    for word in " ".join([*pieces, re.sub(r"#.*", "", shell)]).split():
        path = word.strip(".,;:()'\"")
        if _PATH.fullmatch(path) and not re.search(
            r"\b[A-Z]{4,}\b", path.rpartition("/")[2].partition(".")[0]
        ):
            yield path


def is_there(page: str, path: str) -> bool:
    """Whether a file, a folder, a module or a name in a module is there, from the page, the root or the package."""
    for folder in (ROOT, (ROOT / page).parent, ROOT / "src" / "bowstring"):
        module, _, name = path.rpartition(".")
        if (folder / path).exists() or (folder / f"{path}.py").exists():
            return True
        if module and (folder / f"{module}.py").exists():
            return name in (folder / f"{module}.py").read_text(encoding="utf-8")
    return False


def test_some_pages_name_paths_and_commands() -> None:
    """The pages that say how the project is built name many."""
    assert len(list(paths_of("docs/testing.md"))) > 10
    assert "make test" in texts_of("CONTRIBUTING.md")[0]


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page: str) -> None:
    """Each path of the repository that a page names exists."""
    assert [path for path in paths_of(page) if not is_there(page, path)] == []


@pytest.fixture(scope="module")
def commands() -> set[str]:
    """The commands of `bowstring`, as its help lists them."""
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        main(["--help"])
    return set(re.findall(r"^ {4}(\w+) ", printed.getvalue(), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page: str, commands: set[str]) -> None:
    """Each target of make, command of `bowstring` and module of `python -m` that a page names exists."""
    shell, pieces = texts_of(page)
    code = "\n".join([shell, *pieces])
    assert set(re.findall(r"\bmake ([a-z][\w-]+)", code)) <= TARGETS
    assert set(re.findall(r"(?:^|\s)bowstring ([a-z]\w+)\b", code)) <= commands
    modules = set(re.findall(r"-m (bowstring[\w.]*|tests[\w.]*)", code))
    assert [name for name in modules if importlib.util.find_spec(name) is None] == []
