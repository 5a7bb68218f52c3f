"""Arrow's golden streams, published and fetched, against pyarrow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import bowstring as bow

FOLDERS = ["0.14.1", "0.17.1", "1.0.0-littleendian", "2.0.0-compression", "4.0.0-shareddict", "cpp-21.0.0"]


def streams(data: Path, folder: str) -> list[Path]:
    """Return the streams of a folder."""
    found = sorted((data / "arrow-ipc-stream" / "integration" / folder).glob("*.stream"))
    if not found:
        pytest.skip(f"no golden streams: {folder} is not among those in {data}")
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_by_way_of_pyarrow(server: bow.Server, arrow_test_data: Path, folder: str) -> None:
    """Every golden stream that pyarrow reads is published from its reader, and arrives as it read it."""
    for path in streams(arrow_test_data, folder):
        expected = pa.ipc.open_stream(path).read_all()
        with bow.connect(server.publish(path.name, pa.ipc.open_stream(path))) as stream:
            assert stream.read_all().equals(expected, check_metadata=True), path.name


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if "compression" not in folder])
def test_by_way_of_our_reader(server: bow.Server, arrow_test_data: Path, folder: str) -> None:
    """Every golden stream that we read is published from our reader, and arrives as pyarrow reads it."""
    for path in streams(arrow_test_data, folder):
        expected = pa.ipc.open_stream(path).read_all()
        with bow.ipc.open_stream(path) as reader, bow.connect(server.publish(path.name, reader)) as stream:
            assert stream.read_all().equals(expected, check_metadata=True), path.name


@pytest.mark.parametrize("folder", FOLDERS)
def test_resident_and_separate(serve: Callable[..., bow.Server], arrow_test_data: Path, folder: str) -> None:
    """Every golden stream is published whole, and fetched over two connections, and in copies."""
    server = serve()
    for path in streams(arrow_test_data, folder):
        table = pa.ipc.open_stream(path).read_all()
        endpoint = server.publish(path.name, table, separate=True)
        for mode in ("map", "copy"):
            with bow.connect(endpoint, mode=mode) as stream:
                assert stream.read_all().equals(table, check_metadata=True), path.name
        server.withdraw(path.name)
