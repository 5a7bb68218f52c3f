"""What the tests of Spark share: an environment of their own, and Javas that are scripts."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

JavaMaker = Callable[..., Path]

_FAKE = """\
#!/bin/sh
for a; do
  [ "$a" = --add-modules=jdk.incubator.vector ] && [ {vectors} = no ] && exit 1
done
echo 'Picked up JAVA_TOOL_OPTIONS: -Dx' >&2
echo 'openjdk version "{version}" 2026-01-01' >&2
echo "$@" >> "${{0%/*}}/../log"
"""


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Give a test an environment without Java, without settings, and with a cache of its own."""
    empty = tmp_path / "empty"
    empty.mkdir()
    for name in (
        "JAVA_HOME", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_HOME", "SPARK_REMOTE",
        "PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON", "SPARK_LOCAL_IP", "UCX_ERROR_SIGNALS", "PYSPARK_GATEWAY_PORT",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setenv("SPARK_CONF_DIR", str(empty))
    monkeypatch.setenv("BOWSTRING_CACHE_DIR", str(tmp_path / "cache"))
    return monkeypatch


@pytest.fixture
def fake_java(tmp_path: Path) -> JavaMaker:
    """Return a function that makes a ``JAVA_HOME`` whose java says that it has a version."""

    def make(version: str, *, vectors: bool = True, name: str = "java home") -> Path:
        home = tmp_path / name
        java = home / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(_FAKE.format(version=version, vectors="yes" if vectors else "no"))
        java.chmod(java.stat().st_mode | stat.S_IXUSR)
        return home

    return make
