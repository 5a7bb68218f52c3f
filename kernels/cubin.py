"""Kernels compiled for GPUs by numba-cuda, on machines without one: text (PTX), and machine code made of it.

The text is for the oldest GPUs that are supported: nvJitLink makes machine code for each newer one from it, and
a driver for those to come. It names the oldest version of PTX that it assembles as: a driver refuses a newer one.
Parameters are laid out as in numba-cuda 0.30 (:func:`bowstring.kernels.cuda.parameter_words`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import re
import time
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from bowstring.errors import MissingDependency
from bowstring.kernels.archive import OLDEST, Capability
from bowstring.kernels.cache import cache_folder, store
from bowstring.kernels.compiling import compiler_type, compiling, make_jitable
from bowstring.kernels.jit import announce
from bowstring.kernels.signature import Signature, fingerprint, reached

_GRID = """\
def {name}(_items, {arguments}):
    _item = cuda.grid(1)
    if _item < _items:
        {kernel}(_item, {arguments})
"""

# What numba-cuda keeps for exceptions: no kernel raises.
_UNUSED: Final = re.compile(r"^\.common \.global \S+ \S+ \.u64 \w*NumbaEnv\w*;\n", re.MULTILINE)
# The first version of PTX that each driver since CUDA 11 takes; 7.0 is the first that knows the oldest GPUs.
_VERSIONS: Final = (".version 7.0", ".version 8.0", ".version 9.0")
_VERSION: Final = re.compile(r"\.version (\d+)\.\d+")
_EMPTY: Final = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry empty() { ret; }"
_ELF: Final = b"\x7fELF"
_jitable: set[Callable[..., Any]] = set()


class Cubin(NamedTuple):
    """Machine code for one compute capability: an ELF file, and what nvJitLink printed (registers and spills)."""

    code: bytes
    log: str


def compile_text(signature: Signature, capability: Capability = OLDEST) -> str:
    """Compile a signature to PTX for GPUs of a compute capability and newer ones."""
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
        text, _ = cuda.compile_ptx(function, cuda.types.void(*argument_types), cc=capability)
    entry = re.search(r"\.visible\s+\.entry\s+(\w+)", text)
    assert entry is not None
    # numba-cuda's names hold every type, and are most of the text.
    return _oldest_version(_UNUSED.sub("", text.replace(entry[1], signature.name)), capability)


def _oldest_version(text: str, capability: Capability) -> str:
    """Return a text as the oldest version of PTX that it assembles as; as it is without nvJitLink."""
    if assembler_version() is None:
        return text
    from cuda.bindings import nvjitlink

    for version in _VERSIONS:
        older = _VERSION.sub(version, text, count=1)
        with contextlib.suppress(nvjitlink.nvJitLinkError):
            assemble(older, capability)
            return older
    return text


def driver_of(text: str) -> tuple[int, int]:
    """Return the oldest version of CUDA whose drivers take a text that :func:`compile_text` returned."""
    found = _VERSION.search(text)
    assert found is not None
    return int(found[1]) + 4, 0


def grid_function(signature: Signature, cuda: Any) -> Any:
    """Return the CUDA kernel of a signature: one thread for each work item. `cuda` may be the simulator's."""
    names = ", ".join(each.name for each in signature.parameters)
    source = _GRID.format(name=signature.name, kernel=signature.kernel.__name__, arguments=names)
    made: dict[str, Any] = {"cuda": cuda, signature.kernel.__name__: signature.kernel}
    exec(compile(source, signature.kernel.__code__.co_filename, "exec"), made)  # noqa: S102  generated
    return made[signature.name]


def numba_cuda() -> Any:
    """Import ``numba.cuda``, of numba-cuda."""
    # NumPy 2.5 took away a name that numba-cuda 0.30, the last of its line, still asks for.
    np.__dict__.setdefault("row_stack", np.vstack)
    try:
        importlib.metadata.version("numba-cuda")  # numba brings an old `numba.cuda` of its own
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # NumPy 2.5 warns of what it does
            import numba.cuda.extending
    except Exception as error:  # a missing part of CUDA raises RuntimeError here
        raise MissingDependency(
            "numba-cuda, which compiles kernels for GPUs, cannot be used",
            found=f"{type(error).__name__}: {error}",
            hint='pip install "bowstring[kernels-cuda13]" (or [kernels-cuda12], as the driver is).',
        ) from error
    return numba.cuda


@contextlib.contextmanager
def _compiling_for(capability: Capability) -> Iterator[None]:
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


def assembler_version() -> tuple[int, int] | None:
    """Return the version of CUDA that nvJitLink is of; ``None`` where it is not installed."""
    try:
        from cuda.bindings import nvjitlink

        # Where the library is not there, it says so when it is first called.
        major, minor = nvjitlink.version()
    except (ImportError, RuntimeError):
        return None
    return major, minor


def assemble(text: str, capability: Capability) -> Cubin:
    """Make machine code of PTX, by nvJitLink."""
    from cuda.bindings import nvjitlink

    source = text.encode()
    # Nothing is fused here either, and nothing approximated.
    linker = nvjitlink.create(3, [f"-arch=sm_{capability[0]}{capability[1]}", "-verbose", "-fma=0"])
    try:
        nvjitlink.add_data(linker, nvjitlink.InputType.PTX, source, len(source), "kernel.ptx")
        nvjitlink.complete(linker)
        code = bytearray(nvjitlink.get_linked_cubin_size(linker))
        nvjitlink.get_linked_cubin(linker, code)
        log = bytearray(nvjitlink.get_info_log_size(linker))
        nvjitlink.get_info_log(linker, log)
    finally:
        nvjitlink.destroy(linker)
    return Cubin(bytes(code), log.rstrip(b"\0").decode())


@functools.cache
def can_assemble(capability: Capability) -> bool:
    """Whether nvJitLink makes machine code for a compute capability."""
    from cuda.bindings import nvjitlink

    try:
        assemble(_EMPTY, capability)
    except nvjitlink.nvJitLinkError:
        return False
    return True


def load_cubin(signature: Signature, capability: Capability, why: str = "") -> bytes:
    """Return machine code from our cache, or compile it; without nvJitLink, text for the driver, made each time."""
    numba_cuda()
    version = importlib.metadata.version("numba-cuda")
    folder = cache_folder("cuda", version, capability, module=signature.kernel.__module__)
    path = os.path.join(folder, f"{signature.name}-{fingerprint(signature.kernel)[:20]}.cubin")
    with contextlib.suppress(OSError), open(path, "rb") as file:
        code = file.read()
        if code.startswith(_ELF):  # a crash of the machine leaves empty files
            return code
    began = time.monotonic()
    text = compile_text(signature, min(capability, OLDEST))
    if assembler_version() is None:
        code = f"{text}\0".encode()
    else:
        code = assemble(text, capability).code
        store(path, code)
    if why:
        announce(signature, why, time.monotonic() - began, place=" for the GPU")
    return code
