"""What users can see of Bowstring, as readable text: one text for each area, kept in ``tests/data/public``.

``python -m pytest tests/public --update-public`` writes the texts anew. Signatures are given as they are written in
the source, so that the texts are the same on every Python that Bowstring runs on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import io
import os
import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock
from urllib.parse import parse_qsl

import pyarrow as pa

import bowstring as bow
from bowstring.cli import main
from tests.public.signatures import class_lines, field_lines, property_lines, signature, value_text

__all__ = ["AREAS", "MODULES", "environment_variables"]

ROOT = Path(__file__).parents[2]

MODULES: Final = {
    "bowstring": "bowstring",
    "depot": "bowstring.depot",
    "flight": "bowstring.flight",
    "geo": "bowstring.geo",
    "ipc": "bowstring.ipc",
    "memory": "bowstring.memory",
    "parquet": "bowstring.parquet",
    "vortex": "bowstring.vortex",
    "spark": "bowstring.spark",
    "testing": "bowstring.testing",
    "transport": "bowstring.transport",
    "variant": "bowstring.variant",
}
"""The modules whose ``__all__`` is public. ``bowstring.errors`` has a text of its own."""

# Of the memory layer users need pools, devices and their statistics; the rest is there for other modules.
_MEMORY: Final = frozenset(
    {
        "Pool",
        "PoolStatistics",
        "MappingStatistics",
        "cpu",
        "default_budget",
        "default_pool",
        "device_by_id",
        "device_by_name",
        "kept_for_good",
        "mappings",
        "wrap",
    }
)
_COLUMNS: Final = 100


@functools.cache
def _public_classes() -> frozenset[type]:
    found: set[type] = set()
    for module in (*MODULES.values(), "bowstring.errors"):
        loaded = importlib.import_module(module)
        for name in loaded.__all__:
            value = _named(loaded, name)
            if isinstance(value, type):
                found.add(value)
    return frozenset(found)


def _named(module: types.ModuleType, name: str) -> Any:
    """Return a public name; or nothing where it needs PySpark, which is not everywhere."""
    try:
        return getattr(module, name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("bowstring"):
            raise
        return None


def _thing(name: str, value: Any) -> list[str]:
    if isinstance(value, types.ModuleType):
        return [f"module {name}"]
    if isinstance(value, type) and name != value.__name__ and value in _public_classes():
        return [f"{name} = {value.__name__}"]
    if isinstance(value, type):
        return class_lines(name, value, _public_classes())
    if inspect.isroutine(value):
        return [f"def {name}{signature(value)}"]
    kind = type(value).__name__
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        return [f"{name}: {kind} = {sorted(map(value_text, value))}"]
    return [f"{name}: {'a type' if kind.startswith('_') else kind}"]


def _module(module: str) -> str:
    loaded = importlib.import_module(module)
    errors = set(importlib.import_module("bowstring.errors").__all__) if module == "bowstring" else set()
    lines: list[str] = []
    others: list[str] = []
    for name in sorted(loaded.__all__):
        value = _named(loaded, name)
        if name in errors:
            continue
        if module != "bowstring" and name in bow.__all__ and value is getattr(bow, name):
            lines += [f"{name}: as bowstring.{name}", ""]
        elif module == "bowstring.memory" and name not in _MEMORY:
            others.append(name)
        else:
            lines += [*_thing(name, value), ""]
    if others:
        lines += ["For other modules of Bowstring:", *(f"    {name}" for name in others), ""]
    return "\n".join(lines)


def _errors() -> str:
    """Return each error with its bases, indented below the first of them."""
    tree = importlib.import_module("bowstring.errors")
    found = [getattr(tree, name) for name in tree.__all__]
    lines: list[str] = []

    def show(error: type, depth: int) -> None:
        others = [each.__name__ for each in error.__bases__[1:]]
        lines.append("    " * depth + error.__name__ + (f" (also {', '.join(others)})" if others else ""))
        for each in sorted(found, key=lambda each: str(each.__name__)):
            if each.__bases__[0] is error:
                show(each, depth + 1)

    show(bow.BowstringError, 0)
    assert len(lines) == len(found), "an error stands outside of the tree"
    return "\n".join([*lines, "", f"BowstringError{signature(bow.BowstringError)}", ""])


def _help(*arguments: str) -> str:
    printed = io.StringIO()
    environment = {"COLUMNS": str(_COLUMNS), "NO_COLOR": "1"}
    with mock.patch.dict(os.environ, environment), contextlib.redirect_stdout(printed):
        assert main([*arguments, "--help"]) == 0
    return printed.getvalue()


def _command_line() -> str:
    """Return the ``--help`` of the program and of each of its commands."""
    top = _help()
    commands = sorted(set(re.findall(r"^    ([a-z]+) ", top, re.MULTILINE)))
    assert "fetch" in commands
    texts = [("bowstring --help", top)]
    texts += [(f"bowstring {command} --help", _help(command)) for command in commands]
    return "\n".join(f"$ {call}\n{text}" for call, text in texts)


def environment_variables() -> list[str]:
    """Return the environment variables of Bowstring's own that its source names."""
    found: set[str] = set()
    for folder in ("src/bowstring", "kernels"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= set(re.findall(r"\bBOWSTRING_[A-Z][A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8")))
    return sorted(found)


def _environment() -> str:
    return "\n".join([*environment_variables(), ""])


def _urifield_lines(uri: str) -> str:
    address, _, query = uri.partition("?")
    scheme = address.partition(":")[0]
    return f"{scheme}: {' '.join(name for name, _ in parse_qsl(query))}"


def _uris() -> str:
    """Return the fields of the URIs that servers print, and of an endpoint that has everything."""
    lines = []
    for address, options in (
        ("unix:", {}),
        ("inproc:", {}),
        ("tcp://127.0.0.1:0", {}),
        ("tcp://127.0.0.1:0", {"separate": True}),
    ):
        with bow.Server(address) as server:
            endpoint = server.publish("t", pa.table({"n": [1]}), **options)  # type: ignore[arg-type]
            lines.append(_urifield_lines(str(endpoint)))
    with bow.Server("tcp://127.0.0.1:0", token="secret-of-32-characters-or-more-") as server:
        lines.append(_urifield_lines(str(server.publish("t", pa.table({"n": [1]})))))
    everything = bow.Endpoint(
        "unix:/a?want_data=1", b"t", "unix:/b?want_data=2", "tcp://c:1?want_data=3", "d"
    )
    lines.append(_urifield_lines(str(everything)))
    return "\n".join([*lines, ""])


def _spark_options() -> str:
    """Return the options of ``format("bowstring")``, as the sources of the reader and of the writer name them."""

    def named(file: str, variable: str) -> list[str]:
        source = (ROOT / "src/bowstring/spark" / file).read_text(encoding="utf-8")
        found = re.search(rf"{variable}: Final = \((.*?)\)", source, re.DOTALL)
        assert found is not None
        return re.findall(r'"([a-z_]+)"', found[1])

    known = sorted([*named("options.py", "_SOURCES"), *named("options.py", "_OTHERS")])
    written = sorted(named("writer.py", "_OPTIONS"))
    return "\n".join(
        ["read:", *(f"    {name}" for name in known), "write:", *(f"    {name}" for name in written), ""]
    )


def _statistics() -> str:
    """Return the fields of what streams, servers, pools, mappings, readers and depots say of themselves."""
    table = pa.table({"n": [1, 2, 3]})
    written = io.BytesIO()
    with bow.ipc.new_stream(written, table.schema) as writer:
        writer.write_table(table)
    reader = bow.ipc.open_stream(written.getvalue())
    with bow.Server("inproc:") as server:
        endpoint = server.publish("t", table)
        dataset = bow.Dataset((endpoint,), table.schema)
        with bow.connect(endpoint) as stream, bow.connect(dataset) as streams:
            found = {
                "connect(endpoint).stats": stream.stats,
                "connect(dataset).stats": streams.stats,
                "Server.stats": server.stats,
                "Pool.stats": server.pool.stats,
                "ipc.open_stream(…).stats": reader.stats,
                "ipc.new_stream(…).stats": writer.stats,
                "memory.mappings().stats": bow.memory.mappings().stats,
            }
    lines: list[str] = []
    for name, value in found.items():
        lines += [
            f"{name}: {type(value).__name__}",
            *(f"    {each}" for each in _attributes(type(value))),
            "",
        ]
    for cls in (bow.depot.DepotStatus, bow.depot.DataSetStatus):
        lines += [f"depot.{cls.__name__}", *(f"    {each}" for each in _attributes(cls)), ""]
    return "\n".join(lines)


def _attributes(cls: type) -> list[str]:
    if dataclasses.is_dataclass(cls):
        return [*field_lines(cls), *property_lines(cls)]
    return [
        name for name in sorted(dir(cls)) if not name.startswith("_") and not callable(getattr(cls, name))
    ]


def _handed_out() -> str:
    """Return the classes that users get from calls without a public name of their own."""
    table = pa.table({"n": [1, 2, 3]})
    with bow.Server("inproc:") as server:
        endpoint = server.publish("t", table)
        dataset = bow.Dataset((endpoint,), table.schema)
        with bow.connect(endpoint) as stream, bow.connect(dataset) as streams:
            classes = {"connect(endpoint)": type(stream), "connect(dataset)": type(streams)}
    lines: list[str] = []
    for name, cls in classes.items():
        # Its own name is nobody's business.
        lines += [name, *class_lines(cls.__name__, cls, _public_classes(), made_by_users=False)[1:], ""]
    return "\n".join(lines)


AREAS: Final[dict[str, Callable[[], str]]] = {
    **{name: functools.partial(_module, module) for name, module in MODULES.items()},
    "command_line": _command_line,
    "environment": _environment,
    "errors": _errors,
    "handed_out": _handed_out,
    "spark_options": _spark_options,
    "statistics": _statistics,
    "uris": _uris,
}
"""How the text of each area is made."""
