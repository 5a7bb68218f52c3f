"""Why tasks could not publish, in words for the user: what their Python lacks, and what their cluster forbids."""

from __future__ import annotations

import re
from typing import Final

from bowstring.errors import BowstringError, MissingDependency, Unsupported

_NO_DEPOT: Final = "a task could neither find nor start a depot on its host"
_OURS: Final = "bowstring.errors."
_MOST: Final = 500
_NO_MODULE: Final = re.compile(r"No module named '(bowstring|pyarrow|numpy|pandas)\b[\w.]*'")
_INSTEAD: Final = (
    "Clusters that several users share may forbid tasks to start processes, or end them with the query: use a "
    "cluster of your own, let `bowstring depot run` be started on each host outside of tasks (an init script), or "
    "take the rows with df.toArrow()."
)


def reason(error: BaseException | None) -> str:
    """Return what was wrong with a job: the last error of ours that its message holds, or its beginning."""
    text = "nothing" if error is None else str(error).strip()
    ours = [line.strip() for line in text.splitlines() if line.strip().startswith(_OURS)]
    return (ours[-1].removeprefix(_OURS) if ours else text)[:_MOST]


def lacking(error: BaseException) -> MissingDependency | None:
    """Return the error for tasks whose Python has not what publishing takes; ``None`` for any other error."""
    module = _NO_MODULE.search(str(error))
    if module is None:
        return None
    return MissingDependency(
        f"the Python of Spark's workers has no {module[1]}",
        expected="the same packages as in the driver, on every executor",
        found=module[0],
        hint="Where tasks run on this host, set PYSPARK_PYTHON to this program's Python before the session starts "
        "(or use bow.spark.session()); on a cluster, install bowstring on every executor, or ship an environment "
        "with --archives (venv-pack), or with spark.addArtifacts on a server of Spark Connect.",
    )


def no_depot(error: BaseException) -> Unsupported:
    """Return what a task raises where it can start no depot."""
    return Unsupported(_NO_DEPOT, found=str(error)[:300], hint=_INSTEAD)


def forbidden(error: BaseException) -> BowstringError | None:
    """Return the error for tasks that could start no depot; ``None`` for any other error."""
    told = reason(error)
    if _NO_DEPOT not in told:
        return None
    why = told.partition("; found ")[2].partition(_INSTEAD[:20])[0].strip(" .;")
    return Unsupported(
        "this cluster does not let tasks keep data in shared memory",
        expected="a depot, a process of Bowstring, on the host of each executor",
        found=why or told,
        hint=_INSTEAD,
    )
