"""Every signature compiles for GPUs, without one, and into machine code that fits."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from bowstring.errors import NotOnDevice
from bowstring.kernels.cuda import Machine, compile_cubin, load_cubin, parameter_words
from bowstring.kernels.launch import launch
from bowstring.kernels.signature import Signature, signatures, signatures_of
from bowstring.kernels.validity import pack_flags

CAPABILITIES = ((8, 0), (9, 0))
# A spill is memory traffic that the source does not show.
MOST_SPILLED_BYTES = 0
# Six blocks of 128 threads still find room in the 65,536 registers of a multiprocessor: enough of them to hide the
# wait for memory.
MOST_REGISTERS = 80

try:
    importlib.metadata.version("numba-cuda")
except importlib.metadata.PackageNotFoundError:
    pytest.skip("numba-cuda is not installed: nothing compiles for CUDA here", allow_module_level=True)


@functools.cache
def machine_for(signature: Signature, capability: tuple[int, int]) -> Machine:
    return compile_cubin(signature, capability)


def spilled(machine: Machine) -> int:
    return sum(map(int, re.findall(r"(\d+) bytes spill", machine.log)))


def registers(machine: Machine) -> int:
    return max(map(int, re.findall(r"[Uu]sed (\d+) registers", machine.log)))


@pytest.mark.parametrize("signature", signatures(), ids=str)
def test_every_signature_compiles_for_gpus(signature: Signature) -> None:
    """There is machine code for sm_80 and sm_90, without spills and with few registers (`-rP` shows how many)."""
    for capability in CAPABILITIES:
        machine = machine_for(signature, capability)
        assert machine.code.startswith(b"\x7fELF")
        assert f".target sm_{capability[0]}{capability[1]}" in machine.ptx
        print(f"{signature}, sm_{capability[0]}{capability[1]}: {registers(machine)} registers,", end=" ")
        print(f"{spilled(machine)} bytes spilled, {len(machine.code)} bytes of code")
        assert spilled(machine) <= MOST_SPILLED_BYTES
        assert registers(machine) <= MOST_REGISTERS
        if not any(each.scalar[0] == "f" for each in signature.parameters):
            assert ".f64" not in machine.ptx


class OnDevice:
    """What a launch asks a CuPy array."""

    def __init__(self, array: np.ndarray) -> None:
        self.size, self.itemsize, self.data = array.size, array.itemsize, self
        self.ptr = array.ctypes.data


@pytest.mark.parametrize("signature", signatures(), ids=str)
def test_parameters_are_laid_out_as_the_code_takes_them(signature: Signature) -> None:
    """A launch gives as many parameters, of the same widths, as the machine code declares."""
    entry = machine_for(signature, (9, 0)).ptx.partition(".entry")[2].partition(")")[0]
    declared = [int(bits) // 8 for bits in re.findall(r"\.param \.[a-z](\d+)", entry)]
    zeros = [np.zeros(1, each.dtype) for each in signature.parameters]
    kinds = zip(zeros, signature.parameters, strict=True)
    given = parameter_words(1, tuple(OnDevice(zero) if kind.array else zero[0] for zero, kind in kinds))
    assert [each.nbytes for each in given] == declared


def test_machine_code_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The second time, machine code comes from the cache: the same bytes, and nothing is compiled."""
    monkeypatch.setenv("BOWSTRING_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    signature = signatures()[0]
    first = load_cubin(signature, (9, 0))
    monkeypatch.setattr("bowstring.kernels.cuda.compile_cubin", None)
    assert load_cubin(signature, (9, 0)) == first


def test_without_an_assembler_the_driver_gets_the_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Where nvJitLink is not installed PTX is loaded, which ends with a zero; it is not kept as machine code."""
    from cuda.bindings import nvjitlink

    def missing() -> None:
        raise RuntimeError("libnvJitLink.so.13 is not there")

    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("BOWSTRING_CACHE_DIR", str(folder))
    monkeypatch.setattr(nvjitlink, "version", missing)
    code, entry = load_cubin(signatures()[0], (9, 0))
    assert code.endswith(b"\0")
    assert f".entry {entry}(".encode() in code
    assert not list(folder.rglob("*.cubin"))


class FakeCupy(types.ModuleType):
    """As much of CuPy as a launch uses; it notes what is launched."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.cuda = self.function = self
        self.loaded: list[bytes] = []
        self.launched: list[tuple[Any, ...]] = []
        self.on: list[int] = []

    @contextlib.contextmanager
    def using(self, number: int) -> Iterator[None]:
        self.on.append(number)
        yield
        self.on.pop()

    def Device(self, number: int) -> Any:  # noqa: N802  CuPy's name
        device = self.using(number)
        device.compute_capability = "90"  # type: ignore[attr-defined]  # a device is a context that has one
        return device

    def Module(self) -> FakeCupy:  # noqa: N802  CuPy's name
        return self

    def load(self, code: bytes) -> None:
        self.loaded.append(code)

    def get_function(self, name: str) -> Any:
        return lambda grid, block, words: self.launched.append((name, grid, block, words, *self.on))


class CupyArray(OnDevice):
    """As much of a CuPy array as a launch looks at."""

    __module__ = "cupy"

    def __init__(self, array: np.ndarray, device: int = 1) -> None:
        super().__init__(array)
        self.dtype, self.ndim, self.flags = array.dtype, array.ndim, types.SimpleNamespace(c_contiguous=True)
        self.device = types.SimpleNamespace(id=device)


def test_arrays_of_a_gpu_are_launched_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy loads the machine code once and launches it, with enough blocks, on the device of the arrays."""
    cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    flags, words = np.ones(64 * 300, np.uint8), np.zeros(300, np.uint64)
    for _ in range(2):
        launch(pack_flags, 300, CupyArray(flags), CupyArray(words))
    code, entry = load_cubin(signatures_of(pack_flags)[0], (9, 0))
    assert cupy.loaded == [code]
    expected: tuple[int, ...] = (300, 0, 0, flags.size, 1, flags.ctypes.data, flags.size, 1)
    expected += (0, 0, 300, 8, words.ctypes.data, 300, 8)
    assert cupy.launched == [(entry, (3,), (128,), expected, 1)] * 2
    with pytest.raises(NotOnDevice):
        launch(pack_flags, 300, CupyArray(flags), CupyArray(words, device=0))
    with pytest.raises(NotOnDevice):
        launch(pack_flags, 300, CupyArray(flags), words)
