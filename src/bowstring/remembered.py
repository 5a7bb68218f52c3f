"""Answers that are kept from call to call, but for those to questions that must be forgotten."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Generic, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Remembered", "remembered"]

_Asked = TypeVarTuple("_Asked")
_T = TypeVar("_T")


class Remembered(Generic[*_Asked, _T]):
    """A function that remembers its last answers, as :func:`functools.lru_cache` does; see :func:`remembered`."""

    def __init__(
        self, function: Callable[[*_Asked], _T], most: int, may_be_kept: Callable[[*_Asked], bool]
    ) -> None:
        functools.update_wrapper(self, function)
        self._anew = function
        self._may_be_kept = may_be_kept
        self._kept = functools.lru_cache(most)(function)
        self.cache_info = self._kept.cache_info
        self.cache_clear = self._kept.cache_clear

    def __call__(self, *asked: *_Asked) -> _T:
        """Return what the function does."""
        if self._may_be_kept(*asked):
            return self._kept(*asked)
        return self._anew(*asked)


def remembered(
    most: int, may_be_kept: Callable[[*_Asked], bool]
) -> Callable[[Callable[[*_Asked], _T]], Remembered[*_Asked, _T]]:
    """Return a decorator for functions whose answers are kept, `most` of them.

    Parameters
    ----------
    most
        How many questions and answers are kept, those asked last.
    may_be_kept
        Whether a question may be kept with its answer, from the same arguments: not a secret, nor what somebody
        else chose the size of.

    Examples
    --------
    >>> @remembered(64, lambda text: "secret" not in text)
    ... def length(text: str) -> int:
    ...     return len(text)
    >>> length("open"), length("secret"), length.cache_info().currsize
    (4, 6, 1)
    """

    def decorated(function: Callable[[*_Asked], _T]) -> Remembered[*_Asked, _T]:
        return Remembered(function, most, may_be_kept)

    return decorated
