"""A check: one thing that was tried, and what came of it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable


class State(enum.Enum):
    """What came of a check."""

    OK = "ok"
    ABSENT = "absent"
    """Not there, and not needed for what works without it."""
    BROKEN = "broken"


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried."""

    name: str
    state: State
    detail: str = ""
    hint: str | None = None  # which setting to change if it failed


def attempt(name: str, try_it: Callable[[], str], hint: str) -> Check:
    """Try something; whatever it raises is the detail of the check."""
    try:
        return Check(name, State.OK, try_it(), hint)
    except Exception as error:  # noqa: BLE001  whatever is wrong with this machine is what is wanted
        return Check(name, State.BROKEN, f"{type(error).__name__}: {' '.join(str(error).split())}", hint)
