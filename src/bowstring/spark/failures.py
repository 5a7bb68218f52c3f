"""What Spark says when a job fails, made short: our own error is deep in it."""

from __future__ import annotations

from typing import Final

__all__ = ["reason"]

_OURS: Final = "bowstring.errors."
_MOST: Final = 500


def reason(error: BaseException | None) -> str:
    r"""Return what was wrong with a job: the last error of ours that its message holds, or its beginning.

    Examples
    --------
    >>> reason(
    ...     RuntimeError("Job aborted ...\nTraceback ...\nbowstring.errors.OutOfBudget: no room\n\tat java")
    ... )
    'OutOfBudget: no room'
    """
    text = "nothing" if error is None else str(error).strip()
    ours = [line.strip() for line in text.splitlines() if line.strip().startswith(_OURS)]
    return (ours[-1].removeprefix(_OURS) if ours else text)[:_MOST]
