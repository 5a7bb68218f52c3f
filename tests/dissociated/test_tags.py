"""Tags: every pattern of 64 bits is a body's, one of ours, or refused."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bowstring.dissociated.tags import PACKED, POINTERS, Control, Want, body_tag, is_body, split_body_tag
from bowstring.errors import ProtocolError

OURS = {*map(int, Want), *map(int, Control)}


@given(number=st.integers(0, 2**40), body_type=st.sampled_from([PACKED, POINTERS]))
def test_a_body_tag_is_split_again(number: int, body_type: int) -> None:
    """Number and type come back from a tag, the number as it is after roll-over."""
    assert split_body_tag(body_tag(number, body_type)) == (number % 2**32, body_type)


@given(tag=st.integers(0, 2**64 - 1))
@example(2**55)
@example(2**56)
@example(2**32)
@example(2**57)
def test_every_pattern_is_judged(tag: int) -> None:
    """A tag splits exactly when bits 32 to 55 are clear and its type is 0 or 1."""
    if tag & 0x00FF_FFFF_0000_0000 or tag >> 56 > 1:
        with pytest.raises(ProtocolError):
            split_body_tag(tag)
    else:
        assert split_body_tag(tag) == (tag & 0xFFFF_FFFF, tag >> 56)


@given(
    bit=st.integers(32, 55), number=st.integers(0, 2**32 - 1), body_type=st.sampled_from([PACKED, POINTERS])
)
def test_each_reserved_bit_is_refused(bit: int, number: int, body_type: int) -> None:
    """Bit 55 too, by which the reference implementation shifts: it sends type 0 only, where that is no bit."""
    with pytest.raises(ProtocolError, match="reserved"):
        split_body_tag(body_tag(number, body_type) | 1 << bit)


@given(body_type=st.integers(2, 255), number=st.integers(0, 2**32 - 1))
def test_unknown_types_are_refused(body_type: int, number: int) -> None:
    """Types beyond 1 are none that we know."""
    with pytest.raises(ProtocolError, match="type"):
        split_body_tag(body_type << 56 | number)


def test_our_tags_are_no_bodies() -> None:
    """Ours are 64-bit numbers, all different, and never taken for a body."""
    assert len(OURS) == len(Want) + len(Control)
    for tag in OURS:
        assert 0 <= tag < 2**64
        assert not is_body(tag)


def test_our_tags_lie_behind_all_live_numbers() -> None:
    """Their low halves are the last numbers before the roll-over, for receivers that match by them alone."""
    assert min(tag & 0xFFFF_FFFF for tag in OURS) >= 0xFFFF_FF00


@given(tag=st.integers(0, 2**64 - 1))
def test_what_is_no_body_is_of_ours(tag: int) -> None:
    """Only the two type bytes that we took are kept from bodies."""
    assert is_body(tag) == (tag >> 56 not in (0xB0, 0xB1))
