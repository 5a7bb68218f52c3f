"""Kernels on CUDA: machine code of :mod:`bowstring.kernels.cuda`, loaded and launched by CuPy.

CuPy alone talks to the driver, so work is queued on its current stream and there is one idea of the current
device. Arguments are laid out as numba-cuda 0.30 compiles them: an array is seven 64-bit words.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import os
import re
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from bowstring.errors import MissingDependency
from bowstring.kernels.cache import cache_folder, store
from bowstring.kernels.compiling import compiler_type, compiling, make_jitable
from bowstring.kernels.signature import Signature, fingerprint, reached

__all__ = ["Machine", "compile_cubin", "grid_function", "load_cubin", "numba_cuda", "parameter_words", "run"]


_THREADS_PER_BLOCK: Final = 128

_loading = threading.Lock()


_GRID = """\
def {name}(_items, {arguments}):
    _item = cuda.grid(1)
    if _item < _items:
        {kernel}(_item, {arguments})
"""

_ELF = b"\x7fELF"
_jitable: set[Callable[..., Any]] = set()


def run(signature: Signature, items: int, arguments: tuple[Any, ...], device: int) -> None:
    """Queue a kernel on CuPy's current stream of a GPU, one thread for each item.

    Raises
    ------
    MissingDependency
        numba-cuda is not installed.
    """
    import cupy

    blocks = -(-items // _THREADS_PER_BLOCK)
    with cupy.cuda.Device(device):
        with _loading:
            function = _function(signature, device)
        function((blocks,), (_THREADS_PER_BLOCK,), parameter_words(items, arguments))


def parameter_words(items: int, arguments: tuple[Any, ...]) -> tuple[np.generic, ...]:
    """Return the parameters of a launch as numba-cuda's kernels take them.

    An array of one dimension is: owner, parent, elements, bytes of an element, address, extent, stride.
    """
    words: list[np.generic] = [np.int64(items)]
    for argument in arguments:
        if isinstance(argument, np.generic):
            words.append(argument)
        else:
            size, itemsize = argument.size, argument.itemsize
            words.extend(map(np.int64, (0, 0, size, itemsize, argument.data.ptr, size, itemsize)))
    return tuple(words)


@functools.cache
def _function(signature: Signature, device: int) -> Any:
    import cupy

    major, minor = divmod(int(cupy.cuda.Device(device).compute_capability), 10)
    code, entry = load_cubin(signature, (major, minor))
    module = cupy.cuda.function.Module()
    module.load(code)
    return module.get_function(entry)


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """Machine code of one signature.

    Attributes
    ----------
    code
        An ELF file for one compute capability; or, where nvJitLink is not installed, the PTX with a zero behind it,
        which a driver takes too.
    entry
        The name of the kernel in it.
    ptx
        What it was made of.
    log
        What the assembler said: registers and spills.
    """

    code: bytes
    entry: str
    ptx: str
    log: str


def load_cubin(signature: Signature, capability: tuple[int, int]) -> tuple[bytes, str]:
    """Return machine code and the name of the kernel in it, from the cache where it is there.

    Raises
    ------
    MissingDependency
        numba-cuda is not installed.
    """
    numba_cuda()
    version = importlib.metadata.version("numba-cuda")
    folder = cache_folder("cuda", version, capability, module=signature.kernel.__module__)
    path = os.path.join(folder, f"{signature.name}-{fingerprint(signature.kernel)[:20]}.cubin")
    with contextlib.suppress(OSError), open(path, "rb") as file:
        entry, _, code = file.read().partition(b"\n")
        if code.startswith(_ELF):  # a crash of the machine leaves empty files
            return code, entry.decode()
    machine = compile_cubin(signature, capability)
    if machine.code.startswith(_ELF):
        store(path, machine.entry.encode() + b"\n" + machine.code)
    return machine.code, machine.entry


def compile_cubin(signature: Signature, capability: tuple[int, int]) -> Machine:
    """Compile a signature for a compute capability such as ``(9, 0)``; neither driver nor GPU is needed.

    Raises
    ------
    MissingDependency
        numba-cuda, or a part of CUDA that it needs, is not installed.
    """
    cuda = numba_cuda()
    with compiling(), _compiling_for(capability):
        for function in reached(signature.kernel):
            if function not in _jitable:
                make_jitable(cuda.extending, function)
                _jitable.add(function)
        argument_types = [
            cuda.types.int64,
            *(compiler_type(cuda.types, each) for each in signature.parameters),
        ]
        function = grid_function(signature, cuda)
        ptx, _ = cuda.compile_ptx(function, cuda.types.void(*argument_types), cc=capability)
    entry = re.search(r"\.visible\s+\.entry\s+(\w+)", ptx)
    assert entry is not None
    code, log = _assembled(ptx, capability)
    return Machine(code, entry[1], ptx, log)


def grid_function(signature: Signature, cuda: Any) -> Any:
    """Return the CUDA kernel of a signature: one thread for each work item. `cuda` may be the simulator's."""
    names = ", ".join(each.name for each in signature.parameters)
    source = _GRID.format(name=signature.name, kernel=signature.kernel.__name__, arguments=names)
    made: dict[str, Any] = {"cuda": cuda, signature.kernel.__name__: signature.kernel}
    exec(compile(source, signature.kernel.__code__.co_filename, "exec"), made)  # noqa: S102  generated
    return made[signature.name]


def numba_cuda() -> Any:
    """Import ``numba.cuda``, of numba-cuda.

    Raises
    ------
    MissingDependency
        numba-cuda, or a part of CUDA that it needs, is not installed.

    Examples
    --------
    >>> numba_cuda().__name__  # doctest: +SKIP
    'numba.cuda'
    """
    # NumPy 2.5 took away a name that numba-cuda 0.30, the last of its line, still asks for.
    np.__dict__.setdefault("row_stack", np.vstack)
    try:
        importlib.metadata.version("numba-cuda")  # numba brings an old `numba.cuda` of its own
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # NumPy 2.5 warns of what it does
            import numba.cuda.extending
    except Exception as error:  # a missing part of CUDA raises RuntimeError here
        raise MissingDependency(
            "kernels on CUDA are compiled by numba-cuda",
            found=f"{type(error).__name__}: {error}",
            hint='pip install "bowstring[cuda13]" (or [cuda12], as the driver is).',
        ) from error
    return numba.cuda


@contextlib.contextmanager
def _compiling_for(capability: tuple[int, int]) -> Iterator[None]:
    """Make numba-cuda compile device functions for this capability: it would ask the current device.

    And keep it from fusing ``a * b + c``, which rounds otherwise than the host.
    """
    from numba.cuda import dispatcher
    from numba.cuda.cudadrv import nvvm

    asked, compiled = dispatcher.get_current_device, nvvm.compile_ir
    dispatcher.get_current_device = lambda: types.SimpleNamespace(compute_capability=capability)
    nvvm.compile_ir = lambda code, **options: compiled(code, **{**options, "fma": 0})
    try:
        yield
    finally:
        dispatcher.get_current_device, nvvm.compile_ir = asked, compiled


def _assembled(ptx: str, capability: tuple[int, int]) -> tuple[bytes, str]:
    source = ptx.encode()
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()  # where the library is not there, it says so when it is first called
    except (ImportError, RuntimeError) as error:
        # The driver assembles it when it is loaded: the same code, made anew in each process.
        return source + b"\0", f"not assembled: {type(error).__name__}"
    linker = nvjitlink.create(2, [f"-arch=sm_{capability[0]}{capability[1]}", "-verbose"])
    try:
        nvjitlink.add_data(linker, nvjitlink.InputType.PTX, source, len(source), "kernel.ptx")
        nvjitlink.complete(linker)
        code = bytearray(nvjitlink.get_linked_cubin_size(linker))
        nvjitlink.get_linked_cubin(linker, code)
        log = bytearray(nvjitlink.get_info_log_size(linker))
        nvjitlink.get_info_log(linker, log)
    finally:
        nvjitlink.destroy(linker)
    return bytes(code), log.rstrip(b"\0").decode()
