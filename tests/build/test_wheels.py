"""What is built: the same library each time, a wheel that has it, and pure ones that hold no machine code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

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
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel for this machine, the pure wheel and the source archive."""
    folder = tmp_path_factory.mktemp("built")
    hatch(folder)
    hatch(folder, "-t", "wheel", HATCH_BUILD_NO_HOOKS="true")
    return folder


def hatch(folder: Path, *arguments: str, **environment: str) -> str:
    """Build, and return what is written to stderr."""
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    ).stderr


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


@pytest.mark.parametrize("compiler", ["/nowhere/cc", "false"])
def test_without_a_compiler_the_wheel_is_pure(tmp_path: Path, compiler: str) -> None:
    """Where no library can be linked, one line says so, and the pure wheel results."""
    told = hatch(tmp_path, "-t", "wheel", CC=compiler)
    assert machine_code_in_wheel(only(tmp_path, "*-py3-none-any.whl")) == []
    [line] = [line for line in told.splitlines() if line.startswith("bowstring:")]
    assert compiler in line


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
