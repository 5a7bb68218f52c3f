"""Many changed inputs of some targets in a child process, where nothing may take long, or much memory.

Kernels run compiled. An input, and each array of a kernel, lies where the page before it, or the one behind it,
must not be touched: reading beyond it ends the child. What goes wrong leaves its input in a folder.
"""

from __future__ import annotations

import ctypes
import faulthandler
import hashlib
import mmap
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from bowstring.kernels import host
from bowstring.kernels.signature import Signature
from tests.fuzz.seeds import folder_of_seeds, seeds
from tests.fuzz.targets import GUARDED, TARGETS, mutated

ROOT: Final = Path(__file__).parents[2]
HANGS: Final = 60.0
"""Seconds after which an input counts as one that never ends, on a busy machine."""
_CPU: Final = 5.0
_MEMORY: Final = 768 << 20
_PAGE: Final = mmap.PAGESIZE
_NO_ACCESS: Final = 0
_WARM: Final = 3
_WORDS: Final = 1500
_INPUT, _NUMBER = "input", "number"
# Arenas of malloc take address space; and its own pool of pyarrow's would keep what the bound is about.
_ENVIRONMENT: Final = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_PERTURB_": "165",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
_PROGRAM: Final = """
import sys
from pathlib import Path
from tests.fuzz.running import fuzz
fuzz(sys.argv[1].split(","), *map(int, sys.argv[2:5]), float(sys.argv[5]), Path(sys.argv[6]))
"""
_libc: Final = ctypes.CDLL(None, use_errno=True)


class TooMuchError(Exception):
    """An input took more time, or asked for more memory, than any of its size may."""


def guarded(data: Any, rng: random.Random) -> memoryview:
    """Return bytes right in front of a page that nobody may touch, aligned as their number is, or behind one."""
    nbytes = memoryview(data).nbytes
    inside = -(-nbytes // _PAGE) * _PAGE
    memory = mmap.mmap(-1, inside + 2 * _PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    begin = _PAGE + (inside - nbytes if rng.random() < 0.75 else 0)
    memory[begin : begin + nbytes] = bytes(data)
    for at in (0, _PAGE + inside):
        assert _libc.mprotect(ctypes.c_void_p(address + at), ctypes.c_size_t(_PAGE), _NO_ACCESS) == 0
    return memoryview(memory)[begin : begin + nbytes]


def guard_kernels(rng: random.Random) -> None:
    """From now on, give each kernel of the library arrays of its own, with such pages beside each of them."""
    make = host._runner_of_function

    def runner(signature: Signature, function: Any) -> host.Runner:
        inner = make(signature, function)
        arrays = [place for place, each in enumerate(signature.parameters) if each.array]

        def run(items: int, arguments: tuple[Any, ...]) -> bool:
            if any(type(arguments[place]) is not np.ndarray for place in arrays):
                return inner(items, arguments)
            given = list(arguments)
            for place in arrays:
                given[place] = np.frombuffer(guarded(arguments[place], rng), arguments[place].dtype)
            is_run = inner(items, tuple(given))
            for place in arrays:
                if is_run and signature.parameters[place].written:
                    arguments[place][...] = given[place]
            return is_run

        return run

    host._runner_of_function = runner
    host._runners.clear()
    host._calls.clear()


def run(target: str, data: bytes, rng: random.Random) -> None:
    """Give one input to a target, within bounds of time and memory."""
    faulthandler.dump_traceback_later(HANGS, exit=True)
    began = time.process_time()
    try:
        if target in GUARDED:
            TARGETS[target](guarded(data, rng).toreadonly())
        else:
            TARGETS[target](data)
    except MemoryError as error:
        raise TooMuchError("memory") from error
    finally:
        faulthandler.cancel_dump_traceback_later()
    if time.process_time() - began > _CPU:
        raise TooMuchError(f"{time.process_time() - began:.1f} seconds")


def bound_memory() -> None:
    """Let this process have little more memory than it has."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
    resource.setrlimit(resource.RLIMIT_AS, (held + _MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def fuzz(targets: list[str], seed: int, first: int, count: int, seconds: float, folder: Path) -> None:
    """Run inputs of some targets, from a number on: so many of each, or for so long."""
    faulthandler.enable()
    guard_kernels(random.Random(seed))
    end = time.monotonic() + seconds
    kept, noted = folder / _INPUT, folder / _NUMBER
    for target in targets:
        begun = list(seeds(target, folder_of_seeds()).values())
        for data in begun[:_WARM]:
            TARGETS[target](data)
        bound_memory()
        for number in range(first, first + count):
            if time.monotonic() > end:
                break
            rng = random.Random(f"{target} {seed} {number}")
            data = rng.choice(begun)
            for _ in range(rng.choice((1, 1, 2))):
                data = mutated(target, data, rng)
            kept.write_bytes(data)
            noted.write_text(f"{target} {number}")
            run(target, data, rng)
    kept.unlink(missing_ok=True)


class Outcome(NamedTuple):
    """How a child ended: what it says, its last input where that brought it down, and that one's number."""

    status: int
    said: str
    found: bytes
    number: int


def in_child(
    targets: Sequence[str], seed: int, *, first: int = 0, count: int = 1 << 62, seconds: float = 1e9
) -> Outcome:
    """Run inputs of some targets in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                _PROGRAM,
                ",".join(targets),
                *map(str, (seed, first, count, seconds)),
                folder,
            ],
            cwd=ROOT,
            env=os.environ | _ENVIRONMENT,
            capture_output=True,
            text=True,
            errors="replace",
        )
        kept, noted = Path(folder, _INPUT), Path(folder, _NUMBER)
        return Outcome(
            done.returncode,
            done.stdout + done.stderr,
            kept.read_bytes() if kept.exists() else b"",
            int(noted.read_text().split()[1]) if noted.exists() else first,
        )


def hunt(target: str, seconds: float, seed: int, folder: Path) -> int:
    """Run inputs of a target for so long, after each finding with the next one; return how many were found."""
    end, number, found = time.monotonic() + seconds, 0, 0
    while (left := end - time.monotonic()) > 0:
        outcome = in_child([target], seed, first=number, seconds=left)
        number = outcome.number + 1
        if outcome.status:
            found += 1
            path = folder / f"crash-{target}-{hashlib.sha256(outcome.found).hexdigest()[:12]}"
            path.write_bytes(outcome.found)
            print(f"{path}: input {number - 1} of seed {seed}, status {outcome.status}")
            print(outcome.said[:_WORDS], outcome.said[-_WORDS:], sep="\n…\n", flush=True)
    print(f"{target}: {number} inputs of seed {seed}, {found} findings", flush=True)
    return found
