"""What comes of bytes that may be anything: Bowstring's verdict and pyarrow's, and the memory that ours took.

``python -m tests.conformance.verdict`` takes paths from its input, one a line, each behind its kind (``stream``,
``file`` or ``tensor``) and a tab, and answers each with a line of JSON. It has `ROOM` bytes of address space
beyond what it starts with, so that memory which nobody counts ends it.
"""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from bowstring import Limits, ipc
from bowstring.errors import BowstringError

__all__ = ["LIMITS", "ROOM", "verdicts"]

ROOM: Final = 1 << 28
LIMITS: Final = Limits(
    metadata_bytes=1 << 18, message_bytes=1 << 20, decompressed_bytes=1 << 18, decompression_floor=1 << 18
)
VALID: Final = "valid"


def _ours(kind: str, data: Any) -> str:
    """Return what we say: valid, the error of our tree, or, in capitals, what must never be."""
    try:
        if kind == "tensor":
            ipc.read_tensor(data, limits=LIMITS)
            return VALID
        reader = (ipc.open_file if kind == "file" else ipc.open_stream)(data, limits=LIMITS)
        with reader:
            table = [_judged(batch) for batch in _batches(reader)]
            pa.Table.from_batches(table, reader.schema).validate(full=True)
    except BowstringError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001  # that is what is tested
        return f"NOT OURS: {type(error).__name__}: {error}"
    return VALID


def _batches(reader: Any) -> Any:
    count = getattr(reader, "num_record_batches", None)
    return reader if count is None else (reader.get_batch(index) for index in range(count))


def _judged(batch: Any) -> pa.RecordBatch:
    batch.validate(full=True)
    return batch.to_arrow()


def _pyarrow(kind: str, data: bytes) -> str:
    try:
        if kind == "tensor":
            pa.ipc.read_tensor(pa.BufferReader(data))
            return VALID
        open_ = pa.ipc.open_file if kind == "file" else pa.ipc.open_stream
        open_(data).read_all().validate(full=True)
    except Exception as error:  # noqa: BLE001  # Arrow's errors have no common root
        return f"{type(error).__name__}: {error}"
    return VALID


def _peak(call: Callable[[], str]) -> tuple[str, int]:
    """Return what a call says, and the most memory it had at once: Python's and NumPy's, and Arrow's."""
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1] + pool.max_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


def _judge(kind: str, path: str) -> dict[str, Any]:
    data = Path(path).read_bytes()
    ours, peak = _peak(lambda: _ours(kind, data))
    from_file, peak_from_file = _peak(lambda: _ours(kind, io.BytesIO(data)))
    return {
        "ours": ours,
        "from_file": from_file,
        "pyarrow": _pyarrow(kind, data),
        "peak": max(peak, peak_from_file),
        "size": len(data),
    }


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def verdicts(kind: str, paths: list[Path]) -> list[dict[str, Any]]:
    """Return what comes of some inputs, each judged in a process that only this ends."""
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", __name__],
        input="".join(f"{kind}\t{path}\n" for path in paths),
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        # A compiler needs more room than all of the inputs.
        env={**os.environ, "BOWSTRING_KERNELS": "interpret"},
        timeout=100,
    )
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert ended.returncode == 0, (paths[len(found)], ended.stderr)
    return found


def _main() -> None:
    table = pa.table({"a": ["warm"]})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    _ours("stream", sink.getvalue())  # what is made once, and threads
    room = _address_space() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    for line in sys.stdin:
        print(json.dumps(_judge(*line.rstrip("\n").split("\t"))), flush=True)


if __name__ == "__main__":
    _main()
