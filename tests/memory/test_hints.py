from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.errors import (
    AccessDenied,
    BrokenError,
    DeviceError,
    ForkedError,
    MissingDependency,
    NotOnDevice,
)
from bowstring.memory import device_by_id, device_by_name, find_device
from bowstring.memory.cuda import device as cuda
from bowstring.memory.cuda.bindings import CudaDriver
from bowstring.memory.cuda.driver import hidden_gpu, no_gpu, uuid_text, why_no_start
from bowstring.testing import fake_device
from bowstring.testing.fake_driver import FakeDriver
from bowstring.transport import dial
from bowstring.transport.peer import Peer

TABLE = pa.table({"a": [1, 2]})
InChild = Callable[[Callable[[], bool]], bool]


class Described(FakeDriver):
    """A driver with some GPUs by name."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    def device_count(self) -> int:
        return len(self.names)

    def device_name(self, ordinal: int) -> str:
        return self.names[ordinal]


Machine = Callable[[Callable[[], CudaDriver]], None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Return a function that gives this process another driver; no variable hides anything at first."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cuda._devices.clear()
    cuda._first_process.cache_clear()
    yield lambda make: monkeypatch.setattr(cuda, "cuda_driver", make)
    cuda._devices.clear()
    cuda._first_process.cache_clear()


def gpus(*names: str) -> Callable[[], CudaDriver]:
    """Return what makes a driver that sees some GPUs."""
    driver = Described(*names)
    return lambda: driver


def refuses(found: str) -> Callable[[], CudaDriver]:
    """Return what finds a driver that does not start."""

    def fail() -> CudaDriver:
        raise DeviceError("cuInit failed", found=found)

    return fail


def said(call: Callable[[], object], kind: type[Exception] = NotOnDevice) -> str:
    """Return the message of a call that must fail; it has a reason and a remedy."""
    with pytest.raises(kind) as caught:
        call()
    assert getattr(caught.value, "hint", None)
    return str(caught.value)


def test_a_variable_hides_the_producers_gpu(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not see the producer's GPU is told its UUID, what it does see, and which variable hides it."""
    machine(gpus("NVIDIA H200"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    uuid = bytes(range(16))
    text = said(lambda: find_device(2, uuid))
    assert uuid_text(uuid) in text
    assert f"one of NVIDIA H200 (UUID {uuid_text(Described('x').device_uuid(0))})" in text
    assert "CUDA_VISIBLE_DEVICES is '1' here: name the producer's GPU" in text


def test_a_variable_hides_all_gpus(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty variable, or one that names nothing, is what to change."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    machine(refuses("CUDA_ERROR_NO_DEVICE (100)"))
    for call in (lambda: device_by_name("cuda:0"), lambda: find_device(2, bytes(16))):
        assert "CUDA_VISIBLE_DEVICES is '': unset it, or name a GPU that is there" in said(call)


def test_several_gpus(machine: Machine) -> None:
    """A number that no GPU has is told with those that there are."""
    machine(gpus("NVIDIA H200", "NVIDIA H200"))
    assert device_by_name("cuda:1").name == "cuda:1"
    text = said(lambda: device_by_name("cuda:2"))
    assert "expected cuda:0 to cuda:1; found cuda:2" in text
    machine(gpus())
    cuda._devices.clear()
    assert "no GPU: this process sees none" in said(lambda: device_by_name("cuda"))


def test_another_mig_instance(machine: Machine) -> None:
    """Memory of another MIG instance cannot be had, and the message says so, and what to do."""
    machine(gpus("NVIDIA H200 MIG 1g.18gb"))
    text = said(lambda: find_device(2, bytes(16)))
    assert "memory is not shared between instances" in text
    assert "NVIDIA H200 MIG 1g.18gb" in text


def test_no_bindings(machine: Machine) -> None:
    """A reader of a GPU's memory without cuda.bindings is told the line that installs them."""

    def missing() -> CudaDriver:
        raise MissingDependency("CUDA devices need cuda.bindings", hint="pip install 'bowstring[cuda13]'")

    machine(missing)
    assert "pip install 'bowstring[cuda13]'" in said(lambda: find_device(2, bytes(16)))
    assert "pip install" in said(lambda: device_by_name("cuda:0"), MissingDependency)


def test_fork_after_initialisation(machine: Machine, in_child: InChild) -> None:
    """A forked child is refused with the reason, whether it makes memory, maps it, or looks for a GPU."""
    machine(gpus("NVIDIA H200", "NVIDIA H200"))
    device = cuda.cuda_device(0)
    uuid = device.driver.device_uuid(1)

    def refused(call: Callable[[], object]) -> bool:
        try:
            call()
        except ForkedError as error:
            return "spawn or forkserver" in str(error)
        return False

    assert in_child(lambda: refused(lambda: device.make_slab(1)))
    assert in_child(lambda: refused(lambda: device.map_slab(os.open("/dev/null", os.O_RDONLY), 1, bytes(16))))
    assert in_child(lambda: refused(lambda: cuda.cuda_device(0)))  # which its parent used
    assert in_child(lambda: refused(lambda: cuda.cuda_device(1)))
    assert in_child(lambda: refused(lambda: cuda.find_cuda_device(uuid)))


def test_fork_before_initialisation(machine: Machine, in_child: InChild) -> None:
    """A child of a process that touched no GPU may use them."""
    machine(gpus("NVIDIA H200"))
    assert in_child(lambda: cuda.cuda_device(0).name == "cuda:0")


def test_fork_after_somebody_elses_initialisation(machine: Machine) -> None:
    """Where another library started CUDA before the fork, the driver's refusal is explained as such."""
    machine(refuses("CUDA_ERROR_NOT_INITIALIZED (3)"))
    assert "does not survive a fork" in said(lambda: device_by_name("cuda:0"))


@pytest.mark.parametrize(
    ("code", "said_to"),
    [(802, "fabricmanager"), (803, "kernel module"), (804, "compatibility"), (999, "nvidia-modprobe")],
)
def test_a_driver_that_does_not_start(machine: Machine, code: int, said_to: str) -> None:
    """Known refusals of the driver have their remedies."""
    machine(refuses(f"CUDA_ERROR_X ({code})"))
    assert said_to in said(lambda: device_by_name("cuda:0"))


def test_containers(tmp_path: Path) -> None:
    """A container without the GPU is told how it gets one; a host where to look."""
    error = DeviceError("there is no CUDA driver")
    assert "nvidia" not in no_gpu(error, {}, tmp_path)
    (tmp_path / ".dockerenv").touch()
    assert "docker run --gpus all" in no_gpu(error, {}, tmp_path)
    assert "Give both containers the same GPUs" in hidden_gpu(["NVIDIA L4"], {}, tmp_path)


def test_a_limited_address_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's limit of memory, which keeps CUDA from starting, is named."""
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1 << 30, 1 << 30))
    assert "spark.executor.pyspark.memory" in why_no_start(2, {})


def test_a_device_of_another_kind() -> None:
    """Memory of a kind that this version does not know is refused with what it knows."""
    assert "the host (1) or CUDA (2)" in said(lambda: device_by_id(10, 0))
    assert 'to_device("cpu")' in said(lambda: find_device(10, bytes(16)))


def test_a_socket_of_another_container(tmp_path: Path) -> None:
    """A reader that does not see the server's socket is told to mount its folder."""
    text = said(lambda: dial(f"unix:{tmp_path}/s.sock", deadline=5.0), BrokenError)
    assert "containers must both mount the socket's folder" in text


def test_a_user_of_another_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A peer whose user has another number, such as in a user namespace, is refused with both numbers."""
    other = Peer(None, 65534, "pid unknown, uid 65534")
    with bow.Server(f"unix:{tmp_path}/s.sock") as server:
        endpoint = server.publish("t", TABLE)
        monkeypatch.setattr(Peer, "of_socket", lambda _sock: other)
        text = said(lambda: bow.connect(endpoint), AccessDenied)
    assert f"expected uid {os.geteuid()}; found pid unknown, uid 65534" in text


def test_a_peer_without_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a shared pid namespace nobody has a number, and a hand-over works all the same."""
    find = Peer.of_socket

    def unseen(sock: object) -> Peer:
        peer = find(sock)  # type: ignore[arg-type]  # a socket
        peer.close()
        return Peer(None, os.geteuid(), f"pid unknown, uid {os.geteuid()}")

    monkeypatch.setattr(Peer, "of_socket", unseen)
    with bow.Server() as server:
        endpoint = server.publish("t", TABLE)
        with bow.connect(endpoint) as stream:
            assert stream.read_all().equals(TABLE)
            assert "mapped" in stream.stats.path


def test_the_fake_device_is_refused_alike(in_child: InChild) -> None:
    """A fake device in a forked child says what a GPU says."""
    device = fake_device()

    def refused() -> bool:
        with pytest.raises(ForkedError, match="spawn or forkserver"):
            device.make_slab(1)
        return True

    assert in_child(refused)
