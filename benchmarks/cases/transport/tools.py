"""Which tool hands over a table of some size to some number of readers first."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Final

from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Role, Scale, Skipped, Way
from bowstring.benchmarks.cases.transport import hand_over
from bowstring.benchmarks.data.tables import KINDS, size_name
from bowstring.benchmarks.environment import lacks_memory
from bowstring.benchmarks.peers import ray_store
from bowstring.benchmarks.peers.handing import WAYS
from bowstring.benchmarks.processes.child import Child

_FULL: Final = (1 << 16, 1 << 20, 16 << 20, 256 << 20)
_QUICK: Final = (1 << 20, 16 << 20)
_READERS: Final = (1, 2, 4, 8)
_KIND: Final = "floats"
_ROLES: Final[dict[str, Role]] = {hand_over.SUBJECT: "subject", hand_over.BASELINE: "baseline"}
_METHODS: Final = {hand_over.SUBJECT: hand_over.SUBJECT, **WAYS}


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    if why := ray_store.missing():
        yield Skipped(hand_over.RAY, why)
    for size in scale.sizes(_FULL, _QUICK):
        for readers in _READERS:
            name = f"{size_name(size)} to {readers} reader{'s' * (readers > 1)}"
            # As for one reader, and a copy in each of the others.
            if skipped := lacks_memory(name, (7 + readers) * size):
                yield skipped
                continue
            yield from _of(scale, size, readers, name)


def _of(scale: Scale, size: int, readers: int, name: str) -> Iterator[LineUp]:
    with contextlib.ExitStack() as stack:
        sender = stack.enter_context(Child(hand_over.Sender, kind=_KIND, size=size))
        receivers = [stack.enter_context(Child(hand_over.Receiver)) for _ in range(readers)]
        ray = stack.enter_context(ray_store.started(_KIND, size, readers))
        nbytes = readers * sender.call("nbytes")
        calls: dict[str, Callable[[], Measured]] = {
            title: functools.partial(hand_over.hand_over, sender, receivers, method)
            for title, method in _METHODS.items()
        }
        if ray is not None:
            calls[hand_over.RAY] = lambda: Measured(**ray.call("once"))
        flight = hand_over.BASELINE
        ways = [
            Way(title, _ROLES.get(title, "beside"), once, nbytes, None if title == flight else flight)
            for title, once in calls.items()
        ]
        panel = f"{KINDS[_KIND][0]}, readers: {readers}"
        yield LineUp(
            name, tuple(ways), scale.rounds(9, 3), panel=panel, at={"bytes": size, "readers": readers}
        )


CASE: Final = Case(
    "tools",
    "which tool for which size of a table and number of readers",
    _line_ups,
    Explanation(
        measured=(
            "As in hand_over, publishing included, but with 1 to 8 readers, each a process of its own: from the "
            "moment at which they begin together until the last of them has read every byte. The rate is that "
            "of all readers."
        ),
        baseline="Arrow Flight on localhost. Beside it: the other ways of hand_over.",
        floor="",
        reading=(
            "Which way to choose on this machine. Ways that copy for each reader fall behind as readers are "
            "added; with small tables the fixed cost of a connection decides."
        ),
    ),
    sized=True,
)
