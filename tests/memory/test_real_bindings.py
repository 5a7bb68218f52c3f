"""The installed ``cuda.bindings`` themselves, over a driver in C that checks what reaches it.

All else that stands in for them is Python, and takes whatever it is given. Here the bindings convert arguments and
results, and ``stub_cuda.c`` is compiled with CUDA's own header: a wrong type, order, size, flag or name shows.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bowstring.benchmarks.processes.child import Child
from bowstring.cli.doctor.check import State
from bowstring.cli.doctor.child import Child as Looking
from bowstring.cli.doctor.gpus import CUDA, LOOK, gpus_seen
from tests.memory.cuda_header import find_header

pytest.importorskip("cuda.bindings.driver", reason="cuda.bindings is not installed")

HERE = Path(__file__).parent
ROLE = "tests.memory.over_stub:OverStub"
MIB = 1 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a ``libcuda.so.1``."""
    compiler, header = shutil.which("cc"), find_header()
    if compiler is None or header is None:
        pytest.skip("no C compiler, or no header of CUDA")
    folder = tmp_path_factory.mktemp("driver")
    command: list[Any] = [
        compiler,
        "-std=gnu11",
        "-Wall",
        "-Werror",
        "-O1",
        "-fPIC",
        "-shared",
        HERE / "stub_cuda.c",
    ]
    command += ["-o", folder / "libcuda.so.1", "-isystem", header.parent, "-Wl,-soname,libcuda.so.1", "-ldl"]
    subprocess.run(command, check=True, timeout=120)
    return folder


@pytest.fixture
def over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Child:
    """Return a process that has no other driver than that."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    return Child(ROLE)


def test_devices_have_names(over: Child) -> None:
    """Count, name, UUID with its zeros, and abilities come back as Python's own."""
    with over:
        assert over.call("devices") == [
            ["cuda:0", "Stub 0", "000100000000000000000000000000ff", True],
            ["cuda:1", "Stub 1", "000200000000000000000000000000ff", True],
        ]


def test_memory_is_made_exported_and_imported(over: Child) -> None:
    """A slab that is mapped anew from its descriptor is the same memory, for us alone, and comes back."""
    with over:
        assert over.call("hand_over", nbytes=MIB, value=7) == {
            "seen": 7,
            "inherited": False,
            "read_only": True,
            "rdma": {"1": True},
        }
        assert over.call("held") == [0, 0]


def test_what_an_address_is(over: Child) -> None:
    """Attributes are numbers and truths, also those of an address that the driver does not know."""
    with over:
        assert over.call("attributes", forget=0) == [2, 1, 0x123456789AB, False, False, True]
        found = over.call("attributes", forget=1)
        assert (found[0], found[2:]) == (0, [0, False, False, False])
        assert over.call("attributes", forget=2)[4] is True


def test_handles_go_out_and_come_in_whole(over: Child) -> None:
    """The 64 bytes of handles for memory and for events reach the driver as they left it."""
    with over:
        assert over.call("memory_handle", address=0x7F1234561000) == 0x7F1234561000
        assert over.call("event_handle") == 0x7F0000000063
        assert over.call("held") == [0, 0]


def test_copies_and_streams(over: Child) -> None:
    """Bytes go from pinned memory to a device, to its peer, and back; what is not ready is no error."""
    with over:
        assert over.call("copies", value=9) == [9, False, True, True, False, [5 << 32, 6 << 32]]
        assert over.call("private", nbytes=4096, value=5) == 5
        assert over.call("held") == [0, 0]


def test_refusals_have_the_drivers_names(over: Child) -> None:
    """A status is named with its number."""
    with over:
        assert over.call("refused") == "CUDA_ERROR_INVALID_DEVICE (101)"


def test_doctor_finds_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doctor, which asks without any package, says version and devices."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    with Looking(LOOK, {}) as child:
        seen = gpus_seen(child, 30.0)
    [check] = [each for each in seen.checks if each.name == CUDA]
    assert (check.state, check.detail) == (State.OK, "CUDA 13.0: Stub 0 (without GPUDirect RDMA); Stub 1")
    assert seen.devices == ("cuda:0", "cuda:1")
