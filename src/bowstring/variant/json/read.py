"""Variant columns from JSON text, read column-wise by kernels.

Parts of the rows are read into nodes and numbered keys (:mod:`bowstring.kernels.json.read`); the keys of all parts
of a block are joined and sorted; then nodes are measured and written, fields in the order of their keys.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.column import Column
from bowstring.columnar.spans import buffer_of
from bowstring.errors import BowstringError, InvalidBody, LimitExceeded, UsageError
from bowstring.kernels.json import format as status
from bowstring.kernels.json.format import NOTHING, READ
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.memory.arrays import distinct
from bowstring.variant.build import BLOCK_ROWS, STORAGE, variant_field
from bowstring.variant.json.dictionary import joined
from bowstring.variant.json.source import Rules, Texts, check_rules, texts_of
from bowstring.variant.json.waves import Parts, Ranks, Read, Wave, Waves, parts_of, waves_of

__all__ = ["Building", "error_of", "from_json"]


_SHOWN: Final = 20
_LONGEST_KEY: Final = 80
_LEAD_OF_HALF: Final = 0xED
_FIRST_OF_HALF: Final = 0xA0
_WHAT: Final = {
    int(status.END): "the text ends before its value does",
    int(status.UNEXPECTED): "this cannot be here",
    int(status.CONTROL): "a control character in a string",
    int(status.ESCAPE): "no escape",
    int(status.TRAILING): "something behind the value",
}

_LARGEST: Final = (1 << 31) - 1
_LEAST: Final = 1 << 10


def from_json(
    texts: Any,
    *,
    rules: Rules = "plain",
    on_error: Literal["raise", "null"] = "raise",
    name: str = "variant",
    limits: Limits = DEFAULT_LIMITS,
) -> Column:
    """Return JSON texts as a Variant column.

    Integers take the narrowest type that holds them. Numbers without an exponent that have at most 38 digits,
    and as many behind the point, become decimals with exactly these digits, integers beyond 64 bits among them;
    all others the nearest double. An object with a key twice is refused, and so are ``NaN``, ``Infinity`` and
    half a surrogate pair.

    It is JSON as RFC 8259 has it, and nothing else. Every 65,536 rows, counted from the first, have a dictionary of
    keys of their own, in the order of their UTF-8; the result does not depend on how many threads there are.

    Parameters
    ----------
    texts
        A column of text of any type (or binary: UTF-8): a Column, a Batch or Arrow data of one, an Arrow array;
        or an iterable of str, bytes and None. Null rows become SQL NULLs.
    rules
        ``"plain"``: a number beyond the doubles is refused, ``-0.0`` stays a double. ``"spark"``: it becomes an
        infinity, ``-0.0`` the decimal 0.0, as with Spark's ``parse_json``; what is behind the value is refused,
        where Spark does not look at it.
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
        A text is no JSON, or one of the above; the error says its row, and the byte.
    LimitExceeded
        Nested too deeply, a text too long, more than 2 GiB of values, or rows that share too much text.
    MissingDependency
        numba is not installed.

    Examples
    --------
    >>> from bowstring.variant.python.convert import to_python
    >>> to_python(from_json(['{"a": [1, 2.50, 1e3]}', "null"]))
    [{'a': [1, Decimal('2.50'), 1000.0]}, None]
    """
    check_rules(rules)
    if on_error not in ("raise", "null"):
        raise UsageError("on_error", expected="'raise' or 'null'", found=repr(on_error))
    source = texts_of(texts, limits)
    with source.device.use():
        parts = parts_of(source)
        waves = Waves(source, parts, spark=rules == "spark", limits=limits)
        building = Building(source)
        for group in waves_of(parts):
            reads = [waves.read(wave) for wave in group]
            if on_error == "raise":
                for read in reads:
                    _raise_first(read, source, limits)
            ranks = building.join(parts, group, reads)
            for k, wave in enumerate(group):
                # Of a block that takes several waves only the keys were kept.
                read = reads[k] if len(group) == 1 else waves.read_again(wave, reads[k])
                building.add(waves, read, ranks[k])
        return building.column(name)


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
            int(read.places[first]),
            row,
            limits,
        )


def error_of(code: int, text: bytes, place: int, row: int, limits: Limits) -> BowstringError:
    """Return the error of a row.

    Parameters
    ----------
    code
        What became of it, of :mod:`bowstring.kernels.json.format`.
    text
        Its bytes, empty where they are too many.
    place
        The byte that it is about.
    """
    where = f"row {row}, byte {place}"
    shown = _shown(text, place)
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
            where=f"row {row}",
            hint="Raise Limits.json_bytes.",
        )
    if code == status.OUTSIDE:
        return InvalidBody("a text is not within its buffer", where=f"row {row}")
    if code == status.TWICE:
        return InvalidBody("a JSON object has a key twice", found=_key(text, place), where=where)
    if code == status.RANGE:
        return InvalidBody("a number of JSON is beyond the doubles", found=shown, where=where)
    if code == status.SURROGATE:
        return InvalidBody("half a surrogate pair has no UTF-8", found=shown, where=where)
    if code == status.NO_TEXT:
        return _no_text(text, place, row)
    return InvalidBody(f"not JSON: {_WHAT[code]}", found=shown, where=where)


def _shown(text: bytes, place: int) -> str:
    part = text[place : place + _SHOWN].decode(errors="replace")
    return repr(part) if part else "the end"


def _key(text: bytes, place: int) -> str:
    key, _ = json.JSONDecoder().raw_decode(text[place:].decode(errors="replace"))
    return repr(key)[:_LONGEST_KEY]


def _no_text(text: bytes, place: int, row: int) -> InvalidBody:
    """Return the error of a string that is not UTF-8, which begins at `place`."""
    what, found = "JSON text is not UTF-8", ""
    try:
        text[place:].decode()
    except UnicodeDecodeError as error:
        wrong = text[place + error.start : place + error.end + 1]
        if len(wrong) > 1 and wrong[0] == _LEAD_OF_HALF and wrong[1] >= _FIRST_OF_HALF:
            what = "half a surrogate pair has no UTF-8"
        place, found = place + error.start, f"{error.reason}: {wrong[:1].hex()}"
    return InvalidBody(what, found=found, where=f"row {row}, byte {place}")


class Building:
    """A column as far as it is built: metadata of blocks, and values of rows."""

    def __init__(self, texts: Texts) -> None:
        rows = len(texts.starts)
        self._device = texts.device
        self._offsets = np.zeros(rows + 1, np.int64)
        self._valid = np.zeros(rows, np.bool_)
        # Values are seldom longer than their texts; what is not written takes no memory.
        self._values = texts.device.xp.empty(max(len(texts.data), _LEAST), np.uint8)
        self._metadata: dict[bytes, int] = {}
        self._of_blocks: list[int] = []

    def join(self, parts: Parts, waves: Sequence[Wave], reads: Sequence[Read]) -> list[Ranks]:
        """Add the metadata of the blocks of some waves, and return the ranks of all keys of each wave."""
        keys = [each for read in reads for each in read.keys]
        blocks = parts.blocks[waves[0].first : waves[-1].last]
        ranks: Ranks = []
        for block in distinct(blocks):
            chosen = np.flatnonzero(blocks == block)
            metadata, found = joined(keys[chosen[0] : chosen[-1] + 1])
            self._of_blocks.append(self._metadata.setdefault(metadata, len(self._metadata)))
            ranks.extend(found)
        bounds = np.cumsum([0, *(len(read.keys) for read in reads)]).tolist()
        return [ranks[first:last] for first, last in itertools.pairwise(bounds)]

    def add(self, waves: Waves, read: Read, ranks: Ranks) -> None:
        """Write the values of a wave behind those before it.

        Raises
        ------
        LimitExceeded
            They do not fit a column of binary.
        """
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
                where=f"row {rows.start + last}",
                hint="Make several columns of fewer rows.",
            )
        self._offsets[rows.start : rows.stop + 1] = offsets
        self._valid[rows] = read.statuses == READ
        self._make_room(begin, end)
        waves.write(read, device.from_host(offsets), self._values)

    def _make_room(self, held: int, needed: int) -> None:
        if len(self._values) < needed:
            larger = self._device.xp.empty(max(needed, len(self._values) * 3 // 2), np.uint8)
            larger[:held] = self._values[:held]
            self._values = larger

    def column(self, name: str) -> Column:
        """Return the column, on the device of the texts."""
        rows, device = len(self._valid), self._device
        indices = np.repeat(np.array(self._of_blocks, np.int32), BLOCK_ROWS)[:rows]
        metadata = pa.DictionaryArray.from_arrays(
            pa.array(indices), pa.array(list(self._metadata), pa.binary())
        )
        nothing = pa.py_buffer(np.zeros(rows + 1, np.int32))
        empty = pa.Array.from_buffers(pa.binary(), rows, [None, nothing, pa.py_buffer(b"")], null_count=0)
        mask = None if self._valid.all() else pa.array(~self._valid)
        array = pa.StructArray.from_arrays([metadata, empty], fields=list(STORAGE), mask=mask)
        field = variant_field(name)
        batch = Batch.from_arrow(pa.RecordBatch.from_arrays([array], schema=pa.schema([field])))
        if not device.is_host:
            batch = batch.to_device(device)
        offsets = device.from_host(self._offsets.astype(np.int32))
        values = self._values[: int(self._offsets[-1])]
        return Batch.from_parts(
            batch.layout,
            rows,
            batch.nodes,
            [
                *batch.buffers[:-2],
                buffer_of(offsets.view(np.uint8), device),
                buffer_of(values, device) if len(values) else None,
            ],
            dictionaries=batch.dictionaries,
            device=device,
        )[name]
