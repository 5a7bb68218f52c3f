"""What docstrings, comments and pages name is there: parameters, attributes, modules, files and identifiers."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import io
import keyword
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for folder in ("src", "kernels") for path in (ROOT / folder).rglob("*.py"))
PAGES = sorted((*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
CONFIGURATION = [ROOT / name for name in ("pyproject.toml", "Makefile", "mkdocs.yml")]

_SECTION = r"^{}\n-+\n(.*?)(?=^\w[\w ]*\n-{{3,}}\n|\Z)"
_MARKED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_DOTTED = re.compile(r"(?<![\w/.-])bowstring(?:\.[a-z_]\w*)+(?!\w)")
_FILE = re.compile(
    r"\b(?:src|tests|kernels|docs|benchmarks|scripts|examples|docker)/[\w./-]+\.(?:py|md|toml)\b"
)
# Of the system, of Spark and of C, or patterns; and what only a file or a package is called.
_OTHERS = {"dev", "pyspark", "executor", "spark", "ucs_status_t", "tzdata", "W"}
_MADE_UP = {"docs/page.md"}

Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@functools.cache
def words_of(path: Path) -> tuple[set[str], list[str]]:
    """Return the names in a module, and its comments; its tokens would fill the process of the tests."""
    names, comments = set(), []
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type == tokenize.NAME:
            names.add(token.string)
        elif token.type == tokenize.COMMENT:
            comments.append(token.string)
    return names, comments


def listed(docstring: str, section: str) -> Iterator[str]:
    """Yield the names that a section of a docstring describes."""
    match = re.search(_SECTION.format(section), inspect.cleandoc(docstring), re.MULTILINE | re.DOTALL)
    for line in match[1].splitlines() if match else ():
        if line and not line[0].isspace():
            yield from (each.strip().lstrip("*").strip("`") for each in line.partition(" : ")[0].split(","))


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    given = function.args
    each = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
    return {one.arg for one in each if one is not None}


@functools.cache
def classes() -> dict[str, ast.ClassDef]:
    """Return the classes by their names, some of several by one name."""
    return {node.name: node for _, node in documented() if isinstance(node, ast.ClassDef)}


def fields(node: ast.ClassDef) -> set[str]:
    """Return what an object of a class is made of, also where a base class says so."""
    found = {
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name in ("__init__", "__new__"):
            found |= parameters(each)
    if found <= {"self"}:
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id in classes() and base.id != node.name:
                found |= fields(classes()[base.id])
    return found


def attributes(node: ast.ClassDef) -> set[str]:
    """Return the attributes that a class, or a method of it, defines."""
    names = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    names |= {
        one.id
        for each in node.body
        if isinstance(each, ast.Assign)
        for one in ast.walk(each)
        if isinstance(one, ast.Name)
    }
    return names | fields(node) | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def unknown_names(node: Documented) -> set[str]:
    docstring = ast.get_docstring(node, clean=False) or ""
    if isinstance(node, ast.ClassDef):
        return (set(listed(docstring, "Parameters")) - fields(node)) | (
            set(listed(docstring, "Attributes")) - attributes(node)
        )
    return set(listed(docstring, "Parameters")) - parameters(node)


@functools.cache
def documented() -> tuple[tuple[Path, Documented], ...]:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return tuple(
        (path, node) for path in SOURCES for node in ast.walk(tree_of(path)) if isinstance(node, kinds)
    )


def test_the_parameters_and_attributes_that_docstrings_name_exist() -> None:
    """Every name in a section *Parameters* or *Attributes* is one of the function or class."""
    wrong = [
        f"{path.name}: {node.name}: {sorted(names)}"
        for path, node in documented()
        if (names := unknown_names(node))
    ]
    assert not wrong
    assert sum(bool(ast.get_docstring(node)) for _, node in documented()) > 3000


def prose_of(path: Path) -> Iterator[str]:
    """Yield the docstrings and comments of a module."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree_of(path)):
        if isinstance(node, kinds):
            yield ast.get_docstring(node) or ""
    yield from words_of(path)[1]


def test_the_identifiers_that_docstrings_mark_exist() -> None:
    """What stands between single backticks in a docstring or comment is an identifier of the sources."""
    known = {*dir(builtins), *keyword.kwlist, *_OTHERS}
    for path in SOURCES:
        known |= set(path.with_suffix("").parts)
        known |= words_of(path)[0]
    wrong = {
        f"{path.name}: {marked}"
        for path in SOURCES
        for text in prose_of(path)
        for marked in _MARKED.findall(text)
        if not set(re.findall(r"[A-Za-z_]\w*", marked)) <= known
    }
    assert not wrong


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one or of a class."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ImportError as error:
            if error.name is not None and not error.name.startswith("bowstring"):
                return True  # it needs a package that is not installed
            continue
        for part in parts[count:]:
            members = set(dir(found)) | set(getattr(found, "__annotations__", ()))
            if part not in members and not hasattr(found, part):  # dir() of a module lists its public names
                source = inspect.getsource(found) if inspect.isclass(found) else ""
                return f"self.{part} = " in source or f"self.{part}: " in source
            found = getattr(found, part, None)
        return True
    return False


def test_the_modules_that_are_named_exist() -> None:
    """Every dotted name of the package, in sources, pages and configuration, can be imported."""
    named: dict[str, str] = {}
    for path in (*SOURCES, *PAGES, *CONFIGURATION):
        if "decisions" not in path.parts and path.name != "CHANGELOG.md":  # which speak of former times
            named |= dict.fromkeys(_DOTTED.findall(path.read_text("utf-8")), path.name)
    named.pop("bowstring.md", None)
    wrong = {name: where for name, where in named.items() if not exists(name)}
    assert not wrong
    assert len(named) > 100


@pytest.mark.parametrize("folder", ["src", "kernels", "docs", "tests", "benchmarks", "scripts", "."])
def test_the_files_that_are_named_exist(folder: str) -> None:
    """Every file of the repository that a text names is there."""
    found = (ROOT / folder).glob("*") if folder == "." else (ROOT / folder).rglob("*")
    texts = [path for path in found if path.suffix in (".py", ".md", ".toml") and path.is_file()]
    wrong = {
        f"{path.name}: {name}"
        for path in texts
        for name in _FILE.findall(path.read_text("utf-8"))
        if not (ROOT / name).exists() and name not in _MADE_UP and "decisions" not in path.parts
    }
    assert not wrong


def test_tables_have_their_columns() -> None:
    """No text of a simple table runs over the gap between two of its columns, where it would not be a table."""
    wrong, tables = [], 0
    for path in SOURCES:
        gaps: list[int] = []
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if re.fullmatch(r"\s*=+( +=+)+", line):
                gaps, tables = [each.start() for each in re.finditer("(?<==) ", line)], tables + 1
            elif not line.strip():
                gaps = []
            elif any(line[gap : gap + 1].strip() for gap in gaps):
                wrong.append(f"{path.name}:{number}")
    assert (wrong, tables > 2) == ([], True)


def test_no_text_refers_to_what_only_developers_have() -> None:
    """No source, page or configuration refers to design notes outside of the repository."""
    wrong = [
        path.name
        for path in (*SOURCES, *PAGES, *CONFIGURATION)
        if re.search(r"\bDESIGN\b|\bWORDS\.md\b|look(s|ed)? template", path.read_text("utf-8"))
    ]
    assert not wrong
