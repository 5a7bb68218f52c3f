"""What the headers of pages say of column chunks, before pyarrow decodes them.

A footer may claim other numbers of values than its pages have, and sizes that their bodies do not. pyarrow then
gives fewer rows without an error, or needs memory for what a header claims.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.errors import InvalidMetadata, LimitExceeded
from bowstring.kernels.launch import launch
from bowstring.kernels.parquet import footer
from bowstring.kernels.parquet import pages as kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.limits import Limits

# What is near is read at once; of larger chunks, what comes after the end of each page.
_SPAN: Final = 1 << 20
_WINDOW: Final = 16 << 10
# Elsewhere, such as in S3, a request takes as long as many bytes do.
_LOCAL: Final = (pa.OSFile, pa.BufferReader, pa.MemoryMappedFile, pa.PythonFile)
_FAR: Final = 8 << 20
# pyarrow gives up on a header that is longer.
_LONGEST: Final = 16 << 20
# Of a value of a dictionary, pyarrow keeps where it is, and how long.
_ENTRY: Final = 16
_MOST: Final = 1 << 31


def pages_of(source: Any, chunks: Any, wanted: Any, limits: Limits) -> Any:
    """Return the facts of the pages of column chunks: see :mod:`bowstring.kernels.parquet.pages`.

    `chunks` are facts of the footer, `wanted` how many values each should have; only headers are looked at.
    """
    facts = np.zeros((len(chunks), int(kernel.FACTS)), np.int64)
    begins, dictionaries = chunks[:, footer.DATA_PAGE], chunks[:, footer.DICTIONARY_PAGE]
    begins = np.where((dictionaries > 0) & (dictionaries < begins), dictionaries, begins)
    # Numbers beyond any file would wrap around.
    facts[:, kernel.AT] = np.clip(begins, 0, 1 << 60)
    facts[:, kernel.END] = facts[:, kernel.AT] + np.clip(chunks[:, footer.COMPRESSED], 0, 1 << 60)
    facts[:, kernel.WANTED] = wanted
    facts[:, kernel.STATUS] = kernel.MORE
    room = np.empty(len(chunks) * int(kernel.DEPTH * footer.LEVEL), np.int64)
    bounds = min(limits.decompression_floor, _MOST), math.ceil(min(limits.decompression_ratio, _MOST))
    first = int(facts[:, kernel.AT].min())
    span = int(facts[:, kernel.END].max()) - first + int(kernel.SLACK)
    if span <= (_SPAN if isinstance(source, _LOCAL) else _FAR):
        data = np.frombuffer(source.read_at(span, first), np.uint8)
        launch(kernel.read_pages, len(chunks), data, first, *bounds, facts.reshape(-1), room)
    for chunk in np.flatnonzero(facts[:, kernel.STATUS] == kernel.MORE).tolist():
        _read_on(source, bounds, facts[chunk], room)
    return facts


def _read_on(source: Any, bounds: tuple[int, int], facts: Any, room: Any) -> None:
    """Read a chunk page by page."""
    size = window = _WINDOW if isinstance(source, _LOCAL) else _FAR
    while facts[kernel.STATUS] == kernel.MORE:
        at = int(facts[kernel.AT])
        data = np.frombuffer(source.read_at(size, at), np.uint8)
        launch(kernel.read_pages, 1, data, at, *bounds, facts, room)
        if facts[kernel.STATUS] != kernel.MORE:
            return
        if facts[kernel.AT] > at:
            size = window
        elif len(data) < size or size >= _LONGEST:
            facts[kernel.STATUS] = kernel.MALFORMED
        else:
            size *= 4


def check_pages(facts: Any, chunks: Any, widths: Any, names: Sequence[str], limits: Limits) -> None:
    """Raise an error where pages contradict the footer, or are larger than what may be decompressed.

    Parameters
    ----------
    facts, chunks, names
        The facts of the pages, those of the footer, and what errors call each chunk.
    widths
        The least bytes of a value of a dictionary.
    limits
        ``decompression_ratio``, and what is allowed whatever the ratio is.

    Raises
    ------
    InvalidMetadata
        They have more or fewer values, or one of them has no header.
    LimitExceeded
        A page is larger than the limits, or all that are decoded at the same time are.
    """
    found, wanted = facts[:, kernel.VALUES], facts[:, kernel.WANTED]
    large = facts[:, kernel.STATUS] == kernel.TOO_LARGE
    if large.any():
        chunk = int(large.argmax())
        _raise_too_large(facts[chunk, kernel.LARGEST], limits.decompression_floor, names[chunk])
    wrong = (facts[:, kernel.STATUS] != kernel.OK) | (found != wanted) | (chunks[:, footer.VALUES] > wanted)
    if wrong.any():
        chunk = int(wrong.argmax())
        damaged = facts[chunk, kernel.STATUS] != kernel.OK and found[chunk] < wanted[chunk]
        raise InvalidMetadata(
            "a column chunk of a Parquet file has a page without a header"
            if damaged
            else "the pages of a column chunk have another number of values than the footer says",
            expected=f"{int(wanted[chunk])} values",
            found=f"{int(found[chunk])} values before byte {int(facts[chunk, kernel.AT])}; the chunk claims "
            f"{int(chunks[chunk, footer.VALUES])}",
            where=names[chunk],
        )
    raw, entries = facts[:, kernel.DICTIONARY_RAW], facts[:, kernel.DICTIONARY_VALUES]
    wrong = entries * widths > raw
    if wrong.any():
        chunk = int(wrong.argmax())
        raise InvalidMetadata(
            "a dictionary of a Parquet file has more values than bytes",
            expected=f"at most {int(raw[chunk])} bytes",
            found=f"{int(entries[chunk])} values",
            where=names[chunk],
        )
    held = facts[:, kernel.LARGEST] + raw + _ENTRY * entries
    packed = chunks[:, footer.COMPRESSED]
    most = np.maximum(limits.decompression_floor, limits.decompression_ratio * packed)
    if (held > most).any():
        chunk = int((held > most).argmax())
        _raise_too_large(held[chunk], most[chunk], names[chunk])
    all_most = max(limits.decompression_floor, limits.window_bytes, limits.decompression_ratio * packed.sum())
    if held.sum() > all_most:
        _raise_too_large(held.sum(), all_most, f"all columns, {names[int(held.argmax())]} the most")


def _raise_too_large(found: float, most: float, where: str) -> None:
    raise LimitExceeded(
        "pages of a Parquet file are too large when they are decompressed",
        expected=f"at most {int(most)} bytes, or Limits.decompression_ratio times what is compressed",
        found=f"{int(found)} bytes",
        where=where,
        hint="Raise Limits.decompression_floor for files that you trust.",
    )
