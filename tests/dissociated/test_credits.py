"""Credits: the window against a model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.dissociated.credits import Window
from bowstring.errors import ProtocolError

STEPS = st.lists(
    st.tuples(st.sampled_from(["send", "give", "enlarge", "steal"]), st.integers(0, 120)), max_size=40
)


@given(size=st.integers(0, 200), steps=STEPS)
def test_the_window_against_a_model(size: int, steps: list[tuple[str, int]]) -> None:
    """Never more than the window is outstanding, unless one message is alone; nothing is given back twice."""
    window = Window(size)
    outstanding: list[int] = []
    for step, nbytes in steps:
        if step == "send":
            may = not sum(outstanding) or sum(outstanding) + nbytes <= size
            assert window.allows(nbytes) == may
            if may:
                window.charge(nbytes)
                outstanding.append(nbytes)
        elif step == "give" and outstanding:
            window.give_back(outstanding.pop(nbytes % len(outstanding)))
        elif step == "enlarge":
            window.enlarge(nbytes)
            size += nbytes
        elif step == "steal":
            with pytest.raises(ProtocolError):
                window.give_back(sum(outstanding) + 1 + nbytes)
        assert window.outstanding == sum(outstanding)
        assert window.outstanding <= size or sum(each > 0 for each in outstanding) == 1


@given(steps=st.lists(st.integers(0, 2**70)))
def test_without_credits_everything_may_go(steps: list[int]) -> None:
    """For a peer that knows no credits nothing is counted, and nothing can be given back."""
    window = Window(None)
    for nbytes in steps:
        assert window.allows(nbytes)
        window.charge(nbytes)
        window.enlarge(nbytes)
    assert window.outstanding == 0
    with pytest.raises(ProtocolError):
        window.give_back(1)


@given(nbytes=st.integers(1, 2**62), size=st.integers(0, 100))
def test_a_message_larger_than_the_window_goes_alone(nbytes: int, size: int) -> None:
    """No message is too large for a window, and none that does not fit may follow it until it is given back."""
    window = Window(size)
    assert window.allows(nbytes)
    window.charge(nbytes)
    assert not window.allows(size + 1)
    window.give_back(nbytes)
    assert window.allows(nbytes)
