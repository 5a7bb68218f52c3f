"""Build what a release uploads, from the last commit, and try it as a user would: ``make release-check``.

Three files come into ``dist/``: the wheel with kernels for this machine, the wheel for every machine, and the
sources. Their contents are compared with what they must and must not hold, ``twine`` checks what an index shows of
them, and each wheel, and the one that is built from the sources, runs the README in an environment with nothing
else, on each Python from 3.11 to 3.14 that this machine has. The last lines say what ran.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LIBRARY = "bowstring/kernels/_native/"
# What somebody who has the sources alone needs to build, test, measure and change them.
IN_SOURCES = (
    "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md",
    "constraints.txt", "docker/README.md",
    "docs/index.md", "examples/README.md", "pyproject.toml", "scripts/build_hook.py", "src/bowstring/__init__.py",
    "src/bowstring/benchmarks/README.md", "src/bowstring/benchmarks/cases/transport/hand_over.py",
    "src/bowstring/kernels/build.py", "tests/conftest.py",
)  # fmt: skip


def run(*command: str | Path, folder: Path, **variables: str) -> str:
    """Run a command, show what it prints where it fails, and return it."""
    done = subprocess.run(  # noqa: S603  ours
        command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"release-check: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def demand(condition: bool, problem: str) -> None:
    """End with what is wrong."""
    if not condition:
        sys.exit(f"release-check: {problem}")


def runs(python: str) -> bool:
    """Return whether a Python is there, and not only a command that says how to get it, as pyenv leaves."""
    path = shutil.which(python)
    if path is None:
        return False
    return subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0  # noqa: S603  ours


def unpack_commit(folder: Path) -> None:
    """Put the files of the last commit into a folder, with the kernels that are compiled already."""
    archive = folder.with_suffix(".tar")
    run("git", "-c", "safe.directory=*", "archive", "--output", archive, "HEAD", folder=ROOT)
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    copy_objects(folder)


def copy_objects(folder: Path) -> None:
    """Have a build take the compiled objects of this checkout, which saves minutes."""
    if (ROOT / "build" / "kernels").is_dir():
        shutil.copytree(ROOT / "build" / "kernels", folder / "build" / "kernels")


def build(folder: Path, target: str, into: Path, *, pure: bool = False) -> Path:
    """Build one file and return it."""
    before = set(into.glob("bowstring-*"))
    command = (sys.executable, "-m", "hatchling", "build", "-t", target, "-d", into)
    run(*command, folder=folder, HATCH_BUILD_NO_HOOKS="true" if pure else "false")
    [built] = set(into.glob("bowstring-*")) - before
    return built


def check_sources(path: Path, version: str) -> None:
    """The sources are whole, and hold nothing that is compiled."""
    with tarfile.open(path) as files:
        names = {name.removeprefix(f"bowstring-{version}/") for name in files.getnames()}
    missing = sorted(set(IN_SOURCES) - names)
    demand(not missing, f"{path.name} lacks {', '.join(missing)}")
    compiled = sorted(name for name in names if name.endswith((".so", ".o", ".pyc", ".zip")))
    demand(not compiled, f"{path.name} holds {', '.join(compiled)}")


def check_wheel(path: Path, version: str, *, pure: bool) -> None:
    """A wheel holds the package, its licence and, unless it is the pure one, the library of kernels."""
    with zipfile.ZipFile(path) as files:
        names = set(files.namelist())
        metadata = files.read(f"bowstring-{version}.dist-info/METADATA").decode()
        demand(f"\nVersion: {version}\n" in metadata, f"{path.name} says another version than pyproject.toml")
        demand(f"bowstring-{version}.dist-info/licenses/LICENSE" in names, f"{path.name} has no licence")
        ours = ("bowstring/", f"bowstring-{version}.dist-info/", "pyspark_bowstring.py")
        strange = sorted(name for name in names if not name.startswith(ours))
        demand(not strange, f"{path.name} would install {', '.join(strange)}")
        native = {name for name in names if name.startswith(LIBRARY)}
        demand(bool(native) != pure, f"{path.name} has {len(native)} compiled files")
        if native and shutil.which("readelf"):
            with tempfile.TemporaryDirectory() as folder:
                library = files.extract(f"{LIBRARY}kernels.so", folder)
                versions = run("readelf", "--version-info", library, folder=ROOT)
            # The tag manylinux_2_17 holds for as long as nothing of a particular glibc is asked for.
            demand("GLIBC" not in versions, f"the kernels of {path.name} need symbols of glibc:\n{versions}")


def contents(wheel: Path) -> dict[str, int]:
    """Return the checksum of each file that is not compiled, and not a list of the others."""
    with zipfile.ZipFile(wheel) as files:
        return {
            each.filename: each.CRC for each in files.infolist()
            if not each.filename.startswith(LIBRARY) and not each.filename.endswith(("/RECORD", "/WHEEL"))
        }  # fmt: skip


def try_install(wheel: Path, pythons: Iterable[str]) -> list[str]:
    """Run the README with a wheel alone on each Python, and return what was tried."""
    for python in pythons:
        print(f"release-check: {wheel.name} on {python}", flush=True)
        run("sh", ROOT / "scripts" / "test_install.sh", wheel, folder=ROOT, PYTHON=python)
    return [f"{wheel.name} on {python}" for python in pythons]


def main() -> None:
    """Build, look, install, and say what was done."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    pythons = [f"python{each}" for each in PYTHONS if runs(f"python{each}")]
    demand(bool(pythons), f"none of Python {', '.join(PYTHONS)} is on PATH")
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    with tempfile.TemporaryDirectory() as temporary:
        clone, unpacked = Path(temporary) / "clone", Path(temporary) / "unpacked"
        unpack_commit(clone)
        sources, pure, native = (
            build(clone, "sdist", dist), build(clone, "wheel", dist, pure=True), build(clone, "wheel", dist)
        )  # fmt: skip
        check_sources(sources, version)
        check_wheel(pure, version, pure=True)
        check_wheel(native, version, pure=False)
        with tarfile.open(sources) as files:
            files.extractall(unpacked, filter="data")
        again = unpacked / f"bowstring-{version}"
        copy_objects(again)
        rebuilt = build(again, "wheel", Path(temporary))
        check_wheel(rebuilt, version, pure=False)
        different = sorted({name for name, _ in contents(rebuilt).items() ^ contents(native).items()})
        demand(not different, f"the wheel built from {sources.name} differs in {', '.join(different)}")
        run(sys.executable, "-m", "twine", "check", "--strict", sources, pure, native, folder=ROOT)
        tried = [
            *try_install(native, pythons),
            *try_install(pure, pythons),
            *try_install(rebuilt, pythons[:1]),
        ]
    for path in (sources, pure, native):
        print(f"{path.stat().st_size:>12,} bytes  dist/{path.name}")
    print("README run with", *tried, sep="\n    ")
    missing = [each for each in PYTHONS if f"python{each}" not in pythons]
    if missing:
        print(f"not tried, not on this machine: Python {', '.join(missing)}")


if __name__ == "__main__":
    main()
