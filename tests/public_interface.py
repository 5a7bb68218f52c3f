"""Which test files use public interfaces only: they get the marker ``public`` (``tests/conftest.py``).

Such a file, the helpers that it imports and the ``conftest.py`` beside it import nothing of Bowstring but its
public modules and names (these also from the modules that define them, as a script can change that) and the
contracts inside it (``CONTRACTS``), reach for no name that begins with one underscore, and replace nothing in
Bowstring's modules. They go on passing when the inside is built anew. Programs that a test starts from files of
their own are not looked at.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bowstring.errors import MissingDependency

__all__ = ["why_not_public"]

ROOT: Final = Path(__file__).parent.parent
PUBLIC: Final = frozenset(
    {
        "bowstring",
        "bowstring.cli",
        "bowstring.depot",
        "bowstring.errors",
        "bowstring.flight",
        "bowstring.geo",
        "bowstring.ipc",
        "bowstring.memory",
        "bowstring.parquet",
        "bowstring.spark",
        "bowstring.testing",
        "bowstring.torch",
        "bowstring.transport",
        "bowstring.variant",
        "bowstring.vortex",
    }
)
"""Modules, of which ``bowstring.cli`` has ``main`` only: the command line."""
CONTRACTS: Final = frozenset(
    {
        # The two state machines of the protocol, what goes into them and what comes out.
        "bowstring.dissociated",
        "bowstring.dissociated.addresses",
        "bowstring.dissociated.endpoint",
        "bowstring.dissociated.events",
        "bowstring.dissociated.failures",
        "bowstring.dissociated.items",
        "bowstring.dissociated.listing",
        "bowstring.dissociated.opening",
        "bowstring.dissociated.partitions",
        "bowstring.dissociated.position",
        "bowstring.dissociated.producer",
        "bowstring.dissociated.reader",
        "bowstring.dissociated.tags",
        "bowstring.dissociated.wire",
        # Columns, what is derived from a schema, once, and the tables that a plan describes.
        "bowstring.columnar",
        "bowstring.columnar.layout",
        "bowstring.columnar.parts",
        "bowstring.columnar.plan",
        # How tests compare arrays; what stands in for a GPU.
        "tests.arrays",
        "bowstring.testing.fake_array",
        "bowstring.testing.fake_device",
        "bowstring.testing.fake_driver",
        # The verbs of a depot.
        "bowstring.depot.protocol",
        # What a kernel may be written in, its signature, and how it is launched.
        "bowstring.kernels",
        "bowstring.kernels.checker",
        "bowstring.kernels.launch",
        "bowstring.kernels.signature",
        "bowstring.kernels.types",
        # No part of the product: start a process and call an object there, start DuckDB and Spark.
        "bowstring.benchmarks.peers.engines",
        "bowstring.benchmarks.processes.child",
    }
)
"""Contracts between the floors of the house: a test may stand on them, whatever is built behind them."""

# Names of this form that are others': of named tuples, the standard library, IPython, pyarrow's C interfaces.
_ALLOWED: Final = frozenset(
    {
        "_asdict",
        "_exit",
        "_export_to_c",
        "_fields",
        "_fields_",
        "_getframe",
        "_import_from_c",
        "_import_from_c_capsule",
        "_make",
        "_replace",
        "_repr_html_",
        "_repr_mimebundle_",
        "_set_running_loop",
    }
)
# In strings: a module's name alone, as for importlib, and code for another interpreter.
_MODULE: Final = re.compile(r"(bowstring(?:\.(?!(?:html|md)$)[a-z_]+)+)(?::\w+)?")
_CODE: Final = re.compile(r"\b(?:from|import) (bowstring(?:\.[a-z_]+)+)")


def why_not_public(path: Path) -> str:
    """Return why a test file, or a helper of one, uses more than public interfaces; empty where it does not."""
    seen, waiting = {path}, [path]
    while waiting:
        looked_at = waiting.pop()
        reason, helpers = _look(looked_at)
        if reason:
            return f"{looked_at.name} {reason}"
        waiting += sorted(helpers - seen)
        seen |= helpers
    return ""


# They run what lies in every module, whoever may use it.
_EVERYTHING: Final = frozenset({"test_doctests.py"})


@functools.cache
def _look(path: Path) -> tuple[str, frozenset[Path]]:
    """Return the first reason that lies in a file itself, if any, and the files of tests that it stands on."""
    if path.name in _EVERYTHING:
        return "runs what lies in every module", frozenset()
    nodes: list[ast.AST] = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    helpers = {helper for node in imports for helper in _helpers(node)}
    beside = path.with_name("conftest.py")
    # What all tests share looks after leaks and Java; no test is about it.
    if beside != ROOT / "tests" / "conftest.py" and beside.exists():
        helpers.add(beside)
    return next(_reasons(nodes, imports), ""), frozenset(helpers - {path})


def _reasons(nodes: list[ast.AST], imports: list[ast.Import | ast.ImportFrom]) -> Iterator[str]:
    # Names that stand for modules and classes of Bowstring.
    ours: set[str] = set()
    for each in imports:
        yield from _of_import(each)
        ours |= _names(each)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _of_text(node.value)
        elif isinstance(node, ast.Attribute):
            yield from _of_attribute(node)
        elif isinstance(node, ast.Call):
            yield from _of_call(node, ours)


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [each.name for each in node.names] if isinstance(node, ast.Import) else [node.module or ""]


def _names_of(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [each.name for each in node.names] if isinstance(node, ast.ImportFrom) else []


@functools.cache
def _is_module(name: str) -> bool:
    with contextlib.suppress(ModuleNotFoundError):
        return importlib.util.find_spec(name) is not None
    return False


def _names(node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.Import):
        return {(each.asname or each.name).partition(".")[0] for each in node.names if _is_ours(each.name)}
    return {each.asname or each.name for each in node.names} if _is_ours(node.module or "") else set()


def _helpers(node: ast.Import | ast.ImportFrom) -> Iterator[Path]:
    for module in _modules(node):
        names = [f"{module}.{each.name}" for each in node.names] if isinstance(node, ast.ImportFrom) else []
        for name in [module, *names] if module.partition(".")[0] == "tests" else []:
            helper = ROOT / f"{name.replace('.', '/')}.py"
            if helper.exists():
                yield helper


def _of_import(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    for module in _modules(node):
        if _is_ours(module) and module not in PUBLIC | CONTRACTS and not _imports_public_names(node):
            yield f"imports {module}"
        # `from bowstring.memory import copying` is a module inside a public one.
        for name in _names_of(node) if module in PUBLIC | CONTRACTS else ():
            inside = f"{module}.{name}"
            if inside not in PUBLIC | CONTRACTS and name not in _public() and _is_module(inside):
                yield f"imports {inside}"
        if module == "bowstring.cli" and _names(node) != {"main"}:
            yield "imports more of bowstring.cli than main"


def _imports_public_names(node: ast.Import | ast.ImportFrom) -> bool:
    """Return whether it imports public names from the module that defines them."""
    if isinstance(node, ast.Import):
        return False
    names = {each.name for each in node.names}
    if not names <= _public().keys():
        return False
    module = importlib.import_module(node.module or "")
    return all(any(getattr(module, name, None) is each for each in _public()[name]) for name in names)


@functools.cache
def _public() -> dict[str, list[object]]:
    """Return what the names in ``__all__`` of the public modules stand for; some are in several."""
    found: dict[str, list[object]] = {}
    for module in PUBLIC - {"bowstring.cli", "bowstring.memory"}:
        loaded = importlib.import_module(module)
        for name in loaded.__all__:
            # PyTorch and PySpark are not everywhere.
            with contextlib.suppress(ModuleNotFoundError, MissingDependency):
                found.setdefault(name, []).append(getattr(loaded, name))
    return found


def _of_text(text: str) -> Iterator[str]:
    whole = _MODULE.fullmatch(text)
    for module in ([whole[1]] if whole else []) + _CODE.findall(text):
        if module not in PUBLIC | CONTRACTS:
            yield f"names {module} in a string"


def _of_attribute(node: ast.Attribute) -> Iterator[str]:
    own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    private = node.attr.startswith("_") and not node.attr.startswith("__")
    if private and not own and node.attr not in _ALLOWED:
        yield f"reaches for {node.attr}"


def _of_call(node: ast.Call, ours: set[str]) -> Iterator[str]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if name not in ("setattr", "delattr", "patch", "object") or not node.args:
        return
    target: ast.expr = node.args[0]
    while isinstance(target, ast.Attribute):
        target = target.value
    if isinstance(target, ast.Name) and target.id in ours:
        yield f"replaces something in {target.id}"
    for argument in node.args[:2]:
        text = argument.value if isinstance(argument, ast.Constant) else None
        if isinstance(text, str) and (text.startswith("bowstring.") or re.match(r"_[a-z]", text)):
            yield f"replaces {text}"


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "bowstring"
