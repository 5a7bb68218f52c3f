"""The library of compiled kernels: taken only where it fits, and called with what was passed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.kernels import host, library
from bowstring.kernels.library import level_of
from bowstring.kernels.signature import kernels, parse, signatures
from bowstring.kernels.types import SCALARS

ROOT = Path(__file__).parents[2]
PACKAGE = Path(library.__file__).resolve().parent.parent / "src" / "bowstring"
TIMEOUT = 120
BUILT = Path(library.FOLDER) / library.NAME

needs_library = pytest.mark.skipif(
    not isinstance(library.load(), library.Library), reason="no library of kernels was built here"
)

# What a processor must have, as Linux names it.
V2 = frozenset({"pni", "ssse3", "cx16", "sse4_1", "sse4_2", "popcnt", "lahf_lm"})
V3 = frozenset({"fma", "movbe", "avx", "f16c", "bmi1", "avx2", "bmi2", "abm"})


@given(st.sets(st.sampled_from(sorted(V2 | V3))))
def test_the_level_is_the_best_that_the_processor_has(features: set[str]) -> None:
    """A level is chosen only with all that it means, whatever else the processor has."""
    for more in (features, features | V2, V2 | V3):
        expected = None
        if more >= V2:
            expected = "v3" if more >= V3 else "v2"
        assert level_of(frozenset(more | {"fpu"})) == expected


@pytest.mark.parametrize("missing", sorted(V2 | V3))
def test_no_feature_is_done_without(missing: str) -> None:
    """Without one feature of a level, it is not chosen."""
    assert level_of((V2 | V3) - {missing}) == (None if missing in V2 else "v2")


def extremes(scalar: str) -> list[Any]:
    kind: Any = SCALARS[scalar]
    if scalar[0] == "f":
        return [kind(each) for each in (0.0, -1.5, np.inf, np.finfo(kind).max)]
    return [kind(each) for each in (np.iinfo(kind).min, 0, 1, np.iinfo(kind).max)]


def block_of(kernel: Any, spelling: str, *arguments: Any) -> bytes | None:
    """Return the block that a kernel of one signature is called with; None where it is not."""
    blocks: list[bytes] = []

    def note(start: int, stop: int, block: bytes) -> int:
        assert (start, stop) == (0, 1)
        blocks.append(block)
        return 0

    is_run = host._runner_of_function(parse(kernel, spelling), note)(1, arguments)
    assert is_run == bool(blocks)
    return blocks[0] if blocks else None


@pytest.mark.parametrize("scalar", sorted(SCALARS))
def test_a_block_holds_the_bits_of_numbers(scalar: str) -> None:
    """A number lies at the beginning of its word, bit by bit, extremes included."""

    def kernel(i: Any, number: Any) -> None: ...

    for value in extremes(scalar):
        block = block_of(kernel, scalar, value)
        assert block is not None
        assert np.frombuffer(block, SCALARS[scalar])[0] == value
        assert len(block) == 8


@pytest.mark.parametrize("scalar", sorted(SCALARS))
def test_nothing_is_called_with_what_is_no_such_number(scalar: str) -> None:
    """A number that its word cannot hold, or that is none, is left to what names it."""

    def kernel(i: Any, number: Any) -> None: ...

    wrong: list[Any] = ["1", None, np.zeros(1, SCALARS[scalar])]
    if scalar[0] != "f":
        wrong += [1.0, 1 << 70, -(1 << 70)]
    if scalar not in ("i64", "u64", "f32", "f64"):
        wrong += [1, np.int64(1)]
    for value in wrong:
        assert block_of(kernel, scalar, value) is None


@given(sizes=st.lists(st.integers(0, 9), min_size=3, max_size=3), start=st.integers(0, 5))
def test_a_block_holds_addresses_and_sizes(sizes: list[int], start: int) -> None:
    """An array is its address and its number of elements, whether it is a view, read-only or empty."""

    def kernel(i: Any, left: Any, right: Any, out: Any) -> None: ...

    arrays = [np.zeros(20, kind)[start : start + size] for kind, size in zip("BlH", sizes, strict=True)]
    arrays[0].flags.writeable = False
    block = block_of(kernel, "u8[], i64[], u16[]!", *arrays)
    assert block is not None
    words = np.frombuffer(block, np.uint64)
    assert words.tolist() == [word for each in arrays for word in (each.ctypes.data, each.size)]


@needs_library
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="no qemu-x86_64 here (package qemu-user)")
def test_an_old_processor_computes_the_same() -> None:
    """On an emulated Nehalem, without AVX and BMI, the code for v2 runs, and writes what is written here."""
    program = [sys.executable, "-m", "tests.kernels.programs.results"]
    # OpenBLAS takes a processor without AVX for a newer one.
    environment = {**os.environ, "OPENBLAS_CORETYPE": "Nehalem"}
    here, emulated = (
        subprocess.run(
            [*before, *program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT
        )
        for before in ([], ["qemu-x86_64", "-cpu", "Nehalem"])
    )
    assert (here.returncode, emulated.returncode) == (0, 0), here.stderr + emulated.stderr
    level, *results = emulated.stdout.splitlines()
    assert level == "v2"
    assert results == here.stdout.splitlines()[1:]
    assert len(results) == len(kernels())


PROGRAM = """
import sys
if "blocked" in sys.argv:
    sys.modules["numba"] = None
import numpy as np
from bowstring.kernels.bitmap import with_words
from bowstring.kernels.launch import launch
from bowstring.kernels.validity import pack_flags
packed = np.zeros(1, np.uint32)
try:
    launch(pack_flags, 1, *with_words(np.array([1, 0, 1], np.uint8)), packed)
    print(packed[0], bool(sys.modules.get("numba")))
except Exception as error:
    print(type(error).__name__, error)
"""


def run(folder: Path, cache: Path, *arguments: str, way: str = "") -> tuple[str, str]:
    """Return what a process that launches a kernel of a package writes to its two outputs."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={
            **os.environ,
            "PYTHONPATH": str(folder),
            "BOWSTRING_KERNELS": way,
            "BOWSTRING_CACHE_DIR": str(cache),
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    return done.stdout.strip(), done.stderr


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a folder with a copy of the package and its library."""
    shutil.copytree(
        PACKAGE, tmp_path / "bowstring", ignore=shutil.ignore_patterns("__pycache__", "benchmarks")
    )
    (tmp_path / "cache").mkdir(mode=0o700)
    return tmp_path


@needs_library
def test_the_library_needs_no_compiler(package: Path) -> None:
    """With a library numba is neither needed nor imported, and nothing is written or said."""
    for arguments in ([], ["blocked"]):
        assert run(package, package / "cache", *arguments) == ("5 False", "")
    assert not list((package / "cache").iterdir())


def damage_stale(kernels: Path) -> None:
    (kernels / "validity.py").write_text((kernels / "validity.py").read_text() + "# changed\n")


def damage_garbage(kernels: Path) -> None:
    (kernels / "_native" / "kernels.so").write_bytes(b"\x7fELF" + bytes(100))


def damage_other_hash(kernels: Path) -> None:
    path = kernels / "_native" / "kernels.so"
    path.write_bytes(path.read_bytes().replace(library.compiled_sources().encode(), b"0" * 64))


@needs_library
@pytest.mark.parametrize("damage", [damage_stale, damage_garbage, damage_other_hash])
def test_a_library_that_does_not_fit_is_not_used(package: Path, damage: Callable[[Path], None]) -> None:
    """Stale or damaged, it is passed over with one line that says so; where it was chosen, that is an error."""
    pytest.importorskip("numba")
    damage(package / "bowstring" / "kernels")
    cache = package / "cache"
    out, told = run(package, cache)
    assert out == "5 True"
    first, second = told.splitlines()
    assert str(package) in first
    assert first.endswith("kernels are compiled when they are first used")
    assert second.startswith("bowstring: compiled the kernel pack_flags in ")
    out, told = run(package, cache)
    assert (out, told.splitlines()) == ("5 True", [first])  # it is kept: nothing was slow
    assert run(package, cache, way="library")[0].startswith(
        "MissingDependency the library of kernels was chosen"
    )
    assert run(package, cache, "blocked")[0].startswith("MissingDependency numba")


def test_without_a_library_what_is_slow_says_so_once(package: Path) -> None:
    """The first kernel that is compiled is named with its time; chosen by the user, nothing is said."""
    pytest.importorskip("numba")
    shutil.rmtree(package / "bowstring" / "kernels" / "_native", ignore_errors=True)
    out, told = run(package, package / "cache", way="jit")
    assert (out, told) == ("5 True", "")
    other = package / "other"
    other.mkdir(mode=0o700)
    out, told = run(package, other)
    assert out == "5 True"
    [line] = told.splitlines()
    assert "compiled the kernel pack_flags in " in line
    assert "no library of kernels was built" in line


@needs_library
def test_the_library_holds_every_signature_and_shows_nothing_else() -> None:
    """Each level has each signature; no other symbol is seen from outside, and no other library is needed."""
    if shutil.which("readelf") is None:
        pytest.skip("no readelf here")
    text = subprocess.run(
        ["readelf", "--wide", "--dyn-syms", "--dynamic", BUILT], capture_output=True, text=True, check=True
    ).stdout
    assert "(NEEDED)" not in text
    assert "(TEXTREL)" not in text
    symbols = [
        line.split() for line in text.splitlines() if len(line.split()) == 8 and line.split()[0][0].isdigit()
    ]
    undefined = {words[7] for words in symbols if words[6] == "UND"}
    defined = {words[7] for words in symbols if words[6] != "UND"}
    assert undefined <= {"memset", "memcpy", "memmove"}
    own = {name for name in defined if name.startswith(("bowstring_v", "bowstring_generic"))}
    # The one that runs the steps of a program calls the others by their addresses.
    assert defined - own <= {
        "bowstring_sources",
        "bowstring_stamp",
        "bowstring_run_steps",
    }
    levels = {name.split("_")[1] for name in own}
    assert levels in ({"v2", "v3"}, {"generic"})
    assert own == {library.symbol(each.name, level) for each in signatures() for level in levels}
