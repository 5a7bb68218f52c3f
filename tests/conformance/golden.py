"""The golden files of Arrow's integration tests, and how each of them was written."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pytest

from tests.ipc.flatbuffers import Table, record_batch_of

__all__ = ["FOLDERS", "Case", "cases", "write_options"]

FOLDERS: Final = {
    "0.14.1": 9,
    "0.17.1": 1,
    "1.0.0-littleendian": 22,
    "1.0.0-bigendian": 22,
    "2.0.0-compression": 4,
    "4.0.0-shareddict": 1,
    "cpp-21.0.0": 32,
}
"""The folders under ``arrow-ipc-stream/integration``, and the number of cases of each in apache/arrow-testing."""

_CONTINUATION = b"\xff\xff\xff\xff"


class Case(NamedTuple):
    """One golden case: the same values as JSON, as a stream and as a file."""

    folder: str
    name: str
    json: Path
    stream: Path
    file: Path

    def __str__(self) -> str:
        return f"{self.folder}/{self.name}"


def cases(data: Path, *folders: str) -> list[Case]:
    """Return the cases of some folders; skip the test where a selection of arrow-testing lacks them all."""
    found = [case for folder in folders for case in _cases(data, folder)]
    if not found:
        pytest.skip(f"no golden files: {', '.join(folders)} is not among those in {data}")
    return found


def _cases(data: Path, folder: str) -> list[Case]:
    where = data / "arrow-ipc-stream" / "integration" / folder
    stems = [path.name.removesuffix(".json.gz") for path in sorted(where.glob("*.json.gz"))]
    return [
        Case(
            folder,
            stem.removeprefix("generated_"),
            *(where / f"{stem}{ending}" for ending in (".json.gz", ".stream", ".arrow_file")),
        )
        for stem in stems
    ]


def write_options(case: Case) -> pa.ipc.IpcWriteOptions:
    """Return the options that write as the case was written: metadata version, framing and compression."""
    stream = case.stream.read_bytes()
    messages = list(pa.ipc.MessageReader.open_stream(stream))
    batches = [
        record_batch_of(each.metadata.to_pybytes()) for each in messages if each.type == "record batch"
    ]
    return pa.ipc.IpcWriteOptions(
        metadata_version=messages[0].metadata_version,
        use_legacy_format=not stream.startswith(_CONTINUATION),
        compression=_codec(batches[0]) if batches else None,
    )


def _codec(batch: Table | None) -> str | None:
    compression = None if batch is None else batch.table(3)
    return None if compression is None else ("lz4", "zstd")[compression.number(0, "b")]
