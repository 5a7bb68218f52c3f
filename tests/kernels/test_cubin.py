"""Every signature compiles for GPUs, without one, and into machine code that fits."""

from __future__ import annotations

import functools
import importlib.metadata
import re
import runpy
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bowstring.kernels import archive, validity
from bowstring.kernels.cubin import Cubin, assemble, compile_text, driver_of, load_cubin
from bowstring.kernels.cuda import parameter_words
from bowstring.kernels.library import NotUsable
from bowstring.kernels.parquet.pages import read_pages
from bowstring.kernels.signature import Signature, signatures, signatures_of
from bowstring.kernels.vortex import gather
from tests.kernels.fake_cupy import OnDevice

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


use_of = runpy.run_path(f"{Path(__file__).parents[2]}/scripts/report_kernels.py")["use_of"]


@functools.cache
def text_of(signature: Signature) -> str:
    # What the build compiled from these sources, where it did: the same text, in a tenth of the time.
    built = archive.find(signature, (99, 0), (99, 0))
    return compile_text(signature) if isinstance(built, NotUsable) else built.rstrip(b"\0").decode()


@functools.cache
def built_code(capability: tuple[int, int]) -> dict[str, bytes]:
    """Return the machine code that the build made of these sources, by signature: nothing where it made none."""
    built = archive.load()
    if isinstance(built, NotUsable) or capability not in built.capabilities:
        return {}
    folder = archive.folder_of(capability)
    with zipfile.ZipFile(built.path) as file:
        return {each.name: file.read(f"{folder}/{each.name}") for each in signatures()}


def spilled(cubin: Cubin) -> int:
    return sum(map(int, re.findall(r"(\d+) bytes spill", cubin.log)))


def registers(cubin: Cubin) -> int:
    return max(map(int, re.findall(r"[Uu]sed (\d+) registers", cubin.log)))


@pytest.mark.parametrize("signature", signatures(), ids=str)
def test_every_signature_compiles_for_gpus(signature: Signature) -> None:
    """There is machine code for sm_80 and sm_90, without spills and with few registers (`-rP` shows how many).

    Drivers of CUDA 11 take the text. What the build compiled is judged as it is: a spill lies on the stack.
    """
    text = text_of(signature)
    assert ".target sm_80" in text
    assert driver_of(text) == (11, 0)
    if not any(each.scalar[0] == "f" for each in signature.parameters):
        assert ".f64" not in text
    for capability in CAPABILITIES:
        code = built_code(capability).get(signature.name, b"")
        use = use_of(code) if code else None
        if use is None or use.stack:
            cubin = assemble(text, capability)
            code, use = cubin.code, use_of(cubin.code)
            assert spilled(cubin) <= MOST_SPILLED_BYTES
        assert code.startswith(b"\x7fELF")
        print(f"{signature}, sm_{capability[0]}{capability[1]}: {use.registers} registers,", end=" ")
        print(f"{use.stack} bytes of stack, {len(code)} bytes of code")
        # Headers of pages are read by one work item for each chunk, never by as many as fill a multiprocessor.
        assert use.registers <= MOST_REGISTERS + 24 * (signature.kernel is read_pages)


BITS = [each for kernel in (*validity.SIGNATURES, gather.gather_bits) for each in signatures_of(kernel)]


@pytest.mark.parametrize("signature", BITS, ids=str)
def test_no_kernel_of_bitmaps_stores_bytes(signature: Signature) -> None:
    """What neighbouring threads store of bits and flags fills words, and nothing lies on a stack."""
    for capability in CAPABILITIES:
        cubin = assemble(text_of(signature), capability)
        use = use_of(cubin.code)
        assert min(use.stores) >= 4
        assert (use.registers, use.stack) == (registers(cubin), 0)


@pytest.mark.parametrize("signature", signatures(), ids=str)
def test_parameters_are_laid_out_as_the_code_takes_them(signature: Signature) -> None:
    """A launch gives as many parameters, of the same widths, as the machine code declares."""
    entry = text_of(signature).partition(".entry")[2].partition(")")[0]
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
    signature = BITS[0]
    first = load_cubin(signature, (9, 0))
    monkeypatch.setattr("bowstring.kernels.cubin.compile_text", None)
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
    signature = BITS[0]
    code = load_cubin(signature, (9, 0))
    assert code.endswith(b"\0")
    assert f".entry {signature.name}(".encode() in code
    assert not list(folder.rglob("*.cubin"))
