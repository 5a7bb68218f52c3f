"""Files of JSON Lines as Variant columns."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from bowstring import variant
from bowstring.errors import InvalidBody, LimitExceeded, UsageError
from bowstring.limits import Limits
from bowstring.variant.json import lines


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (b'{"a": 1}\n[2]\n', [{"a": 1}, [2]]),
        (b'\xef\xbb\xbf{"a": 1}\r\n\r\n\n"x"', [{"a": 1}, "x"]),
        (b"", []),
        (b"\n\r\n", []),
        (b"1", [1]),
    ],
)
def test_each_line_is_a_row(tmp_path: Path, text: bytes, rows: list[object]) -> None:
    """Lines end in any of the ways that files have; empty ones are no rows."""
    file = tmp_path / "rows.jsonl"
    file.write_bytes(text)
    assert variant.to_python(variant.from_json(path=file)) == rows


def test_errors(tmp_path: Path) -> None:
    """A line that is no JSON, one that is too long, and no file at all."""
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"1\n\n{\n")
    with pytest.raises(InvalidBody, match="row 1"):
        variant.from_json(path=str(file))
    assert variant.from_json(path=file, on_error="null").null_count == 1
    file.write_bytes(b"1\n123456\n")
    with pytest.raises(LimitExceeded, match="row 1"):
        variant.from_json(path=file, limits=Limits(json_bytes=5))
    with pytest.raises(UsageError, match="no such file"):
        variant.from_json(path=tmp_path / "none")
    for given in ({}, {"texts": ["1"], "path": file}):
        with pytest.raises(UsageError, match="texts or the path"):
            variant.from_json(**given)  # type: ignore[arg-type]  # on purpose


def test_what_takes_long_shows_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal gets a bar once a second has passed, anything else gets nothing."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    with lines.progress("rows.jsonl", 2000) as show:
        show(1000)
        assert not terminal.getvalue()
        monkeypatch.setattr(lines, "_QUIET_SECONDS", -1.0)
        show(1000)
    assert "rows.jsonl [" in terminal.getvalue()
    assert "1,000 of 2,000 rows" in terminal.getvalue()
