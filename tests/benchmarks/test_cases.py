"""The cases that there are, their data, and one of them run through."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bowstring import variant
from bowstring.benchmarks import main
from bowstring.benchmarks.case import LineUp, Scale
from bowstring.benchmarks.cases import case_named, case_names
from bowstring.benchmarks.cases.formats import ipc_compressed
from bowstring.benchmarks.cases.variant import functions
from bowstring.benchmarks.data.payload import fingerprint, nbytes, payload, read_every_byte
from bowstring.benchmarks.data.tables import KINDS, table
from bowstring.transport.ucx.library import wheel_folder

pytestmark = pytest.mark.usefixtures("forked")


def test_list_names_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    """``list`` prints a line for each case."""
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == case_names()
    assert [case_named(name).name for name in case_names()] == case_names()


def test_an_unknown_case_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong name exits with 2 and says which ones there are."""
    with pytest.raises(SystemExit) as ended:
        main(["conect_views"])
    assert ended.value.code == 2
    assert "connect_views" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_the_same_for_the_same_seed(kind: str) -> None:
    """Two processes make the same bytes from a seed, others from another one, about as many as asked for."""
    one, again, other = (payload(table(kind, 1 << 20, seed, 4).to_batches()) for seed in (1, 1, 2))
    assert fingerprint(one) == fingerprint(again) != fingerprint(other)
    assert abs(nbytes(one) / (1 << 20) - 1) < 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_payload_is_what_arrives_elsewhere(kind: str) -> None:
    """The payload of a table is that of the same table read from an Arrow stream."""
    data = table(kind, 1 << 20, seed=3, batches=4)
    data.validate(full=True)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_table(data)
    back = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert fingerprint(payload(back.to_batches())) == fingerprint(payload(data.to_batches()))


def test_reading_reads_every_byte() -> None:
    """The sum changes with any byte, also of the last ones."""
    views = payload([pa.record_batch({"a": pa.array(range(11), pa.int8()), "b": ["x"] * 11})])
    total = read_every_byte(views)
    for view in views:
        for position in range(view.nbytes):
            changed = [each.copy() if each is view else each for each in views]
            next(new for new, old in zip(changed, views, strict=True) if old is view)[position] ^= 1
            assert read_every_byte(changed) != total


def test_a_sliced_array_is_refused() -> None:
    """A slice shares its bytes with rows that nobody asked for."""
    with pytest.raises(ValueError, match="sliced"):
        payload([pa.record_batch({"a": [1, 2, 3]}).slice(1)])


HAND_OVER = [
    *("bowstring", "Arrow Flight", "Arrow file in shared memory", "IPC in multiprocessing.shared_memory"),
    *("IPC stream over a socket", "Parquet file in shared memory", "pickle over a pipe"),
]
TINY: dict[str, tuple[dict[str, Any], list[str]]] = {
    "connect_read": (
        {"_QUICK": ((1 << 20, 1),)},
        ["bowstring", "bowstring, mapped before", "flight", "private memory"],
    ),
    "hand_over": (
        {"_QUICK": (1 << 16, 1 << 24)},  # the larger one is read from Parquet in several pieces
        HAND_OVER,
    ),
    "tools": ({"_QUICK": (1 << 16,), "_READERS": (3,)}, HAND_OVER),
    "many_clients": (
        {"_QUICK": (5,), "_SIZES": (1 << 16,)},
        ["bowstring", "Arrow Flight", "Arrow file in shared memory"],
    ),
    "slow_consumer": (
        {"_QUICK": (1 << 14, 8)},
        ["bowstring", "Arrow Flight", "IPC stream over a socket", "pickles by a thread over a pipe"],
    ),
    "partitions": (
        {"_QUICK": (3, 5)},
        [
            *("write into a depot", "read as one stream"),
            *("write Arrow files", "read the files by pyarrow.dataset"),
        ],
    ),
    "first_call": ({}, ["bowstring", "bowstring, validated", "Arrow Flight", "Arrow file"]),
    "ucx": (
        {"_QUICK": 1 << 20, "_SIZES": (64 << 10,), "_TRANSPORTS": ("tcp",)},
        ["bowstring transport", "ucx_perftest", "ucx_perftest, polling"],
    ),
    "ipc_write": (
        {"_QUICK": (1 << 18,), "_BATCHES": (1, 4)},
        [
            "bowstring, to memory",
            "pyarrow, to memory",
            "bowstring, to a file",
            "pyarrow, to a file",
            "memcpy, warm",
        ],
    ),
    "kernels": ({"_QUICK": 1 << 16}, ["bowstring, 1 core", "numpy.unpackbits"]),
    "variant_json": (
        {"_QUICK": 1 << 16, "missing": lambda engine: f"not installed: {engine}"},
        [
            *("from_json, one core", "json.loads", "from_json, all cores"),
            *("to_json, one core", "json.dumps", "to_json, all cores", "every byte of text read"),
            *(("orjson.loads", "orjson.dumps") if find_spec("orjson") else ()),
        ],
    ),
    "variant_functions": (
        {"_QUICK": 1 << 16, "find_spec": lambda _name: None},
        ["bowstring, one core", "json.loads", "every byte of the values read"],
    ),
}

needs_perftest = pytest.mark.skipif(wheel_folder() is None, reason="needs ucx_perftest of a wheel of libucx")
# Cases of many processes are slow: each hands over as `hand_over` and `connect_read` do.
MARKS = {
    "ucx": [needs_perftest, pytest.mark.slow],
    **{case: [pytest.mark.slow] for case in ("first_call", "partitions", "slow_consumer")},
}


@pytest.mark.parametrize("case", [pytest.param(case, marks=MARKS.get(case, [])) for case in TINY])
def test_a_tiny_case_runs_through(
    case: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    no_leaks: None,
) -> None:
    """Every way of a case once, every byte checked, and a document that says so without host or path."""
    smaller, ways = TINY[case]
    for name, value in smaller.items():
        monkeypatch.setattr(f"{case_named(case).line_ups.__module__}.{name}", value)
    monkeypatch.setattr("bowstring.benchmarks.peers.ray_store.missing", lambda: "not installed: ray")
    file = tmp_path / "result.json"
    code = main([case, "--repeat", "1", "--json", str(file)])
    said = capsys.readouterr()
    assert code == 0, said.out + said.err
    text = file.read_text()
    line_ups = [each for each in json.loads(text)["cases"][0]["line_ups"] if "ways" in each]
    assert [way["name"] for way in line_ups[0]["ways"]] == ways
    assert {way["n"] for way in line_ups[0]["ways"]} == {1}
    assert os.uname().nodename not in text
    assert "every byte checked" in said.out
    memory = [way.get("memory") for way in line_ups[0]["ways"]]
    assert all(memory) == (case == "slow_consumer")


def test_a_hand_over_by_ray_runs_through(tmp_path: Path) -> None:
    """Where Ray is installed, its object store is one of the ways."""
    pytest.importorskip("ray")
    file = tmp_path / "result.json"
    assert main(["hand_over", "--sizes", "64KiB", "--repeat", "1", "--json", str(file)]) == 0
    line_ups = json.loads(file.read_text())["cases"][0]["line_ups"]
    assert line_ups[0]["ways"][-1]["name"] == "Ray's object store"


def test_compressed_streams_are_read_in_many_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their times scatter, so a median of few says nothing; a quick run takes few, and --repeat decides."""
    monkeypatch.setattr(ipc_compressed, "_SHAPES", ((1 << 16, 1),))
    monkeypatch.setattr(ipc_compressed, "_QUICK_SHAPES", ((1 << 16, 1),))
    for scale, rounds in ((Scale(), 25), (Scale(quick=True), 3), (Scale(repeat=5), 5)):
        line_ups = list(ipc_compressed.CASE.line_ups(scale))
        assert {line_up.rounds for line_up in line_ups if isinstance(line_up, LineUp)} == {rounds}


def test_a_variant_function_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What validate, schema_of, keys, equals, explode and the two conversions return is compared in each sample."""
    monkeypatch.setattr(functions, "_QUICK", 1 << 14)
    column = variant.from_json(['{"id": 1, "ok": true, "user": {"tags": []}}'])
    wrong: dict[str, Any] = {
        "validate": variant.validate(column),
        "schema_of": variant.schema_of(column),
        "keys": variant.keys(column),
        "equals": variant.equals(column, column),
        "explode": variant.explode(variant.from_python([[1, 2]])),
        "from_python": column,
        "to_python": variant.to_python(column),
    }
    for name, result in wrong.items():
        monkeypatch.setattr(f"bowstring.variant.{name}", lambda *_args, found=result, **_options: found)
        samples = [
            line_up.ways[0].once()
            for line_up in functions.CASE.line_ups(Scale(quick=True))
            if isinstance(line_up, LineUp) and line_up.name.startswith(f"{name},")
        ]
        assert [sample.sent == sample.arrived for sample in samples] == [False], name
        monkeypatch.undo()
        monkeypatch.setattr(functions, "_QUICK", 1 << 14)


def test_parquet_runs_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files are read and opened by both, and every value is compared."""
    file = tmp_path / "result.json"
    assert main(["parquet", "--quick", "--repeat", "1", "--json", str(file)]) == 0
    line_ups = json.loads(file.read_text())["cases"][0]["line_ups"]
    assert [line_up["name"] for line_up in line_ups][:2] == ["read all columns", "read one column of numbers"]
    assert len(line_ups) == 10
    assert "every byte checked" in capsys.readouterr().out
