"""Answers that are kept, and those that must not be."""

from __future__ import annotations

import inspect

import pytest

from bowstring.remembered import remembered

ASKED: list[tuple[int, str]] = []


@remembered(2, lambda number, text: number > 0 and "secret" not in text)
def told(number: int, text: str) -> str:
    """Return the text so many times."""
    ASKED.append((number, text))
    if number > 8:
        raise ValueError(number)
    return number * text


@pytest.fixture(autouse=True)
def nothing_asked() -> None:
    """Forget what was asked before."""
    told.cache_clear()
    ASKED.clear()


def test_an_answer_is_kept() -> None:
    """What may be kept is asked once, and answered the same."""
    assert [told(2, "a"), told(2, "a")] == ["aa", "aa"]
    assert ASKED == [(2, "a")]


def test_what_may_not_be_kept_is_forgotten() -> None:
    """What must not be kept is asked each time, answered all the same, and pushes nothing out."""
    told(2, "a")
    assert [told(1, "secret"), told(0, "a"), told(1, "secret")] == ["secret", "", "secret"]
    assert told.cache_info().currsize == 1
    assert ASKED == [(2, "a"), (1, "secret"), (0, "a"), (1, "secret")]


def test_no_more_are_kept_than_said() -> None:
    """The answers asked for last are kept, as many as were said."""
    for number in (1, 2, 3, 2, 3, 1):
        told(number, "a")
    assert [number for number, _ in ASKED] == [1, 2, 3, 1]
    assert told.cache_info().currsize == 2


def test_what_fails_is_asked_again() -> None:
    """An error is no answer: it is raised each time."""
    for _ in range(2):
        with pytest.raises(ValueError, match="9"):
            told(9, "a")
    assert len(ASKED) == 2


def test_it_is_still_what_it_was() -> None:
    """A function that remembers is documented as the one that it was."""
    assert inspect.unwrap(told).__name__ == "told"
    assert inspect.getdoc(told) == "Return the text so many times."
