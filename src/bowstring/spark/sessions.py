"""A Spark session with the settings that matter to a hand-over of Arrow batches, beside those of the user."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import itertools
import os
import re
import shlex
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

from bowstring.errors import BowstringError, MissingDependency, UsageError
from bowstring.spark.java import find_java, use_java

_PROPERTY: Final = re.compile(r"^[ \t\f]*(spark\.[^\s=:]+)[ \t\f]*[=:]?[ \t\f]*(.*?)\s*$", re.MULTILINE)
# Options of spark-submit that are settings.
_SETTINGS: Final = {
    "--master": "spark.master",
    "--name": "spark.app.name",
    "--driver-java-options": "spark.driver.extraJavaOptions",
}
_USUAL: Final = {"spark.app.name": "bowstring", "spark.master": "local[*]"}
_LOCAL: Final = re.compile(r"local(\[|-cluster\[|$)")
_STARTING: Final = threading.Lock()


def given_settings() -> dict[str, str]:
    """Return the settings of the Java that runs, else of ``spark-defaults.conf`` and ``PYSPARK_SUBMIT_ARGS``."""
    if _java_runs():
        pyspark: Any = importlib.import_module("pyspark")
        if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started Java, and this process
            pyspark.SparkContext._ensure_initialized()
        if pyspark.SparkContext._jvm is not None:
            return dict(pyspark.SparkConf().getAll())
    words: list[str] = []
    with contextlib.suppress(ValueError):  # Spark says what is wrong with it
        words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (os.path.join(home, "conf") if home else "")
    if not folder and (spark := importlib.util.find_spec("pyspark")) is not None:
        folder = os.path.join(os.path.dirname(spark.origin or ""), "conf")
    given, named, file = {}, {}, os.path.join(folder, "spark-defaults.conf")
    for option, value in itertools.pairwise(words):
        if option in ("-c", "--conf"):
            name, _, given[name] = value.partition("=")
        elif option == "--properties-file":
            file = value
        elif option in _SETTINGS:
            named[_SETTINGS[option]] = value
    with contextlib.suppress(OSError, UnicodeDecodeError), open(file, encoding="utf-8") as text:
        given = read_properties(text.read()) | given
    return given | named


def read_properties(text: str) -> dict[str, str]:
    """Return the settings in the text of a properties file of Spark's; what is escaped in values stays so."""
    return dict(_PROPERTY.findall(text))


def _java_runs() -> bool:
    """Whether this process has a Java machine already: its own, or that of the spark-submit that started it."""
    context = sys.modules.get("pyspark.core.context")
    started = context is not None and context.SparkContext._gateway is not None
    return started or "PYSPARK_GATEWAY_PORT" in os.environ


def session_config(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return settings for a session of Spark, without those that the user has set.

    Where there is no Java but that of the extra ``[spark]``, ``JAVA_HOME`` is set in this process, so that
    ``SparkSession.builder.config(map=bow.spark.session_config()).getOrCreate()`` finds it.

    ======================================= ========================================================================
    ``spark.executorEnv.UCX_ERROR_SIGNALS`` empty: UCX leaves Java's signals alone
    ``spark.pyspark.python``                this Python, where ``spark.master`` is local and ``PYSPARK_PYTHON`` is
                                            not set
    ``spark.python.daemon.module``          ``bowstring.spark.worker_daemon``, where workers are this Python: no
                                            traceback where Spark stops reading (``limit``)
    ``spark.ui.showConsoleProgress``        false, where it is local and there is no terminal
    ======================================= ========================================================================

    None concerns your queries. How many rows Spark puts into an Arrow batch, :func:`publish` chooses for each
    publication.

    Parameters
    ----------
    given
        Settings of the user's; those of ``spark-defaults.conf``, of ``PYSPARK_SUBMIT_ARGS`` and of a Java machine
        that runs already count, too.

    Examples
    --------
    >>> session_config({"spark.master": "yarn"})
    {'spark.executorEnv.UCX_ERROR_SIGNALS': ''}
    >>> "spark.pyspark.python" in session_config({"spark.pyspark.python": "/opt/python"})
    False
    """
    if not (os.environ.get("JAVA_HOME") or shutil.which("java") or _java_runs()):
        with contextlib.suppress(BowstringError):  # Spark says that there is none
            use_java()
    return _config({**given_settings(), **(given or {})}, "python3")


def _config(known: Mapping[str, str], python: str) -> dict[str, str]:
    """Return the settings that are ours; `python` is what workers run where nothing says it."""
    # UCX would take the signals that Java uses itself.
    chosen = {} if "UCX_ERROR_SIGNALS" in os.environ else {"spark.executorEnv.UCX_ERROR_SIGNALS": ""}
    if _LOCAL.match(known.get("spark.master", "local[*]")):
        named = os.environ.get("PYSPARK_PYTHON")
        if not named:
            chosen["spark.pyspark.python"] = sys.executable
        # Whether workers run this Python, environment and all; an environment has its interpreter by two names.
        folder, name = os.path.split(sys.executable)
        twin = os.path.join(folder, "python" if name == "python3" else "python3")
        runs = os.path.abspath(shutil.which(named or python) or os.devnull)
        ours = runs in (sys.executable, twin)
        if ours and known.get("spark.pyspark.python", sys.executable) == sys.executable:
            chosen["spark.python.daemon.module"] = "bowstring.spark.worker_daemon"
        if not sys.stderr.isatty():
            chosen["spark.ui.showConsoleProgress"] = "false"
    return {name: value for name, value in chosen.items() if name not in known}


def session(
    app_name: str | None = None, master: str | None = None, config: Mapping[str, str] | None = None
) -> Any:
    """Return a session of Spark in this process, with the settings of :func:`session_config`.

    Java is found, or that of the extra ``[spark]`` is taken. What the user has set is never overridden: `config`
    wins over the environment and ``spark-defaults.conf``, and those over ours. A session that is there already
    is returned, with what `config` asks of it.

    Parameters
    ----------
    app_name, master
        By default what the settings say, else ``bowstring`` on ``local[*]``.
    config
        More settings of the user's.

    Returns
    -------
    pyspark.sql.SparkSession

    Raises
    ------
    MissingDependency
        The extra ``[spark]`` is not installed, or there is no Java.
    UsageError
        ``JAVA_HOME`` names a Java that Spark cannot use, or ``SPARK_REMOTE`` asks for a session elsewhere.

    Examples
    --------
    >>> import bowstring as bow
    >>> spark = bow.spark.session(config={"spark.ui.enabled": "false"})  # doctest: +SKIP
    >>> spark.range(3).count()  # doctest: +SKIP
    3
    """
    classes = pyspark_sql().SparkSession
    given = {"spark.app.name": app_name, "spark.master": master, **(config or {})}
    asked = {name: str(value) for name, value in given.items() if value is not None}
    with _STARTING:
        existing = classes.getActiveSession()
        if existing is None:  # though one may have been made in another thread
            other = getattr(classes, "_instantiatedSession", None)
            context = getattr(other, "_sc", None)
            existing = other if context is not None and context._jsc is not None else None
        if existing is not None:
            for name, value in asked.items():
                known = existing.conf.get(name, None)
                if known != value and not existing.conf.isModifiable(name):
                    raise UsageError(
                        "the session is there already, and this setting is made when one starts",
                        expected=value,
                        found=known,
                        where=name,
                        hint="Stop that session first.",
                    )
                if known != value:
                    existing.conf.set(name, value)
            return existing
        if os.environ.get("SPARK_REMOTE") or "spark.remote" in asked:
            raise UsageError(
                "this session would be elsewhere",
                found="SPARK_REMOTE",
                hint="Use SparkSession.builder.remote(…).",
            )
        config = {**_USUAL, **given_settings(), **asked}
        ours = _config(config, sys.executable)
        with _environment(config | ours):
            builder = classes.builder
            # Those of files Spark reads itself.
            for name, value in {**{name: config[name] for name in _USUAL}, **ours, **asked}.items():
                builder = builder.config(name, value)
            return builder.getOrCreate()


@contextlib.contextmanager
def _environment(config: Mapping[str, str]) -> Iterator[None]:
    """What Spark reads of this process's environment while it starts; put back afterwards."""
    java = None if _java_runs() else find_java(config.get("spark.driver.extraJavaOptions", "")).home
    chosen = {} if java is None else {"JAVA_HOME": java}
    if "spark.pyspark.python" in config:  # which PySpark reads when it is started by spark-submit only
        chosen["PYSPARK_PYTHON"] = config["spark.pyspark.python"]
    addressed = {"spark.driver.host", "spark.driver.bindAddress"} & config.keys()
    if _LOCAL.match(config["spark.master"]) and not addressed and not os.environ.get("SPARK_LOCAL_IP"):
        chosen["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = {name: os.environ[name] for name in chosen if name in os.environ}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name in chosen:
            del os.environ[name]
        os.environ.update(before)


def pyspark_sql() -> Any:
    """Return the module ``pyspark.sql``, or say which extra brings it."""
    try:
        importlib.import_module("pandas")
        return importlib.import_module("pyspark.sql")
    except ImportError as error:
        raise MissingDependency(
            "Spark is not installed", found=str(error), hint="pip install 'bowstring[spark]'"
        ) from error
