"""Keys in the order of their bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bowstring.variant.json.order import in_order


def _of(texts: list[bytes]) -> tuple[list[bytes], list[bool]]:
    offsets = np.cumsum([0, *map(len, texts)])
    order, is_new = in_order(np.frombuffer(b"".join(texts), np.uint8), offsets)
    assert sorted(order.tolist()) == list(range(len(texts)))
    return [texts[each] for each in order.tolist()], is_new.tolist()


_ALIKE = st.builds(
    lambda prefix, rest: prefix + rest, st.sampled_from([b"", b"k" * 9, b"\x00" * 20]), st.binary(max_size=12)
)


@given(st.lists(st.binary(max_size=3) | _ALIKE | st.binary(max_size=90), max_size=40))
@example([b"a\x00", b"a", b"a\x00\x00", b"a", b""])
@example([b"x" * 200 + b"b", b"x" * 200 + b"a", b"x" * 200, b"x" * 200 + b"a", b"w"])
@example([])
def test_texts_ascend_and_say_where_they_differ(texts: list[bytes]) -> None:
    """It is the order of Python's bytes, and a text is new where it is not the one before."""
    ascending, is_new = _of(texts)
    assert ascending == sorted(texts)
    assert is_new == [k == 0 or ascending[k] != ascending[k - 1] for k in range(len(texts))]


@pytest.mark.parametrize("shared", [0, 7, 60, 4000])
def test_many_texts_that_begin_alike(shared: int) -> None:
    """Many texts that are alike at first, and again in places, come in order."""
    rng = np.random.default_rng(shared)
    texts = [b"p" * shared + b"%d" % number for number in rng.integers(0, 3000, 3000)]
    texts.append(b"o")
    ascending, is_new = _of(texts)
    assert ascending == sorted(texts)
    assert sum(is_new) == len(set(texts))
