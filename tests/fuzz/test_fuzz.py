"""Fuzzing: what it once found stays fixed, and it goes on for ten minutes where there is time."""

from __future__ import annotations

import ctypes
import faulthandler
import importlib.util
import math
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from bowstring.kernels.host import bound
from tests.fuzz.mutators import changed_bytes
from tests.fuzz.running import guarded, hunt, in_child
from tests.fuzz.seeds import folder_of_seeds, seeds
from tests.fuzz.targets import MUTATORS, TARGETS
from tests.ucx import needs_ucx

ROOT: Final = Path(__file__).parents[2]
CORPUS: Final = Path(__file__).parent / "corpus"
SECONDS: Final = float(os.environ.get("BOWSTRING_FUZZ_SECONDS", "600"))
"""For all targets together; ``BOWSTRING_FUZZ_SECONDS`` sets it."""
SAMPLE: Final = 30
"""Inputs of each target with parts, in the fast tests."""
_LONGEST: Final = 75.0
ROUNDS: Final = math.ceil(SECONDS / len(TARGETS) / _LONGEST)
"""A run of a target ends well before the watch over tests that hang; the next one goes on with its corpus."""
_AROUND: Final = 300.0
"""Seconds to load the code with its probes and to read the corpus, on a busy machine."""


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compile nothing for inputs this small; what is bound meanwhile is bound anew by the tests behind these."""
    monkeypatch.setenv("BOWSTRING_KERNELS", "interpret")
    bound.cache_clear()
    yield
    bound.cache_clear()


@pytest.mark.parametrize(
    "path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}"
)
def test_what_was_found_stays_fixed(path: Path) -> None:
    """Every input that once brought a target down is taken, or refused with an error of ours."""
    TARGETS[path.parent.name](path.read_bytes())


def the_targets() -> list[Any]:
    """Return the targets; what is not installed is skipped by name."""
    return [pytest.param(each, marks=needs_ucx if each == "ucx" else ()) for each in TARGETS]


@pytest.mark.parametrize("target", the_targets())
def test_seeds_are_taken(target: str) -> None:
    """What fuzzing starts from brings no target down."""
    for seed in seeds(target, folder_of_seeds()).values():
        TARGETS[target](seed)


@needs_ucx
def test_changed_messages_over_ucx() -> None:
    """Messages in which bytes were changed, left out or doubled bring neither end of `ucx:` down."""
    rng = random.Random(29)
    begun = list(seeds("ucx", None).values())
    for _ in range(40):
        TARGETS["ucx"](changed_bytes(rng.choice(begun), rng))


def test_some_changed_inputs_find_nothing() -> None:
    """Inputs changed in their parts are taken, or refused with an error of ours, in bounded time and memory."""
    outcome = in_child(list(MUTATORS), seed=1, count=SAMPLE)
    assert outcome.status == 0, (outcome.number, outcome.found.hex(), outcome.said)


@pytest.mark.slow
@pytest.mark.parametrize("target", the_targets())
def test_changed_inputs_find_nothing(target: str, tmp_path: Path) -> None:
    """Many of them, of every target, beside pages that must not be touched."""
    assert hunt(target, SECONDS / len(TARGETS), random.randrange(1 << 32), tmp_path) == 0


@pytest.mark.parametrize("place", range(8))
def test_reading_beyond_an_input_ends_a_child(place: int) -> None:
    """What reads a byte in front of an input, or the one behind it, dies: on one of the two sides."""
    with guarded(bytes(100 + place), random.Random(place)) as view:
        address = np.frombuffer(view, np.uint8).ctypes.data
        ends = [
            child_reads(at) for at in (address, address + len(view) - 1, address - 1, address + len(view))
        ]
    assert ends[:2] == [0, 0]
    assert -signal.SIGSEGV in ends[2:]


def child_reads(address: int) -> int:
    """Return the exit code of a child that reads a byte there."""
    if (child := os.fork()) == 0:
        faulthandler.disable()
        ctypes.string_at(address, 1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where corpora grow."""
    return tmp_path_factory.mktemp("corpora")


@pytest.mark.slow
@pytest.mark.parametrize("target", the_targets())
@pytest.mark.parametrize("round_", range(ROUNDS))
def test_fuzzing_finds_nothing(grown: Path, tmp_path: Path, target: str, round_: int) -> None:
    """Coverage-guided fuzzing of a target ends without a finding."""
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed; it has no wheels for Python 3.14 and later")
    seconds = SECONDS / len(TARGETS) / ROUNDS
    command = [sys.executable, "-m", "tests.fuzz", target, str(grown / target)]
    ended = subprocess.run(
        [*command, f"-max_total_time={seconds:.0f}", f"-artifact_prefix={tmp_path}/"],
        cwd=ROOT,
        capture_output=True,
        timeout=seconds + _AROUND,
    )
    found = {path.name: path.read_bytes().hex() for path in tmp_path.iterdir()}
    assert (ended.returncode, found) == (0, {}), ended.stderr.decode(errors="replace")[-8000:]
