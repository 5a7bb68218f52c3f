"""Encodings of text and binary: with offsets, as views, compressed by symbols and by tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.errors import InvalidBody, Unsupported
from bowstring.kernels.vortex import decode_text
from bowstring.vortex.decode import encoding
from bowstring.vortex.dtype import Kind
from bowstring.vortex.values import Values

if TYPE_CHECKING:
    from bowstring.vortex.decode import Decoder
    from bowstring.vortex.dtype import DType
    from bowstring.vortex.message import ArrayNode

_OLDER_BUFFERS: Final = 2
_SYMBOL_BYTES: Final = 8
_MOST_SYMBOLS: Final = 255
_MOST_BYTES: Final = (1 << 31) - 1


@encoding("vortex.varbinview")
def views(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Views as in Arrow."""
    # Buffers: data buffers; the views, of 16 bytes each, are the last. Children: validity, or none.
    dtype = decoder.expect(node, dtype, Kind.UTF8, Kind.BINARY)
    last = len(node.buffers) - 1
    table = decoder.buffer(node, last, np.uint64, 2 * rows)
    data = tuple(decoder.buffer(node, at) for at in range(last))
    return Values(dtype, rows, decoder.validity(node, 0, rows), (table, *data))


@encoding("vortex.varbin")
def offsets(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Values one behind the other."""
    # Metadata: 1 type of the offsets. Buffers: the bytes. Children: offsets, one more than there are rows,
    # of which the first need not be 0; validity, or none.
    dtype = decoder.expect(node, dtype, Kind.UTF8, Kind.BINARY)
    kind = decoder.ptype(node, decoder.metadata(node).uint(1), kinds="ui")
    bounds = decoder.numbers(node, 0, kind, rows + 1)
    validity = decoder.validity(node, 1, rows)
    return _with_views(decoder, dtype, rows, validity, _signed(decoder, bounds), decoder.buffer(node, 0))


@encoding("vortex.fsst")
def symbols(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Values compressed by FSST: a code stands for a symbol of up to 8 bytes; after 255 a byte stands as it is."""
    # Metadata: 1 type of the lengths, 2 type of the offsets. Buffers: symbols, of 8 bytes each; their
    # lengths; the codes. Children: lengths of the values; where the codes of each begin, and where the last
    # end; validity, or none. An older form has the symbols and their lengths only; its children are the
    # codes as a ``vortex.varbin``, and the lengths.
    dtype = decoder.expect(node, dtype, Kind.UTF8, Kind.BINARY)
    metadata = decoder.metadata(node)
    of_lengths = decoder.ptype(node, metadata.uint(1), kinds="ui")
    if len(node.buffers) == _OLDER_BUFFERS:
        decoder.only_children(node, 2)
        inner = node.children[0] if node.children else node
        if inner.encoding != "vortex.varbin":
            raise Unsupported("codes of FSST in another encoding than vortex.varbin", found=inner.encoding)
        kind = decoder.ptype(inner, decoder.metadata(inner).uint(1), kinds="ui")
        ends = decoder.numbers(inner, 0, kind, rows + 1)
        validity, codes = decoder.validity(inner, 1, rows), decoder.buffer(inner, 0)
        lengths = decoder.numbers(node, 1, of_lengths, rows)
    else:
        kind = decoder.ptype(node, metadata.uint(2), kinds="ui")
        lengths = decoder.numbers(node, 0, of_lengths, rows)
        ends = decoder.numbers(node, 1, kind, rows + 1)
        validity, codes = decoder.validity(node, 2, rows), decoder.buffer(node, 2)
    table, sizes = decoder.buffer(node, 0), decoder.buffer(node, 1)
    if table.size != _SYMBOL_BYTES * sizes.size or sizes.size > _MOST_SYMBOLS:
        raise InvalidBody(
            "a table of symbols is malformed", expected="8 bytes and a length for each of up to 255"
        )
    starts, size = _placed(decoder, lengths)
    data = decode_text.decode_fsst(
        codes, _signed(decoder, ends), table, sizes, starts, size, faults=decoder.faults
    )
    return _with_views(decoder, dtype, rows, validity, starts, data)


@encoding("vortex.onpair")
def tokens(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Values compressed by OnPair: a code stands for a token of a dictionary."""
    # Metadata: 1 type of the lengths, 3 number of tokens, 4 number of codes, 5 type of the offsets of
    # tokens, 6 type of the codes, 7 type of the offsets of codes. Buffers: the tokens, and some bytes
    # behind them. Children: where each token begins and the last ends; codes; where the codes of each value
    # begin and the last end; lengths of the values; validity, or none.
    dtype = decoder.expect(node, dtype, Kind.UTF8, Kind.BINARY)
    metadata = decoder.metadata(node)
    kinds = [decoder.ptype(node, metadata.uint(field), kinds="ui") for field in (5, 6, 7, 1)]
    counts = (metadata.uint(3) + 1, metadata.uint(4), rows + 1, rows)
    bounds, codes, ends, lengths = (
        decoder.numbers(node, at, kind, count)
        for at, (kind, count) in enumerate(zip(kinds, counts, strict=True))
    )
    validity = decoder.validity(node, 4, rows)
    starts, size = _placed(decoder, lengths)
    packed = decoder.buffer(node, 0)
    data = decode_text.decode_onpair(
        codes, _signed(decoder, ends), packed, _signed(decoder, bounds), starts, size, faults=decoder.faults
    )
    return _with_views(decoder, dtype, rows, validity, starts, data)


def _placed(decoder: Decoder, lengths: Any) -> tuple[Any, int]:
    """Return where values of some lengths go, and how many bytes they take, which are counted."""
    starts = decode_text.offsets_of(lengths)
    size = decoder.last(starts)
    decoder.allocate(size)
    return starts, size


def _signed(decoder: Decoder, found: Any) -> Any:
    """Return offsets as int32 or int64; those that turn negative point outside, as they did."""
    if found.dtype in (np.int32, np.int64):
        return found
    decoder.allocate(8 * found.size)
    return found.astype(np.int64)


def _with_views(decoder: Decoder, dtype: DType, rows: int, validity: Any, starts: Any, data: Any) -> Values:
    if data.size > _MOST_BYTES:
        raise Unsupported(
            "text or binary of 2 GiB or more in one column of a batch", found=f"{data.size} bytes"
        )
    decoder.allocate(16 * rows)
    views = decode_text.make_views(starts, data, validity=validity, faults=decoder.faults)
    return Values(dtype, rows, validity, (views, data) if data.size else (views,))
