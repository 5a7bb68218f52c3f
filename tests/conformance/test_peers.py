"""What we write is read by other implementations; what one of them cannot read stands in ``peers.json``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from bowstring import ipc
from tests.conformance.golden import FOLDERS, cases, write_options
from tests.conformance.peer import PEERS
from tests.conformance.peer_cases import CASES, MESSAGE_METADATA, OPTIONS, STREAMS_ONLY

TABLE: dict[str, dict[str, dict[str, str]]] = json.loads(Path(__file__).with_name("peers.json").read_text())
ROOT = Path(__file__).parents[2]


class Written(NamedTuple):
    """Something that we wrote: which case it is, where, and the stream that says what is in it."""

    case: str
    path: Path
    expected: Path


def _write(
    path: Path,
    table: pa.Table,
    options: pa.ipc.IpcWriteOptions | None,
    of_messages: dict[str, str] | None = None,
) -> None:
    new: Any = ipc.new_file if path.suffix == ".arrow" else ipc.new_stream
    with new(path, table.schema, options=options) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch, custom_metadata=of_messages)


def _golden(data: Path, where: Path) -> Iterator[Written]:
    for case in cases(data, *FOLDERS):
        as_it_was = write_options(case)
        for form, options in (("ours", None), ("as it was", as_it_was)):
            for kind, ending in (("stream", "arrows"), ("file", "arrow")):
                path = where / f"{case.folder} {case.name} {form}.{ending}"
                _write(path, ipc.open_stream(case.stream).read_all(), options)
                yield Written(f"{kind}/{case.name}", path, case.stream)


def _ours(where: Path) -> Iterator[Written]:
    for index, (name, make) in enumerate(CASES.items()):
        table = make()
        expected = where / f"{index} pyarrow.arrows"
        with pa.ipc.new_stream(expected, table.schema) as writer:
            writer.write_table(table)
        for kind, ending in (("stream", "arrows"), ("file", "arrow")):
            if kind == "stream" or name not in STREAMS_ONLY:
                path = where / f"{index}.{ending}"
                _write(path, table, OPTIONS.get(name), MESSAGE_METADATA.get(name))
                yield Written(f"{kind}/{name}", path, expected)


def _asked(peer: str, written: list[Written]) -> list[str | None]:
    """Return what was wrong with each, as a peer in a process of its own says."""
    pytest.importorskip("arro3.io" if peer == "arro3" else peer)
    lines = "".join(f"{each.path}\t{each.expected}\n" for each in written)
    command = [sys.executable, "-m", "tests.conformance.peer", peer]
    ended = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=ROOT, timeout=100)
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert ended.returncode == 0, (written[len(answers)], ended.stderr)
    assert len(answers) == len(written), ended.stderr
    return answers


def _known(peer: str, case: str) -> dict[str, str] | None:
    return next((entry for pattern, entry in TABLE[peer].items() if fnmatchcase(case, pattern)), None)


def _judge(peer: str, written: list[Written]) -> None:
    for each, problem in zip(written, _asked(peer, written), strict=True):
        known = _known(peer, each.case)
        if known is None:
            assert problem is None, f"{peer} cannot read {each.case} ({each.path.name}): {problem}"
        else:
            assert problem is not None, f"{peer} reads {each.case} by now: take it out of peers.json"
            assert known["says"] in problem, each.case


@pytest.mark.parametrize("peer", PEERS)
def test_peers_read_golden_cases_that_we_wrote(arrow_test_data: Path, tmp_path: Path, peer: str) -> None:
    """Each golden case, written by us as stream and as file, in our way and in its own, is read by each peer."""
    _judge(peer, list(_golden(arrow_test_data, tmp_path)))


@pytest.mark.parametrize("peer", PEERS)
def test_peers_read_what_golden_files_lack(tmp_path: Path, peer: str) -> None:
    """So it is with every type, and with dictionaries and metadata that no golden file has."""
    _judge(peer, list(_ours(tmp_path)))


def test_the_table_names_only_what_is_asked() -> None:
    """Every entry of the table has a reason and is about a peer that is asked."""
    assert set(TABLE) == set(PEERS)
    for entries in TABLE.values():
        for case, entry in entries.items():
            assert case.startswith(("stream/", "file/", "*/"))
            assert entry["says"], case
            assert entry["why"], case
