"""What is built: the same library each time, a wheel that has it, and pure ones that hold no machine code.

That an isolated build makes the wheel is for ``make test-install``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from bowstring.kernels import build
from bowstring.kernels.library import FOLDER, NAME

ROOT = Path(__file__).parents[2]
LIBRARY = "bowstring/kernels/_native/kernels.so"
TIMEOUT = 600
PROGRAM = """
import sys
sys.modules["numba"] = None
import pyarrow as pa
import bowstring as bow
column = bow.variant.from_json(pa.array(['{"a": 5, "b": {"c": "x"}}'] * 1000))
number, text = bow.variant.get(column, "$.a", pa.int64()), bow.variant.get(column, "$.b.c", pa.string())
bow.variant.validate(column)
print(bow.__file__)
print(sum(number.to_arrow().to_pylist()), set(text.to_arrow().to_pylist()))
print(set(bow.variant.to_json(column).to_arrow().to_pylist()))
"""
EXPECTED = ["5000 {'x'}", """{'{"a":5,"b":{"c":"x"}}'}"""]

pytest.importorskip("hatchling")
pytest.importorskip("numba")
has_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")


@pytest.fixture(scope="module")
def pure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the pure wheel."""
    folder = tmp_path_factory.mktemp("built")
    hatch(folder, "-t", "wheel", HATCH_BUILD_NO_HOOKS="true")
    return folder


@pytest.fixture(scope="module")
def built(pure: Path) -> Path:
    """Return a folder with the wheel for this machine, the pure wheel and the source archive."""
    hatch(pure)
    return pure


def hatch(
    folder: Path, *arguments: str, root: Path = ROOT, check: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Build into a folder."""
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *arguments],
        cwd=root,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=check,
    )


def only(folder: Path, pattern: str) -> Path:
    [found] = folder.glob(pattern)
    return found


def machine_code_in_wheel(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as wheel:
        return [name for name in wheel.namelist() if wheel.read(name)[:4] == b"\x7fELF"]


@has_compiler
def test_what_is_pure_holds_no_machine_code(built: Path) -> None:
    """Only the wheel for this machine has a library, though this checkout has one, too."""
    assert (Path(FOLDER) / NAME).is_file()
    assert machine_code_in_wheel(only(built, "*-py3-none-any.whl")) == []
    assert machine_code_in_wheel(only(built, "*-py3-none-manylinux*.whl")) == [LIBRARY]
    with tarfile.open(only(built, "*.tar.gz")) as archive:
        files = [each for each in archive.getmembers() if each.isfile()]
        contents = {each.name: archive.extractfile(each) for each in files}
        assert not [name for name, file in contents.items() if file and file.read(4) == b"\x7fELF"]
    assert any(name.endswith("scripts/build_hook.py") for name in contents)


@has_compiler
def test_the_wheel_works_without_numba(built: Path, tmp_path: Path) -> None:
    """Unpacked elsewhere, the wheel reads, takes apart and writes Variants by its library alone."""
    with zipfile.ZipFile(only(built, "*-py3-none-manylinux*.whl")) as wheel:
        wheel.extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "BOWSTRING_KERNELS": "library"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    where, *printed = done.stdout.splitlines()
    assert Path(where).is_relative_to(tmp_path)
    assert (printed, done.stderr) == (EXPECTED, "")


USERS_CASES = {
    "hand_over",
    "connect_read",
    "tcp",
    "ipc_read",
    "parquet",
    "variant_get",
    "spark_publish",
    "gpu_handover",
}


def test_a_wheel_has_the_benchmarks_of_users(pure: Path, tmp_path: Path) -> None:
    """An unpacked wheel lists the cases that a user would run, and runs one of them."""
    with zipfile.ZipFile(only(pure, "*-py3-none-any.whl")) as wheel:
        wheel.extractall(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "BOWSTRING_KERNELS": "interpret"}

    def bench(*arguments: str) -> str:
        command = [sys.executable, "-m", "bowstring.benchmarks", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert {line.split()[0] for line in bench("list").splitlines()} == USERS_CASES
    assert "hand_over: " in bench("hand_over", "--sizes", "64KiB", "--repeat", "1")


@has_compiler
def test_the_source_archive_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    """The source archive holds all that a build needs: its wheel has the files of the checkout's."""
    with tarfile.open(only(built, "*.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    [source] = tmp_path.iterdir()
    # It is taken for that of the same sources, and not compiled again.
    shutil.copytree(ROOT / "build" / "library", source / "build" / "library")
    assert "compiling" not in hatch(tmp_path, "-t", "wheel", root=source).stdout
    here, there = (contents_of(only(folder, "*-py3-none-manylinux*.whl")) for folder in (built, tmp_path))
    assert here == there


def contents_of(path: Path) -> dict[str, int]:
    with zipfile.ZipFile(path) as wheel:
        return {each.filename: each.CRC for each in wheel.infolist()}


def test_without_a_compiler_the_wheel_is_pure(tmp_path: Path) -> None:
    """Where a C compiler is not installed, a line names it, the last one says that the wheel is pure, and it is."""
    printed = hatch(tmp_path, "-t", "wheel", CC="/nowhere/cc").stderr
    assert machine_code_in_wheel(only(tmp_path, "*-py3-none-any.whl")) == []
    lines = [line for line in printed.splitlines() if line.startswith("bowstring:")]
    assert "/nowhere/cc" in lines[0]
    assert "the pure wheel" in lines[-1]


@pytest.mark.parametrize("compiler", ["false", "true"])
def test_a_compiler_that_fails_ends_the_build(tmp_path: Path, compiler: str) -> None:
    """Where a C compiler is there and fails, or makes nothing, the last line names how to install without."""
    done = hatch(tmp_path, "-t", "wheel", check=False, CC=compiler)
    assert done.returncode != 0
    assert not list(tmp_path.glob("*.whl"))
    assert "HATCH_BUILD_NO_HOOKS=true" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def compile_three(folder: Path, patch: str) -> subprocess.CompletedProcess[str]:
    """Run the build for three signatures, in a process of its own, which a line of code changes before."""
    program = f"""
import os, sys
from importlib import metadata
from bowstring.errors import MissingDependency
from bowstring.kernels import build, lower
from bowstring.kernels.signature import reached, signatures

def fault(*_):
    raise error

def killed(*_):
    os.kill(os.getpid(), 9)

small = sorted(signatures(), key=lambda each: len(list(reached(each.kernel))))[:3]
build.signatures = lambda: small
build.build_archive = lambda *_, **__: False
{patch}
sys.exit(build.main(["--into", "into", "--objects", "objects"]))
"""
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT
    )


@has_compiler
def test_compiling_says_how_far_it_is(tmp_path: Path) -> None:
    """A build that compiles says how many signatures there are, and every few seconds how many are compiled."""
    done = compile_three(tmp_path, "build._SECONDS_BETWEEN_LINES = 0.0")
    assert done.returncode == 0, done.stderr
    first, *lines, last = done.stdout.splitlines()
    assert "compiling 3 signatures" in first
    assert lines == [f"bowstring: compiled {count} of 3 signatures" for count in (1, 2, 3)]
    assert "in" in last


@has_compiler
@pytest.mark.parametrize(
    ("fails", "error", "status"),
    [
        ("lower.compile_signature", "RuntimeError('a fault')", 1),
        ("lower.prepare", "RuntimeError('a fault')", 1),
        ("lower.prepare", "ImportError('a fault')", build.UNAVAILABLE),  # numba's, of a NumPy that is too new
        ("lower.prepare", "MissingDependency('', found='a fault')", build.UNAVAILABLE),
        ("metadata.version", "metadata.PackageNotFoundError('a fault')", build.UNAVAILABLE),
    ],
)
def test_what_fails_is_told_from_what_is_not_installed(
    tmp_path: Path, fails: str, error: str, status: int
) -> None:
    """The command exits with one status if a compiler fails, another if it is not there, and says why."""
    done = compile_three(tmp_path, f"error = {error}; {fails} = fault")
    assert done.returncode == status, done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("bowstring: kernels are not compiled ahead of time: ")
    assert "a fault" in line


@has_compiler
def test_a_compiler_that_is_killed_ends_the_build(tmp_path: Path) -> None:
    """Where the kernel kills a process that compiles, as for want of memory, the build ends and says so."""
    done = compile_three(tmp_path, "lower.compile_signature = killed")
    assert done.returncode == 1
    assert "its process ended with status -9" in done.stderr


@has_compiler
@pytest.mark.slow
def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    """Compiled twice from nothing, by one process and by two, the library is the same."""
    for jobs in ("1", "2"):
        command = [
            sys.executable,
            "-m",
            "bowstring.kernels.build",
            "--into",
            str(tmp_path / jobs),
            "--jobs",
            jobs,
        ]
        subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=True)
    one, two = ((tmp_path / jobs / NAME).read_bytes() for jobs in ("1", "2"))
    assert one == two


@has_compiler
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["manylinux*", "any"])
def test_wheels_install_into_empty_environments(built: Path, tmp_path: Path, kind: str) -> None:
    """Installed with nothing but what they need, the one works, and the other says which extra is missing."""
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=TIMEOUT)
    wheel = only(built, f"*-py3-none-{kind}.whl")
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", *constraints, str(wheel)],
        check=True,
        timeout=TIMEOUT,
    )
    done = subprocess.run([python, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    if kind == "any":
        assert 'pip install "bowstring[kernels]"' in done.stderr
    else:
        assert done.stdout.splitlines()[1:] == EXPECTED, done.stderr
