"""Golden streams and files of Arrow's integration tests, value by value against pyarrow."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bowstring import ipc

FOLDERS = [
    "0.14.1",
    "0.17.1",
    "1.0.0-bigendian",
    "1.0.0-littleendian",
    "2.0.0-compression",
    "4.0.0-shareddict",
    "cpp-21.0.0",
]
KINDS: dict[str, tuple[Any, Any]] = {
    ".stream": (ipc.open_stream, pa.ipc.open_stream),
    ".arrow_file": (ipc.open_file, pa.ipc.open_file),
}


def _golden(data: Path, folder: str, suffix: str) -> list[Path]:
    found = sorted((data / "arrow-ipc-stream" / "integration" / folder).glob(f"*{suffix}"))
    if not found:
        pytest.skip(f"no golden data: {folder} is not among those in {data}")
    return found


def _written(new: Callable[..., Any], reader: Any, options: Any) -> bytes:
    sink = io.BytesIO()
    with reader, new(sink, reader.schema, options=options) as writer:
        for batch in reader:
            writer.write(batch)
    return sink.getvalue()


@pytest.mark.parametrize("suffix", list(KINDS))
@pytest.mark.parametrize("folder", FOLDERS)
def test_golden_data_read_equal_to_pyarrow(arrow_test_data: Path, folder: str, suffix: str) -> None:
    """Every golden stream and file is read as pyarrow reads it, from a map and from a file."""
    ours, theirs = KINDS[suffix]
    for path in _golden(arrow_test_data, folder, suffix):
        expected = theirs(path).read_all()
        with path.open("rb") as file:
            for source in (path, file):
                assert ours(source).read_all().equals(expected, check_metadata=True), path.name


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("suffix", list(KINDS))
@pytest.mark.parametrize("folder", FOLDERS)
def test_golden_data_are_written_back_equal(
    arrow_test_data: Path, folder: str, suffix: str, is_old: bool
) -> None:
    """Every golden stream and file, written by us as of today or as of old, is read by both as the original."""
    version = ipc.MetadataVersion.V4 if is_old else ipc.MetadataVersion.V5
    options = ipc.IpcWriteOptions(
        metadata_version=version, use_legacy_format=is_old, emit_dictionary_deltas=True
    )
    open_ours, open_theirs = KINDS[suffix]
    new = ipc.new_stream if suffix == ".stream" else ipc.new_file
    for path in _golden(arrow_test_data, folder, suffix):
        expected = open_theirs(path).read_all()
        data = _written(new, open_ours(path), options)
        for open_ in (open_ours, open_theirs):
            assert open_(data).read_all().equals(expected, check_metadata=True), path.name
