"""Golden streams and files: read as the JSON beside them says, and written again so that pyarrow reads the same."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bowstring import ipc
from bowstring.errors import InvalidBody
from bowstring.testing import fake_device
from tests.conformance.golden import FOLDERS, cases, write_options
from tests.conformance.integration_json import read_json


def assert_same(found: pa.Table, expected: pa.Table, what: object) -> None:
    """Same schema with all metadata, same values, in the same batches."""
    assert found.schema.equals(expected.schema, check_metadata=True), what
    assert found.equals(expected), what
    assert [len(batch) for batch in found.to_batches()] == [len(b) for b in expected.to_batches()], what


@pytest.mark.parametrize("folder", FOLDERS)
def test_streams_read_equal_to_the_json_and_to_pyarrow(arrow_test_data: Path, folder: str) -> None:
    """Every golden stream is read as its JSON says, and as pyarrow reads it."""
    for case in cases(arrow_test_data, folder):
        found = ipc.open_stream(case.stream).read_all()
        assert_same(found, read_json(case.json), case)
        assert_same(found, pa.ipc.open_stream(case.stream).read_all(), case)


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_read_equal_to_the_json_and_to_pyarrow(arrow_test_data: Path, folder: str) -> None:
    """Every golden file is read as its JSON says, and as pyarrow reads it; each batch alone, too."""
    for case in cases(arrow_test_data, folder):
        with ipc.open_file(case.file) as reader:
            found = reader.read_all()
            alone = [reader.get_batch(index).to_arrow() for index in range(reader.num_record_batches)]
        assert_same(found, read_json(case.json), case)
        assert_same(found, pa.ipc.open_file(case.file).read_all(), case)
        assert_same(pa.Table.from_batches(alone, found.schema), found, case)


def again(reader: Any, new: Callable[..., Any], options: pa.ipc.IpcWriteOptions | None) -> bytes:
    """Return what a reader gives, written by us: batch by batch, without pyarrow in between."""
    sink = io.BytesIO()
    with reader, new(sink, reader.schema, options=options) as writer:
        for batch in batches(reader):
            writer.write_batch(batch)
    return sink.getvalue()


def batches(reader: Any) -> Any:
    """Return the batches of a reader of streams, or of files."""
    count = getattr(reader, "num_record_batches", None)
    return reader if count is None else (reader.get_batch(index) for index in range(count))


@pytest.mark.parametrize("folder", FOLDERS)
def test_streams_are_written_again(arrow_test_data: Path, folder: str) -> None:
    """What we read and write, as we do it best and as the original was, is to pyarrow the original."""
    for case in cases(arrow_test_data, folder):
        expected = pa.ipc.open_stream(case.stream).read_all()
        for options in (None, write_options(case)):
            stream = again(ipc.open_stream(case.stream), ipc.new_stream, options)
            assert_same(pa.ipc.open_stream(stream).read_all(), expected, case)
            assert_same(ipc.open_stream(stream).read_all(), expected, case)
            assert_as_said(stream, options, case)


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_are_written_again(arrow_test_data: Path, folder: str) -> None:
    """So it is with files."""
    for case in cases(arrow_test_data, folder):
        expected = pa.ipc.open_file(case.file).read_all()
        for options in (None, write_options(case)):
            file = again(ipc.open_file(case.file), ipc.new_file, options)
            assert_same(pa.ipc.open_file(file).read_all(), expected, case)
            assert_same(ipc.open_file(file).read_all(), expected, case)


@pytest.mark.parametrize("folder", FOLDERS)
def test_full_validation_agrees_with_pyarrow(
    arrow_test_data: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """On a device, too, each golden batch is valid in full where pyarrow says so; some are not, on purpose."""
    monkeypatch.setenv("BOWSTRING_KERNELS", "interpret")  # compiling takes longer than these batches
    for case in cases(arrow_test_data, folder):
        for batch in ipc.open_stream(case.stream):
            batch.validate()
            ours = is_valid(batch.to_device(fake_device(0)))
            theirs = is_valid(batch.to_arrow())
            assert ours is theirs, case


def is_valid(batch: Any) -> bool:
    """Whether full validation of a batch, ours or pyarrow's, passes."""
    try:
        batch.validate(full=True)
    except (InvalidBody, pa.ArrowInvalid):
        return False
    return True


def assert_as_said(stream: bytes, options: pa.ipc.IpcWriteOptions | None, what: object) -> None:
    """The framing and the metadata version of a stream are those of the options."""
    is_legacy = options is not None and options.use_legacy_format
    version = pa.ipc.MetadataVersion.V5 if options is None else options.metadata_version
    assert stream.startswith(b"\xff\xff\xff\xff") is not is_legacy, what
    for message in pa.ipc.MessageReader.open_stream(stream):
        assert message.metadata_version == version, what
