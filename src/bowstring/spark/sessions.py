"""A Spark session with the settings that matter to a hand-over of Arrow batches, beside those of the user."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from bowstring.errors import BowstringError, MissingDependency, UsageError, warn_caller
from bowstring.spark.java import find_java, use_java

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PAIR: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_CONF: Final = ("-c", "--conf")
_FILE: Final = "--properties-file"
# Options of spark-submit that are settings.
_SETTINGS: Final = {
    "--master": "spark.master",
    "--name": "spark.app.name",
    "--driver-java-options": "spark.driver.extraJavaOptions",
}


def given_settings() -> dict[str, str]:
    """Return the settings that hold for a session started now: of the Java that runs, else where Spark reads them.

    That is ``spark-defaults.conf`` of ``SPARK_CONF_DIR`` or ``SPARK_HOME``, and ``PYSPARK_SUBMIT_ARGS``.
    """
    if java_runs():
        pyspark: Any = importlib.import_module("pyspark")
        if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started Java, and this process
            pyspark.SparkContext._ensure_initialized()
        if pyspark.SparkContext._jvm is not None:
            return dict(pyspark.SparkConf().getAll())
    files, pairs, named = [], [], []
    with contextlib.suppress(ValueError):  # Spark says what is wrong with it
        words = iter(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))
        for word in words:
            option, equals, value = word.partition("=")
            if option not in (*_CONF, _FILE, *_SETTINGS):
                continue
            value = value if equals else next(words, "")
            if option == _FILE:
                files.append(value)
            elif option in _CONF:
                pairs.append((value.partition("=")[0], value.partition("=")[2]))
            else:
                named.append((_SETTINGS[option], value))
    settings: dict[str, str] = {}
    for path in files or _defaults_files():
        with contextlib.suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
            settings |= read_properties(file.read())
    return {name: value for name, value in settings.items() if name.startswith("spark.")} | dict(
        pairs + named
    )


def read_properties(text: str) -> dict[str, str]:
    """Return the settings in the text of a Java properties file."""
    settings = {}
    lines = iter(text.splitlines())
    for line in lines:
        whole = line.lstrip(" \t\f")
        if not whole or whole[0] in "#!":
            continue
        while (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1] + next(lines, "").lstrip(" \t\f")
        name, value = _PAIR.fullmatch(whole).groups()  # type: ignore[union-attr]  # it matches any text
        settings[_unescaped(name)] = _unescaped(value).strip()
    return settings


def _unescaped(text: str) -> str:
    def letter(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", letter, text)


def _defaults_files() -> list[str]:
    folder = os.environ.get("SPARK_CONF_DIR")
    if folder:
        return [os.path.join(folder, "spark-defaults.conf")]
    pyspark = importlib.util.find_spec("pyspark")
    homes = [os.environ.get("SPARK_HOME"), *((pyspark and pyspark.submodule_search_locations) or ())]
    return [os.path.join(home, "conf", "spark-defaults.conf") for home in homes if home][:1]


def java_runs() -> bool:
    """Whether this process has a Java machine already: its own, or that of the spark-submit that started it."""
    context = sys.modules.get("pyspark.core.context")
    started = context is not None and context.SparkContext._gateway is not None
    return started or "PYSPARK_GATEWAY_PORT" in os.environ


_LOCAL: Final = re.compile(r"local(\[|-cluster\[|$)")
_STARTING: Final = threading.Lock()
# UCX would take the signals that Java uses itself.
_NO_SIGNALS: Final = "spark.executorEnv.UCX_ERROR_SIGNALS"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_DAEMON: Final = "bowstring.spark.worker_daemon"
MEMORY_LIMIT: Final = "spark.executor.pyspark.memory"
_GPUS: Final = ("spark.executor.resource.gpu.amount", "spark.task.resource.gpu.amount")
_warned: Final[set[str]] = set()


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

    Warns
    -----
    RuntimeWarning
        ``spark.executor.pyspark.memory`` is set beside GPUs (once).

    Examples
    --------
    >>> session_config({"spark.master": "yarn"})
    {'spark.executorEnv.UCX_ERROR_SIGNALS': ''}
    >>> "spark.pyspark.python" in session_config({"spark.pyspark.python": "/opt/python"})
    False
    """
    if not (os.environ.get("JAVA_HOME") or shutil.which("java") or java_runs()):
        with contextlib.suppress(BowstringError):  # Spark says that there is none
            use_java()
    return _config({**given_settings(), **(given or {})})


def _config(known: Mapping[str, str], *, this_python: bool = False) -> dict[str, str]:
    """Return the settings that are ours; `this_python` says that workers will be this Python in any case."""
    chosen = {} if "UCX_ERROR_SIGNALS" in os.environ else {_NO_SIGNALS: ""}
    if _LOCAL.match(known.get("spark.master", "local[*]")):
        named = os.environ.get("PYSPARK_PYTHON")
        if not named:
            chosen["spark.pyspark.python"] = sys.executable
        if known.get("spark.pyspark.python", sys.executable) == sys.executable and (
            this_python or _is_this_python(named or "python3")
        ):
            chosen["spark.python.daemon.module"] = _DAEMON
        if not sys.stderr.isatty():
            chosen["spark.ui.showConsoleProgress"] = "false"
    warn_of_memory_limit(known.get)
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
    sql = pyspark_sql()
    named = {"spark.app.name": app_name, "spark.master": master}
    asked = {name: value for name, value in named.items() if value is not None}
    asked |= {name: str(value) for name, value in (config or {}).items()}
    with _STARTING:
        existing = sql.SparkSession.getActiveSession() or _default_session(sql)
        if existing is not None:
            return _completed(existing, asked)
        if os.environ.get("SPARK_REMOTE") or "spark.remote" in asked:
            raise UsageError(
                "this session would be elsewhere",
                found="SPARK_REMOTE",
                hint="Use SparkSession.builder.remote(…).",
            )
        known = {"spark.app.name": "bowstring", "spark.master": "local[*]", **given_settings(), **asked}
        ours = not os.environ.get("PYSPARK_PYTHON")
        chosen = _config(known, this_python=ours) | known
        with _environment(chosen):
            builder = sql.SparkSession.builder
            for name, value in chosen.items():
                builder = builder.config(name, value)
            return builder.getOrCreate()


def _completed(existing: Any, asked: Mapping[str, str]) -> Any:
    for name, value in asked.items():
        known = existing.conf.get(name, None)
        if known == value:
            continue
        if not existing.conf.isModifiable(name):
            raise UsageError(
                "the session is there already, and this setting is made when one starts",
                expected=value,
                found=known,
                where=name,
                hint="Stop that session first.",
            )
        existing.conf.set(name, value)
    return existing


@contextlib.contextmanager
def _environment(config: Mapping[str, str]) -> Iterator[None]:
    """What Spark reads of this process's environment while it starts; put back afterwards."""
    made: dict[str, str] = {}
    if not java_runs():
        java = find_java(config.get(_JAVA_OPTIONS, ""))
        if java.home is not None:
            made["JAVA_HOME"] = java.home
    if "spark.pyspark.python" in config:  # which PySpark reads when it is started by spark-submit only
        made["PYSPARK_PYTHON"] = config["spark.pyspark.python"]
    addressed = {"spark.driver.host", "spark.driver.bindAddress"} & config.keys()
    if _LOCAL.match(config["spark.master"]) and not addressed and not os.environ.get("SPARK_LOCAL_IP"):
        made["SPARK_LOCAL_IP"] = "127.0.0.1"
    if config.get(_NO_SIGNALS) == "":
        made["UCX_ERROR_SIGNALS"] = os.environ.get("UCX_ERROR_SIGNALS", "")
    before = {name: os.environ[name] for name in made if name in os.environ}
    os.environ.update(made)
    try:
        yield
    finally:
        for name in made:
            os.environ.pop(name, None)
        os.environ.update(before)


def warn_of_memory_limit(setting: Callable[[str], str | None], *, gpus: bool = False) -> None:
    """Warn, once, of a bound on the address space of Python workers that use GPUs."""
    # One setting after the other: to ask Java for all of them takes longer than all else that publishing asks it.
    if setting(MEMORY_LIMIT) is None or MEMORY_LIMIT in _warned:
        return
    if gpus or any(setting(name) is not None for name in _GPUS):
        _warned.add(MEMORY_LIMIT)
        text = (
            f"{MEMORY_LIMIT} bounds the address space of Python workers, and CUDA reserves more of it than "
            f"there is memory: leave it unset where workers use GPUs."
        )
        warn_caller([text], RuntimeWarning)


def _is_this_python(command: str) -> bool:
    """Whether a command is the Python of this process, environment and all."""
    # An environment has its interpreter by two names.
    folder, name = os.path.split(sys.executable)
    other = os.path.join(folder, "python" if name == "python3" else "python3")
    path = shutil.which(command)
    return path is not None and os.path.abspath(path) in (sys.executable, other)


def pyspark_sql() -> Any:
    """Return the module ``pyspark.sql``, or say which extra brings it."""
    try:
        importlib.import_module("pandas")
        return importlib.import_module("pyspark.sql")
    except ImportError as error:
        raise MissingDependency(
            "Spark is not installed", found=str(error), hint="pip install 'bowstring[spark]'"
        ) from error


def _default_session(sql: Any) -> Any:
    """Return the session of this process though it was made in another thread; None where there is none."""
    made = getattr(sql.SparkSession, "_instantiatedSession", None)
    context = getattr(made, "_sc", None)
    return made if context is not None and context._jsc is not None else None
