"""Decoding (with structural checks) and encoding the metadata of one record batch, beside pyarrow."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.benchmarks.case import Axis, Case, Explanation, LineUp, Measured, Role, Scale, Target, Way
from bowstring.benchmarks.data.payload import fingerprint
from bowstring.columnar.layout import Layout
from bowstring.ipc.body.check import check
from bowstring.ipc.body.decode import BatchDecoder
from bowstring.ipc.flatbuf.message import RecordBatchHeader, decode_message, decode_record_batch
from bowstring.ipc.flatbuf.template import Template
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import wrap

_COLUMNS: Final = (50, 1000)
_ROWS: Final = 64
# The time at most, as a multiple of pyarrow's, for few columns and for many.
_BOUNDS: Final = {"decode": (1.0, 0.15), "encode": (0.1, 0.02)}
_LOOP_SECONDS: Final = 0.02


class _Sample:
    """A batch of some columns, half of them with nulls, its message, and what its header says."""

    def __init__(self, columns: int) -> None:
        arrays = [
            pa.array([None, *range(1, _ROWS)] if index % 2 else range(_ROWS), pa.int64())
            for index in range(columns)
        ]
        self.batch = pa.RecordBatch.from_arrays(arrays, [f"c{index}" for index in range(columns)])
        self.schema = self.batch.schema
        self.serialized = self.batch.serialize()
        message = pa.ipc.read_message(self.serialized)
        self.metadata = message.metadata.to_pybytes()
        self.body_length = message.body.size
        self.layout = Layout.of(self.schema)
        self.template = Template(self.layout)
        self.header = decode_record_batch(decode_message(self.metadata))
        self.nodes = np.array(self.header.nodes)
        self.buffers = np.array(self.header.buffers)


def _timed(work: Callable[[], Any]) -> float:
    """Return the seconds of one call, from a loop that is long enough for the clock."""
    begin = time.perf_counter()
    work()
    once = max(time.perf_counter() - begin, 1e-7)
    repeats = range(max(1, int(_LOOP_SECONDS / once)))
    gc.disable()
    try:
        begin = time.perf_counter()
        for _ in repeats:
            work()
        return (time.perf_counter() - begin) / len(repeats)
    finally:
        gc.enable()


def _header_fingerprint(header: RecordBatchHeader) -> str:
    return f"{header.length} rows, " + fingerprint([header.nodes.tobytes(), header.buffers.tobytes()])


def _decode_ways(sample: _Sample, columns: str) -> Iterator[Way]:
    decoder = BatchDecoder.of(sample.layout, DEFAULT_LIMITS)
    body = wrap(bytes(sample.body_length))

    def decode() -> RecordBatchHeader:
        found = None if decoder is None else decoder.one(sample.metadata, body)
        if found is not None:
            return sample.header._replace(nodes=found.nodes[0])
        header = decode_record_batch(decode_message(sample.metadata))
        check(header, sample.layout, sample.body_length)
        return header

    def instead() -> pa.RecordBatch:
        return pa.ipc.read_record_batch(pa.ipc.read_message(sample.serialized), sample.schema)

    nodes_at = sample.metadata.index(sample.nodes.tobytes())
    buffers_at = sample.metadata.index(sample.buffers.tobytes())

    def views() -> RecordBatchHeader:
        nodes = np.frombuffer(sample.metadata, np.int64, sample.nodes.size, nodes_at)
        buffers = np.frombuffer(sample.metadata, np.int64, sample.buffers.size, buffers_at)
        return RecordBatchHeader(_ROWS, nodes.reshape(-1, 2), buffers.reshape(-1, 2))

    # pyarrow's own tables are the source: the batch that it reads says whether they are the same.
    said = f"{_ROWS} rows, " + fingerprint([sample.nodes.tobytes(), sample.buffers.tobytes()])
    baseline, floor = f"pyarrow decode, {columns}", f"two NumPy views, {columns}"
    yield _way(
        f"decode, {columns}",
        "subject",
        decode,
        lambda: (said, _header_fingerprint(decode())),
        baseline,
        floor,
    )
    yield _way(baseline, "baseline", instead, lambda: ("True", str(instead().equals(sample.batch))))
    yield _way(floor, "floor", views, lambda: (said, _header_fingerprint(views())))


def _encode_ways(sample: _Sample, columns: str) -> Iterator[Way]:
    def encode() -> bytes:
        return sample.template.encode_batch(_ROWS, sample.nodes, sample.buffers, sample.body_length)

    def instead() -> pa.Buffer:
        return sample.batch.serialize()

    def joined() -> bytes:
        return b"".join((sample.buffers.tobytes(), sample.nodes.tobytes()))

    def whole(metadata: bytes) -> str:
        """What pyarrow reads from our metadata before the body that it wrote itself."""
        body = pa.ipc.read_message(sample.serialized).body.to_pybytes()
        prefix = b"\xff\xff\xff\xff" + len(metadata).to_bytes(4, "little")
        message = pa.ipc.read_message(prefix + metadata + body)
        return str(pa.ipc.read_record_batch(message, sample.schema).equals(sample.batch))

    tables = sample.buffers.tobytes() + sample.nodes.tobytes()
    baseline, floor = f"pyarrow encode, {columns}", f"two tables joined, {columns}"
    yield _way(f"encode, {columns}", "subject", encode, lambda: ("True", whole(encode())), baseline, floor)
    yield _way(
        baseline,
        "baseline",
        instead,
        lambda: (fingerprint([sample.serialized.to_pybytes()]), fingerprint([instead().to_pybytes()])),
    )
    yield _way(floor, "floor", joined, lambda: (fingerprint([tables]), fingerprint([joined()])))


def _way(
    name: str,
    role: Role,
    work: Callable[[], Any],
    verdict: Callable[[], tuple[str, str]],
    baseline: str | None = None,
    floor: str | None = None,
) -> Way:
    def once() -> Measured:
        seconds = _timed(work)
        return Measured(seconds, *verdict())

    series, _, columns = name.rpartition(", ")
    at: dict[Axis, float] = {"columns": int(columns.split()[0])}
    return Way(name, role, once, None, baseline, floor, series=series, at=at)


def _line_ups(scale: Scale) -> Iterator[LineUp]:
    samples = {f"{columns} columns": _Sample(columns) for columns in _COLUMNS}
    few, many = samples
    for what, ways in (("decode", _decode_ways), ("encode", _encode_ways)):
        targets = tuple(
            Target(f"{what}, {columns}", "at most", bound, f"pyarrow {what}, {columns}")
            for columns, bound in zip((few, many), _BOUNDS[what], strict=True)
        )
        line_up = tuple(way for columns, sample in samples.items() for way in ways(sample, columns))
        yield LineUp(f"{what} a record batch", line_up, scale.rounds(31, 5), targets, panel=what)


CASE: Final = Case(
    "metadata",
    "decode and check, and encode, the metadata of a record batch",
    _line_ups,
    Explanation(
        measured=(
            "One call that decodes the metadata of a record batch and checks its structure, or encodes it; "
            "in a loop, so that the processor's caches are warm."
        ),
        baseline="pyarrow: reading a record batch out of a message, and serializing one.",
        floor="For decoding, two NumPy views over the message; for encoding, two tables of bytes joined.",
        reading=(
            "A stream of many small batches spends its time here. The cost should hardly grow with the "
            "columns."
        ),
    ),
)
