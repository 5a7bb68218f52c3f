"""Booleans, numbers, text and times as the writer has them, in the encodings that take the fewest bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.kernels.vortex.encode import encode_fsst, train_fsst
from bowstring.vortex.compress.choice import (
    DEPTH,
    constant_piece,
    dictionary_piece,
    integers,
    plan,
    repeated,
)
from bowstring.vortex.compress.numbers import (
    NODE,
    Numbers,
    Plan,
    flags_of,
    sampled,
    smallest_unsigned,
    validity_of,
)
from bowstring.vortex.dtype import PTYPES, DType, units_per_second
from bowstring.vortex.message import Piece
from bowstring.vortex.protobuf import encode_numbers

if TYPE_CHECKING:
    from bowstring.kernels.vortex.encode import SymbolTable

_SAMPLE_BYTES: Final = 16 << 10
_MOST_SAMPLED: Final = 4 * _SAMPLE_BYTES  # training takes up to 160 bytes for each
_LEAST_BYTES: Final = 8 << 10
_TABLE_BYTES: Final = 255 * 9
_MOST_DISTINCT: Final = 0.5
_SYMBOL_ALIGNMENT: Final = 8


def array_of(piece: Piece, rows: int) -> Any:
    """Return text as the writer has it: of ``binary`` or ``large_binary``, and but for views over its memory."""
    has_views = piece.encoding == "vortex.varbinview"
    tail = piece.children if has_views else piece.children[1:]
    validity = pa.py_buffer(tail[0].buffers[0][0]) if tail else None
    data = [pa.py_buffer(np.ascontiguousarray(each)) for each, _ in piece.buffers]
    if has_views:
        views = pa.Array.from_buffers(pa.binary_view(), rows, [validity, data[-1], *data[:-1]])
        if validity is not None:  # exported by a batch, null views lead nowhere: pyarrow's cast follows them
            views = Batch.from_arrow(pa.record_batch([views], ["text"])).to_arrow().column(0)
        return views.cast(pa.large_binary())
    offsets = piece.children[0].buffers[0][0]
    kind = pa.binary() if offsets.dtype.itemsize == 4 else pa.large_binary()
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(offsets), data[0]])


class _Texts:
    """Texts of one column, one behind the other."""

    def __init__(self, array: Any) -> None:
        self.array = array
        _, offsets, data = array.buffers()
        kind = np.int32 if array.type == pa.binary() else np.int64
        self.offsets = np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1]
        first, last = (int(self.offsets[0]), int(self.offsets[-1])) if len(array) else (0, 0)
        whole = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        self.bytes = whole[first:last]
        self.starts = self.offsets.astype(np.int64) - first
        self.valid = None if not array.null_count else array.is_valid().to_numpy(zero_copy_only=False)
        self.tail = validity_of(self.valid)
        self.tail_bytes = len(array) // 8 + NODE if self.tail else 0


def _plan(array: Any, dtype: DType, depth: int) -> Plan:
    if len(array) and array.null_count == len(array):
        return repeated(None, dtype, (), 0)
    texts = _Texts(array)
    chosen = _dictionary(texts, dtype, depth) if depth == DEPTH and len(array) else None
    # Symbols take a byte for each text that is not empty at least, and one for each eight bytes.
    codes = max(int(np.count_nonzero(np.diff(texts.starts))), len(texts.bytes) // 8)
    least = min(len(texts.bytes), codes + len(array) * codes.bit_length() / 8)
    if chosen is not None and chosen.nbytes <= least:
        return chosen
    plans = [_plain(texts)] if chosen is None else [_plain(texts), chosen]
    if len(texts.bytes) >= _LEAST_BYTES:
        plans.append(_symbols(texts))
    return min(plans, key=lambda each: each.nbytes)


def _plain(texts: _Texts) -> Plan:
    offsets = texts.starts.astype(smallest_unsigned(len(texts.bytes)))
    of_offsets = plan(Numbers(offsets))
    metadata = encode_numbers(PTYPES.index(offsets.dtype))

    def build() -> Piece:
        return Piece("vortex.varbin", metadata, ((texts.bytes, 1),), (of_offsets.build(), *texts.tail))

    return Plan(len(texts.bytes) + of_offsets.nbytes + texts.tail_bytes + NODE, build)


def _dictionary(texts: _Texts, dtype: DType, depth: int) -> Plan | None:
    rows, array = len(texts.array), texts.array
    sample = sampled(rows)
    some = array if isinstance(sample, slice) else array.take(pa.array(sample))
    if len(some.dictionary_encode().dictionary) > max(_MOST_DISTINCT * len(some), 1):
        return None
    coded = array.dictionary_encode()
    distinct = coded.dictionary
    if len(distinct) > max(_MOST_DISTINCT * rows, 1):
        return None
    if len(distinct) == 1:
        return repeated(distinct[0].as_py(), dtype, texts.tail, texts.tail_bytes)
    indices = coded.indices.fill_null(0).to_numpy()
    codes = Numbers(indices.astype(smallest_unsigned(len(distinct) - 1)), texts.valid)
    values, of_codes = _plan(distinct, dtype, depth - 1), plan(codes, depth - 1)

    def build() -> Piece:
        return dictionary_piece(codes, len(distinct), of_codes.build(), values.build())

    return Plan(values.nbytes + of_codes.nbytes + NODE, build)


def _symbols(texts: _Texts) -> Plan:
    """Plan codes for symbols that occur often, in the form that readers since Vortex 0.54 know: without offsets of
    their own, as codes in a ``vortex.varbin``.
    """
    table, ratio = _trained(texts)
    lengths = np.diff(texts.starts)
    lengths = lengths.astype(smallest_unsigned(int(lengths.max(initial=0))))
    of_lengths = plan(Numbers(lengths))
    bits = int(ratio * len(texts.bytes)).bit_length()
    nbytes = ratio * len(texts.bytes) + len(lengths) * bits / 8 + of_lengths.nbytes + _TABLE_BYTES
    return Plan(nbytes + texts.tail_bytes + 4 * NODE, lambda: _encode(texts, table, lengths))


def _trained(texts: _Texts) -> tuple[SymbolTable, float]:
    """Return symbols for some of the texts, and how much shorter these are then."""
    sizes = np.diff(texts.starts)
    rows = np.flatnonzero(sizes)
    count = min(len(rows), max(1, _SAMPLE_BYTES * len(rows) // len(texts.bytes)))
    chosen = rows[np.linspace(0, len(rows) - 1, count).astype(np.int64)]
    ends = np.cumsum(np.minimum(sizes[chosen], _SAMPLE_BYTES))
    offsets = np.minimum(np.concatenate([[0], ends]), _MOST_SAMPLED)
    begins = np.repeat(texts.starts[chosen] - offsets[:-1], np.diff(offsets))
    sample = texts.bytes[begins + np.arange(offsets[-1])]
    table = train_fsst(sample, offsets)
    return table, len(encode_fsst(sample, offsets, table)[0]) / max(len(sample), 1)


def _encode(texts: _Texts, table: SymbolTable, lengths: Any) -> Piece:
    codes, places = encode_fsst(texts.bytes, texts.starts, table)
    offsets = places.astype(smallest_unsigned(len(codes)))
    of_codes = Piece(
        "vortex.varbin",
        encode_numbers(PTYPES.index(offsets.dtype)),
        ((codes, 1),),
        (integers(offsets), *texts.tail),
    )
    metadata = encode_numbers(PTYPES.index(lengths.dtype))
    buffers = ((table.symbols, _SYMBOL_ALIGNMENT), (table.lengths, 1))
    return Piece("vortex.fsst", metadata, buffers, (of_codes, plan(Numbers(lengths)).build()))


_DAY: Final = 86_400
_WORD: Final = 8


def compressed(piece: Piece, dtype: DType, rows: int) -> Piece:
    """Return an array that has no others inside in the encodings that take the fewest bytes."""
    encoded = _encoded_anew(piece, dtype, rows)
    return encoded if encoded.nbytes < piece.nbytes else piece


def _encoded_anew(piece: Piece, dtype: DType, rows: int) -> Piece:
    match piece.encoding:
        case "vortex.bool":
            return _flags(piece, dtype, rows)
        case "vortex.primitive":
            return plan(_numbers(piece, rows)).build()
        case "vortex.decimal":
            return _decimals(piece, rows)
        case "vortex.ext":
            return _times(_numbers(piece.children[0], rows), dtype)
    return _plan(array_of(piece, rows), dtype, DEPTH).build()


def _numbers(piece: Piece, rows: int) -> Numbers:
    values: Any = np.ascontiguousarray(piece.buffers[0][0])
    return Numbers(values, flags_of(piece.children, rows))


def _flags(piece: Piece, dtype: DType, rows: int) -> Piece:
    valid = flags_of(piece.children, rows)
    if rows and valid is not None and not valid.any():
        return constant_piece(None, dtype)
    bits = flags_of((piece,), rows)
    if rows and valid is None and (bits is None or not bits.any()):
        return constant_piece(bits is None, dtype)
    return piece if valid is not None else piece._replace(children=())


def _decimals(piece: Piece, rows: int) -> Piece:
    """Return decimals as integers of at most 64 bits, where their values fit in those."""
    data, width = piece.buffers[0]
    data, valid = np.ascontiguousarray(data), flags_of(piece.children, rows)
    if width <= _WORD:
        values = data.view(f"<i{width}")
    else:
        words = data.view("<i8").reshape(-1, width // _WORD)
        fits = (words[:, 1:] == (words[:, :1] >> np.int64(63))).all(axis=1)
        if valid is not None:
            fits |= ~valid
        if not fits.all():
            return piece
        values = np.ascontiguousarray(words[:, 0])
    numbers = Numbers(values, valid)
    low, high = numbers.bounds if numbers.count else (0, 0)
    bits = max((each if each >= 0 else ~each).bit_length() for each in (low, high))
    narrow = values.astype(f"<i{next(size for size in (1, 2, 4, 8) if bits < 8 * size)}")
    metadata = encode_numbers(PTYPES.index(narrow.dtype))
    return Piece("vortex.decimal_byte_parts", metadata, (), (plan(Numbers(narrow, valid)).build(),))


def _times(numbers: Numbers, dtype: DType) -> Piece:
    """Return timestamps as days, seconds and the rest, or as they are stored, whichever takes fewer bytes."""
    whole = plan(numbers)
    if not numbers.count:
        return Piece("vortex.ext", children=(whole.build(),))
    unit = units_per_second(dtype)
    days, rest = np.divmod(numbers.filled, np.int64(_DAY * unit))
    seconds, rest = np.divmod(rest, np.int64(unit))
    parts = (
        Numbers(days.astype("<i4") if int(np.abs(days).max()) < 1 << 31 else days, numbers.valid),
        Numbers(seconds.astype("<u4")),
        Numbers(rest.astype("<u4")),
    )
    plans = [plan(each) for each in parts]
    if sum(each.nbytes for each in plans) + NODE >= whole.nbytes:
        return Piece("vortex.ext", children=(whole.build(),))
    kinds = [PTYPES.index(each.values.dtype) for each in parts]
    metadata = encode_numbers(*kinds)
    return Piece("vortex.datetimeparts", metadata, (), tuple(each.build() for each in plans))
