"""Pages of the reference: one for each public module, of the names that ``tests/data/public`` lists.

A hook of MkDocs. ``tests/public`` keeps the list equal to what the modules offer; here it says which objects
``mkdocstrings`` shows, and which of their members are meant for users.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
LISTS = ROOT / "tests" / "data" / "public"

MODULES = {
    "bowstring": "bowstring",
    **{
        name: f"bowstring.{name}"
        for name in (
            *("depot", "flight", "geo", "ipc", "memory", "parquet", "spark", "testing", "transport"),
            *("variant", "vortex"),
        )
    },
}
"""The module that each list is of."""

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([\w.]+)`")
"""A reference of reStructuredText, as docstrings have them."""

# What a context manager or an iterator has, by whatever name it is.
_UNDERSTOOD = {
    f"__{name}__" for name in ("enter", "exit", "iter", "next", "aenter", "aexit", "aiter", "anext", "await")
}
_NAME = re.compile(r"(?:class |def |classmethod |staticmethod |module )?(\w+)(.*)")


def entries(area: str) -> list[tuple[str, str, list[str]]]:
    """Return what a list has: the kind of each name (class, def, module, as, data), the name, and its members."""
    found: list[tuple[str, str, list[str]]] = []
    for line in (LISTS / f"{area}.txt").read_text("utf-8").splitlines():
        if line.startswith("For other modules"):
            break
        matched = _NAME.match(line.strip())
        if matched is None:
            continue
        name, rest = matched.groups()
        if line.startswith("    "):
            kind, owner, members = found[-1]
            if kind == "class" and name not in (
                owner,
                *members,
                *_UNDERSTOOD,
            ):  # the first of that name is the constructor
                members.append(name)
        else:
            kind = line.partition(" ")[0]
            kind = (
                kind if kind in ("class", "def", "module") else "as" if rest.startswith(": as ") else "data"
            )
            found.append((kind, name, []))
    return found


def errors() -> list[str]:
    """Return the names of the errors, in the order of their tree."""
    text = (LISTS / "errors.txt").read_text("utf-8").partition("\n\n")[0]
    return [line.split()[0] for line in text.splitlines()]


def _shown(path: str, members: list[str] | None = None, **options: Any) -> str:
    if members is not None:
        options["members"] = members or "false"
    lines = [f"      {name}: {value}" for name, value in options.items()]
    return "\n".join([f"::: {path}", *(["    options:"] if lines else []), *lines])


def _borrowed(module: str, name: str) -> str | None:
    """Return the full name of a class or function that is another library's, which has its own reference."""
    try:
        value = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError:  # needs PySpark, so it is not PySpark's
        return None
    home = getattr(value, "__module__", None)
    return (
        f"{home}.{value.__qualname__}"
        if isinstance(value, type) and not str(home).startswith("bowstring")
        else None
    )


def _inherited(module: str, name: str, members: list[str]) -> list[str]:
    """Return the base of a class that is another library's, and the members that come from there."""
    cls = getattr(importlib.import_module(module), name, None) if members else None
    for base in getattr(cls, "__mro__", ()):
        found = [each for each in members if each in vars(base)]
        if found and base.__module__.partition(".")[0] != "bowstring":
            return [f"{base.__module__}.{base.__qualname__}", *found]
    return []


def _overview(area: str, module: str) -> str:
    """Return a table of the classes and functions of a module, with the first paragraph about each."""
    rows = ["| | |", "|---|---|"]
    for kind, name, _ in entries(area):
        if kind in ("class", "def") and not _borrowed(module, name):
            text = inspect.getdoc(getattr(importlib.import_module(module), name)) or ""
            first = " ".join(ROLE.sub(r"`\1`", text.partition("\n\n")[0]).split()).removesuffix(":")
            rows.append(f"| [`{name}`](#{module}.{name}) | {first.replace('|', '&#124;')} |")
    return "\n".join(rows)


def _module_page(area: str, module: str) -> str:
    parts = [f"# {module}", _shown(module, [], show_root_heading="false", show_root_toc_entry="false")]
    parts.append(_overview(area, module))
    elsewhere, modules = [], []
    for kind, name, members in entries(area):
        if kind == "as":
            elsewhere.append(f"[`{name}`](bowstring.md#bowstring.{name})")
        elif kind == "module":
            modules.append(f"[`{name}`]({name}.md)")
        elif other := _borrowed(module, name):
            parts.append(f"## {name} {{#{module}.{name}}}\n\n`{other}`.")
        else:
            parts.append(_shown(f"{module}.{name}", members if kind == "class" else None))
            if inherited := _inherited(module, name, members):
                parts.append(f"Of `{inherited[0]}`: {', '.join(f'`{each}`' for each in inherited[1:])}.")
    if elsewhere:
        parts.insert(2, f"Also here: {', '.join(elsewhere)}.")
    if modules:
        parts.insert(2, f"Modules: {', '.join(modules)}. The errors are in [`errors`](errors.md), too.")
    return "\n\n".join(parts) + "\n"


def _torch_page() -> str:
    """Return the page of the one module that has no list: its class is one of PyTorch's, which need not be here."""
    module = "bowstring.torch"
    return "\n\n".join(
        [
            f"# {module}",
            _shown(module, [], show_root_heading="false", show_root_toc_entry="false"),
            _shown(f"{module}.IterableDataset", filters='["!^_"]', inherited_members="false"),
        ]
    )


def _errors_page() -> str:
    parts = ["# bowstring.errors", _shown("bowstring.errors", [], show_root_heading="false")]
    parts += [_shown(f"bowstring.errors.{name}", []) for name in errors()]
    return "\n\n".join(parts) + "\n"


def _command_line_page() -> str:
    """Return what each command prints for ``--help``."""
    text = (LISTS / "command_line.txt").read_text("utf-8")
    parts = ["# Command line"]
    for each in text.split("$ ")[1:]:
        call, _, help_text = each.partition("\n")
        parts.append(f"## {call.removesuffix(' --help')}\n\n```text\n{help_text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def public_names() -> set[str]:
    """Return the full names of what the reference shows: modules, their names, and members of classes."""
    found = {f"bowstring.errors.{name}" for name in errors()}
    for area, module in MODULES.items():
        for kind, name, members in entries(area):
            if kind not in ("as", "module"):
                found |= {f"{module}.{name}", *(f"{module}.{name}.{member}" for member in members)}
    return found | {"bowstring.torch.IterableDataset"}


def pages() -> dict[str, str]:
    """Return the text of each page of the reference, by its path below ``docs``."""
    texts = {area: _module_page(area, module) for area, module in MODULES.items()}
    texts |= {"torch": _torch_page(), "errors": _errors_page(), "command_line": _command_line_page()}
    return {f"reference/{name}.md": text for name, text in texts.items()}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages to those of ``docs``."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files
