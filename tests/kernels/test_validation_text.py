"""UTF-8 by words is UTF-8 as Python's decoder and pyarrow have it, wherever a character lies."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.columnar import Batch
from bowstring.columnar.validation.elements import check_elements
from bowstring.errors import InvalidBody
from bowstring.kernels.launch import launch
from bowstring.kernels.validation.text import ASCII, BROKEN, TEXT, WORDS, check_text

pytest.importorskip("numba")

BLOCK = 8 * int(WORDS)
# The first and the last byte of every range that the rules speak of.
EDGES = bytes.fromhex("00 41 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 f8 ff")
PIECES = ("a", "ä", "\u07ff", "\u0800", "漢", "\ud7ff", "\ue000", "\uffff", "🏹", "\U0010ffff", "plain text ")


def is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def marks_of(content: bytes, start: int, stop: int, lead: int) -> np.ndarray[Any, Any]:
    """Return the marks of a piece of some bytes, which lie `lead` bytes before a whole word."""
    room = np.zeros(len(content) + 16, np.uint8)
    first = -room.ctypes.data % 8 + 8 - lead
    data = room[first : first + len(content)]
    data[:] = np.frombuffer(content, np.uint8)
    words = data[lead : lead + (len(data) - lead) // 8 * 8].view(np.uint64)
    count = ((stop - lead) >> 3) + 1 - ((start - lead) >> 3)
    marks = np.full(-(-count // int(WORDS)), -1, np.int64)
    launch(check_text, len(marks), data, words, lead, start, stop, marks)
    return marks


def verdict(content: bytes, start: int, stop: int, lead: int) -> int:
    return int(marks_of(content, start, stop, lead).max())


def expected(content: bytes) -> int:
    if content.isascii():
        return int(ASCII)
    return int(TEXT if is_utf8(content) else BROKEN)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_every_short_sequence(length: int) -> None:
    """Every sequence of bytes from the edges of the rules is judged as Python judges it."""
    for sequence in itertools.product(EDGES, repeat=length):
        content = bytes(sequence)
        assert verdict(content, 0, length, 0) == expected(content), content


@pytest.mark.parametrize("at", [BLOCK - 4, BLOCK - 3, BLOCK - 2, BLOCK - 1, BLOCK, 2 * BLOCK - 1])
def test_sequences_across_the_border_of_a_block(at: int) -> None:
    """A character that lies across two blocks is judged as one that does not."""
    before, behind = b"x" * at, b"x" * (3 * BLOCK - at)
    four = [bytes(each) for each in itertools.product(b"A\x80\xbf\xc3\xe1\xed\xf0\xf4", repeat=4)]
    for sequence in [each for each in four if each[0] > 0x7F][:: 1 + at % 7]:
        content = before + sequence + behind
        assert verdict(content, 0, len(content), 0) == expected(content), sequence


texts = st.lists(st.sampled_from(PIECES), max_size=200).map("".join).map(str.encode)


@given(text=texts, lead=st.integers(0, 7), data=st.data())
def test_pieces_at_any_address(text: bytes, lead: int, data: st.DataObject) -> None:
    """A piece is judged by itself: wherever it begins, ends and lies, and whatever is around it."""
    content = bytearray(text + b"\xff")
    if data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.sampled_from(list(EDGES)))
    start = data.draw(st.integers(0, len(content)))
    stop = data.draw(st.integers(start, len(content)))
    lead = min(lead, len(content))
    piece = bytes(content[start:stop])
    found = verdict(bytes(content), start, stop, lead)
    # ASCII may be marked as text where its block holds other characters in front of it.
    assert (found == BROKEN) == (not is_utf8(piece))
    assert found != ASCII or piece.isascii()


def our_row(array: pa.Array) -> int | None:
    """Return the row that the kernels refuse."""
    try:
        check_elements(Batch.from_arrow({"t": array}))
    except InvalidBody as error:
        return int(str(error.where).removeprefix("t, row "))
    return None


def pyarrows_row(array: pa.Array) -> int | None:
    """Return the row that pyarrow refuses."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        return int(str(error).removeprefix("Invalid UTF8 sequence at string index "))
    return None


@given(text=texts, rows=st.integers(1, 20), data=st.data(), large=st.booleans())
def test_rows_that_cut_characters(text: bytes, rows: int, data: st.DataObject, large: bool) -> None:
    """Text that is right as a whole, and wrong where a row ends inside a character, gets pyarrow's verdict."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=rows + 1, max_size=rows + 1)))
    bits = np.frombuffer(data.draw(st.binary(min_size=3, max_size=3)), np.uint8)
    offsets = np.array(cuts, np.int64 if large else np.int32)
    buffers = [pa.py_buffer(each) for each in (bits, offsets, text)]
    array = pa.Array.from_buffers(pa.large_string() if large else pa.string(), rows, buffers)
    assert our_row(array) == pyarrows_row(array)


@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_long_views_that_overlap(data: st.DataObject, seed: int) -> None:
    """Views of kilobytes, which share text with each other, get pyarrow's verdict wherever a fault lies."""
    rng = np.random.default_rng(seed)
    text = np.frombuffer("".join(rng.choice(PIECES, 6_000)).encode(), np.uint8).copy()
    borders = np.flatnonzero(text & 0xC0 != 0x80)[:-13]
    if data.draw(st.booleans()):
        text[rng.integers(0, len(text))] = rng.choice(list(EDGES))
    parts = np.zeros((6, 4), "<i4")
    for part in parts:
        start, stop = np.sort(rng.choice(borders, 2)).tolist()
        size = max(stop - start - int(rng.random() < 0.1), 13)  # some end inside a character
        part[:] = size, text[start : start + 4].copy().view("<i4")[0], 0, start
    skipped = data.draw(st.integers(0, 7))  # so that the text lies at any address
    buffers = [None, pa.py_buffer(parts), pa.py_buffer(bytes(skipped) + text.tobytes()).slice(skipped)]
    array = pa.Array.from_buffers(pa.string_view(), len(parts), buffers)
    assert our_row(array) == pyarrows_row(array)
