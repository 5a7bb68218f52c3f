"""Signatures: what a kernel takes, as its module's ``SIGNATURES`` table spells it, and nothing else.

``"u8[], i64, i64[]!"`` is a read-only array of bytes, an integer, and an array of integers that is written; the
work item comes before them and is not spelled. Arrays are contiguous and have one dimension. Few signatures make
the time to compile all of them known: values go by width, not by Arrow type.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import pkgutil
import re
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from bowstring.errors import UsageError
from bowstring.kernels.types import SCALARS

Kernel = Callable[..., None]

_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400  # as in NumPy's C interface

_PACKAGE: Final = "bowstring.kernels"

_SPELLING: Final = re.compile(r"(?P<scalar>[uif]\d+)(?P<array>\[\])?(?P<written>!)?")


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel."""

    name: str
    scalar: str  # of the value, or of each element: "u8" … "f64"
    array: bool
    written: bool  # whether the kernel writes the array; else it may be read-only
    dtype: np.dtype[Any] = dataclasses.field(init=False, compare=False)
    type: type[np.generic] = dataclasses.field(init=False, compare=False)
    flags: int = dataclasses.field(init=False, compare=False)
    """What NumPy says of an array that fits: contiguous, aligned, and writeable where it is written."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(SCALARS[self.scalar]))
        object.__setattr__(self, "type", self.dtype.type)
        object.__setattr__(self, "flags", _CONTIGUOUS | _ALIGNED | (_WRITEABLE if self.written else 0))

    def __str__(self) -> str:
        return f"{self.scalar}{'[]' * self.array}{'!' * self.written}"


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Signature:
    """A kernel and one list of types that it is compiled for. There is one object for each."""

    kernel: Kernel
    parameters: tuple[Parameter, ...]

    @property
    def name(self) -> str:
        """A name for the compiled code, valid in Python and in C: the kernel's, and its types."""
        types = "_".join(
            re.sub(r"\W", "", f"{p}".replace("[]", "a").replace("!", "w")) for p in self.parameters
        )
        return f"{self.kernel.__name__}__{types}"

    def __str__(self) -> str:
        return f"{self.kernel.__name__}({', '.join(map(str, self.parameters))})"


def parse(kernel: Kernel, spelling: str) -> Signature:
    """Read one entry of a ``SIGNATURES`` table."""
    code = kernel.__code__
    names = code.co_varnames[1 : code.co_argcount]
    words = [word.strip() for word in spelling.split(",")] if spelling else []
    if len(words) != len(names):
        raise UsageError("a signature has another number of types", expected=names, found=spelling)
    parameters = []
    for name, word in zip(names, words, strict=True):
        parts = _SPELLING.fullmatch(word)
        if parts is None or parts["scalar"] not in SCALARS or (parts["written"] and not parts["array"]):
            raise UsageError("unknown type in a signature", expected=f"one of {sorted(SCALARS)}", found=word)
        parameters.append(Parameter(name, parts["scalar"], bool(parts["array"]), bool(parts["written"])))
    return Signature(kernel, tuple(parameters))


@functools.cache
def signatures_of(kernel: Kernel) -> tuple[Signature, ...]:
    """Return what a kernel is compiled for: its entry in the ``SIGNATURES`` of its module."""
    table = kernel.__globals__.get("SIGNATURES", {})
    if kernel not in table:
        raise UsageError("no kernel: its module's SIGNATURES do not list it", found=kernel.__qualname__)
    found = tuple(parse(kernel, spelling) for spelling in table[kernel])
    keys = {_key(signature) for signature in found}
    if not found or len(keys) < len(found):
        raise UsageError(
            "signatures of a kernel must differ in their arrays", found=[str(each) for each in found]
        )
    return found


def kernels() -> list[Kernel]:
    """Return every kernel: those in the ``SIGNATURES`` of the modules of this package and of its sub-packages."""
    modules = pkgutil.walk_packages(importlib.import_module(_PACKAGE).__path__, f"{_PACKAGE}.")
    loaded = [importlib.import_module(module.name) for module in modules]
    return [kernel for module in loaded for kernel in getattr(module, "SIGNATURES", ())]


def signatures() -> list[Signature]:
    """Return every signature of every kernel: all that is ever compiled."""
    return [signature for kernel in kernels() for signature in signatures_of(kernel)]


def match(kernel: Kernel, arguments: tuple[Any, ...]) -> tuple[Signature, tuple[Any, ...]]:
    """Return the signature that takes the arguments, and the arguments with scalars of its types."""
    signatures = signatures_of(kernel)
    key = tuple(each.dtype if _is_array(each) else None for each in arguments)
    fitting = signatures if len(signatures) == 1 else [each for each in signatures if _key(each) == key]
    if not fitting:
        raise UsageError(
            f"{kernel.__name__} takes no such arguments",
            expected=" or ".join(map(str, signatures)),
            found=[str(kind or type(each).__name__) for kind, each in zip(key, arguments, strict=True)],
        )
    signature = fitting[0]
    if len(arguments) != len(signature.parameters):
        raise UsageError("another number of arguments", expected=str(signature), found=len(arguments))
    pairs = zip(signature.parameters, arguments, strict=True)
    return signature, tuple(
        (_array if each.array else _scalar)(signature, each, given) for each, given in pairs
    )


def _key(signature: Signature) -> tuple[np.dtype[Any] | None, ...]:
    return tuple(each.dtype if each.array else None for each in signature.parameters)


def _is_array(argument: Any) -> bool:
    return type(argument) is np.ndarray or (
        hasattr(argument, "dtype") and not isinstance(argument, np.generic)
    )


def _array(signature: Signature, parameter: Parameter, argument: Any) -> Any:
    if not _is_array(argument) or argument.dtype != parameter.dtype or argument.ndim != 1:
        raise _refusal(signature, parameter, argument, "is no such array")
    flags = argument.flags
    if not flags.c_contiguous:
        raise _refusal(signature, parameter, argument, "is not contiguous")
    on_host = isinstance(argument, np.ndarray)
    if not (flags.aligned if on_host else argument.data.ptr % argument.itemsize == 0):
        raise _refusal(signature, parameter, argument, "is not aligned")
    if on_host and parameter.written and not flags.writeable:
        raise _refusal(signature, parameter, argument, "is read-only and would be written")
    return argument


def _scalar(signature: Signature, parameter: Parameter, argument: Any) -> Any:
    whole = isinstance(argument, int | np.integer | np.bool_)
    if not whole and (parameter.scalar[0] != "f" or not isinstance(argument, float | np.floating)):
        raise _refusal(signature, parameter, argument, "is no such number")
    try:
        # Python's integers are checked where NumPy's would wrap.
        return parameter.type(int(argument) if whole else argument)
    except OverflowError:
        raise _refusal(signature, parameter, argument, "is out of range") from None


def _refusal(signature: Signature, parameter: Parameter, argument: Any, what: str) -> UsageError:
    found = f"{type(argument).__name__} {argument!r}"
    if _is_array(argument):
        found = f"{argument.dtype}, {argument.ndim} dimensions"
    return UsageError(
        f"argument {parameter.name!r} of {signature.kernel.__name__} {what}",
        expected=str(parameter),
        found=found,
    )


def called(function: Kernel) -> dict[str, types.FunctionType]:
    """Return the plain functions of kernel modules that a function's code names, by these names."""
    return {
        name: value
        for name, value in _named(function).items()
        if isinstance(value, types.FunctionType)
        and (value.__module__ == function.__module__ or value.__module__.startswith(f"{_PACKAGE}."))
    }


def reached(kernel: Kernel) -> Iterator[Kernel]:
    """Yield a kernel and every function that it reaches, each once."""
    seen: set[Kernel] = set()
    waiting: list[Kernel] = [kernel]
    while waiting:
        function = waiting.pop()
        if function not in seen:
            seen.add(function)
            yield function
            waiting.extend(called(function).values())


def fingerprint(kernel: Kernel) -> str:
    """Return a hash of all that is compiled into a kernel: its code, that of what it reaches, and constants.

    It tells what is loaded, where a hash of files would tell what an editor has written since.
    """
    total = hashlib.sha256()
    for function in reached(kernel):
        code = function.__code__
        total.update(repr((code.co_code, code.co_consts, code.co_names, code.co_varnames)).encode())
        for name, value in _named(function).items():
            if isinstance(value, np.generic | np.ndarray):
                total.update(repr((name, value.dtype.str, value.tobytes())).encode())
            elif isinstance(value, int):
                total.update(repr((name, value)).encode())
    return total.hexdigest()


def _named(function: Kernel) -> dict[str, Any]:
    """Return what a function's code names in its module, and in modules imported there: that, or a little more."""
    names = function.__code__.co_names
    found = {name: function.__globals__.get(name) for name in names}
    for name, module in list(found.items()):
        if isinstance(module, types.ModuleType):
            found |= {f"{name}.{each}": getattr(module, each) for each in names if hasattr(module, each)}
    return found
