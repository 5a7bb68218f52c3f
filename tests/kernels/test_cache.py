"""Compiled kernels are kept in a folder of ours, met again by the next process, and never met stale."""

from __future__ import annotations

import os
import pickle
import shutil
import stat
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from bowstring.errors import UsageError
from bowstring.kernels import cache

ROOT = Path(__file__).parent.parent.parent
PACKAGE = Path(cache.__file__).resolve().parent.parent / "src" / "bowstring"
TIMEOUT = 60
PROGRAM = """
import sys
from bowstring.kernels import jit, signature, validity
dispatcher = jit.compiled(signature.signatures_of(validity.pack_flags)[0])
stats = dispatcher.stats
print(len(stats.cache_hits), len(stats.cache_misses), stats.cache_path)
"""

pytest.importorskip("numba")


def run(path: Path, **environment: str) -> tuple[int, int, Path]:
    """Return how many loops a new process found and compiled, and where it keeps them."""
    return run_and_listen(path, environment)[:3]


def run_and_listen(path: Path, environment: dict[str, str], umask: int = -1) -> tuple[int, int, Path, str]:
    """Return the same, and what the process wrote to stderr."""
    settings = {key: value for key, value in os.environ.items() if key not in ("BOWSTRING_CACHE_DIR", "HOME")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**settings, "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
        cwd=path,
        umask=umask,
    )
    found, compiled, folder = done.stdout.split()
    return int(found), int(compiled), Path(folder), done.stderr


def contents(folder: Path) -> dict[Path, int]:
    return {each: each.stat().st_mtime_ns for each in folder.rglob("*") if each.is_file()}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a read-only copy of the package."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(PACKAGE, folder / "bowstring", ignore=shutil.ignore_patterns("__pycache__"))
    for each in (folder / "bowstring").rglob("*"):
        each.chmod(each.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    return folder


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a cache that a process has filled, for tests to copy, and the folder in it where the code lies."""
    root = tmp_path_factory.mktemp("filled") / "root"
    found, compiled, module, said = run_and_listen(ROOT / "src", {"BOWSTRING_CACHE_DIR": str(root)}, 0o002)
    assert (found, compiled, said) == (0, 1, "")
    return root, module.relative_to(root)


def test_the_next_process_compiles_nothing(filled: tuple[Path, Path], tmp_path: Path) -> None:
    """What one process compiled the next one finds; no file of the cache changes."""
    shutil.copytree(filled[0], tmp_path, dirs_exist_ok=True)
    before = contents(tmp_path)
    assert run(ROOT / "src", BOWSTRING_CACHE_DIR=str(tmp_path))[:2] == (1, 0)
    assert contents(tmp_path) == before


def test_a_read_only_package_without_a_home(package: Path) -> None:
    """Without a home the cache is a temporary folder that ends with the process; the package stays as it was."""
    before = contents(package)
    found, compiled, folder = run(package, HOME="/dev/null/nobody", XDG_CACHE_HOME="")
    assert (found, compiled) == (0, 1)
    assert not folder.exists()
    assert contents(package) == before


def test_the_users_cache_folder(tmp_path: Path) -> None:
    """It is ``XDG_CACHE_HOME`` or ``.cache`` in the home, readable by the user alone."""
    for environment, root in (
        ({"XDG_CACHE_HOME": str(tmp_path / "xdg"), "HOME": "/dev/null"}, tmp_path / "xdg"),
        ({"XDG_CACHE_HOME": "", "HOME": str(tmp_path)}, tmp_path / ".cache"),
    ):
        folder = run(ROOT / "src", **environment)[2]
        assert folder.is_relative_to(root / "bowstring")
        assert stat.S_IMODE((root / "bowstring").stat().st_mode) == 0o700


def test_other_sources_have_another_folder(package: Path, tmp_path: Path) -> None:
    """A change of any kernel, in a comment even, is another folder: old code is never met."""
    first = run(package, BOWSTRING_CACHE_DIR=str(tmp_path))[2]
    changed = tmp_path / "changed"
    shutil.copytree(package / "bowstring", changed / "bowstring")
    source = changed / "bowstring" / "kernels" / "validity.py"
    source.chmod(0o600)
    source.write_text(source.read_text() + "# changed\n")
    found, compiled, second = run(changed, BOWSTRING_CACHE_DIR=str(tmp_path))
    assert (found, compiled) == (0, 1)
    assert first.parent != second.parent


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    """Where nothing can be kept, everything is compiled, and nothing raises."""
    assert run(ROOT / "src", BOWSTRING_CACHE_DIR="/proc/self")[:2] == (0, 1)
    cache.store("/proc/self/kernels/file", b"")
    cache.store(str(tmp_path / "kernels" / "file"), b"kept")
    assert (tmp_path / "kernels" / "file").read_bytes() == b"kept"


def is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a folder ``bowstring`` is used neither by name, which is an error, nor as the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent))
    monkeypatch.delenv("BOWSTRING_CACHE_DIR", raising=False)
    cache._warn.cache_clear()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        passed_over = not cache.cache_folder().startswith(str(folder))
    assert [str(folder) in str(each.message) for each in warned] == [True] * passed_over
    monkeypatch.setenv("BOWSTRING_CACHE_DIR", str(folder))
    try:
        cache.cache_folder()
    except UsageError as error:
        assert error.where == "BOWSTRING_CACHE_DIR"  # noqa: PT017  either outcome is an answer
        return passed_over
    assert not passed_over
    return False


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_folders_that_others_may_write_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """What is in the cache is run, so a folder that somebody else may write is none."""
    folder = tmp_path / "bowstring"
    folder.mkdir(mode=0o700)
    assert not is_refused(folder, monkeypatch)
    folder.chmod(mode)
    assert is_refused(folder, monkeypatch)


def test_folders_of_others_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that neither the user nor root owns may hold anything."""
    folder = tmp_path / "bowstring"
    folder.mkdir(mode=0o700)
    if not os.geteuid():
        os.chown(folder, 12345, 12345)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert is_refused(folder, monkeypatch)


def test_a_link_is_followed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is the folder that a link pointed to when it was checked: its owner may turn it later."""
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    monkeypatch.setenv("BOWSTRING_CACHE_DIR", str(tmp_path / "link"))
    assert cache.cache_folder().startswith(str((tmp_path / "mine").resolve()))


def test_the_temporary_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else may read or write it; once it is no longer this process's own, another one is made."""
    monkeypatch.delenv("BOWSTRING_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cache._temporary_folder.cache_clear()
    first = Path(cache.cache_folder()).parent
    assert stat.S_IMODE(first.stat().st_mode) == 0o700
    assert Path(cache.cache_folder()).parent == first
    first.chmod(0o777)
    assert Path(cache.cache_folder()).parent != first
    cache._temporary_folder.cache_clear()


def test_damaged_files_are_compiled_again(filled: tuple[Path, Path], tmp_path: Path) -> None:
    """Empty files and garbage, as a crash of the machine leaves, are replaced."""
    shutil.copytree(filled[0], tmp_path, dirs_exist_ok=True)
    for each in contents(tmp_path):
        each.write_bytes(b"" if each.suffix == ".nbi" else b"garbage")
    assert run(ROOT / "src", BOWSTRING_CACHE_DIR=str(tmp_path))[:2] == (0, 1)
    assert run(ROOT / "src", BOWSTRING_CACHE_DIR=str(tmp_path))[:2] == (1, 0)


def test_what_compiles_is_part_of_the_folders_name() -> None:
    """Another version of the compiler, or another processor, is another folder."""
    assert cache.cache_folder("host", "0.68") != cache.cache_folder("host", "0.69")
    assert cache.cache_folder("host", "0.68") == cache.cache_folder("host", "0.68")


class Planted:
    """What an attacker puts in the place of compiled code: it makes a file where it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.marker),)


def give_away(path: Path) -> None:
    """Let another user own a path, or, where this user may not do that, let the group write it."""
    if os.geteuid():
        path.chmod(path.stat().st_mode | stat.S_IWGRP)
    else:
        os.chown(path, 12345, 12345, follow_symlinks=False)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that every user can enter, as nothing below a folder that others cannot enter is reached."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("level", ["module", "versions", "file", "link", "above"])
def test_planted_code_is_not_run(filled: tuple[Path, Path], open_folder: Path, level: str) -> None:
    """Code is never loaded from a cache of which another user may have written any level."""
    marker, root = open_folder / "executed", open_folder / "cache" / "root"
    named = {"BOWSTRING_CACHE_DIR": str(root)}
    shutil.copytree(filled[0], root)
    for each in (root, root.parent):
        each.chmod(0o755)
    module = root / filled[1]
    [index] = module.glob("*.nbi")
    index.write_bytes(pickle.dumps(Planted(marker)))
    refused = module
    match level:
        case "module":
            module.chmod(0o775)
        case "versions":
            refused = module.parent
            refused.chmod(0o775)
        case "file":
            refused = index
            give_away(index)
            module.chmod(0o755)
        case "link":
            module.rename(root / "planted")
            module.symlink_to(root / "planted")
        case "above":
            refused = root.parent
            refused.chmod(0o777)
    found, compiled, other, said = run_and_listen(ROOT / "src", named)
    assert not marker.exists()
    assert (found, compiled) == (0, 1)
    assert f"{refused}" in said
    assert said.count("RuntimeWarning") == 1
    assert not other.is_relative_to(root)
    assert not other.exists()


def test_every_level_is_private(tmp_path: Path) -> None:
    """Whatever the umask, each folder that the cache makes can be entered by its owner only."""
    root = tmp_path / "a" / "b"
    module = run_and_listen(ROOT / "src", {"BOWSTRING_CACHE_DIR": str(root)}, 0o000)[2]
    made = [module, *module.parents]
    for folder in made[: made.index(tmp_path)]:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder


def test_machine_code_of_a_gpu_is_not_taken_from_a_planted_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machine code of GPUs is loaded from checked folders, too."""
    monkeypatch.setenv("BOWSTRING_CACHE_DIR", str(tmp_path))
    folder = Path(cache.cache_folder("cuda", "1", (9, 0), module="validity"))
    assert folder.is_relative_to(tmp_path)
    folder.chmod(0o770)
    with pytest.warns(RuntimeWarning, match=str(folder)):
        other = Path(cache.cache_folder("cuda", "1", (9, 0), module="validity"))
    assert not other.is_relative_to(tmp_path)
    cache._temporary_folder.cache_clear()
