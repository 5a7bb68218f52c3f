"""Full validation of a batch: every element looked at, beside pyarrow's ``validate(full=True)``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Target, Way
from bowstring.benchmarks.data.tables import KINDS, size_name, table

_FULL: Final = 64 << 20
_QUICK: Final = 4 << 20
_SEED: Final = 11
_WORDS: Final = {
    "ASCII text": "abcdefghijklmnopqrstuvwxyz",
    "text of two and three bytes a character": "äöüßéèçñαβγδあいうえお",
}


def _texts(letters: str, nbytes: int) -> pa.RecordBatch:
    """A column of texts of up to 32 letters."""
    rng = np.random.default_rng(_SEED)
    alphabet = np.array([letter.encode() for letter in letters], object)
    sizes = rng.integers(0, 33, max(1, nbytes // 32))
    picked = b"".join(alphabet[rng.integers(0, len(alphabet), int(sizes.sum()))])
    # Cut between letters: after each, as many bytes have gone by as their encodings have.
    starts = np.flatnonzero((np.frombuffer(picked, np.uint8) & 0xC0) != 0x80)
    ends = np.append(starts, len(picked))
    offsets = np.append(0, ends[np.cumsum(sizes)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(picked)]
    return pa.record_batch({"text": pa.Array.from_buffers(pa.string(), len(sizes), buffers)})


def _spoiled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same with one wrong byte near its end, to see that all of it is looked at."""
    column = batch.column(0)
    validity, offsets, text = column.buffers()
    data = bytearray(text)
    data[-3] = 0xFF
    wrong = pa.Array.from_buffers(column.type, len(column), [validity, offsets, pa.py_buffer(bytes(data))])
    return pa.record_batch({"text": wrong})


def _timed(validate: Callable[[], None], refuses: Callable[[], bool]) -> Measured:
    begin = time.perf_counter()
    validate()
    seconds = time.perf_counter() - begin
    return Measured(seconds, "a wrong byte is found: True", f"a wrong byte is found: {refuses()}")


def _ours(batch: pa.RecordBatch, spoiled: pa.RecordBatch | None) -> Measured:
    mine = bow.Batch.from_arrow(batch)

    def refuses() -> bool:
        try:
            if spoiled is not None:
                bow.Batch.from_arrow(spoiled).validate(full=True)
        except bow.InvalidData:
            return True
        return spoiled is None

    return _timed(lambda: mine.validate(full=True), refuses)


def _theirs(batch: pa.RecordBatch, spoiled: pa.RecordBatch | None) -> Measured:
    def refuses() -> bool:
        try:
            if spoiled is not None:
                spoiled.validate(full=True)
        except pa.ArrowInvalid:
            return True
        return spoiled is None

    return _timed(lambda: batch.validate(full=True), refuses)


def _line_ups(scale: Scale) -> Iterator[LineUp]:
    for size in scale.sizes((_FULL,), (_QUICK,)):
        yield from _of_size(size, scale)


def _of_size(size: int, scale: Scale) -> Iterator[LineUp]:
    samples = {title: _texts(letters, size) for title, letters in _WORDS.items()}
    tables = {title: table(kind, size, _SEED).to_batches()[0] for kind, (title, _, _) in KINDS.items()}
    for title, batch in (samples | tables).items():
        spoiled = _spoiled(batch) if title in samples else None
        targets = (Target("bowstring", "at least", 1, "pyarrow"),) if title in samples else ()
        yield LineUp(
            f"{title}, {size_name(size)}",
            _ways(batch, spoiled),
            scale.rounds(21, 3),
            targets,
            panel=title,
            at={"bytes": size},
        )


def _ways(batch: pa.RecordBatch, spoiled: pa.RecordBatch | None) -> tuple[Way, Way]:
    return (
        Way("bowstring", "subject", lambda: _ours(batch, spoiled), batch.nbytes, "pyarrow"),
        Way("pyarrow", "baseline", lambda: _theirs(batch, spoiled), batch.nbytes),
    )


CASE: Final = Case(
    "validation",
    "every element of a batch looked at",
    _line_ups,
    Explanation(
        measured="Batch.validate(full=True): every offset, every index of a dictionary, every byte of text.",
        baseline="RecordBatch.validate(full=True) of pyarrow.",
        floor="",
        reading=(
            "What it costs to trust a batch that came from elsewhere. One wrong byte near the end has to be "
            "found in each sample."
        ),
    ),
    judged_from={"bytes": 4 << 20},
    sized=True,
)
