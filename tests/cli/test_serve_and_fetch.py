from __future__ import annotations

import contextlib
import json
import os
import pty
import shlex
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring.cli import main
from bowstring.cli.files import read_text
from tests.ucx import UCX

EXTENSIONS = (".parquet", ".arrow", ".feather", ".arrows", ".zstd.arrows")
ADDRESSES = ("unix:", "tcp://127.0.0.1:0", UCX)


def read_back(path: Path) -> pa.Table:
    match path.suffix:
        case ".parquet":
            return pq.read_table(path)
        case ".arrows":
            with pa.memory_map(str(path)) as mapped, pa.ipc.open_stream(mapped) as reader:
                return reader.read_all()
        case _:
            with pa.memory_map(str(path)) as mapped, pa.ipc.open_file(mapped) as reader:
                return reader.read_all()


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("how", ["--lazy", "--resident"])
def test_every_format_goes_round(
    how: str, address: str, table: pa.Table, files: dict[str, Path], start: Any, tmp_path: Path
) -> None:
    """Files of every format are served, fetched and written again with the same values; then the server ends."""
    paths = [str(files[extension]) for extension in EXTENSIONS]
    named = [part for extension in EXTENSIONS for part in ("--name", f"trips{extension}")]
    server = start("serve", *paths, *named, "--address", address, how, "--readers", "1")
    uris = [server.line() for _ in EXTENSIONS]
    for extension, uri in zip(EXTENSIONS, uris, strict=True):
        target = tmp_path / f"out.{extension.rpartition('.')[2]}"
        assert main(["fetch", uri, "--to", str(target)]) == 0
        assert read_back(target).equals(table)
    assert server.end()[0] == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "out.parquet",
        "out.arrow",
        "out.feather",
        "out.arrows",
    }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_server_well(number: int, files: dict[str, Path], start: Any) -> None:
    """Ctrl-C and SIGTERM end a server with code 0, its socket gone, and nothing but its greeting on stderr."""
    server = start("serve", str(files[".arrows"]))
    uri = server.line()
    path = uri.removeprefix("unix:").partition("?")[0]
    assert os.path.exists(path)
    code, out, err = server.end(number)
    assert (code, out) == (0, "")
    assert not os.path.exists(path)
    assert len(err.splitlines()) == 1


def test_a_server_speaks_json(files: dict[str, Path], table: pa.Table, start: Any) -> None:
    """With ``--json`` each data set is one line, with all that a program needs to fetch it."""
    server = start("serve", str(files[".parquet"]), str(files[".arrows"]), "--json")
    facts = [json.loads(server.line()) for _ in range(2)]
    # Two files of one stem are called by their whole names.
    assert [each["name"] for each in facts] == ["trips.parquet", "trips.arrows"]
    assert facts[0]["rows"] == table.num_rows
    with bow.connect(facts[1]["uri"]) as stream:
        assert stream.read_all().equals(table)


def test_a_token_is_made_and_asked_for(
    files: dict[str, Path], start: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--token auto`` makes a token that is part of the URI, and without it nobody comes in."""
    uri = start("serve", str(files[".arrows"]), "--address", "tcp://127.0.0.1:0", "--token", "auto").line()
    head, _, query = uri.partition("?")
    parts = [part for part in query.split("&") if not part.startswith("token=")]
    assert len(parts) < len(query.split("&"))
    assert main(["fetch", uri, "--json"]) == 0
    assert "token" not in capsys.readouterr().out
    assert main(["fetch", f"{head}?{'&'.join(parts)}", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "AccessDenied"


def test_off_loopback_needs_a_token(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """An address that others can reach is refused without a token, before anything is offered."""
    assert main(["serve", str(files[".arrows"]), "--address", "tcp://0.0.0.0:0"]) == 2
    assert "token" in capsys.readouterr().err


def test_a_short_token_off_loopback(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """A token of fewer than 16 characters is refused off loopback, and the hint names an option."""
    asked = ["serve", str(files[".arrows"]), "--address", "tcp://0.0.0.0:0", "--token"]
    assert main([*asked, "fifteen-letters"]) == 2
    said = capsys.readouterr().err
    assert "--token auto" in said
    assert "fifteen" not in said


def test_plaintext_off_loopback_is_said(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Even with a token, plain TCP off loopback is refused where nobody said so, and the hint names the option."""
    asked = ["serve", str(files[".arrows"]), "--address", "tcp://0.0.0.0:0", "--token", "auto"]
    assert main(asked) == 2
    assert "--plaintext" in capsys.readouterr().err


SECRET = "a secret of a file: +%&"


@pytest.fixture
def token_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a file with a token, as an editor writes it."""
    path = tmp_path_factory.mktemp("secrets") / "token"
    path.write_text(SECRET + "\n")
    return str(path)


@pytest.mark.parametrize("where", ["file", "environment"])
def test_a_secret_need_not_stand_in_the_process_list(
    where: str,
    files: dict[str, Path],
    token_file: str,
    start: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A token from a file or from BOWSTRING_TOKEN is asked for, and is in no URI that a server prints."""
    given = ["--token-file", token_file] if where == "file" else []
    if where == "environment":
        monkeypatch.setenv("BOWSTRING_TOKEN", SECRET)
    server = start("serve", str(files[".arrows"]), "--address", "tcp://127.0.0.1:0", *given)
    uri = server.line()
    assert "token" not in uri
    for command in ("fetch", "inspect"):
        assert main([command, uri, "--json", *given]) == 0
        assert SECRET not in capsys.readouterr().out
    monkeypatch.delenv("BOWSTRING_TOKEN", raising=False)
    assert main(["fetch", uri, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "AccessDenied"
    greeting = server.end(signal.SIGINT)[2]
    assert SECRET not in greeting
    assert ("--token-file" if where == "file" else "BOWSTRING_TOKEN") in greeting


def test_which_token_counts(
    files: dict[str, Path], token_file: str, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token of the URI stands before that of the environment, and one of --token-file before both."""
    address = ["--address", "tcp://127.0.0.1:0"]
    uri = start("serve", str(files[".arrows"]), *address, "--token", SECRET).line()
    wrong = uri.replace("token=", "token=other")
    monkeypatch.setenv("BOWSTRING_TOKEN", "another one")
    assert main(["fetch", uri, "--json"]) == 0
    assert main(["fetch", wrong, "--json"]) == 1
    assert main(["fetch", wrong, "--json", "--token-file", token_file]) == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), (b"\n", "empty"), ("é".encode(), "ASCII"), (b"x" * 1025, "1024")],
)
def test_token_files_that_hold_none(
    content: bytes | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A token file that is missing, empty, too long or not ASCII is a wrong call that names the file."""
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    assert main(["fetch", "tcp://127.0.0.1:1?want_data=1", "--token-file", str(tmp_path / "token")]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert str(tmp_path / "token") in said


@pytest.mark.parametrize("command", ["fetch", "inspect"])
def test_an_unknown_scheme(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A URI of another protocol is refused as that, and the error names those that are known."""
    assert main([command, "http://x/y?secret=1"]) == 2
    said = capsys.readouterr().err
    assert "unix:" in said
    assert "tcp:" in said
    assert "secret" not in said


def made(tmp_path: Path, name: str, content: bytes) -> str:
    (tmp_path / name).write_bytes(content)
    return str(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "content", "code", "words"),
    [
        ("empty.parquet", b"", 2, "empty"),
        ("text.txt", b"a,b\n1,2\n", 2, "none of the formats"),
        ("cut.parquet", b"PAR1 and then nothing", 2, "begins like Parquet"),
        ("cut.arrow", b"ARROW1\0\0 and then nothing", 2, "begins like Arrow IPC file"),
        ("old.feather", b"FEA1\0\0\0\0", 1, "Feather version 1"),
        ("secret.parquet", b"PARE\0\0\0\0", 1, "encrypted"),
    ],
)
@pytest.mark.parametrize("command", ["serve", "inspect"])
def test_files_that_are_none(
    command: str,
    name: str,
    content: bytes,
    code: int,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A file that holds no Arrow data is refused by name with one clear line."""
    path = made(tmp_path, name, content)
    assert main([command, path]) == code
    said = capsys.readouterr()
    assert words in said.err
    assert name in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trips.csv", b"city,fare\nBern,1\nLima,2.5\n"),
        ("trips.jsonl", b'{"city": "Bern", "fare": 1}\n{"city": "Lima", "fare": 2.5}\n'),
        ("TRIPS.NDJSON", b'{"city": "Bern", "fare": 1}\n{"city": "Lima", "fare": 2.5}\n'),
    ],
)
def test_files_of_text_are_tables(name: str, content: bytes, tmp_path: Path, start: Any) -> None:
    """CSV and JSON lines are served as columns of the types that all of their rows have."""
    server = start("serve", made(tmp_path, name, content), "--readers", "1")
    assert bow.connect(server.line()).read_all().to_pydict() == {"city": ["Bern", "Lima"], "fare": [1.0, 2.5]}
    assert server.end()[0] == 0


@pytest.mark.parametrize(
    ("name", "content"), [("bad.jsonl", b'{"a": 1}\n{"a": "x"}\n'), ("bad.csv", b"a,b\n1\n")]
)
def test_files_of_text_that_are_no_table(
    name: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows that do not fit together are refused by name."""
    assert main(["serve", made(tmp_path, name, content)]) == 1
    assert name in capsys.readouterr().err


_WHOLE = st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(2**63 - 2, 2**64 + 1)


@given(st.lists(_WHOLE, min_size=1, max_size=4), st.sampled_from(["csv", "jsonl", "nested.jsonl"]))
def test_whole_numbers_of_text_keep_their_digits(numbers: list[int], extension: str) -> None:
    """Numbers in CSV and JSON lines are what is written, also beyond 64 bits, beside others and in lists."""
    form = {"csv": "1.5,{}", "jsonl": '{{"x": 1.5, "n": {}}}', "nested.jsonl": '{{"l": [{{"n": {}}}]}}'}
    rows = [form[extension].format(number) for number in numbers]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"numbers.{extension}")
        path.write_text("\n".join(["x,n"] * (extension == "csv") + rows))
        file = read_text(str(path))
    assert file is not None
    assert file.table is not None
    found = file.table.to_pylist()
    values = [row["l"][0]["n"] if "l" in row else row["n"] for row in found]
    assert [int(each) for each in values] == numbers


@pytest.mark.parametrize("content", ["x\n1e300\n18446744073709551615\n", "x\n0.5\n1e19\n", "x\ninf\n1\n"])
def test_floats_of_text_stay_floats(content: str, tmp_path: Path) -> None:
    """A column with a number that is no whole one, or has too many digits, is of floats."""
    file = read_text(made(tmp_path, "floats.csv", content.encode()))
    assert file is not None
    assert file.schema.types == [pa.float64()]


def test_queries_are_served(tmp_path: Path, start: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """What DuckDB answers is a data set beside the files; what it does not is a wrong call, as is nothing."""
    pytest.importorskip("duckdb")
    path = made(tmp_path, "trips.csv", b"city,fare\nBern,1\nLima,2\n")
    server = start(
        "serve", path, "--query", f"SELECT sum(fare)::INT AS total FROM '{path}'", "--readers", "1"
    )
    trips, query = server.line(), server.line()
    assert bow.connect(query).read_all().to_pydict() == {"total": [3]}
    assert bow.connect(trips).read_all().num_rows == 2
    assert server.end()[0] == 0
    assert main(["serve", "--query", "SELECT nothing"]) == 2
    assert "nothing" in capsys.readouterr().err
    assert main(["serve"]) == 2
    assert "expected files, or --query SQL" in capsys.readouterr().err


@pytest.mark.parametrize("extra", [(), ("--json",), ("--limit", "10")])
def test_a_data_set_is_written_to_a_pipe(extra: tuple[str, ...], table: pa.Table, start: Any) -> None:
    """``--to -`` writes an Arrow stream to the standard output, and nothing else."""
    with bow.Server() as server:
        fetch = start("fetch", str(server.publish("trips", table)), "--to", "-", *extra)
        out, _ = fetch.process.communicate(timeout=60)
    assert fetch.process.returncode == 0
    assert pa.ipc.open_stream(out).read_all().equals(table.slice(0, 10) if "--limit" in extra else table)


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_a_pipe_does_not_pass_a_part_for_all(batches: int, start: Any) -> None:
    """Where a fetch to the standard output fails, what it wrote so far is no stream that readers take for whole."""
    batch = pa.record_batch({"x": [1, 2]})

    def made() -> Iterator[pa.RecordBatch]:
        yield from [batch] * batches
        raise ValueError("no more")

    with bow.Server() as server:
        endpoint = server.publish("x", lambda: pa.RecordBatchReader.from_batches(batch.schema, made()))
        fetch = start("fetch", str(endpoint), "--to", "-")
        out, err = fetch.process.communicate(timeout=60)
    assert fetch.process.returncode == 1
    assert "no more" in str(err)
    with pytest.raises(pa.ArrowInvalid):
        pa.ipc.open_stream(out).read_all()
    with pytest.raises(bow.BowstringError):
        list(bow.ipc.open_stream(out))


def test_files_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path that does not exist, or is a folder, is a wrong call."""
    assert main(["serve", str(tmp_path / "nothing.parquet")]) == 2
    assert main(["serve", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "there is no such file" in said
    assert "not a plain file" in said


def test_nothing_is_offered_where_one_file_is_broken(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stream that ends too early fails the whole call: no URI was printed that leads nowhere."""
    content = files[".arrows"].read_bytes()
    broken = made(tmp_path, "cut.arrows", content[: len(content) // 2])
    assert main(["serve", str(files[".parquet"]), broken]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "cut.arrows" in said.err


def test_a_file_that_breaks_while_it_is_read(files: dict[str, Path], tmp_path: Path, start: Any) -> None:
    """A lazily served stream that ends too early is an error at its reader, who keeps no half of a file."""
    content = files[".arrows"].read_bytes()
    broken = made(tmp_path, "cut.arrows", content[: len(content) * 3 // 4])
    uri = start("serve", broken, "--lazy").line()
    code, _, err = start("fetch", uri, "--to", str(tmp_path / "out.parquet")).end()
    assert code == 1
    assert "cut.arrows" in err
    assert [path.name for path in tmp_path.iterdir()] == ["cut.arrows"]


@pytest.fixture
def published(table: pa.Table) -> Any:
    """Return the URI of the table, published by this process."""
    with bow.Server() as server:
        yield str(server.publish("trips", table))


def test_columns_and_limit(published: str, table: pa.Table, tmp_path: Path) -> None:
    """Chosen columns come in the order asked for, and no row beyond the limit."""
    target = tmp_path / "out.parquet"
    asked = ["--columns", "kind,id", "--columns", "fare", "--limit", "1500", "--to", str(target)]
    assert main(["fetch", published, *asked]) == 0
    assert pq.read_table(target).equals(table.select(["kind", "id", "fare"]).slice(0, 1500))


def test_csv_is_what_pyarrow_writes(published: str, table: pa.Table, tmp_path: Path) -> None:
    """A CSV file holds what pyarrow writes for the same columns."""
    target, expected = tmp_path / "out.csv", tmp_path / "expected.csv"
    assert main(["fetch", published, "--columns", "id,fare,city,ok", "--to", str(target)]) == 0
    pyarrow.csv.write_csv(table.select(["id", "fare", "city", "ok"]), expected)
    assert target.read_bytes() == expected.read_bytes()


def test_what_a_format_cannot_hold_is_said(
    published: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lists do not go into CSV: the error says so, and no file is left."""
    assert main(["fetch", published, "--to", str(tmp_path / "out.csv")]) == 1
    assert "cannot be written as .csv" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("target", "words"), [("out.txt", "extension"), ("no/folder/out.arrow", "no such folder")]
)
def test_a_target_that_means_nothing(
    target: str, words: str, published: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown extension and a missing folder are wrong calls."""
    assert main(["fetch", published, "--to", str(tmp_path / target)]) == 2
    assert words in capsys.readouterr().err


def test_an_old_file_stays_until_the_new_one_is_whole(published: str, tmp_path: Path) -> None:
    """A fetch that fails leaves the file of that name as it was; one that succeeds replaces it."""
    target = tmp_path / "out.arrow"
    target.write_bytes(b"old")
    assert main(["fetch", published, "--columns", "nothing", "--to", str(target)]) != 0
    assert target.read_bytes() == b"old"
    assert main(["fetch", published, "--to", str(target)]) == 0
    assert read_back(target).num_rows == 3000
    assert [path.name for path in tmp_path.iterdir()] == ["out.arrow"]


def test_a_killed_fetch_leaves_no_file_of_that_name(start: Any, table: pa.Table, tmp_path: Path) -> None:
    """Ctrl-C in the middle ends a fetch with code 130, and nothing is left of what was written so far."""

    def slowly() -> Any:
        for batch in table.to_batches():
            yield batch
            time.sleep(1.0)

    with bow.Server() as server:
        uri = str(server.publish("slow", pa.RecordBatchReader.from_batches(table.schema, slowly())))
        fetch = start("fetch", uri, "--to", str(tmp_path / "out.arrow"))
        end = time.monotonic() + 30
        # Behind its imports: Python ignores an interrupt in the callbacks of those.
        while not any(each.stat().st_size for each in tmp_path.iterdir()) and time.monotonic() < end:
            time.sleep(0.01)
        code, _, err = fetch.end(signal.SIGINT)
    assert (code, err) == (130, "")
    assert not list(tmp_path.iterdir())


def test_the_first_rows_as_a_table(published: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without ``--to`` the first rows, the rest's number, and the path taken are printed; nothing on stderr."""
    assert main(["fetch", published]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "… 2,990 more rows" in said.out
    assert "3,000 rows in 3 batches" in said.out
    assert "device cpu; path unix: mapped" in said.out


def test_fetch_speaks_json(published: str, table: pa.Table, capsys: pytest.CaptureFixture[str]) -> None:
    """With ``--json`` schema, statistics and first rows are one JSON object."""
    assert main(["fetch", published, "--json", "--limit", "2"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [column["name"] for column in facts["schema"]] == table.schema.names
    assert len(facts["first_rows"]) == 2
    assert facts["first_rows"][1][:4] == [1, 0.25, "city 1", "train"]


@pytest.mark.parametrize(
    ("limit", "rows", "batches"), [(0, 0, 0), (2, 2, 1), (1500, 1500, 2), (9000, 3000, 3)]
)
def test_a_limit_counts_what_it_let_through(
    limit: int, rows: int, batches: int, published: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With ``--limit`` the numbers are those of the rows that were kept, as text and as JSON."""
    assert main(["fetch", published, "--limit", str(limit), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["rows"], facts["batches"], len(facts["first_rows"])) == (rows, batches, min(10, rows))
    assert main(["fetch", published, "--limit", str(limit)]) == 0
    said = capsys.readouterr().out
    assert f"{rows:,} rows in {batches} batch{'es' * (batches != 1)}, " in said
    assert ("more rows" in said) == (rows > 10)
    assert rows <= 10 or f"… {rows - 10:,} more rows" in said


ODD_VALUES: dict[str, pa.Array] = {
    "nanoseconds": pa.array([1], pa.timestamp("ns")),
    "far": pa.array([400_000_000], pa.date32()),
    "not a number": pa.array([float("nan")]),
    "bytes": pa.array([b"\xff\x00"]),
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
    "duration": pa.array([1], pa.duration("ns")),
    "null": pa.nulls(1),
    "decimal": pa.array([1]).cast(pa.decimal128(21, 2)),
    "escape": pa.array(["\x1b[2J"]),
    "zone that nobody knows": pa.array([1], pa.timestamp("s", "Odd/Zone")),
    "far in a zone that nobody knows": pa.array([1 << 62], pa.timestamp("s", "Odd/Zone")),
    "interval": pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    "many": pa.array([[None] * 100_000], pa.list_(pa.null())),
    "identifier": pa.array([b"0123456789abcdef"], pa.uuid()),
    "inside": pa.array([{"a": [1]}], pa.struct({"a": pa.list_(pa.timestamp("s", "Odd/Zone"))})),
}


@pytest.mark.parametrize("name", ODD_VALUES)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_odd_values_are_shown(name: str, form: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Values that Python, JSON or a terminal has no place for are shown as text."""
    with bow.Server() as server:
        uri = str(server.publish("odd", pa.table({name: ODD_VALUES[name]})))
        assert main(["fetch", uri, *form]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    if form:
        json.loads(said, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


@pytest.mark.parametrize("empty", [pa.table({}), pa.table({"a": pa.array([], pa.int8())})])
def test_nothing_to_show(empty: pa.Table, tmp_path: Path) -> None:
    """Data sets without rows, or without columns, are fetched like others."""
    with bow.Server() as server:
        uri = str(server.publish("nothing", empty))
        assert main(["fetch", uri]) == 0
        assert main(["fetch", uri, "--to", str(tmp_path / "out.arrow")]) == 0
    assert read_back(tmp_path / "out.arrow").schema.equals(empty.schema)


def test_progress_only_where_somebody_looks(published: str, start: Callable[..., Any]) -> None:
    """A terminal at stderr sees a progress bar; a pipe sees nothing."""
    assert start("fetch", published).end()[2] == ""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    assert start("fetch", published, stderr=theirs, env=environment).end()[0] == 0
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):
        while part := os.read(ours, 1 << 16):
            said += part
    os.close(ours)
    assert b"3,000 rows" in said


@pytest.mark.parametrize("terminal", [True, False])
def test_one_line_a_table_is_the_one_to_copy(
    files: dict[str, Path], start: Callable[..., Any], tmp_path: Path, terminal: bool
) -> None:
    """`serve` shows a command that a shell takes as it is; a program that reads its output gets the URI beside."""
    address = f"unix:{tmp_path}/s.sock"
    ours, theirs = pty.openpty()
    server = start(
        "serve",
        str(files[".arrow"]),
        "--address",
        address,
        stderr=theirs,
        **({"stdout": theirs} if terminal else {}),
    )
    os.close(theirs)
    said = b""
    while b"fetch" not in said or not said.endswith(b"\n"):
        said += os.read(ours, 1 << 16)
    [line] = [each for each in said.decode().splitlines() if "fetch" in each]  # the rest shows progress
    words = shlex.split(line[line.index("bowstring fetch") :], comments=True)
    assert words[:3] == ["bowstring", "fetch", address]
    assert main(words[1:]) == 0
    if not terminal:
        assert main(["fetch", server.line()]) == 0
    os.close(ours)


def test_a_huge_list_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A billion nulls take no bytes to send, and no memory to show."""
    many = pa.ListArray.from_arrays(pa.array([0, 10**9], pa.int32()), pa.nulls(10**9))
    with bow.Server() as server:
        assert main(["fetch", str(server.publish("many", pa.table({"a": many})))]) == 0
    assert "1000000000 values" in capsys.readouterr().out


def test_intervals_that_pyarrow_has_no_class_for_are_named(
    arrow_test_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Intervals of months, and of days, are shown by their type: pyarrow makes no objects of them."""
    file = arrow_test_data / "arrow-ipc-stream/integration/1.0.0-littleendian/generated_interval.stream"
    with bow.Server() as server:
        assert main(["fetch", str(server.publish("intervals", pa.ipc.open_stream(file.read_bytes())))]) == 0
    assert "(month_interval)" in capsys.readouterr().out


@pytest.mark.parametrize("to", [None, "out.parquet", "out.csv", "out.arrow"])
def test_what_a_producer_says_is_checked_before_it_is_followed(
    start: Callable[..., Any], tmp_path: Path, to: str | None
) -> None:
    """Text that lies outside its bytes is refused, in words, and no file is left of it."""
    ends = pa.array([0, 1 << 30, 3, 3], pa.int32()).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), 3, [None, ends, pa.py_buffer(b"abc")])
    with bow.Server("tcp://127.0.0.1:0") as server:
        uri = str(server.publish("hostile", pa.table({"a": text})))
        code, out, err = start("fetch", uri, *(["--to", str(tmp_path / to)] if to else [])).end()
    assert code == 1, (code, out, err)
    assert "at a" in err
    assert not list(tmp_path.iterdir())


def test_variants_go_from_file_to_file(
    tmp_path: Path, start: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Variant column of a file is served and fetched as one, and written with its annotation."""
    source, target = tmp_path / "events.parquet", tmp_path / "out.parquet"
    texts = ['{"a":1}', None, "[2]"]
    bow.parquet.write({"event": bow.variant.from_json(texts)}, source)
    server = start("serve", str(source), "--readers", "1")
    assert main(["fetch", server.line(), "--to", str(target)]) == 0
    assert server.end()[0] == 0
    with bow.parquet.read(target) as stream:
        assert bow.variant.to_json(stream.read_next_batch()["event"]).to_arrow().to_pylist() == texts
    capsys.readouterr()
    assert main(["inspect", str(target)]) == 0
    assert "event: group, logical type: VARIANT(1), repetition: optional" in capsys.readouterr().out


@pytest.mark.parametrize("address", ["unix:", UCX])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_server_is_listed_and_fetched_from_by_name(
    as_json: bool,
    address: str,
    table: pa.Table,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """`list` shows each data set of an address, and `fetch` takes an address and a name."""
    token = None if address == "unix:" else "0123456789abcdef"
    (tmp_path / "token").write_text(f"{token}\n")
    given = [] if token is None else ["--token-file", str(tmp_path / "token")]
    with bow.Server(address, token=token) as server:
        server.publish("trips", table)
        server.publish("lazy", lambda: iter(table.to_batches()))
        assert main(["list", server.address, *given, *(["--json"] if as_json else [])]) == 0
        printed = capsys.readouterr().out
        target = tmp_path / "out.arrow"
        assert main(["fetch", server.address, "trips", *given, "--to", str(target)]) == 0
        assert read_back(target).equals(table)
        assert main(["fetch", server.address, "trisp", *given]) == 1
        assert "Did you mean 'trips'?" in capsys.readouterr().err
    if as_json:
        lazy, trips = json.loads(printed)
        assert (lazy["name"], lazy["rows"], trips["name"], trips["rows"]) == (
            "lazy",
            None,
            "trips",
            table.num_rows,
        )
        assert [each["name"] for each in trips["schema"]] == table.column_names
    else:
        assert "trips" in printed
        assert "lazy" in printed


def test_a_server_without_data_sets_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty server is no error."""
    with bow.Server() as server:
        assert main(["list", server.address]) == 0
    assert capsys.readouterr().out == "no data sets\n"


def test_the_advertised_host_is_in_the_uri(files: dict[str, Path], table: pa.Table, start: Any) -> None:
    """A server on all interfaces prints URIs with the host under which others reach it."""
    options = ["--address", "tcp://0.0.0.0:0", "--token", "auto", "--plaintext", "--advertise", "localhost"]
    server = start("serve", str(files[".arrows"]), *options)
    uri = server.line()
    assert uri.startswith("tcp://localhost:")
    with bow.connect(uri) as stream:
        assert stream.read_all().equals(table)
    server.end(signal.SIGINT)


@pytest.mark.parametrize(
    ("address", "host"), [("unix:", "here"), ("tcp://127.0.0.1:0", "a b"), ("tcp://127.0.0.1:0", "host:1/x")]
)
def test_a_wrong_host_is_not_advertised(address: str, host: str) -> None:
    """What is no host, or belongs to an address without one, is refused."""
    with pytest.raises(bow.UsageError):
        bow.Server(address, advertise=host)


def test_files_by_flight(files: dict[str, Path], table: pa.Table, start: Any) -> None:
    """``serve --flight`` offers the files to clients of Flight, too, and says where."""
    server = start(
        "serve", str(files[".arrows"]), "--flight", "grpc://127.0.0.1:0", "--json", "--name", "a b"
    )
    facts = json.loads(server.line())
    assert facts["flight"].endswith("/a%20b")
    for source in (facts["uri"], facts["flight"]):
        with bow.connect(source) as stream:
            assert stream.read_all().equals(table)
    server.end(signal.SIGINT)


def test_flight_follows_the_rule(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Off loopback Flight needs a token and encryption, or the word, as every server does."""
    asked = ["serve", str(files[".arrows"]), "--flight", "grpc://0.0.0.0:0"]
    assert main(asked) == 2
    assert "--token auto" in capsys.readouterr().err
    assert main([*asked, "--token", "auto"]) == 2
    assert "--plaintext" in capsys.readouterr().err


def test_extensions_in_capitals(tmp_path: Path) -> None:
    """The case of an extension does not matter."""
    target = tmp_path / "Trips.PARQUET"
    with bow.Server() as server:
        assert main(["fetch", str(server.publish("t", {"a": [1, 2]})), "--to", str(target)]) == 0
    assert pq.read_table(target).to_pydict() == {"a": [1, 2]}
