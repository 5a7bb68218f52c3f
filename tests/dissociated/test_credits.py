"""Credits: the window against a model."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.dissociated.credits import Account, Window
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


def test_the_readers_account_allows_what_a_producers_does() -> None:
    """Whatever a producer with credit sends, and whenever it hears of credit, its reader's account allows it."""
    chosen = random.Random(7)
    for _ in range(200):
        window, account = Window(100), Account(100)
        sent: list[int] = []
        delivered: list[int] = []
        for _ in range(50):
            cost = chosen.choice([0, 1, 30, 60, 100, 150])
            if chosen.random() < 0.5 and window.allows(cost):
                window.charge(cost)
                account.check(cost + chosen.randrange(64), cost)
                account.charge([cost])
                sent.append(cost)
            elif sent and chosen.random() < 0.7:
                account.outstanding -= sent[0]
                delivered.append(sent.pop(0))
            elif delivered:
                window.give_back(delivered.pop(0))


def test_what_is_beyond_the_credit_is_refused() -> None:
    """A second body that does not fit beside the first is refused, by its length or by what it costs."""
    account = Account(100)
    account.charge([90])
    account.check(200, 10)
    with pytest.raises(ProtocolError, match="credit"):
        account.check(200, 11)
    with pytest.raises(ProtocolError, match="credit"):
        account.check(1 << 30)
    with pytest.raises(ProtocolError, match="credit"):
        account.charge([5, 6])


def test_a_body_cannot_hide_behind_short_buffers() -> None:
    """A body that is longer than its buffers and their padding costs its length."""
    assert Account.cost(100, 2, 128) == 100
    assert Account.cost(0, 2, 1 << 30) == (1 << 30) - 128
