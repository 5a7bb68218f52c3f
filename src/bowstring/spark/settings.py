"""What a user has set for Spark already: in its defaults file, on a command line, in the environment."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["chooses_collector", "given_settings", "java_runs", "read_properties"]

_JAVA_OPTIONS: Final = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
# Or a file of options, in which one may stand.
_COLLECTOR: Final = re.compile(r"-XX:[+-]Use\w*GC\b|-XX:(Flags|VMOptionsFile)=|(^|\s)@")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SHORT: Final = {
    "--master": "spark.master",
    "--name": "spark.app.name",
    "--driver-java-options": "spark.driver.extraJavaOptions",
}


def given_settings() -> dict[str, str]:
    """Return the settings that hold for a session started now, those of the running Java machine first.

    Before one runs they are read where Spark would: ``conf/spark-defaults.conf`` of ``SPARK_CONF_DIR`` or
    ``SPARK_HOME``, and ``PYSPARK_SUBMIT_ARGS``.
    """
    running = _of_java()
    if running is not None:
        return running
    found: dict[str, str] = {}
    arguments = _arguments(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for path in arguments.get("--properties-file") or _defaults_files():
        found.update(_file(path))
    for pair in arguments.get("--conf", []):
        name, _, value = pair.partition("=")
        found[name] = value
    for option, name in _SHORT.items():
        for value in arguments.get(option, []):
            found[name] = value
    return found


def read_properties(text: str) -> dict[str, str]:
    r"""Return the settings in the text of a Java properties file.

    Examples
    --------
    >>> read_properties("# a\nspark.master  local[2]\nspark.a=b c\\\n  d\nspark.e : f\n")
    {'spark.master': 'local[2]', 'spark.a': 'b cd', 'spark.e': 'f'}
    """
    found = {}
    lines = iter(text.splitlines())
    for line in lines:
        whole = line.lstrip(" \t\f")
        if not whole or whole[0] in "#!":
            continue
        while (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1] + next(lines, "").lstrip(" \t\f")
        name, value = re.fullmatch(
            r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", whole, re.DOTALL
        ).groups()  # type: ignore[union-attr]
        found[_plain(name)] = _plain(value).strip()
    return found


def _plain(text: str) -> str:
    def unescaped(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", unescaped, text)


def _file(path: str) -> Mapping[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            return {
                name: value
                for name, value in read_properties(file.read()).items()
                if name.startswith("spark.")
            }
    except (OSError, UnicodeDecodeError):
        return {}  # Spark says what is wrong with it


def _defaults_files() -> list[str]:
    folder = os.environ.get("SPARK_CONF_DIR")
    if not folder:
        home = os.environ.get("SPARK_HOME")
        if not home:
            found = importlib.util.find_spec("pyspark")
            places = (found.submodule_search_locations if found else None) or []
            if not places:
                return []
            home = places[0]
        folder = os.path.join(home, "conf")
    return [os.path.join(folder, "spark-defaults.conf")]


def _arguments(text: str) -> dict[str, list[str]]:
    """Return the values of the options of spark-submit that carry settings."""
    try:
        words = shlex.split(text)
    except ValueError:
        return {}  # Spark says what is wrong with it
    names = {"-c": "--conf", **{name: name for name in ("--conf", "--properties-file", *_SHORT)}}
    found: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in names:
            found.setdefault(names[name], []).append(value if equals else next(rest, ""))
    return found


def chooses_collector(settings: Mapping[str, str]) -> bool:
    """Whether the user may have chosen the garbage collector of the driver's Java: it does not start with two.

    Examples
    --------
    >>> chooses_collector({"spark.driver.extraJavaOptions": "-Xss4m -XX:+UseZGC"})
    True
    """
    given = [settings.get(f"spark.driver.{name}JavaOptions", "") for name in ("default", "extra")]
    given += [os.environ.get(name, "") for name in _JAVA_OPTIONS]
    files = (os.path.join(os.path.dirname(path), "java-opts") for path in _defaults_files())
    return any(map(_COLLECTOR.search, given)) or any(map(os.path.exists, files))


def java_runs() -> bool:
    """Whether this process has a Java machine already: its own, or that of the spark-submit that started it."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return True
    context = sys.modules.get("pyspark.core.context")
    return context is not None and context.SparkContext._gateway is not None


def _of_java() -> dict[str, str] | None:
    """Return the settings of the Java machine of this process, None where none was started."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ and "pyspark.core.context" not in sys.modules:
        return None
    context: Any = importlib.import_module("pyspark").SparkContext
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started it, and this process
        context._ensure_initialized()
    if context._jvm is None:
        return None
    return dict(importlib.import_module("pyspark").SparkConf().getAll())
