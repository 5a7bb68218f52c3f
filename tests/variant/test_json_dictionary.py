"""Keys of JSON texts become the names of a metadata, in the order of their bytes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bowstring.variant.json.waves import join_keys


def _of(parts: list[list[bytes]]) -> tuple[list[bytes], list[list[int]]]:
    """Return the names in the metadata of some keys, and the rank of each key."""
    keys = [
        (np.frombuffer(b"".join(part), np.uint8), np.array([len(each) for each in part], np.uint64))
        for part in parts
    ]
    metadata, ranks = join_keys(keys)
    width = (metadata[0] >> 6) + 1
    numbers = [
        int.from_bytes(metadata[at : at + width], "little")
        for at in range(1, len(metadata) - width + 1, width)
    ]
    text = metadata[1 + width * (numbers[0] + 2) :]
    offsets = numbers[1 : numbers[0] + 2]
    names = [text[first:last] for first, last in itertools.pairwise(offsets)]
    return names, [each.tolist() for each in ranks]


_ALIKE = st.builds(
    lambda prefix, rest: prefix + rest, st.sampled_from([b"", b"k" * 9, b"\x00" * 20]), st.binary(max_size=12)
)


@given(st.lists(st.binary(max_size=3) | _ALIKE | st.binary(max_size=90), max_size=40))
@example([b"a\x00", b"a", b"a\x00\x00", b"a", b""])
@example([b"x" * 200 + b"b", b"x" * 200 + b"a", b"x" * 200, b"x" * 200 + b"a", b"w"])
@example([])
def test_names_ascend_once_each_and_keys_have_their_ranks(texts: list[bytes]) -> None:
    """Names are in the order of Python's bytes, each once; the rank of a key is the place of its name."""
    parts = [texts[:7], texts[7:], []]
    names, ranks = _of(parts)
    assert names == sorted(set(texts))
    assert [[names[rank] for rank in each] for each in ranks] == parts


@pytest.mark.parametrize("shared", [0, 7, 60, 4000])
def test_many_texts_that_begin_alike(shared: int) -> None:
    """Many texts that are alike at first, and again in places, come in order."""
    rng = np.random.default_rng(shared)
    texts = [b"p" * shared + b"%d" % number for number in rng.integers(0, 3000, 3000)]
    texts.append(b"o")
    names, [ranks] = _of([texts])
    assert names == sorted(set(texts))
    assert [names[rank] for rank in ranks] == texts
