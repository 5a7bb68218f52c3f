"""Where the time of a case goes: Python functions by cProfile, native ones by perf where it may be used."""

from __future__ import annotations

import contextlib
import cProfile
import os
import pstats
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bowstring.benchmarks.case import Case, LineUp, Scale

VARIABLE: Final = "BOWSTRING_BENCHMARK_PROFILE"
"""The folder into which processes that a case starts write their profiles."""

_LINES: Final = 15
_ROUNDS: Final = 5
_HERTZ: Final = 997
_SECONDS: Final = 60.0
_WAITING: Final = ("select.poll", "readline", "posix.read", "lock' objects", "time.sleep", "waitpid")


@contextlib.contextmanager
def profiled(name: str) -> Iterator[None]:
    """Profile this process for the time of a block, where `VARIABLE` says into which folder."""
    folder = os.environ.get(VARIABLE)
    if folder is None:
        yield
        return
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        profile.dump_stats(os.path.join(folder, f"{name}-{os.getpid()}.prof"))


def profile_case(case: Case, scale: Scale) -> int:
    """Run the ways of Bowstring's of a case under profilers, and print where each process spent its time."""
    with tempfile.TemporaryDirectory(prefix="bowstring-profile-") as folder:
        os.environ[VARIABLE] = folder
        try:
            with profiled("this process"):
                names = _run(case, scale)
        finally:
            del os.environ[VARIABLE]
        with _perf(folder) as native:  # again, or it would mostly see cProfile
            _run(case, scale)
        print(f"{case.name}: {scale.repeat or _ROUNDS} rounds of each")
        for name in names:
            print(f"  {name}")
        for name in sorted({path.stem.rpartition("-")[0] for path in Path(folder).glob("*.prof")}):
            _print_profile(name, sorted(map(str, Path(folder).glob(f"{name}-*.prof"))))
        _print_native(native)
    return 0


def _run(case: Case, scale: Scale) -> list[str]:
    names = []
    with contextlib.closing(case.line_ups(scale)) as line_ups:  # type: ignore[type-var]  # it is a generator
        for line_up in line_ups:
            if isinstance(line_up, LineUp):
                subjects = [way for way in line_up.ways if way.role == "subject"]
                names += [f"{line_up.name}: {way.name}" for way in subjects]
                for _ in range(scale.repeat or _ROUNDS):
                    for way in subjects:
                        way.once()
    return names


def _print_profile(name: str, files: list[str]) -> None:
    """Print the functions that took most time themselves; waiting for another process is left out."""
    stats = pstats.Stats(*files)
    rows = sorted(stats.stats.items(), key=lambda item: item[1][2], reverse=True)  # type: ignore[attr-defined]
    shown = [
        (
            own,
            total,
            calls,
            f"{Path(file).parent.name}/{Path(file).name}:{line} {function}" if line else function,
        )
        for (file, line, function), (_, calls, own, total, _) in rows
        if not any(each in function for each in _WAITING)
    ]
    print(f"\n{name}, {len(files)} processes: main thread, Python, by own time")
    print("  own s   total s    calls  function")
    for own, total, calls, function in shown[:_LINES]:
        print(f"  {own:5.3f}  {total:8.3f}  {calls:7}  {function}")


@contextlib.contextmanager
def _perf(folder: str) -> Iterator[Path | None]:
    """Record this process and those that it starts, for the time of a block, if perf is there and allowed."""
    data = Path(folder) / "perf.data"
    program = shutil.which("perf")
    if program is None:
        yield None
        return
    command = [program, "record", "-q", "-F", str(_HERTZ), "-o", str(data), "-p", str(os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as recorder:
        try:
            yield data
        finally:
            recorder.terminate()
            recorder.wait(_SECONDS)


def _print_native(data: Path | None) -> None:
    if data is None or not data.exists():
        why = (
            "perf is not installed"
            if data is None
            else "perf may not record here (kernel.perf_event_paranoid)"
        )
        print(f"\nnative code: not profiled, {why}")
        return
    command = [
        "perf",
        "report",
        "-i",
        str(data),
        "--stdio",
        "-q",
        "--percent-limit",
        "1",
        "--sort",
        "dso,symbol",
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    lines = [line.split() for line in found.stdout.splitlines() if "%" in line]
    print("\nall processes, by perf:" if lines else f"\nnative code: {found.stderr.strip() or 'no samples'}")
    for share, library, _, *symbol in lines[: 2 * _LINES]:
        print(f"  {share:>7}  {' '.join(symbol).rstrip(' -')}  ({library})")
