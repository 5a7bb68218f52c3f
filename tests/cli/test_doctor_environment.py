from __future__ import annotations

import importlib.metadata
import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from bowstring.cli.doctor import environment
from bowstring.cli.doctor.check import Check, State
from bowstring.cli.doctor.environment import find_gpu_files, find_limits, find_namespaces
from bowstring.cli.doctor.packages import cuda_extra, find_gpu_software, find_packages
from bowstring.kernels import archive, library


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let doctor look at a machine whose files a test writes."""
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    return tmp_path


def put(root: Path, path: str, text: str = "") -> None:
    """Write a file of a machine that a test describes."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def by_name(checks: list[Check]) -> dict[str, Check]:
    """Return checks by their names."""
    return {check.name: check for check in checks}


def namespaces(root: Path, process: str, **numbers: int) -> None:
    """Give a process of a described machine its namespaces."""
    (root / "proc" / process / "ns").mkdir(parents=True)
    for name, number in numbers.items():
        (root / "proc" / process / "ns" / name).symlink_to(f"{name}:[{number}]")


def test_namespaces_of_the_host(machine: Path) -> None:
    """The first namespaces are known by their numbers."""
    namespaces(machine, "self", pid=4026531836, ipc=4026531839, user=4026531837, net=7, mnt=8)
    namespaces(machine, "1", net=7, mnt=8)
    assert {check.state for check in find_namespaces()} == {State.OK}


def test_namespaces_of_a_container(machine: Path) -> None:
    """Namespaces of a container's own are told, with their numbers, and how two containers share one."""
    namespaces(machine, "self", pid=4026532111, ipc=4026532112, user=4026531837, net=7, mnt=9)
    namespaces(machine, "1", net=7, mnt=8)
    found = by_name(find_namespaces())
    states = {name: check.state for name, check in found.items()}
    own, host = State.ABSENT, State.OK
    assert states == {
        "pid namespace": own,
        "ipc namespace": own,
        "user namespace": host,
        "net namespace": host,
        "mnt namespace": own,
    }
    assert "4026532111" in found["pid namespace"].detail
    assert "--pid" in str(found["pid namespace"].hint)
    assert "openucx/ucx #11978" in str(found["pid namespace"].hint)
    assert "--ipc" in str(found["ipc namespace"].hint)


def test_no_proc(machine: Path) -> None:
    """Without /proc nothing is told of namespaces, and nothing raises."""
    assert all(check.state is State.ABSENT for check in find_namespaces())


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("always [within_size] advise never", State.OK),
        ("always within_size advise [never]", State.ABSENT),
        ("", State.ABSENT),
    ],
)
def test_huge_pages(machine: Path, text: str, state: State) -> None:
    """Huge pages of shared memory are told by what the kernel has chosen."""
    put(machine, "sys/kernel/mm/transparent_hugepage/shmem_enabled", text)
    assert by_name(find_limits())["huge pages"].state is state


def test_limits_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that break something are told with the setting that sets them."""
    limits = {
        resource.RLIMIT_NOFILE: (64, 4096),
        resource.RLIMIT_MEMLOCK: (65536, 65536),
        resource.RLIMIT_AS: (1 << 30, 1 << 30),
    }
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    found = by_name(find_limits())
    assert found["open files"].state is State.BROKEN
    assert "ulimit -n" in str(found["open files"].hint)
    assert "spark.executor.pyspark.memory" in str(found["address space"].hint)
    assert found["locked memory"].state is State.ABSENT


def test_no_gpu_at_all(machine: Path) -> None:
    """A machine without a GPU has one line about it."""
    [only] = find_gpu_files()
    assert (only.state, "--gpus all" in str(only.hint)) == (State.ABSENT, True)


def test_all_of_a_gpu(machine: Path) -> None:
    """Device files and modules are found where the driver puts them."""
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm"):
        put(machine, f"dev/{name}")
    put(machine, "sys/module/nvidia_peermem/version")
    put(machine, "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64  580.95.05\n")
    found = by_name(find_gpu_files())
    assert {check.state for check in found.values()} == {State.OK}
    assert found["GPU device nodes"].detail == "nvidia0, nvidia2, nvidia10"


@pytest.mark.parametrize(
    ("nodes", "state", "said"),
    [
        ([], State.ABSENT, "no GPU"),
        (["nvidia0"], State.BROKEN, "lacks nvidiactl, nvidia-uvm"),
        (["nvidia0", "nvidiactl"], State.BROKEN, "lacks nvidia-uvm"),
    ],
)
def test_nodes_that_are_missing(machine: Path, nodes: list[str], state: State, said: str) -> None:
    """A container that got half of a GPU's nodes is told which ones it lacks."""
    put(machine, "proc/driver/nvidia/version", "NVRM version: x")
    for name in nodes:
        put(machine, f"dev/{name}")
    found = by_name(find_gpu_files())["GPU device nodes"]
    assert (found.state, said in found.detail) == (state, True)


def test_nodes_that_are_forbidden(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that this user may not open are named."""
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        put(machine, f"dev/{name}")
    monkeypatch.setattr(os, "access", lambda path, _mode: "uvm" not in str(path))
    found = by_name(find_gpu_files())["GPU device nodes"]
    assert (found.state, found.detail) == (State.BROKEN, "may not be used: nvidia-uvm")


@pytest.mark.parametrize(
    ("installed", "driver", "name", "state"),
    [
        ({}, None, "CuPy", State.ABSENT),
        ({"cupy-cuda13x": "14.2.0"}, "13.0", "CuPy", State.OK),
        ({"cupy-cuda13x": "14.2.0"}, "12.4", "CuPy", State.BROKEN),
        ({"cupy-cuda12x": "14.2.0"}, "13.0", "CuPy", State.OK),
        ({"cupy-cuda12x": "14.2.0", "cupy-cuda13x": "14.2.0"}, "13.0", "CuPy", State.BROKEN),
        ({"cupy-cuda13x": "14.2.0"}, None, "CuPy", State.OK),
        ({"cuda-bindings": "13.5.0"}, "13.0", "cuda.bindings", State.OK),
        ({"cuda-bindings": "13.5.0"}, "12.8", "cuda.bindings", State.ABSENT),
        ({"cuda-bindings": "strange"}, "12.8", "cuda.bindings", State.OK),
        ({"libucx-cu13": "1.22.0"}, None, "UCX", State.OK),
        ({"libucx-cu13": "1.21.0"}, None, "UCX", State.BROKEN),
        ({"libucx-cu13": "1.22.0", "libucx-cu12": "1.22.0"}, None, "UCX", State.BROKEN),
        ({"nvidia-libnvcomp-cu12": "5.3.0"}, None, "nvCOMP", State.OK),
        ({}, None, "nvCOMP", State.ABSENT),
        ({"cudf-cu13": "26.10.2"}, None, "cuDF", State.OK),
    ],
)
def test_packages_that_fit(
    monkeypatch: pytest.MonkeyPatch, installed: dict[str, str], driver: str | None, name: str, state: State
) -> None:
    """Packages that do not fit the driver, or each other, are broken, with the line that installs what fits."""

    def version(package: str) -> Any:
        if package not in installed:
            raise importlib.metadata.PackageNotFoundError(package)
        return installed[package]

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = by_name(find_gpu_software(driver))[name]
    assert found.state is state
    assert state is State.OK or "pip " in str(found.hint)


@pytest.mark.parametrize(
    ("way", "is_there", "numba", "state"),
    [
        ("", False, True, State.BROKEN),
        ("", True, True, State.BROKEN),
        ("", False, False, State.BROKEN),
        ("library", False, True, State.BROKEN),
        ("jit", False, True, State.OK),
        ("interpret", False, False, State.OK),
        ("guess", False, True, State.BROKEN),
    ],
)
def test_the_kernels_in_use_are_named(
    monkeypatch: pytest.MonkeyPatch, way: str, is_there: bool, numba: bool, state: State
) -> None:
    """What runs kernels is named, and why not the library: missing is a fault, unless another way is chosen."""
    seen = library.NotUsable("the library is not usable", is_there=is_there)
    monkeypatch.setattr("bowstring.cli.doctor.packages.load", lambda: seen)
    monkeypatch.setenv("BOWSTRING_KERNELS", way)
    version = importlib.metadata.version

    def without(package: str) -> str:
        if package == "numba" and not numba:
            raise importlib.metadata.PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(importlib.metadata, "version", without)
    found = by_name(find_packages())["kernels"]
    assert found.state is state
    assert (seen.reason in found.detail) == (way in ("", "library"))


@pytest.mark.parametrize("numba", [False, True])
@pytest.mark.parametrize("compiler", [False, True])
def test_missing_kernels_are_mended_by_the_command_that_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, numba: bool, compiler: bool
) -> None:
    """The hint compiles for the Python that runs, after what is missing of the compilers is installed."""
    seen = library.NotUsable("no library was built", is_there=False)
    monkeypatch.setattr("bowstring.cli.doctor.packages.load", lambda: seen)
    monkeypatch.delenv("BOWSTRING_KERNELS", raising=False)
    monkeypatch.setattr(sys, "executable", "/envs/of mine/bin/python")
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "1.0")
    if not numba:
        monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    monkeypatch.setenv("CC", "a-compiler -m64")
    if compiler:
        (tmp_path / "a-compiler").touch(0o700)
    python = "'/envs/of mine/bin/python'"
    command = f"{python} -m bowstring.kernels.build"
    if not numba:
        command = f"{python} -m pip install 'bowstring[kernels]' && {command}"
    hint = str(by_name(find_packages())["kernels"].hint)
    assert hint.endswith(command)
    assert (hint == command) == compiler
    assert ("install a C compiler" in hint) == (not compiler)


def missing(package: str) -> str:
    raise importlib.metadata.PackageNotFoundError(package)


UNUSABLE = library.NotUsable("no code for GPUs", is_there=False)
USABLE = archive.Archive("", (13, 0), ((8, 0), (9, 0)), (11, 0))


@pytest.mark.parametrize(
    ("way", "found", "driver", "has_compiler", "state", "detail"),
    [
        ("", USABLE, "13.0", False, State.OK, "compiled by the build, for sm_80, sm_90"),
        ("library", USABLE, None, False, State.OK, "compiled by the build"),
        (
            "library",
            USABLE,
            "12.8",
            False,
            State.OK,
            "compiled by the build, as PTX that the driver assembles",
        ),
        ("", USABLE, "10.2", False, State.ABSENT, "for CUDA 11, the driver knows 10.2; numba-cuda is not"),
        ("", USABLE, "10.2", True, State.OK, "numba-cuda 0.30.4 compiles each on first use"),
        ("library", USABLE, "10.2", True, State.BROKEN, "the driver knows 10.2"),
        ("", UNUSABLE, None, True, State.OK, "no code for GPUs: numba-cuda 0.30.4 compiles"),
        ("", UNUSABLE, None, False, State.ABSENT, "no code for GPUs; numba-cuda is not installed"),
        ("library", UNUSABLE, None, True, State.BROKEN, "no code for GPUs"),
        ("jit", USABLE, "13.0", True, State.OK, "jit, as BOWSTRING_KERNELS says"),
        ("interpret", UNUSABLE, None, False, State.OK, "interpret on the host"),
        ("guess", USABLE, None, True, State.BROKEN, "BOWSTRING_KERNELS"),
    ],
)
def test_the_kernels_of_gpus_in_use_are_named(
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    found: Any,
    driver: str | None,
    has_compiler: bool,
    state: State,
    detail: str,
) -> None:
    """What runs kernels on GPUs is told: the build's code where driver and variable allow it, else why not."""

    def version(package: str) -> str:
        if package == "numba-cuda" and has_compiler:
            return "0.30.4"
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr("bowstring.kernels.archive.load", lambda: found)
    monkeypatch.setenv("BOWSTRING_KERNELS", way)
    check = by_name(find_gpu_software(driver))["GPU kernels"]
    assert check.state is state
    assert detail in check.detail
    assert state is State.OK or check.hint


def test_the_extra_that_is_named_is_for_the_driver() -> None:
    """The extra for the CUDA of the driver; both where that is not known."""
    assert cuda_extra("cuda", "12.8") == "pip install 'bowstring[cuda12]'"
    assert cuda_extra("cuda", None) == "pip install 'bowstring[cuda13]' (or cuda12)"
