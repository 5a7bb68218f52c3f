"""The archive of code for GPUs: taken only where it fits sources, GPU and driver, and loaded by CuPy alone."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.errors import MissingDependency, NotOnDevice
from bowstring.kernels import archive, cuda, library
from bowstring.kernels.archive import CAPABILITIES, TEXT, Archive, folder_of
from bowstring.kernels.launch import can_launch, launch
from bowstring.kernels.library import NotUsable
from bowstring.kernels.signature import signatures, signatures_of
from bowstring.kernels.validity import pack_flags
from tests.kernels.fake_cupy import CupyArray, FakeCupy

ROOT = Path(__file__).parents[2]
SIGNATURE = signatures_of(pack_flags)[0]
BUILT = archive.load()
NEW_DRIVER = (99, 0)
needs_archive = pytest.mark.skipif(isinstance(BUILT, NotUsable), reason="the build compiled no code for GPUs")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that archives are looked for in."""
    monkeypatch.setattr(library, "FOLDER", str(tmp_path))
    return tmp_path


def written(folder: Path, code: dict[str, bytes] | None = None, **comment: Any) -> Path:
    """Write an archive that fits, but for what is said."""
    fitting: dict[str, Any] = {"sources": library.compiled_sources(), "toolkit": (13, 0)}
    fitting |= {"capabilities": CAPABILITIES, "oldest": (11, 0)}
    made = {f"{each}/{SIGNATURE.name}": each.encode() for each in (TEXT, *map(folder_of, CAPABILITIES))}
    path = folder / archive.NAME
    archive.write(str(path), made if code is None else code, {**fitting, **comment})
    archive._load.cache_clear()
    return path


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use the archive, whatever runs other tests, and forget archives and functions that a test has loaded."""
    monkeypatch.delenv("BOWSTRING_KERNELS", raising=False)
    yield
    archive._load.cache_clear()
    cuda._function.cache_clear()


@needs_archive
def test_the_build_compiled_every_signature_for_every_gpu() -> None:
    """Each signature is there as text with its entry, and as machine code for each family of GPUs."""
    assert isinstance(BUILT, Archive)
    assert set(BUILT.capabilities) >= {(8, 0), (9, 0)}
    assert BUILT.oldest <= (12, 0)
    with zipfile.ZipFile(BUILT.path) as file:
        assert file.testzip() is None
        folders = {TEXT, *map(folder_of, BUILT.capabilities)}
        assert set(file.namelist()) == {f"{one}/{each.name}" for one in folders for each in signatures()}
    for signature in signatures():
        for capability in ((8, 9), (9, 0), (10, 0), (12, 1)):
            code = archive.find(signature, capability, NEW_DRIVER)
            assert isinstance(code, bytes)
            assert code.startswith(b"\x7fELF")
            assert signature.name.encode() in code
        code = archive.find(signature, (99, 0), NEW_DRIVER)
        assert isinstance(code, bytes)
        assert f".visible .entry {signature.name}(".encode() in code
        assert code.endswith(b"}\0")
        assert b".target sm_80" in code


pairs = st.tuples(st.integers(5, 14), st.integers(0, 9))


@given(
    made=st.sets(st.sampled_from(CAPABILITIES)), capability=pairs, toolkit=pairs, oldest=pairs, driver=pairs
)
def test_a_gpu_gets_code_that_it_and_its_driver_take(
    made: set[tuple[int, int]],
    capability: tuple[int, int],
    toolkit: tuple[int, int],
    oldest: tuple[int, int],
    driver: tuple[int, int],
) -> None:
    """Machine code is of the GPU's family and no newer, a text no newer than the driver; else a reason says why."""
    chosen = Archive("", toolkit, tuple(sorted(made)), oldest).choose(capability, driver)
    family = {each for each in made if each[0] == capability[0] and each[1] <= capability[1]}
    embedded = capability in {(8, 7), (10, 1), (11, 0)}
    if family and not embedded and driver[0] >= toolkit[0]:
        assert chosen == folder_of(max(family))
    elif capability >= (8, 0) and driver >= oldest:
        assert chosen == TEXT
    else:
        assert isinstance(chosen, NotUsable)
        assert "the build compiled kernels" in chosen.reason


def stale(path: Path) -> None:
    written(path.parent, sources="0" * 64)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def foreign(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("text/other", b"")


def commented_as(comment: object) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with zipfile.ZipFile(path, "a") as file:
            file.comment = json.dumps(comment).encode()

    return damage


DAMAGES = {
    "stale": stale,
    "cut": cut,
    "foreign": foreign,
    "empty": lambda path: path.write_bytes(b""),
    "an_elf": lambda path: path.write_bytes(b"\x7fELF" + bytes(100)),
    "a_folder": lambda path: (path.unlink(), path.mkdir()),
    "a_list": commented_as([1]),
    "no_versions": commented_as({"sources": library.compiled_sources()}),
    "three_numbers": commented_as({"toolkit": [1, 2, 3], "capabilities": []}),
    "words": commented_as({"toolkit": "13", "capabilities": [["a", "b"]]}),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_an_archive_that_does_not_fit_is_not_used(folder: Path, damage: Callable[[Path], Any]) -> None:
    """Stale, foreign or damaged, it is passed over, with a reason that names the file."""
    path = written(folder)
    assert archive.find(SIGNATURE, (9, 0), NEW_DRIVER) == b"sm_90"
    damage(path)
    archive._load.cache_clear()
    found = archive.find(SIGNATURE, (9, 0), NEW_DRIVER)
    assert isinstance(found, NotUsable)
    assert found.is_there
    assert str(path) in found.reason


def test_damaged_code_is_not_used(folder: Path) -> None:
    """Code whose bytes changed is not loaded, and neither is that of a kernel which is not there."""
    path = written(folder)
    with zipfile.ZipFile(path) as file:
        entry = file.getinfo(f"sm_90/{SIGNATURE.name}")
    content = bytearray(path.read_bytes())
    content[entry.header_offset + 30 + len(entry.filename) + 2] ^= 0x40
    path.write_bytes(content)
    found = archive.find(SIGNATURE, (9, 0), NEW_DRIVER)
    assert isinstance(found, NotUsable)
    assert "cannot be read" in found.reason
    written(folder, code={})
    found = archive.find(SIGNATURE, (9, 0), NEW_DRIVER)
    assert isinstance(found, NotUsable)
    assert found.reason.endswith("does not have pack_flags")


def test_the_same_code_gives_the_same_bytes(folder: Path) -> None:
    """An archive has no dates of its own."""
    assert written(folder).read_bytes() == written(folder).read_bytes()


def on_gpu() -> tuple[CupyArray, CupyArray, int, CupyArray]:
    flags, packed = np.array([1, 0, 1], np.uint8), np.zeros(1, np.uint32)
    return CupyArray(flags), CupyArray(np.zeros(0, np.uint64)), 0, CupyArray(packed)


def test_arrays_of_a_gpu_are_launched_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy loads the build's machine code once and launches it, with enough blocks, on the device of the arrays."""
    written(folder)
    cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    flags, packed = np.ones(32 * 300, np.uint8), np.zeros(300, np.uint32)
    words = flags.view(np.uint64)
    given = CupyArray(flags), CupyArray(words), 0
    for _ in range(2):
        launch(pack_flags, 300, *given, CupyArray(packed))
    assert cupy.loaded == [b"sm_90"]
    expected: tuple[int, ...] = (300, 0, 0, flags.size, 1, flags.ctypes.data, flags.size, 1)
    expected += (0, 0, words.size, 8, words.ctypes.data, words.size, 8, 0)
    expected += (0, 0, 300, 4, packed.ctypes.data, 300, 4)
    assert cupy.launched == [(SIGNATURE.name, (3,), (128,), expected, 1)] * 2
    with pytest.raises(NotOnDevice):
        launch(pack_flags, 300, *given, CupyArray(packed, device=0))
    with pytest.raises(NotOnDevice):
        launch(pack_flags, 300, *given, packed)


@pytest.mark.parametrize(
    ("capability", "driver", "expected"),
    [
        ("80", 13000, b"sm_80"),
        ("89", 13010, b"sm_80"),
        ("103", 13000, b"sm_100"),
        ("130", 13000, b"text\0"),
        ("90", 12040, b"text\0"),
        ("80", 11000, b"text\0"),
    ],
)
def test_the_gpu_and_its_driver_choose(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capability: str, driver: int, expected: bytes
) -> None:
    """What CuPy says of them is what the code is chosen by; a text ends with a zero."""
    written(folder)
    cupy = FakeCupy(capability, driver)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    launch(pack_flags, 1, *on_gpu())
    assert cupy.loaded == [expected]
    assert can_launch(on_gpu()[0])


@pytest.mark.parametrize("way", ["", "library", "jit"])
def test_modes_hold_for_gpus(folder: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """``library`` is the build's code or an error; ``jit`` compiles; unset compiles what the driver cannot take."""
    monkeypatch.setenv("BOWSTRING_KERNELS", way)
    cupy = FakeCupy(driver=10020)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    asked: list[tuple[tuple[int, int], str]] = []

    def compiled(_signature: Any, capability: tuple[int, int], why: str = "") -> bytes:
        asked.append((capability, why))
        return b"compiled"

    monkeypatch.setattr("bowstring.kernels.cubin.load_cubin", compiled)
    written(folder)
    if way == "library":
        with pytest.raises(MissingDependency, match=r"CUDA 11\.0 and newer, and the driver is of CUDA 10\.2"):
            launch(pack_flags, 1, *on_gpu())
        assert asked == []
        return
    launch(pack_flags, 1, *on_gpu())
    assert cupy.loaded == [b"compiled"]
    [(capability, why)] = asked
    assert capability == (9, 0)
    assert ("CUDA 11.0 and newer, and the driver is of CUDA 10.2" in why) == (way == "")


@pytest.mark.parametrize("way", ["interpret", "checked"])
def test_kernels_of_gpu_arrays_run_on_the_host_where_that_is_chosen(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Interpreted, or with every index checked, a kernel runs over copies, and what it wrote is copied back."""
    if way == "checked":  # one process has all kernels checked or none
        monkeypatch.setattr("bowstring.kernels.host.run", functools.partial(ran, monkeypatch))
    monkeypatch.setenv("BOWSTRING_KERNELS", way)
    cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    given = on_gpu()
    launch(pack_flags, 1, *given)
    assert given[-1].array.tolist() == [5]
    assert (cupy.loaded, cupy.launched) == ([], [])


def ran(monkeypatch: pytest.MonkeyPatch, signature: Any, items: int, arguments: tuple[Any, ...]) -> None:
    from bowstring.kernels.host import interpret

    interpret(signature, items, arguments)


PROGRAM = """
import sys
if "blocked" in sys.argv:
    sys.modules["numba"] = None
import numpy as np
from tests.kernels.fake_cupy import CupyArray, FakeCupy
cupy = sys.modules["cupy"] = FakeCupy()
from bowstring.kernels.launch import launch
from bowstring.kernels.validity import count_bits, pack_flags
flags = CupyArray(np.ones(3, np.uint8)), CupyArray(np.zeros(0, np.uint64)), 0
try:
    launch(pack_flags, 1, *flags, CupyArray(np.zeros(1, np.uint32)))
    launch(count_bits, 1, *flags, 0, 3, CupyArray(np.zeros(1, np.int64)))
    print([code[:4] == b"\\x7fELF" for code in cupy.loaded], bool(sys.modules.get("numba")))
except Exception as error:
    print(type(error).__name__, error)
"""


def run(package: Path, *arguments: str, **environment: str) -> tuple[str, str]:
    """Return what a process that launches kernels of a package writes to its two outputs."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{ROOT}", **environment},
        cwd=package,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.strip(), done.stderr


@needs_archive
def test_a_gpu_needs_no_compiler(tmp_path: Path) -> None:
    """With the build's code CuPy loads kernels, numba is neither needed nor imported, and nothing is said."""
    for arguments in ([], ["blocked"]):
        out, told = run(ROOT / "src", *arguments, BOWSTRING_CACHE_DIR=str(tmp_path))
        assert (out, told) == ("[True, True] False", "")
    assert not list(tmp_path.iterdir())


def test_without_an_archive_what_is_slow_says_so_once(tmp_path: Path) -> None:
    """The first kernel that is compiled is named with its time; without numba, the error names what to install."""
    sources = ROOT / "src" / "bowstring"
    shutil.copytree(
        sources, tmp_path / "bowstring", ignore=shutil.ignore_patterns("__pycache__", archive.NAME)
    )
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    out, _ = run(tmp_path, "blocked", BOWSTRING_CACHE_DIR=str(cache))
    assert out.startswith("MissingDependency numba-cuda")
    assert "kernels-cuda13" in out
    try:
        from bowstring.kernels.cubin import numba_cuda

        numba_cuda()
    except MissingDependency:
        pytest.skip("numba-cuda is not installed: nothing compiles for CUDA here")
    out, told = run(tmp_path, BOWSTRING_CACHE_DIR=str(cache))
    assert out == "[True, True] True"
    [line] = told.splitlines()
    assert line.startswith("bowstring: compiled the kernel pack_flags for the GPU in ")
    assert line.endswith("the build compiled no code for GPUs.")
