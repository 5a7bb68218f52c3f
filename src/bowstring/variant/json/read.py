"""Variant columns from JSON text, read column-wise by kernels.

Chunks of rows are read into nodes and numbered keys (:mod:`bowstring.kernels.json.read`). The keys of all chunks of
a block are joined and sorted. Then nodes are measured and written, the fields of objects in the order of the keys.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from bowstring.columnar.batch import Column
from bowstring.errors import BowstringError, InvalidBody, LimitExceeded, UsageError
from bowstring.kernels import bitmap
from bowstring.kernels.json import tree as status
from bowstring.kernels.json.tree import NOTHING, READ
from bowstring.limits import Limits, limits_or_default
from bowstring.variant.column import metadata_values, variant_of
from bowstring.variant.json.source import Rules, Texts, check_rules, lines_of, progress, texts_of
from bowstring.variant.json.waves import Chunks, Ranks, Read, Wave, Waves, chunks_of, join_keys, waves_of

_SHOWN: Final = 20
_LONGEST_KEY: Final = 80
_LEAD_OF_SURROGATES, _FIRST_OF_SURROGATES = 0xED, 0xA0
_WHAT: Final = {
    int(status.END): "not JSON: the text ends before its value does",
    int(status.UNEXPECTED): "not JSON: this cannot be here",
    int(status.CONTROL): "not JSON: a control character in a string",
    int(status.ESCAPE): "not JSON: no escape",
    int(status.TRAILING): "not JSON: something behind the value",
    int(status.RANGE): "a number of JSON is beyond the doubles",
    int(status.SURROGATE): "half a surrogate pair has no UTF-8",
}
_LARGEST: Final = (1 << 31) - 1
_LEAST: Final = 1 << 10


def from_json(
    texts: Any = None,
    *,
    path: str | os.PathLike[str] | None = None,
    rules: Rules = "plain",
    repeated: Literal["raise", "last"] = "raise",
    on_error: Literal["raise", "null"] = "raise",
    name: str = "variant",
    limits: Limits | None = None,
) -> Column:
    """Return JSON texts as a Variant column.

    Integers take the narrowest type that holds them. Numbers without an exponent that have at most 38 digits,
    and as many behind the point, become decimals with exactly these digits, integers beyond 64 bits among them;
    all others the nearest double. ``NaN``, ``Infinity`` and half a surrogate pair are refused, and by default
    an object with a key twice.

    It is JSON as RFC 8259 has it, and nothing else. Every 65,536 rows, counted from the first, have a dictionary of
    keys of their own, in the order of their UTF-8, and each row where rows of a sample share few of many keys; the
    result does not depend on how many threads there are.

    Parameters
    ----------
    texts
        A column of text of any type (or binary: UTF-8): a Column, a Batch or Arrow data of one, an Arrow array;
        or an iterable of str, bytes and None. Null rows become SQL NULLs.
    path
        In the place of `texts`: a file of JSON Lines, each line of which is a row, except those of spaces,
        tabs and carriage returns only. It is mapped, not copied. What takes longer than a second shows its
        progress, on a terminal.
    rules
        ``"plain"``: a number beyond the doubles is refused, ``-0.0`` stays a double. ``"spark"``: it becomes an
        infinity, ``-0.0`` the decimal 0.0, as with Spark's ``parse_json``; what is behind the value is refused,
        where Spark does not look at it.
    repeated
        What becomes of an object with a key more than once, keys being equal once their escapes are read:
        ``"raise"`` refuses the text; ``"last"`` keeps the last value of each key, as Spark does where
        ``spark.sql.variant.allowDuplicateKeys`` is true.
    on_error
        What becomes of a text that is refused: ``"raise"``, or ``"null"`` for an SQL NULL.
    name
        That of the column.
    limits
        ``depth`` bounds the nesting, ``json_bytes`` the text of a row, and
        ``decompression_ratio`` how many times larger than its buffer text may be that rows share;
        ``decompression_floor`` the rows of nulls and of runs, which take no bytes of their own.

    Returns
    -------
    Column
        As of :func:`bowstring.variant.from_python`, on the device of the texts.

    Raises
    ------
    InvalidBody
        A text is no JSON, or one of the above; the error has its row, in a file its line too, and the byte.
    LimitExceeded
        Nested too deeply, a text too long, more than 2 GiB of values or of keys, or rows that share too much text.
    UsageError
        Neither texts nor a file, or one that cannot be read.
    MissingDependency
        The kernels were not compiled, and numba is not installed.

    Examples
    --------
    >>> from bowstring.variant.python_objects import to_python
    >>> to_python(from_json(['{"a": [1, 2.50, 1e3]}', "null"]))
    [{'a': [1, Decimal('2.50'), 1000.0]}, None]
    >>> to_python(from_json(['{"a": 1, "b": 2, "a": 3}'], repeated="last"))
    [{'a': 3, 'b': 2}]
    """
    limits = limits_or_default(limits)
    check_rules(rules)
    if repeated not in ("raise", "last"):
        raise UsageError("repeated", expected="'raise' or 'last'", found=repr(repeated))
    if on_error not in ("raise", "null"):
        raise UsageError("on_error", expected="'raise' or 'null'", found=repr(on_error))
    if (texts is None) == (path is None):
        raise UsageError("from_json() takes texts or the path of a file", expected="one of the two")
    source = texts_of(texts, limits) if path is None else lines_of(path, limits)
    what = "JSON" if path is None else os.path.basename(path)
    with source.device.use(), progress(what, len(source.starts)) as show:
        chunks = chunks_of(source, limits)
        waves = Waves(source, chunks, spark=rules == "spark", last=repeated == "last", limits=limits)
        builder = ColumnBuilder(source)
        for group in waves_of(chunks):
            reads = [waves.read(wave) for wave in group]
            if on_error == "raise":
                for read in reads:
                    _raise_first(read, source, limits)
            ranks = builder.join(chunks, group, reads)
            for k, wave in enumerate(group):
                # Of a block that takes several waves only the keys were kept.
                read = reads[k] if len(group) == 1 else waves.read_again(wave, reads[k])
                builder.add(waves, read, ranks[k])
                show(read.rows.stop)
        return builder.column(name)


def _raise_first(read: Read, texts: Texts, limits: Limits) -> None:
    """Raise the error of the first row of a wave that was refused."""
    refused = np.flatnonzero(read.statuses > NOTHING)
    if len(refused):
        first = int(refused[0])
        row = read.rows.start + first
        text = texts.data[int(texts.starts[row]) : int(texts.stops[row])]
        raise error_of(
            int(read.statuses[first]),
            texts.device.to_host(text).tobytes(),
            int(read.positions[first]),
            texts.place(row),
            limits,
        )


def error_of(code: int, text: bytes, position: int, row: str, limits: Limits) -> BowstringError:
    """Return the error of a row from its status code, of :mod:`bowstring.kernels.json.tree`, and the byte
    position; `text` is empty where it is too long, and `row` comes from :meth:`Texts.place`.
    """
    where = f"{row}, byte {position}"
    if code == status.TOO_DEEP:
        return LimitExceeded(
            "JSON is nested too deeply",
            expected=f"at most {limits.depth} levels",
            where=where,
            hint="Raise Limits.depth.",
        )
    if code == status.TOO_LONG:
        return LimitExceeded(
            "a JSON text is too long",
            expected=f"at most {limits.json_bytes} bytes",
            where=row,
            hint="Raise Limits.json_bytes.",
        )
    if code == status.OUTSIDE:
        return InvalidBody("a text is not within its buffer", where=row)
    if code == status.TWICE:
        key, _ = json.JSONDecoder().raw_decode(text[position:].decode(errors="replace"))
        return InvalidBody(
            "a JSON object has a key twice",
            found=repr(key)[:_LONGEST_KEY],
            where=where,
            hint='repeated="last" keeps the last value of each key.',
        )
    if code == status.NO_TEXT:
        what, found = "JSON text is not UTF-8", ""
        try:
            text[position:].decode()
        except UnicodeDecodeError as error:
            wrong = text[position + error.start : position + error.end + 1]
            if len(wrong) > 1 and wrong[0] == _LEAD_OF_SURROGATES and wrong[1] >= _FIRST_OF_SURROGATES:
                what = _WHAT[int(status.SURROGATE)]
            position, found = position + error.start, f"{error.reason}: {wrong[:1].hex()}"
        return InvalidBody(what, found=found, where=f"{row}, byte {position}")
    shown = text[position : position + _SHOWN].decode(errors="replace")
    return InvalidBody(_WHAT[code], found=repr(shown) if shown else "the end", where=where)


class ColumnBuilder:
    """A column as far as it is built: metadata of blocks, and values of rows."""

    def __init__(self, texts: Texts) -> None:
        rows = len(texts.starts)
        self._texts = texts
        self._device = texts.device
        self._offsets = np.zeros(rows + 1, np.int64)
        self._valid = np.zeros(rows, np.bool_)
        # Values are seldom longer than their texts; what is not written takes no memory.
        self._values = texts.device.xp.empty(max(len(texts.data), _LEAST), np.uint8)
        self._metadata: dict[bytes, int] = {}
        self._indices = np.zeros(rows, np.int32)  # of the metadata of each row

    def join(self, chunks: Chunks, waves: Sequence[Wave], reads: Sequence[Read]) -> list[Ranks]:
        """Add the metadata of the blocks of some waves, and return the ranks of all keys of each wave."""
        first, last = waves[0].start, waves[-1].stop
        bounds = np.flatnonzero(np.diff(chunks.blocks[first:last], prepend=-1, append=-1))
        written, ranks = join_keys([read.keys for read in reads], bounds)
        numbers = [self._metadata.setdefault(metadata, len(self._metadata)) for metadata in written]
        rows = np.append(chunks.firsts[first:last], chunks.lasts[last - 1])[bounds]
        self._indices[rows[0] : rows[-1]] = np.repeat(np.array(numbers, np.int32), np.diff(rows))
        ends = np.cumsum([len(read.keys.starts) for read in reads])
        return np.split(ranks, ends[:-1])

    def add(self, waves: Waves, read: Read, ranks: Ranks) -> None:
        """Append the values of a wave."""
        rows, device = read.rows, self._device
        sizes = device.to_host(waves.measure(read, ranks))
        begin = int(self._offsets[rows.start])
        offsets = begin + np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        end = int(offsets[-1])
        if end > _LARGEST:
            last = int(np.searchsorted(offsets, _LARGEST, side="right")) - 1
            raise LimitExceeded(
                "the values of a Variant column",
                expected="at most 2 GiB",
                found=end,
                where=self._texts.place(rows.start + last),
                hint="Make several columns of fewer rows.",
            )
        self._offsets[rows.start : rows.stop + 1] = offsets
        self._valid[rows] = read.statuses == READ
        if len(self._values) < end:
            larger = self._device.xp.empty(max(end, len(self._values) * 3 // 2), np.uint8)
            larger[:begin] = self._values[:begin]
            self._values = larger
        waves.write(read, device.from_host(offsets), self._values)

    def column(self, name: str) -> Column:
        device = self._device
        metadata = metadata_values(self._metadata, len(self._valid), device)
        valid: Any = self._valid
        validity = None if valid.all() else device.from_host(bitmap.packed(valid))
        indices, offsets = device.from_host(self._indices), device.from_host(self._offsets)
        return variant_of(name, validity, indices, metadata, offsets, self._values[: int(self._offsets[-1])])
