"""The tree of errors."""

from __future__ import annotations

import copy
import pickle

import pytest

from bowstring import errors
from bowstring.errors import BowstringError

TREE = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("cls", TREE)
def test_errors_pickle_and_copy(cls: type[BowstringError]) -> None:
    """Every error crosses processes and is copied with all that it says."""
    error = cls("what", expected=1, found="two", where="there", hint="Do this.")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is cls
        assert vars(twin) == vars(error)
        assert str(twin) == "what; expected 1; found two; at there. Do this."


@pytest.mark.parametrize("cls", TREE)
def test_the_tree_is_drawn(cls: type[BowstringError]) -> None:
    """Every error is in the tree that the module draws, below the root."""
    assert issubclass(cls, BowstringError)
    assert errors.__doc__ is not None
    assert cls.__name__ in errors.__doc__
