"""Tasks that wait for room in a depot: the driver says at once what holds the memory, and names it in the error."""

from __future__ import annotations

import collections
import contextlib
import logging
import re
import sys
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from bowstring.cli.terminal import size
from bowstring.depot.launch import connect
from bowstring.depot.slab_pool import LIMITED, REFUSED
from bowstring.errors import BowstringError, OutOfBudget
from bowstring.locks import Event
from bowstring.spark.progress import Progress
from bowstring.spark.refusals import reason
from bowstring.transport.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bowstring.depot.client import Depot
    from bowstring.depot.options import DepotStatus
    from bowstring.spark.application_lease import Application
    from bowstring.spark.driver import Driver
    from bowstring.spark.task import Order

_LOG: Final = logging.getLogger("bowstring.spark")
_LOOK: Final = 0.3
_SHOWN: Final = 5
_ASK_SECONDS: Final = 30.0
_REFUSED: Final = re.compile(rf"{re.escape(REFUSED)}[^\n]*")
# Beyond it a new data set may well have to wait, and the job says what is held.
_NEARLY_FULL: Final = 0.5


def label(dataset: str) -> str:
    """Return what the user calls a data set of the depot."""
    name, mark, _ = dataset.partition("#")
    if not mark:
        return repr(dataset)
    return repr(unquote(name)) if name else "one without a name"


def _holders(status: DepotStatus, but: str) -> list[tuple[str, int]]:
    """Return which data sets hold memory, the largest first: what the user calls each, and how many bytes."""
    sizes: collections.Counter[str] = collections.Counter()
    for each in status.datasets:
        if each.name != but and each.held:
            sizes[label(each.name)] += each.held
    return sizes.most_common()


def _listed(holders: list[tuple[str, int]]) -> str:
    more = ", …" if len(holders) > _SHOWN else ""
    return ", ".join(f"{name} {size(nbytes)}" for name, nbytes in holders[:_SHOWN]) + more


def _room(status: DepotStatus) -> str:
    used, budget = status.memory_in_use + status.memory_lost, status.memory_budget
    disk = (
        f" and {size(status.disk_in_use)} of {size(status.disk_budget)} of disk" if status.disk_budget else ""
    )
    return f"{size(used)} of {size(budget)} of memory{disk}"


def _warn(text: str) -> None:
    """Log a warning; where logging shows it nowhere, as in most notebooks, write it on stderr."""
    _LOG.warning(text)
    logger: logging.Logger | None = _LOG
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return
        logger = logger.parent if logger.propagate else None
    sys.stderr.write(f"bowstring: {text}\n")
    sys.stderr.flush()


def _here(ends: contextlib.ExitStack) -> list[Depot]:
    """Return the depot of this host, which `ends` closes; none where none runs."""
    with contextlib.suppress(BowstringError):
        return [ends.enter_context(connect(start=False))]
    return []


def _statuses(depots: list[Depot]) -> list[DepotStatus]:
    """Return what depots say of themselves that can be asked, each once."""
    statuses = []
    for depot in {each.addresses[0]: each for each in depots}.values():
        with contextlib.suppress(BowstringError):
            statuses.append(depot.status())
    return statuses


@contextlib.contextmanager
def watched(
    driver: Driver,
    order: Order,
    application: Application,
    name: str | None,
    report: Callable[[Progress], object] | None = None,
) -> Iterator[None]:
    """Watch a job that publishes, in a ``with`` block.

    Its description says what a full depot holds. A thread warns when tasks begin to wait for room, and reports how
    far the job is.
    """
    begun, over = time.monotonic(), Event()
    count: Callable[[], tuple[int, int]]
    here: list[Depot] = []

    def tell() -> list[DepotStatus]:
        """Report how far the job is; return what the depots say where its tasks wait for room."""
        nonlocal here, report
        here = here or _here(ends)  # tasks may have started it meanwhile
        statuses = _statuses([*here, *application.depots])
        mine = [each for status in statuses for each in status.datasets if each.name == order.dataset]
        if report is not None:
            rows, nbytes = sum(each.num_rows for each in mine), sum(each.nbytes for each in mine)
            try:
                report(Progress(name, *count(), rows, nbytes, time.monotonic() - begun))
            except Exception:  # noqa: BLE001  a callback's, or of Spark that has stopped: the job's result counts
                _LOG.exception("the progress of a publication is not reported any more")
                report = None
        return [
            one
            for one in statuses
            if any(each.name == order.dataset and each.waiting for each in one.datasets)
        ]

    def watch() -> None:
        warned = False
        while not over.wait(_LOOK):
            for status in tell()[: not warned]:
                warned = True
                holders = _listed(_holders(status, order.dataset)) or "attempts that go on"
                _warn(
                    f"publishing {label(order.dataset)} waits for room in the depot, for at most {order.wait:g} s: "
                    f"{_room(status)} are in use, held by {holders}. Release what is not needed "
                    "(bow.spark.drop(name), or del of its handle), or give the depot a larger budget."
                )

    with contextlib.ExitStack() as ends:
        here = _here(ends)
        text = f"bowstring: publish {'a data set without a name' if name is None else repr(name)}"
        for status in _statuses([*here, *application.depots]):
            if status.memory_in_use > _NEARLY_FULL * status.memory_budget:
                holders = _listed(_holders(status, order.dataset))
                text += f"; the depot holds {_room(status)}" + (f": {holders}" if holders else "")
        if report is not None:
            tag = f"bowstring-{order.dataset.rpartition('#')[2]}"
            count = ends.enter_context(driver.counted_tasks(tag))
        ends.enter_context(driver.described(text))
        thread = run_in_thread(watch, name="bowstring-spark-watch")
        try:
            yield
        finally:
            over.set()
            thread.join(_LOOK + _ASK_SECONDS)
            if report is not None:
                tell()
            if (close := getattr(report, "close", None)) is not None:
                close()


def no_room(
    error: BaseException, order: Order, application: Application, name: str | None
) -> OutOfBudget | None:
    """Return the error for a job that failed for lack of room, in the user's words; ``None`` for others."""
    why = reason(error)
    if not (isinstance(error, OutOfBudget) or why.startswith("OutOfBudget")):
        return None
    with contextlib.ExitStack() as ends:
        statuses = _statuses([*_here(ends), *application.depots])
    holders = [each for status in statuses for each in _holders(status, order.dataset)]
    names = [each for each, _ in holders if each.startswith(("'", '"'))]
    refused = _REFUSED.search(str(error))
    hint = (
        "Give the depot a larger budget (depot_options=bow.depot.Options(memory_budget=…)), or publish less."
    )
    if holders:
        free = " or ".join(f"bow.spark.drop({each})" for each in names[:2]) or "release() of its handle"
        hint = f"Free what is not needed: {free}. {hint}"
    if name is not None and repr(name) in names:
        hint = (
            f"The earlier {name!r} is kept until the new one is whole, so both need room: bow.spark.drop({name!r}) "
            f"first frees the earlier one. {hint}"
        )
    if LIMITED in str(error):
        hint = LIMITED
    return OutOfBudget(
        f"no room in the depot to publish {label(order.dataset)}",
        expected=f"room within {order.wait:g} s",
        found=f"{'; '.join(map(_room, statuses)) or why}, held by {_listed(holders) or 'this data set itself'}"
        f"{'' if refused is None else refused[0]}",
        hint=hint,
    )
