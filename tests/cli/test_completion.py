"""Shells complete commands, options and their choices."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from bowstring.cli import main


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["f"], {"fetch"}),
        (["fetch", "--to"], {"--to", "--token-file"}),
        (["fetch", "--validate", ""], {"full", "structure"}),
        (["depot", "st"], {"status", "stop"}),
        (["completion", "z"], {"zsh"}),
        (["serve", "--que"], {"--query"}),
        (["serve", "trips.parquet", "--res"], {"--resident"}),
    ],
)
def test_bash_completes(words: list[str], completed: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What bash offers behind some words is what the command line takes there."""
    if (bash := shutil.which("bash")) is None:
        pytest.skip("no bash here")
    assert main(["completion", "bash"]) == 0
    line = " ".join(f"'{each}'" for each in ["bowstring", *words])
    ends = f'COMP_WORDS=({line}); COMP_CWORD={len(words)}; _bowstring; echo "${{COMPREPLY[@]}}"'
    script = capsys.readouterr().out
    ran = subprocess.run([bash, "-c", script + ends], capture_output=True, text=True, timeout=60, check=True)
    assert set(ran.stdout.split()) == completed


@pytest.mark.parametrize(
    ("shell", "word"), [("zsh", "bashcompinit"), ("fish", "__fish_seen_subcommand_from fetch")]
)
def test_other_shells_get_the_same_words(shell: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command, option and choice is in the scripts of the other shells; a shell that has them takes them."""
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(each in script for each in (word, "structure", "query", "resident", "inspect", "doctor"))
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, "-n", "/dev/stdin"], input=script, text=True, timeout=60, check=True)
