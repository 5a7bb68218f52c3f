"""A reader of a region can neither write, shrink, nor seal it; and what only looks like a region is refused."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from types import ModuleType

import numpy as np
import pytest

from bowstring.errors import InvalidRegion, NotOnDevice, OutOfBudget, ProtocolError, UsageError
from bowstring.memory import Device, Handle, MappingCache, Pool, Slab, cpu, foreign_region, unpack_handle

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
SIZE = 1 << 20
F_SEAL_WRITE = 8
PUNCH_HOLE = 3  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE

libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


@pytest.fixture
def slab() -> Slab:
    """Return a slab whose first bytes are known."""
    made = Pool(budget=SIZE).region(SIZE).slab
    assert made is not None
    cpu().array(made.address, 4, made, writable=True)[:] = 7
    return made


@pytest.fixture
def fd(slab: Slab) -> Iterator[int]:
    """Return the descriptor as a reader gets it."""
    copy = os.dup(slab.fd)
    yield copy
    os.close(copy)


def reopened(fd: int) -> int:
    """Open what a descriptor stands for again, for writing; a memfd's mode allows it to its owner."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDWR)


def refused(call: Callable[[], object]) -> bool:
    """Whether the kernel refuses a call."""
    try:
        call()
    except OSError as error:
        return error.errno in (errno.EPERM, errno.EACCES, errno.EBADF, errno.EINVAL)
    return False


WRITES: dict[str, Callable[[int], object]] = {
    "write": lambda fd: os.pwrite(fd, b"x", 0),
    "map for writing": lambda fd: mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE),
    "shrink": lambda fd: os.ftruncate(fd, 0),
    "grow": lambda fd: os.ftruncate(fd, 2 * SIZE),
    "seal": lambda fd: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, F_SEAL_WRITE),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("again", [False, True], ids=["as given", "opened again"])
def test_readers_cannot_change_a_region(slab: Slab, fd: int, write: str, again: bool) -> None:
    """The kernel refuses every change through the descriptor of a reader, opened again for writing or not."""
    try:
        used = reopened(fd) if again else os.dup(fd)
    except PermissionError:
        return
    try:
        assert refused(lambda: WRITES[write](used))
        assert os.fstat(used).st_size == SIZE
    finally:
        os.close(used)
    assert cpu().array(slab.address, 4, slab).tolist() == [7, 7, 7, 7]


@pytest.mark.parametrize("again", [False, True], ids=["as given", "opened again"])
def test_readers_cannot_punch_holes(slab: Slab, fd: int, again: bool) -> None:
    """Nor can a reader cut a hole into a region, which would turn its bytes to zeros."""
    used = reopened(fd) if again else os.dup(fd)
    try:
        assert libc.fallocate(used, PUNCH_HOLE, 0, 4096) == -1
    finally:
        os.close(used)
    assert cpu().array(slab.address, 4, slab).tolist() == [7, 7, 7, 7]


def test_readers_cannot_unprotect_a_mapping(slab: Slab, fd: int) -> None:
    """A read-only mapping cannot be turned into a writable one, and writing into it ends the process."""
    mapping = mmap.mmap(fd, SIZE, mmap.MAP_SHARED, mmap.PROT_READ)
    address = np.frombuffer(mapping, np.uint8).ctypes.data
    assert libc.mprotect(address, 4096, mmap.PROT_READ | mmap.PROT_WRITE) == -1
    assert ctypes.get_errno() == errno.EACCES
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        ctypes.memset(address, 1, 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGSEGV


def test_the_owner_writes_and_readers_see(slab: Slab, fd: int) -> None:
    """The producer goes on writing through its own mapping, and a mapping of a reader shows it."""
    mapping = mmap.mmap(fd, SIZE, mmap.MAP_SHARED, mmap.PROT_READ)
    cpu().array(slab.address, 4, slab, writable=True)[:] = 9
    assert mapping[:4] == b"\x09" * 4


def memfd(size: int = SIZE, seals: int = SEALS) -> int:
    """Make a memfd with some seals."""
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def plain_file() -> int:
    """Make a file of the right size."""
    with tempfile.TemporaryFile() as file:
        file.truncate(SIZE)
        return os.dup(file.fileno())


def pipe() -> int:
    """Return one end of a pipe."""
    reading, writing = os.pipe()
    os.close(writing)
    return reading


FAKES: dict[str, Callable[[], int]] = {
    "no seals": lambda: memfd(seals=0),
    "may shrink": lambda: memfd(seals=fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL),
    "may grow": lambda: memfd(seals=fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL),
    "larger than said": lambda: memfd(2 * SIZE),
    "smaller than said": lambda: memfd(SIZE // 2),
    "empty": lambda: memfd(0),
    "a memfd that cannot be sealed": lambda: os.memfd_create("test"),
    "a plain file": plain_file,
    "a pipe": pipe,
    "a device": lambda: os.open("/dev/zero", os.O_RDONLY),
    "a folder": lambda: os.open("/", os.O_RDONLY),
}


@pytest.mark.parametrize("fake", FAKES)
def test_fake_regions_are_refused(no_leaks: None, device: Device, fake: str) -> None:
    """What is not a sealed memfd of the announced size is refused, and its descriptor closed."""
    if fake == "larger than said" and not device.is_host:
        pytest.skip("a driver does not tell the size of what it imports; more than was said is harmless")
    fd = FAKES[fake]()
    handle = Handle(os.urandom(16), device.uuid, SIZE, device.arrow_device_type)
    with pytest.raises(InvalidRegion):
        MappingCache().open(handle, fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_region_is_looked_at_once(slab: Slab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sealed is asked for its seals, then for its size, and for nothing else."""
    asked: list[str] = []
    cache, fd = MappingCache(), os.dup(slab.fd)
    handle = Handle(slab.uuid, cpu().uuid, SIZE, cpu().arrow_device_type)
    for module, name in ((fcntl, "fcntl"), (os, "fstat"), (os, "readlink")):
        _note_calls(monkeypatch, module, name, asked)
    mapped = cache.open(handle, fd)
    assert asked == ["fcntl", "fstat"]
    assert mapped.array(0, 4).tolist() == [7, 7, 7, 7]


def _note_calls(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, asked: list[str]) -> None:
    call = getattr(module, name)

    def noted(*arguments: object) -> object:
        asked.append(name)
        return call(*arguments)

    monkeypatch.setattr(module, name, noted)


def test_the_size_is_looked_at_when_it_is_final(no_leaks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A memfd that is cut short and sealed while it is looked at is refused."""
    fd = memfd(seals=0)
    call = fcntl.fcntl

    def too_late(fd: int, command: int, *arguments: int) -> int:
        if command == fcntl.F_GET_SEALS:
            os.ftruncate(fd, SIZE // 2)
            call(fd, fcntl.F_ADD_SEALS, SEALS)
        return call(fd, command, *arguments)

    monkeypatch.setattr(fcntl, "fcntl", too_late)
    with pytest.raises(InvalidRegion, match="size"):
        MappingCache().open(Handle(os.urandom(16), cpu().uuid, SIZE, cpu().arrow_device_type), fd)


def test_regions_of_unknown_devices_are_refused(no_leaks: None) -> None:
    """A region on a device that this process does not have is refused, and its descriptor closed."""
    fd = memfd()
    with pytest.raises(NotOnDevice):
        MappingCache().open(Handle(os.urandom(16), os.urandom(16), SIZE, 77), fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_handles_survive_packing(pool: Pool) -> None:
    """A handle is 48 bytes that give itself back; anything else is refused."""
    region = pool.allocate(1).region
    handle = Handle.of(region)
    packed = handle.pack()
    assert len(packed) == 48
    assert unpack_handle(packed) == handle
    for wrong in (packed[:-1], packed + b"\0", packed[:-1] + b"\1", b""):
        with pytest.raises(ProtocolError):
            unpack_handle(wrong)
    with pytest.raises(UsageError):
        Handle.of(foreign_region(4096, 1, None))


def test_a_system_without_room_says_so(no_leaks: None) -> None:
    """A region that the system cannot hold raises OutOfBudget and leaves nothing open."""
    with pytest.raises(OutOfBudget, match="the system has no room"):
        Pool(budget=1 << 62).region(1 << 62)
