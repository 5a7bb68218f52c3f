"""Text and binary: ``vortex.fsst``, dictionaries of texts, and offsets in few bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.kernels.vortex.encode import encode_fsst, train_fsst
from bowstring.vortex.compress.choice import DEPTH, constant_piece, dictionary_piece, encoded, integers, plan
from bowstring.vortex.compress.numbers import NODE, Numbers, Plan, sampled, smallest_unsigned, validity_of
from bowstring.vortex.dtype import PTYPES, DType
from bowstring.vortex.message import Piece
from bowstring.vortex.protobuf import VARINT, encode

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

    @property
    def tail(self) -> tuple[Piece, ...]:
        return validity_of(self.valid)

    @property
    def tail_bytes(self) -> int:
        return 0 if self.valid is None else len(self.array) // 8 + NODE


def compressed_text(array: Any, dtype: DType, depth: int = DEPTH) -> Piece:
    """Return text or binary in the encoding that takes the fewest bytes."""
    return _plan(array, dtype, depth).build()


def _plan(array: Any, dtype: DType, depth: int) -> Plan:
    if len(array) and array.null_count == len(array):
        return Plan(NODE, lambda: constant_piece(None, dtype))
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
    metadata = encode([(1, VARINT, PTYPES.index(offsets.dtype))])

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
        whole = constant_piece(distinct[0].as_py(), dtype)
        if texts.valid is None:
            return Plan(NODE, lambda: whole)
        children = (whole, *texts.tail)
        return Plan(2 * NODE + texts.tail_bytes, lambda: Piece("vortex.masked", children=children))
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
    held = Piece(
        "vortex.varbin",
        encode([(1, VARINT, PTYPES.index(offsets.dtype))]),
        ((codes, 1),),
        (integers(offsets), *texts.tail),
    )
    metadata = encode([(1, VARINT, PTYPES.index(lengths.dtype))])
    buffers = ((table.symbols, _SYMBOL_ALIGNMENT), (table.lengths, 1))
    return Piece("vortex.fsst", metadata, buffers, (held, encoded(Numbers(lengths))))
