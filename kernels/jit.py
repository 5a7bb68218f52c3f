"""Kernels compiled by numba when they are first launched, and kept in our cache: where no library was built.

The loop has the file name and the globals of the kernel's module: numba's cache keys a function by its own code
and by its closure, and a closure's cells never compare equal in another process.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from bowstring.errors import MissingDependency
from bowstring.kernels.cache import cache_folder
from bowstring.kernels.compiling import compiler_type, compiling, make_jitable
from bowstring.kernels.prefetch import INSTRUCTIONS, compile_instruction
from bowstring.kernels.signature import Signature, fingerprint, reached
from bowstring.kernels.trusted_folders import make_folders

_LOOP = """\
def {name}(_start, _stop, {arguments}):
    for _item in range(_start, _stop):
        {kernel}(_item, {arguments})
"""

_loops: dict[tuple[Signature, bool], Any] = {}
_jitable: set[Callable[..., Any]] = set()
# Where the user knows that kernels are compiled as they are used.
_announced: set[str] = set()


def compiled(signature: Signature, *, checked: bool = False, why: str = "") -> Any:
    """Return numba's dispatcher of a signature's loop, with the one signature compiled or read from the cache."""
    with compiling():
        loop = _loops.get((signature, checked))
        if loop is None:
            began = time.monotonic()
            loop = _loops[signature, checked] = _compile(signature, checked, why)
            if why and loop.stats.cache_misses:
                announce(signature, why, time.monotonic() - began)
        return loop


def announce(signature: Signature, why: str, seconds: float, *, place: str = "") -> None:
    """Say what takes so long, once in a process for each place."""
    if place not in _announced:
        _announced.add(place)
        print(  # noqa: T201  what is slow says so
            f"bowstring: compiled the kernel {signature.kernel.__name__}{place} in {seconds:.1f} s, and will "
            f"compile each other when it is first used: {why}.",
            file=sys.stderr,
        )


def _compile(signature: Signature, checked: bool, why: str) -> Any:
    try:
        import numba
        import numba.extending
    except ImportError as error:
        raise MissingDependency(
            "numba, which compiles kernels on the host, is not installed",
            found=why or None,
            hint='pip install "bowstring[kernels]", or set BOWSTRING_KERNELS=interpret to run them slowly.',
        ) from error
    for function in reached(signature.kernel):
        if function not in _jitable:
            if function in INSTRUCTIONS:
                compile_instruction(function)
            else:
                make_jitable(numba.extending, function, boundscheck=checked)
            _jitable.add(function)
    kernel = signature.kernel
    names = ", ".join(each.name for each in signature.parameters)
    source = _LOOP.format(name=signature.name, kernel=kernel.__name__, arguments=names)
    defined: dict[str, Any] = {}
    exec(compile(source, kernel.__code__.co_filename, "exec"), kernel.__globals__, defined)  # noqa: S102  generated
    loop = defined[signature.name]
    options = {"nopython": True, "nogil": True, "_nrt": False, "error_model": "numpy", "boundscheck": checked}
    dispatcher = numba.jit(**options)(loop)
    dispatcher._cache = _cache(loop, fingerprint(signature.kernel), *(["checked"] if checked else []))
    types = [numba.int64, numba.int64, *(compiler_type(numba.types, each) for each in signature.parameters)]
    dispatcher.compile(tuple(types))
    dispatcher.disable_compile()
    return dispatcher


def _cache(loop: Any, stamp: str, *marks: str) -> Any:
    """Return numba's cache of one function, in our folder and with our idea of what has changed."""
    import numba
    from numba.core.caching import CompileResultCacheImpl, FunctionCache
    from numba.core.registry import cpu_target

    processor = cpu_target.target_context.codegen().magic_tuple()
    folder = cache_folder("host", numba.__version__, processor, *marks, module=loop.__module__)

    class Locator:
        _py_file = loop.__code__.co_filename  # numba's warnings name it

        @classmethod
        def from_function(cls, _function: Any, _file: str) -> Locator:
            return cls()

        def ensure_cache_path(self) -> None:
            make_folders(folder)

        def get_cache_path(self) -> str:
            return folder

        def get_source_stamp(self) -> str:
            return stamp

        def get_disambiguator(self) -> str:
            return "host"

    class Contents(CompileResultCacheImpl):  # type: ignore[misc]  # numba has no types
        _locator_classes = (Locator,)

    class Cache(FunctionCache):  # type: ignore[misc]  # numba has no types
        _impl_class = Contents

        @contextlib.contextmanager
        def _guard_against_spurious_io_errors(self) -> Iterator[None]:
            """A cache that cannot be read or written is no error."""
            try:
                yield
            except OSError:
                pass
            except Exception:  # noqa: BLE001  a damaged file, as a crash of the machine leaves, raises anything
                with contextlib.suppress(OSError):
                    self._cache_file.flush()

    return Cache(loop)
