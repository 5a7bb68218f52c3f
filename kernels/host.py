"""Kernels on the host: a loop over work items, compiled by numba and kept in our cache.

The loop has the file name and the globals of the kernel's module: numba's cache keys a function by its own code
and by its closure, and a closure's cells never compare equal in another process.

With ``BOWSTRING_KERNELS=interpret`` they are plain Python: slow, and every step can be looked at. With
``BOWSTRING_KERNELS=checked`` they are compiled with every index checked, and raise `IndexError`: for tests. It
must be set before the first launch of a process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bowstring.errors import MissingDependency, UsageError
from bowstring.kernels.cache import cache_folder
from bowstring.kernels.compiling import compiling, make_jitable
from bowstring.kernels.prefetch import compile_prefetch, compile_prefetch_page, prefetch, prefetch_page
from bowstring.kernels.signature import Parameter, Signature, fingerprint, reached
from bowstring.kernels.threads import run_ranges
from bowstring.kernels.types import i64
from bowstring.private_folders import make_folders

__all__ = ["compiled", "interpret", "run", "way"]


_LOOP = """\
def {name}(_start, _stop, {arguments}):
    for _item in range(_start, _stop):
        {kernel}(_item, {arguments})
"""

# What is an instruction on the host, and how numba is told of it.
_INSTRUCTIONS: dict[Callable[..., Any], Callable[[], None]] = {
    prefetch: compile_prefetch,
    prefetch_page: compile_prefetch_page,
}
_loops: dict[Signature, Any] = {}
_jitable: set[Callable[..., Any]] = set()


VARIABLE = "BOWSTRING_KERNELS"


def run(signature: Signature, items: int, arguments: tuple[Any, ...]) -> None:
    """Run a kernel over its items, in this thread or in several."""
    loop = _loops.get(signature) or compiled(signature)
    views = tuple(map(_declared, signature.parameters, arguments))
    run_ranges(lambda start, stop: loop(start, stop, *views), items, sum(each.nbytes for each in views))


def compiled(signature: Signature) -> Any:
    """Return numba's dispatcher of a signature's loop, with the one signature compiled or read from the cache.

    Raises
    ------
    MissingDependency
        numba is not installed.
    """
    with compiling():
        loop = _loops.get(signature)
        if loop is None:
            loop = _loops[signature] = _compile(signature)
        return loop


def _declared(parameter: Parameter, argument: Any) -> Any:
    """Return an array as the signature declares it: read-only unless it is written."""
    if parameter.array and not parameter.written and argument.flags.writeable:
        argument = argument.view()
        argument.flags.writeable = False
    return argument


def _compile(signature: Signature) -> Any:
    numba = _numba()
    checked = way() == "checked"
    for function in reached(signature.kernel):
        if function not in _jitable:
            if function in _INSTRUCTIONS:
                _INSTRUCTIONS[function]()
            else:
                make_jitable(numba.extending, function, boundscheck=checked)
            _jitable.add(function)
    loop = _loop(signature)
    options = {"nopython": True, "nogil": True, "_nrt": False, "error_model": "numpy", "boundscheck": checked}
    dispatcher = numba.jit(**options)(loop)
    dispatcher._cache = _cache(loop, fingerprint(signature.kernel), *(["checked"] if checked else []))
    types = [numba.int64, numba.int64, *(_numba_type(numba, each) for each in signature.parameters)]
    dispatcher.compile(tuple(types))
    dispatcher.disable_compile()
    return dispatcher


def _numba() -> Any:
    try:
        import numba
        import numba.extending
    except ImportError as error:
        raise MissingDependency(
            "kernels on the host are compiled by numba",
            hint='pip install "bowstring[kernels]", or set BOWSTRING_KERNELS=interpret to run them slowly.',
        ) from error
    return numba


def _loop(signature: Signature) -> Any:
    kernel = signature.kernel
    names = ", ".join(each.name for each in signature.parameters)
    source = _LOOP.format(name=signature.name, kernel=kernel.__name__, arguments=names)
    made: dict[str, Any] = {}
    exec(compile(source, kernel.__code__.co_filename, "exec"), kernel.__globals__, made)  # noqa: S102  generated
    return made[signature.name]


def _numba_type(numba: Any, parameter: Parameter) -> Any:
    scalar = numba.from_dtype(parameter.dtype)
    return numba.types.Array(scalar, 1, "C", readonly=not parameter.written) if parameter.array else scalar


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


def way() -> str:
    """Return how kernels run on the host: ``compile``, ``interpret``, or ``checked``, with every index checked.

    Raises
    ------
    UsageError
        ``BOWSTRING_KERNELS`` is something else.

    Examples
    --------
    >>> way() in ("compile", "checked", "interpret")
    True
    """
    value = os.environ.get(VARIABLE, "") or "compile"
    if value not in ("compile", "checked", "interpret"):
        raise UsageError(
            "no way to run kernels", expected="compile, checked or interpret", found=value, where=VARIABLE
        )
    return value


def interpret(signature: Signature, items: int, arguments: tuple[Any, ...]) -> None:
    """Call a kernel for each of its items."""
    with np.errstate(all="ignore"):  # integers wrap, as they do where they are compiled
        for item in range(items):
            signature.kernel(i64(item), *arguments)
