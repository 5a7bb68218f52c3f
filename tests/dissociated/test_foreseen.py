"""Parts that are taken together, because what comes was foreseen: only the very next ones of the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.dissociated.tags import PACKED
from bowstring.dissociated.wire import PREFIX_BYTES
from bowstring.errors import ProtocolError

if TYPE_CHECKING:
    from bowstring.dissociated.reader import ReaderProtocol
    from tests.dissociated.conftest import Material, Said

ROLLS_OVER = 2**32


def foreseen(protocol: ReaderProtocol, pairs: list[Said]) -> bool:
    prefixes = b"".join(bytes(each.body[:PREFIX_BYTES]) for each in pairs[::2])
    return protocol.foreseen(prefixes, [each.tag or 0 for each in pairs[1::2]], PACKED)


@given(st.integers(0, 6), st.integers(1, 6), st.sampled_from([0, 5, ROLLS_OVER - 20, ROLLS_OVER - 4]))
def test_the_next_parts(material: Material, before: int, count: int, first: int) -> None:
    """The next parts of a stream can be taken together, unless their numbers roll over, and the rest goes on."""
    said = material.batches(13, first=first)
    listener = material.listener(first=first)
    listener.hear(*said[: 1 + 2 * before])
    pairs = said[1 + 2 * before :][: 2 * count]
    rolls_over = first + before + count >= ROLLS_OVER > first + 1 + before
    assert foreseen(listener.protocol, pairs) is not rolls_over
    if rolls_over:
        listener.hear(*pairs)
    else:
        listener.protocol.take([0] * count)
    listener.hear(*said[1 + 2 * (before + count) :])
    assert listener.ends == 1
    assert [part.sequence for part in listener.parts][-1] == (first + 13) % ROLLS_OVER


@pytest.mark.parametrize(
    "wrong", ["gap", "again", "swapped", "number", "body", "pointers", "kind", "waiting", "early"]
)
def test_anything_else(material: Material, wrong: str) -> None:
    """What is not just the next parts is not taken together, and nothing is counted."""
    said = material.batches(9)
    listener = material.listener()
    listener.hear(*said[:5])
    pairs = said[5:13]
    match wrong:
        case "gap":
            pairs = said[7:15]
        case "again":
            pairs = said[3:11]
        case "swapped":
            pairs[2:4], pairs[4:6] = pairs[4:6], pairs[2:4]
        case "number":
            pairs[2] = pairs[4]
        case "body":
            pairs[3] = pairs[5]
        case "pointers":
            assert pairs[3].tag is not None
            pairs[3] = material.say(pairs[3].tag | 1 << 56, pairs[3].body)
        case "kind":
            pairs[2] = material.say(None, b"\0" + pairs[2].body[1:])
        case "waiting":
            listener.hear(said[5])
        case "early":
            listener.hear(said[6])
    assert not foreseen(listener.protocol, pairs)
    heard = {"waiting": said[5], "early": said[6]}.get(wrong)
    listener.hear(*(each for each in said[5:] if each is not heard))
    assert listener.ends == 1


def test_not_after_the_end(material: Material) -> None:
    """A stream that has ended takes nothing together."""
    listener = material.listener()
    listener.hear(*material.batches(4))
    assert listener.ends == 1
    assert not foreseen(listener.protocol, material.batches(8)[9:13])


def test_not_after_an_error(material: Material) -> None:
    """A stream that broke, or has not begun, takes nothing together."""
    said = material.batches(4)
    listener = material.listener()
    assert not foreseen(listener.protocol, said[1:5])
    listener.hear(*said[:3])
    with pytest.raises(ProtocolError):
        listener.hear(said[2])
    assert not foreseen(listener.protocol, said[3:7])
