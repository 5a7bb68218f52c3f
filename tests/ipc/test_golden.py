"""Golden streams of Arrow's integration tests, value by value against pyarrow."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest

from bowstring import ipc
from bowstring.errors import Unsupported

FOLDERS = ["0.14.1", "0.17.1", "1.0.0-littleendian", "2.0.0-compression", "4.0.0-shareddict", "cpp-21.0.0"]


def _streams(data: Path, folder: str) -> list[Path]:
    streams = sorted((data / "arrow-ipc-stream" / "integration" / folder).glob("*.stream"))
    if not streams:
        pytest.skip(f"no golden streams: {folder} is not among those in {data}")
    return streams


@pytest.mark.parametrize("folder", FOLDERS)
def test_golden_streams_read_equal_to_pyarrow(arrow_test_data: Path, folder: str) -> None:
    """Every golden stream is read as pyarrow reads it; compressed ones are refused by name."""
    for path in _streams(arrow_test_data, folder):
        expected = pa.ipc.open_stream(path).read_all()
        if folder == "2.0.0-compression":
            with pytest.raises(Unsupported, match="lz4" if "lz4" in path.name else "zstd"):
                ipc.open_stream(path).read_all()
        else:
            found = ipc.open_stream(path).read_all()
            assert found.equals(expected, check_metadata=True), path.name


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if "compression" not in folder])
def test_golden_streams_are_written_back_equal(arrow_test_data: Path, folder: str) -> None:
    """Every golden stream, read and written by us, is read by pyarrow as the original."""
    for path in _streams(arrow_test_data, folder):
        sink = io.BytesIO()
        with ipc.open_stream(path) as reader, ipc.new_stream(sink, reader.schema) as writer:
            for batch in reader:
                writer.write(batch)
        found, expected = pa.ipc.open_stream(sink.getvalue()).read_all(), pa.ipc.open_stream(path).read_all()
        assert found.equals(expected, check_metadata=True), path.name


def test_big_endian_streams_are_refused_by_name(arrow_test_data: Path) -> None:
    """Bodies in the other byte order are named, not misread."""
    for path in _streams(arrow_test_data, "1.0.0-bigendian"):
        with pytest.raises(Unsupported, match="big-endian"):
            ipc.open_stream(path)
