"""What the command line says of wrong calls: in its own options."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.cli import main
from bowstring.cli.doctor.packages import find_gpu_software


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return what a wrong call prints."""
    assert main(list(arguments)) != 0
    return capsys.readouterr().err


SECRET = "a secret of many characters"


@pytest.mark.parametrize("command", ["fetch", "list"])
def test_hints_name_options(capsys: pytest.CaptureFixture[str], command: str) -> None:
    """Nothing of Python's calls is in what the command line says."""
    with (
        bow.Server("tcp://127.0.0.1:0", token=SECRET) as server,
        bow.Server("tcp://127.0.0.1:0") as open_server,
    ):
        server.publish("one", pa.table({"a": [1]}))
        server.publish("two", pa.table({"a": [1]}))
        texts = [
            said(capsys, command, server.address),
            said(capsys, command, open_server.address),
            said(capsys, "fetch", f"{server.address}?want_data=1"),
            said(capsys, "serve", "--address", "tcp://0.0.0.0:0", __file__),
            said(capsys, "inspect", server.address, "one"),
        ]
        assert main(["inspect", server.address, "one", "--json"]) != 0
        error = json.loads(capsys.readouterr().out)["error"]
        texts += [error["message"], error["hint"]]
    assert "--token-file or BOWSTRING_TOKEN" in texts[0]
    for text in texts:
        assert not any(mark in text for mark in ("(…", "=…", "()", "connect(", "publish"))


@pytest.mark.parametrize("command", ["fetch", "inspect"])
def test_several_data_sets(capsys: pytest.CaptureFixture[str], command: str) -> None:
    """Where a name is missing, the command that takes one is shown, and it works so."""
    with bow.Server() as server:
        for name in ("one", "two"):
            server.publish(name, pa.table({"a": [1]}))
        assert f"bowstring {command} ADDRESS NAME" in said(capsys, command, server.address)
        assert main([command, server.address, "two"]) == 0
        assert "a file has no data sets" in said(capsys, "inspect", __file__, "two")


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [("--token", "--token-file"), ("--colums", "--columns"), ("--tokenfile", "--token-file")],
)
def test_options_are_not_abbreviated(capsys: pytest.CaptureFixture[str], wrong: str, nearest: str) -> None:
    """An option that is not known is none of the others; the nearest is named, with the usage of the command."""
    text = said(capsys, "fetch", "unix:/nowhere", wrong, "x")
    assert f"there is no option {wrong} (Did you mean '{nearest}'?)" in text
    assert "usage: bowstring fetch" in text


@pytest.mark.parametrize(("driver", "wanted"), [("12.8", "12"), ("13.1", "13")])
def test_doctor_names_the_extra_for_the_driver(driver: str, wanted: str) -> None:
    """What is missing for a GPU is installed by one command, which fits the driver."""
    other = {"12": "13", "13": "12"}[wanted]
    hints = [
        each.hint
        for each in find_gpu_software(driver)
        if each.name in ("CuPy", "nvCOMP", "cuDF") and each.hint
    ]
    assert hints
    for hint in hints:
        assert wanted in hint
        assert other not in hint
