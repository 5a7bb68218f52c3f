"""The library of kernels that the build compiled: found in ``_native`` beside this file, checked, called by ctypes.

It holds the hash of its sources: one of other sources is not used. On x86-64 it has each kernel once per level. A
loop takes the first item, the end, and a block of words (:func:`words_of`), after two pointers of numba's
convention, for a result and an exception, both unused.
Kernels hold no locks and allocate nothing, so a process may fork while one runs. The library is never unloaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import os
import pathlib
import platform
import struct
import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from bowstring.kernels.signature import Parameter, Signature

FOLDER: Final = os.path.join(os.path.dirname(__file__), "_native")
NAME: Final = "kernels.so"
# Symbols beside the kernels: the hash of the sources, and that of all that the build depends on.
SOURCES: Final = "bowstring_sources"
FULL_STAMP: Final = "bowstring_stamp"

# The levels of x86-64 that the build compiles for, best first. Other machines have one.
LEVELS: Final = ("v3", "v2")
GENERIC: Final = "generic"

# What of the package's sources does not change what is compiled.
_RUN_TIME: Final = frozenset(
    {"cuda.py", "host.py", "launch.py", "threads.py", "trusted_folders.py", "vortex/arrays.py"}
)

X86: Final = platform.machine() in ("x86_64", "AMD64")
# Linux names of what a level adds; it names nothing whose registers it does not save.
_V2: Final = frozenset(("cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"))
_V3: Final = frozenset(("abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"))
_FIRST_PROCESSOR: Final = 1 << 13  # bytes of the file: Linux asks each processor for its part


@dataclasses.dataclass(frozen=True, slots=True)
class NotUsable:
    """Why there is no library to call."""

    reason: str  # for the user; a clause without a full stop
    is_there: bool  # whether a file lies where the library should, so that something is wrong


class Library:
    """A loaded library: calls for signatures."""

    def __init__(self, handle: ctypes.CDLL, level: str) -> None:
        self._handle = handle
        self.level = level

    def function(self, signature: Signature) -> Callable[[int, int, bytes], int] | None:
        """Return the compiled loop of a signature, if the library has it: called with a range and a block."""
        found = self._loop(signature)
        if found is None:
            return None
        found.argtypes = [*[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2, ctypes.c_char_p]
        found.restype = ctypes.c_int32
        result = ctypes.c_int64()  # each call writes NULL to it
        return functools.partial(found, ctypes.byref(result), None)

    def address(self, signature: Signature) -> int:
        """Return where the compiled loop of a signature is, 0 if the library does not have it."""
        return ctypes.cast(self._loop(signature), ctypes.c_void_p).value or 0

    def run_steps(self, lists: int, count: int) -> None:
        """Call loops one after the other. `lists` is where address and length of each list of steps are; a step has
        the address of a loop, its items, and the address of its block.
        """
        if status := self._handle.bowstring_run_steps(ctypes.c_void_p(lists), ctypes.c_int64(count)):
            raise AssertionError(f"a step ended with status {status}")

    def _loop(self, signature: Signature) -> Any:
        with contextlib.suppress(AttributeError):
            return self._handle[symbol(signature.name, self.level)]
        return None


def symbol(name: str, level: str) -> str:
    """Return the name of a signature's loop in the library."""
    return f"bowstring_{level}_{name}"


def words_of(parameters: tuple[Parameter, ...]) -> struct.Struct:
    """Return the words of a call: two of each array, one of each number."""
    words = {"f64": "d", "f32": "f4x"}
    each = ["QQ" if p.array else words.get(p.scalar, "q" if p.scalar[0] == "i" else "Q") for p in parameters]
    return struct.Struct("=" + "".join(each))


def _found_offset() -> int | None:
    """Return where an array object holds the address of its data, which is part of NumPy's binary interface."""
    arrays = [np.zeros(count, np.uint8) for count in (1, 7, 4096)]
    for offset in range(0, object.__basicsize__ + 64, 8):
        if all(ctypes.c_uint64.from_address(id(a) + offset).value == a.ctypes.data for a in arrays):
            return offset
    return None


ADDRESS_AT: Final = _found_offset()
READ_WORD: Final = ctypes.c_uint64.from_address


def address_of(array: Any) -> int:
    """Return the address of an array: asking NumPy takes ten times as long as a small launch may."""
    if ADDRESS_AT is None:
        return int(array.__array_interface__["data"][0])
    return READ_WORD(id(array) + ADDRESS_AT).value


@functools.cache
def compiled_sources() -> str:
    """Return a hash of the sources that the library is compiled from, and of those that compile and call it."""
    folder = pathlib.Path(__file__).parent
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        if name not in _RUN_TIME:
            total.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


_loading = threading.Lock()
os.register_at_fork(
    before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release
)


def load() -> Library | NotUsable:
    """Return the library for this processor, loaded once per process, or why it cannot be used."""
    with _loading:
        return _load(os.path.join(FOLDER, NAME))


@functools.cache
def _load(path: str) -> Library | NotUsable:
    if not os.path.lexists(path):
        return NotUsable("no library of kernels was built", is_there=False)
    try:
        handle = ctypes.CDLL(path)
        found = (ctypes.c_char * 64).in_dll(handle, SOURCES).value.decode()
    except (OSError, ValueError, UnicodeDecodeError) as error:
        return NotUsable(f"the library of kernels cannot be loaded: {error}", is_there=True)
    if found != compiled_sources():
        return NotUsable(
            f"{path} was compiled from other sources (`python -m bowstring.kernels.build` compiles it anew)",
            is_there=True,
        )
    level = level_of(_features()) if X86 else GENERIC
    if level is None:
        return NotUsable(
            "/proc/cpuinfo names no processor of level x86-64-v2, which the library of kernels needs",
            is_there=True,
        )
    return Library(handle, level)


def _features() -> frozenset[str]:
    """Return the features of the processor, as Linux names them; none where it does not say."""
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            text = file.read(_FIRST_PROCESSOR).decode(errors="replace")
    except OSError:
        return frozenset()
    lines = (line.partition(":") for line in text.splitlines())
    return next(
        (frozenset(value.split()) for name, _, value in lines if name.strip() == "flags"), frozenset()
    )


def level_of(features: frozenset[str]) -> str | None:
    """Return the best level that a processor with some features has."""
    if not features >= _V2:
        return None
    return "v3" if features >= _V3 else "v2"
