"""Kernels on the host: which code runs them, and how it is called. ``BOWSTRING_KERNELS`` chooses, in each launch:

``library`` (:mod:`bowstring.kernels.library`), an error where it cannot be used; ``jit``, compiled by numba at
first use (:mod:`bowstring.kernels.jit`); ``checked``, the same with every index checked, to be set before the first
launch; ``interpret``, plain Python. Unset: the library, and numba for what the library cannot run.
"""

from __future__ import annotations

import functools
import os
import struct
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from bowstring.errors import MissingDependency, UsageError
from bowstring.kernels import library
from bowstring.kernels.signature import Kernel, Parameter, Signature, signatures_of
from bowstring.kernels.threads import SMALL_BYTES, run_ranges
from bowstring.kernels.types import f32, f64, i64, u64

VARIABLE: Final = "BOWSTRING_KERNELS"

ALL_MEMORY: Final = 0, 1 << 62
"""Address and bytes of an array of all memory, for kernels that are bound."""

_WAYS: Final = ("", "library", "jit", "checked", "interpret")

# Takes the number of items, and the arguments; returns whether they are such as it takes.
Runner = Callable[[int, tuple[Any, ...]], bool]

_runners: dict[tuple[str, Signature], Runner] = {}
_calls: dict[tuple[Kernel, str], tuple[Runner, ...]] = {}


def run(signature: Signature, items: int, arguments: tuple[Any, ...]) -> None:
    """Run a kernel over its items, in this thread or in several."""
    chosen = way()
    if chosen == "interpret":
        interpret(signature, items, arguments)
        return
    found = _runners.get((chosen, signature))
    if found is None:
        found = _runners[chosen, signature] = runner(chosen, signature)
    if not found(items, arguments):
        raise AssertionError(f"{signature} does not take what was matched with it")


def run_at_once(kernel: Kernel, items: int, arguments: tuple[Any, ...]) -> bool:
    """Run a kernel of the library on arrays of the host; return whether it was run.

    Where it was not, there is no library, something is out of the ordinary, or wrong: :func:`run` is for these.
    """
    key = kernel, os.environ.get(VARIABLE, "")
    calls = _calls.get(key)
    if calls is None:
        loaded = library.load() if key[1] in ("", "library") else None
        calls = ()
        if isinstance(loaded, library.Library):
            functions = [(each, loaded.function(each)) for each in signatures_of(kernel)]
            calls = tuple(_runner_of_function(each, function) for each, function in functions if function)
        _calls[key] = calls
    for call in calls:  # noqa: SIM110  a generator takes longer
        if call(items, arguments):
            return True
    return False


def way() -> str:
    """Return what ``BOWSTRING_KERNELS`` chooses; an empty string where it is not set."""
    value = os.environ.get(VARIABLE, "")
    if value not in _WAYS:
        raise UsageError("no way to run kernels", expected=", ".join(_WAYS[1:]), found=value, where=VARIABLE)
    return value


def runner(chosen: str, signature: Signature) -> Runner:
    """Return what runs a signature compiled, in a way that :func:`way` returns."""
    if chosen in ("jit", "checked"):
        return _runner_of_loop(signature, checked=chosen == "checked")
    loaded = library.load()
    if isinstance(loaded, library.Library):
        function = loaded.function(signature)
        if function is not None:
            return _runner_of_function(signature, function)
        reason = f"the library of kernels does not have {signature.kernel.__name__}"
    else:
        reason = loaded.reason
        if loaded.is_there and not chosen:
            _warn(reason)
    if chosen:
        raise MissingDependency(
            "the library of kernels was chosen and cannot be used",
            found=reason,
            where=VARIABLE,
            hint="`bowstring doctor` names the command that compiles it.",
        )
    ours = signature.kernel.__module__.startswith("bowstring.")
    return _runner_of_loop(signature, why=reason if ours else "")


def is_ready() -> bool:
    """Whether the kernels run without a compiler, at once."""
    return way() in ("", "library") and isinstance(library.load(), library.Library)


@functools.cache
def bound(kernel: Kernel, *, one: bool = True) -> Callable[..., None] | None:
    """Return what runs one item of a kernel of one signature in the library; None where that is not used.
    It takes the words of a call, address and elements of each array, and checks nothing; before them, if not for
    one item, how many there are.
    """
    if way() not in ("", "library"):
        return None
    loaded = library.load()
    (signature,) = signatures_of(kernel)
    function = loaded.function(signature) if isinstance(loaded, library.Library) else None
    if function is None:
        return None
    pack = library.words_of(signature.parameters).pack

    def run_items(items: int, *words: Any) -> None:
        if status := function(0, items, pack(*words)):
            raise AssertionError(f"{signature} ended with status {status}")

    return functools.partial(run_items, 1) if one else run_items


@functools.cache
def _warn(reason: str) -> None:
    print(f"bowstring: {reason}; kernels are compiled when they are first used", file=sys.stderr)  # noqa: T201  once


def _runner_of_function(signature: Signature, function: Callable[..., int]) -> Runner:
    """Return what calls a function of the library, which lets go of the interpreter lock.

    Small launches take little longer than its loop: it checks the arguments while it packs them.
    """
    pack = library.words_of(signature.parameters).pack
    # Integers of Python are as wide as words are, and its floats too; what is narrower has been converted.
    exact = {"f": (float, np.float64, np.float32)} | dict.fromkeys("iu", ())
    wanted = [
        (p.array, exact[p.scalar[0]] if p.type in (f32, f64, i64, u64) else (p.type,), p.dtype, p.flags)
        for p in signature.parameters
    ]
    array_type, address_of = np.ndarray, library.address_of
    read, offset = library.READ_WORD, library.ADDRESS_AT

    def call(start: int, stop: int, block: bytes) -> None:
        if status := function(start, stop, block):
            raise AssertionError(f"{signature} ended with status {status}")

    def run(items: int, arguments: tuple[Any, ...]) -> bool:
        if items <= 0 or len(arguments) != len(wanted):
            return False
        words: list[Any] = []
        nbytes = 0
        for (is_array, types, dtype, flags), argument in zip(wanted, arguments, strict=True):
            if not is_array:
                if types and type(argument) not in types:
                    return False
                words.append(argument)
            elif (
                type(argument) is array_type
                and argument.dtype == dtype
                and argument.ndim == 1
                and argument.flags.num & flags == flags
            ):
                words.append(read(id(argument) + offset).value if offset else address_of(argument))
                words.append(argument.size)
                nbytes += argument.nbytes
            else:
                return False
        try:
            block = pack(*words)
        except (struct.error, OverflowError, TypeError):  # no such number: the signature says so
            return False
        if items < 2 or nbytes < SMALL_BYTES:
            call(0, items, block)
        else:
            run_ranges(functools.partial(call, block=block), items, nbytes)
        return True

    return run


def _runner_of_loop(signature: Signature, *, checked: bool = False, why: str = "") -> Runner:
    from bowstring.kernels.jit import compiled

    loop = compiled(signature, checked=checked, why=why)

    def run(items: int, arguments: tuple[Any, ...]) -> bool:
        views = tuple(map(_declared, signature.parameters, arguments))
        run_ranges(lambda start, stop: loop(start, stop, *views), items, sum(each.nbytes for each in views))
        return True

    return run


def _declared(parameter: Parameter, argument: Any) -> Any:
    """Return an array as the signature declares it: read-only unless it is written."""
    if parameter.array and not parameter.written and argument.flags.writeable:
        argument = argument.view()
        argument.flags.writeable = False
    return argument


def interpret(signature: Signature, items: int, arguments: tuple[Any, ...]) -> None:
    """Call a kernel for each of its items."""
    with np.errstate(all="ignore"):  # integers wrap, as they do where they are compiled
        for item in range(items):
            signature.kernel(i64(item), *arguments)
