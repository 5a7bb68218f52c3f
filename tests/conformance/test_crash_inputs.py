"""Inputs that once brought Arrow down: we refuse them with an error of our own, or read a valid table."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from bowstring import ipc
from bowstring.errors import Unsupported
from bowstring.ipc.flatbuf.reader import Tables
from tests.conformance.verdict import LIMITS, verdicts
from tests.fuzz.seeds import seeds

FOLDERS: Final = {
    "stream": "arrow-ipc-stream",
    "file": "arrow-ipc-file",
    "tensor": "arrow-ipc-tensor-stream",
}
PREFIX: Final = 8
"""Bytes before a message: the marker and its length."""
MOST: Final = LIMITS.metadata_bytes + LIMITS.decompressed_bytes
"""Bytes that the limits allow whatever the size of the input: what is read, and what is decompressed, at once."""
STRICTER: Final = {
    "of fixed size has a negative one": "pyarrow takes lists of any size, and multiplies by it",
    "no such byte order": "pyarrow takes all but 0 for big",
    "the footer has another schema": "the format says that it is that of the first message; pyarrow does not look",
    "this is not an Arrow file": "pyarrow does not look at the magic in front",
    r"buffer.*VALIDITY|VALIDITY.*buffer": "pyarrow leaves the bitmap of a column without nulls where it is",
    "outside the body|negative.* bytes": "pyarrow does not look at the buffers of a column without rows",
    "wrong number of (nodes|buffers|variadic)": "pyarrow does not look at those that it has no column for",
    "compressed buffer is too short|cannot be decompressed": "nor at compressed ones of a column without rows",
    r"at values\b": "pyarrow does not look at a dictionary that no batch uses",
    "no field has a dictionary": "pyarrow counts those of the children of types that have none",
    "vtable has an impossible size": "pyarrow takes a table whose vtable is cut for one without fields",
    "text is not UTF-8": "pyarrow finds out when somebody asks for the name",
    "buffers of a body overlap": "where buffers are copied, that makes much of little",
    "variadicBufferCounts": "pyarrow does not look at them where no column has any",
    "vector is out of bounds or misaligned": "pyarrow reads numbers of 8 bytes at any address",
    "another length than the batch|length of the batch": "pyarrow takes a dictionary's length from its column",
    "impossible null count": "pyarrow does not look at it where there are no rows",
    "null count is not that of the bitmap": "pyarrow takes a null count of 0 at its word",
    "metadata version V.*Footer": "pyarrow does not look at the version of a footer",
    "block of the footer": "pyarrow does not look whether blocks lie over the footer, or over each other",
}
"""What we refuse and pyarrow may read: a part of our error, and why."""
MILDER: Final = {
    "run_end_encoded.* nulls but no null bitmap": "some writers count the nulls of the values: there are none else",
    "Null count exceeds|Negative null count|not have a null bitmap": "so it is with any count there",
    "wapping endianness": "pyarrow does not turn views and runs",
    "Dictionary with id": "one that comes late, for a column that is all null, or has no rows",
    "less than one frame": "of an empty buffer, Java writes the length alone",
    "unresolved nested dictionary": "we join deltas of dictionaries of dictionaries",
    r"Buffer #0 too small": "a null count of -1 and no bitmap: nothing is null",
    r"Offsets buffer size.* length: 0": "a column without rows needs no offsets, nor a whole one",
}
"""What we read and pyarrow may refuse: a part of its error, and why."""


def _inputs(data: Path, kind: str) -> list[Path]:
    folder = data / FOLDERS[kind]
    found = [path for path in sorted(folder.glob("*")) if path.name.startswith(("crash-", "clusterfuzz-"))]
    if not found:
        pytest.skip(f"no crash inputs: {folder} is not there")
    return found


@pytest.mark.parametrize("kind", FOLDERS)
def test_crash_inputs(arrow_test_data: Path, kind: str) -> None:
    """Each ends in an error of ours or a valid table, as with pyarrow, from memory and a file, in little memory."""
    paths = _inputs(arrow_test_data, kind)
    for path, verdict in zip(paths, verdicts(kind, paths), strict=True):
        assert not verdict["ours"].startswith("NOT OURS"), (path, verdict)
        # The error is the same; the place that it names may be counted from elsewhere.
        assert verdict["from_file"].split(":")[0] == verdict["ours"].split(":")[0], (path, verdict)
        assert verdict["peak"] <= 10 * verdict["size"] + MOST, (path, verdict)
        ours, theirs = verdict["ours"], verdict["pyarrow"]
        if (ours == "valid") != (theirs == "valid"):
            listed, said = (MILDER, theirs) if ours == "valid" else (STRICTER, ours)
            assert any(re.search(each, said) for each in listed), (path, verdict)


_HOSTILE: Final = (0, 5000, 2**20, 2**30, 2**31 - 1, 2**31, 2**33, 2**39, 2**62, 2**64 - 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FOLDERS)
def test_hostile_numbers(arrow_test_data: Path, tmp_path: Path, kind: str) -> None:
    """Lengths, counts and offsets of any size in good data end in an error of ours too, and take no more memory."""
    rng = random.Random(kind)  # the same ones every time
    pool = list(seeds(kind, arrow_test_data).values())
    paths = [tmp_path / str(index) for index in range(1500)]
    for path in paths:
        data = bytearray(rng.choice(pool))
        for _ in range(rng.choice((1, 1, 2))):
            at = rng.randrange(max(1, len(data) - 8)) & ~3
            width = rng.choice((4, 8))
            data[at : at + width] = rng.choice(_HOSTILE).to_bytes(8, "little")[:width]
        path.write_bytes(data)
    for path, verdict in zip(paths, verdicts(kind, paths), strict=True):
        assert not verdict["ours"].startswith("NOT OURS"), (path, verdict)
        assert not verdict["from_file"].startswith("NOT OURS"), (path, verdict)
        # A body from a file is read into memory of its announced length.
        assert verdict["peak"] <= 10 * verdict["size"] + MOST + LIMITS.message_bytes, (path, verdict)


def test_verdicts_tell_good_from_bad(tmp_path: Path) -> None:
    """The judge finds a good stream valid, and one with text that is not UTF-8 not, as pyarrow does."""
    table = pa.table({"a": ["good text"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream = sink.getvalue().to_pybytes()
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(stream)
    bad.write_bytes(stream.replace(b"good text", b"\xff\xffod text"))
    found = verdicts("stream", [good, bad])
    assert [verdict["ours"] == "valid" for verdict in found] == [True, False]
    assert [verdict["pyarrow"] == "valid" for verdict in found] == [True, False]


def test_version_6_is_refused_by_name() -> None:
    """Metadata of a version to come are named."""
    later = bytearray(pa.schema({"a": pa.int8()}).serialize().to_pybytes())
    metadata = bytes(later[PREFIX:])
    tables = Tables(metadata)
    table = tables.follow(0, "Message")
    version = table + tables.slots(table, "Message")[0]
    assert metadata[version] == pa.ipc.MetadataVersion.V5
    later[PREFIX + version] += 1
    with pytest.raises(Unsupported, match="V6"):
        ipc.open_stream(bytes(later))


def test_the_golden_schema_of_version_6_is_refused_by_name(arrow_test_data: Path) -> None:
    """So is the version of the golden schema for this."""
    golden = arrow_test_data / "forward-compatibility" / "schema_v6.arrow"
    if not golden.exists():
        pytest.skip(f"no such golden file: {golden}")
    with pytest.raises(Unsupported, match="V6"):
        ipc.open_stream(golden)
