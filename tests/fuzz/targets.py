"""What is fuzzed: each target takes any bytes, and returns, or raises where Bowstring did what it must never do.

Errors of Bowstring's tree are the right answer to wrong bytes, and are swallowed here; everything else is a
finding: another error, a batch that pyarrow finds malformed, a valid batch that cannot be written again.
"""

from __future__ import annotations

import contextlib
import io
import math
import random
from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa

from bowstring import Limits, ipc
from bowstring.columnar.layout import Layout
from bowstring.errors import BowstringError
from bowstring.ipc.body.check import check
from bowstring.ipc.flatbuf.message import MessageKind, decode_dictionary, decode_message, decode_record_batch
from bowstring.ipc.flatbuf.schema import decode_schema
from tests.fuzz.conversation_target import conversation, mutated_conversation
from tests.fuzz.depot_target import depot_requests, mutated_requests_of_depots
from tests.fuzz.flight_target import flight_requests, mutated_requests
from tests.fuzz.mutators import changed_bytes
from tests.fuzz.parquet_target import mutated_parquet, parquet
from tests.fuzz.tls_target import tls
from tests.fuzz.ucx_target import ucx
from tests.fuzz.variant_targets import json_text, variant_value
from tests.fuzz.vortex_target import mutated_vortex, vortex

LIMITS: Final = Limits(metadata_bytes=1 << 16, message_bytes=1 << 20, decompressed_bytes=1 << 20, columns=256)
_BODY: Final = 1 << 12

_LAYOUTS: Final = [
    Layout.of(pa.schema([pa.field("a", type_)]))
    for type_ in (
        pa.int64(),
        pa.string(),
        pa.string_view(),
        pa.list_(pa.struct({"x": pa.large_binary(), "y": pa.bool_()})),
        pa.map_(pa.string(), pa.list_view(pa.int16())),
        pa.dense_union([pa.field("n", pa.null()), pa.field("s", pa.binary_view())]),
        pa.run_end_encoded(pa.int32(), pa.decimal256(50, 3)),
        pa.dictionary(pa.int8(), pa.string()),
    )
]


def metadata(data: bytes) -> None:
    """Decode a message and, whatever it is, its header; a batch is checked against layouts of many types."""
    with contextlib.suppress(BowstringError):
        message = decode_message(data, LIMITS)
        if message.kind is MessageKind.SCHEMA:
            decode_schema(message, LIMITS)
        elif message.kind is MessageKind.DICTIONARY_BATCH:
            _check(decode_dictionary(message).batch)
        elif message.kind is MessageKind.RECORD_BATCH:
            _check(decode_record_batch(message))


def _check(header: Any) -> None:
    for layout in _LAYOUTS:
        with contextlib.suppress(BowstringError):
            check(header, layout, _BODY)


def stream(data: bytes) -> None:
    """Read a stream to its end, from memory and from a file."""
    for source in (data, io.BytesIO(data)):
        with contextlib.suppress(BowstringError), ipc.open_stream(source, limits=LIMITS) as reader:
            _take(reader)


def file(data: bytes) -> None:
    """Read a file: all of its batches, each by itself, the last one first."""
    with contextlib.suppress(BowstringError), ipc.open_file(data, limits=LIMITS) as reader:
        _take(reader.get_batch(index) for index in reversed(range(reader.num_record_batches)))


def tensor(data: bytes) -> None:
    """Read a tensor, dense or sparse, check it and look at all of it."""
    with contextlib.suppress(BowstringError):
        _look(ipc.read_tensor(data, limits=LIMITS).to_numpy())
    with contextlib.suppress(BowstringError):
        found = ipc.read_sparse_tensor(data, limits=LIMITS)
        _look(found.data)
        found.validate(full=True)
        found.to_arrow()
        found.to_coo().validate(full=True)
        if math.prod(found.shape) <= _BODY:
            _look(found.to_tensor().to_numpy())


def _look(array: Any) -> None:
    # Strides of 0 make a large array of a few bytes.
    if array.nbytes <= LIMITS.message_bytes:
        array.tobytes()


def _take(batches: Iterable[Any]) -> None:
    for batch in batches:
        found = batch.to_arrow()
        found.validate()
        batch.validate(full=True)
        found.validate(full=True)
        _write(batch)
        _write(batch.slice(batch.num_rows // 3))


def _write(batch: Any) -> None:
    sink = io.BytesIO()
    with ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    pa.ipc.open_stream(sink.getvalue()).read_all().validate(full=True)


TARGETS: Final[dict[str, Callable[[Any], None]]] = {
    "metadata": metadata,
    "stream": stream,
    "file": file,
    "tensor": tensor,
    "variant": variant_value,
    "json": json_text,
    "parquet": parquet,
    "vortex": vortex,
    "conversation": conversation,
    "depot": depot_requests,
    "flight": flight_requests,
    "tls": tls,
    "ucx": ucx,
}
MUTATORS: Final[dict[str, Callable[[bytes, random.Random], bytes]]] = {
    "parquet": mutated_parquet,
    "vortex": mutated_vortex,
    "conversation": mutated_conversation,
    "depot": mutated_requests_of_depots,
    "flight": mutated_requests,
}
"""What changes inputs that have parts; others are changed as bytes."""
GUARDED: Final = frozenset({"stream", "file", "tensor", "parquet", "vortex"})
"""Targets whose input is memory that is read where it lies."""


def mutated(target: str, data: bytes, rng: random.Random) -> bytes:
    """Return an input that was changed in its parts; or anywhere, where it has no parts, or none any more."""
    try:
        return MUTATORS.get(target, changed_bytes)(data, rng)
    except Exception:  # noqa: BLE001  of whatever reads parts that were changed before
        return changed_bytes(data, rng)
