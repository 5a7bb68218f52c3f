from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bowstring.cli import main

COMMANDS = ("demo", "serve", "fetch", "inspect", "doctor", "depot", "bench")
NOBODY = "unix:/nowhere/bow.sock?want_data=1&ticket=dA"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` lists all commands and ends well."""
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(command in said for command in COMMANDS)


def test_help_imports_nothing_heavy() -> None:
    """``--help`` neither needs nor waits for pyarrow, NumPy and rich."""
    program = (
        "import sys; from bowstring.cli import main; main(['--help']);"
        "sys.exit(sorted({'numpy', 'pyarrow', 'rich'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["fetch"],
        ["fetch", "x", "--limit", "-1"],
        ["serve", "--query"],
        ["serve", "f", "--readers", "0"],
    ],
)
def test_a_call_without_meaning(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong arguments end with code 2 and a line about usage."""
    assert main(arguments) == 2
    assert "usage: bowstring" in capsys.readouterr().err


def test_an_error_is_one_paragraph(capsys: pytest.CaptureFixture[str]) -> None:
    """A BowstringError is one line on stderr with exit code 1, and no traceback."""
    assert main(["fetch", NOBODY]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("bowstring fetch: ")
    assert said.err.count("\n") == 1


def test_an_error_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """With ``--json`` an error is one JSON object on stdout too."""
    assert main(["fetch", NOBODY, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "BrokenError"


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """With ``--debug`` the traceback stands before the paragraph."""
    assert main(["fetch", NOBODY, "--debug"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "uri", ["nonsense", "unix:/x?", "unix:/x?want_data=1", "tcp://h:1?want_data=minus&ticket=dA"]
)
def test_a_wrong_uri_means_nothing(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no URI of a data set is a wrong call: exit code 2."""
    assert main(["fetch", uri]) == 2
    assert "bowstring fetch: " in capsys.readouterr().err


def test_an_error_of_the_system_is_one_paragraph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the operating system refuses is said like any other error."""

    def refuse(_path: str) -> None:
        raise OSError(5, "Input/output error", str(tmp_path))

    monkeypatch.setattr("bowstring.cli.serve.recognise", refuse)
    assert main(["serve", str(tmp_path)]) == 1
    assert "Input/output error" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough(tmp_path: Path, files: dict[str, Path]) -> None:
    """When whoever reads the output goes away, the program ends without a word."""
    del tmp_path
    command = f"{sys.executable} -m bowstring inspect --json {files['.arrows']} | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60)
    assert done.stderr == b""


def test_bench_hands_over(capsys: pytest.CaptureFixture[str]) -> None:
    """``bench`` gives its arguments to the benchmarks, help and exit codes included."""
    assert main(["bench", "--help"]) == 0
    assert "usage: bowstring bench" in capsys.readouterr().out
    assert main(["bench", "--nonsense"]) == 2


@pytest.mark.parametrize("command", [["bench", "--quick"], ["demo", "--flights"]])
def test_programs_that_an_installation_lacks(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the benchmarks, ``bench`` and the demo name the module that is missing, and end with code 1."""
    for name in [each for each in sys.modules if each.startswith(("bowstring.benchmarks", "bowstring.demo"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "bowstring.benchmarks", None)
    assert main(command) == 1
    assert (
        f"cannot run `bowstring {command[0]}`; found no module bowstring.benchmarks"
        in capsys.readouterr().err
    )
