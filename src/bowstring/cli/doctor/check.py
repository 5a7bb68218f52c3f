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
    """One thing that was tried.

    Attributes
    ----------
    name
        What.
    state
        What came of it.
    detail
        What was seen.
    hint
        Which setting to change, where it did not work.
    """

    name: str
    state: State
    detail: str = ""
    hint: str | None = None


def attempt(name: str, try_it: Callable[[], str], hint: str, *, needed: bool = True) -> Check:
    """Try something; whatever it raises is the detail of the check.

    Parameters
    ----------
    name
        What is tried.
    try_it
        Returns what was seen.
    hint
        What helps where it raises.
    needed
        Whether anything of Bowstring depends on it.

    Examples
    --------
    >>> check = attempt("division", lambda: str(1 / 0), "divide by something else")
    >>> check.state.value, check.detail
    ('broken', 'ZeroDivisionError: division by zero')
    """
    try:
        return Check(name, State.OK, try_it(), hint)
    except Exception as error:  # noqa: BLE001  whatever is wrong with this machine is what is wanted
        state = State.BROKEN if needed else State.ABSENT
        return Check(name, state, f"{type(error).__name__}: {' '.join(str(error).split())}", hint)
