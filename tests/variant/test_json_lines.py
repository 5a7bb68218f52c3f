"""Files of JSON Lines as Variant columns."""

from __future__ import annotations

import io
import itertools
import json
import re
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.errors import InvalidBody, LimitExceeded, UsageError
from bowstring.limits import Limits

BLANK = st.text(" \t\r", max_size=12).map(str.encode)


@given(
    rows=st.lists(st.one_of(BLANK, st.sampled_from([b'{"a": 1}', b"[2]", b'" "', b"null"])), max_size=12),
    around=st.lists(BLANK, min_size=2, max_size=2),
    mark=st.booleans(),
    ended=st.booleans(),
)
def test_each_line_is_a_row(rows: list[bytes], around: list[bytes], mark: bool, ended: bool) -> None:
    """Lines of spaces, tabs and carriage returns are not rows, with and without a byte order mark."""
    lines_ = [around[0] + row + around[1] for row in rows]
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\xef\xbb\xbf" * mark + b"\n".join(lines_) + b"\n" * ended)
        file.flush()
        found = variant.to_python(variant.from_json(path=file.name))
    assert found == [json.loads(line) for line in lines_ if line.strip()]


@given(
    before=st.lists(st.one_of(BLANK, st.just(b"1")), max_size=9),
    wrong=st.sampled_from([b'{"a":}', b"[", b"1 1", b'"\xff"', b'{"a":1,"a":2}', b"1234567890"]),
)
def test_errors_have_the_line_of_the_file(before: list[bytes], wrong: bytes) -> None:
    """Whatever is wrong with a row, the error counts lines as the file has them, and rows as the column does."""
    row = sum(bool(line.strip()) for line in before)
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\n".join([*before, wrong, b"[", b""]))
        file.flush()
        with pytest.raises((InvalidBody, LimitExceeded)) as caught:
            variant.from_json(path=file.name, limits=Limits(json_bytes=20 if b"{" in wrong else 9))
        assert re.search(rf"line {len(before) + 1} \(row {row}\)", str(caught.value))
        assert variant.from_json(path=file.name, on_error="null").null_count >= 1


def test_errors(tmp_path: Path) -> None:
    """A file that is not there, and texts together with a file, or neither."""
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"1")
    with pytest.raises(UsageError, match="no such file"):
        variant.from_json(path=tmp_path / "none")
    for given_ in ({}, {"texts": ["1"], "path": file}):
        with pytest.raises(UsageError, match="texts or the path"):
            variant.from_json(**given_)  # type: ignore[arg-type]  # on purpose


def test_what_takes_long_shows_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal gets a bar once a second has passed, anything else gets nothing."""
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"1\n" * 2000)
    for seconds, shown in ((0.0, False), (2.0, True)):
        terminal = io.StringIO()
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr("sys.stderr", terminal)
        clock = itertools.count(0.0, seconds)
        with monkeypatch.context() as patched:
            patched.setattr(time, "monotonic", lambda clock=clock: next(clock))
            assert len(variant.from_json(path=file)) == 2000
        assert ("rows.jsonl [" in terminal.getvalue()) == shown
        assert ("2,000 of 2,000 rows" in terminal.getvalue()) == shown
