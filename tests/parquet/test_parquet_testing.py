"""The files of apache/parquet-testing are read as pyarrow reads them, or refused by column with a reason."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

# For each column of each file, in 2 GiB: a digest of its values, or the error of ours that it is refused with.
PROGRAM = """
import json, pathlib, resource, sys, warnings
import bowstring as bow
from tests.parquet.test_parquet_testing import digests
warnings.simplefilter("ignore")
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + (2 << 30), held + (2 << 30)))
def read(path, columns):
    with bow.parquet.read(path, columns=columns, validate="full") as stream:
        return stream.read_all()
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.parquet")):
    found = {}
    try:
        names = list(dict.fromkeys(column.path[0] for column in bow.parquet.read_schema(path).columns))
        found = dict.fromkeys(names)
        for name in names:
            try:
                found[name] = digests(read(path, [(name,)]))[0]
            except bow.BowstringError as error:
                found[name] = "refused: " + str(error)
        whole = read(path, None)
        assert digests(whole) == list(found.values())
    except bow.BowstringError as error:
        found[""] = "refused: " + str(error)
    print(json.dumps([str(path), found]), flush=True)
"""


def digests(table: pa.Table) -> list[str]:
    """Return a digest of the values of each column."""
    found = []
    for column in table.columns:
        try:
            text = repr(column.to_pylist())
        except OverflowError:  # a timestamp beyond the years of Python
            text = column.combine_chunks().to_string(window=1000)
        found.append(hashlib.sha256(text.encode()).hexdigest())
    return found


def read_in_a_child(folder: pathlib.Path) -> dict[str, dict[str, str]]:
    """Return what a child made of each file; it must not crash, hang, or end with another error."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))},
    )
    assert done.returncode == 0, (done.stdout[-500:], done.stderr[-3000:])
    return dict(map(json.loads, done.stdout.splitlines()))


def by_pyarrow(path: str) -> Any:
    """Return the table that pyarrow makes of a file, ``None`` where it makes none."""
    try:
        return pq.read_table(path, coerce_int96_timestamp_unit="us")
    except (pa.ArrowException, OSError, ValueError):
        return None


# Java's INT96 has years that pyarrow's nanoseconds do not have.
BETTER = {("int96_from_spark.parquet", "a")}


@pytest.mark.parametrize("folder", ["data", pytest.param("shredded_variant", marks=pytest.mark.slow)])
def test_good_files_are_read_as_pyarrow_reads_them(parquet_test_data: pathlib.Path, folder: str) -> None:
    """Each column has the values that pyarrow gives, or is refused where pyarrow refuses the file."""
    found = read_in_a_child(parquet_test_data / folder)
    assert found
    for path, columns in found.items():
        table = by_pyarrow(path)
        assert "" not in columns or any(map(is_refused, columns.values())), path
        for name, digest in columns.items():
            if is_refused(digest) or (os.path.basename(path), name) in BETTER:
                continue
            if table is not None:
                assert digest == digests(table.select([name]))[0], (path, name)
        if table is not None and "INVALID" not in path:
            refused = {name: text for name, text in columns.items() if is_refused(text)}
            assert all(name in text or "Limits" in text for name, text in refused.items()), (path, refused)


def test_damaged_files_are_refused_with_a_reason(parquet_test_data: pathlib.Path) -> None:
    """Nothing else happens than that columns are read, or refused by an error of ours."""
    found = read_in_a_child(parquet_test_data / "bad_data")
    assert found
    for path, columns in found.items():
        assert columns, path
        for name, text in columns.items():
            assert not is_refused(text) or os.path.basename(path) in text, (path, name, text)


def is_refused(text: str) -> bool:
    return text.startswith("refused: ")
