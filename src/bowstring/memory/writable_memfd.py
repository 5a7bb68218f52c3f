"""Writable memfds: memory that one process owns and another one writes.

The owner makes it, keeps it mapped for reading, and passes the descriptor by which another process of the same user
maps it for writing. So it is sealed against shrinking and growing, but not against being written. When no memory is
left, an unlinked file does the same, with its disk space reserved before any process writes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import resource
import signal
import tempfile
from typing import Final

from bowstring.errors import InvalidRegion, OutOfBudget
from bowstring.memory.device import Slab, cpu
from bowstring.memory.slab import (
    SEALS,
    Descriptor,
    check_sealed,
    close_descriptor,
    fresh_memfd,
    mapped,
    reopen,
)

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def make_writable_memfd(nbytes: int) -> tuple[Slab, int]:
    """Make host memory that another process can write.

    Return a slab mapped for reading, and the descriptor to write by, owned by the caller.
    """
    with contextlib.closing(fresh_memfd(nbytes)) as first:
        fcntl.fcntl(first, fcntl.F_ADD_SEALS, SEALS)
        fd = reopen(first, os.O_RDWR)  # the first descriptor is not counted by :func:`used_elsewhere`
    with contextlib.closing(fd):
        try:
            return _for_readers(fd, nbytes), fd.detach()
        except InvalidRegion as error:  # there is nothing wrong with it but its size
            most, _ = resource.getrlimit(resource.RLIMIT_AS)
            bound = f"{most} bytes of address space (RLIMIT_AS)"
            raise OutOfBudget(
                "the system has no room to map a region",
                expected=None if most == resource.RLIM_INFINITY else bound,
                found=f"{nbytes} bytes",
            ) from error


def make_writable_file(nbytes: int, folder: str) -> tuple[Slab, int]:
    """Make a file without a name that another process can write, with all of its disk space reserved.

    Return as :func:`make_writable_memfd`.
    """
    try:
        fd = Descriptor(_unlinked(folder))
    except OSError as error:
        raise OutOfBudget("no file can be made in the folder", found=_text_of(error), where=folder) from error
    with contextlib.closing(fd):
        try:
            # Reserved, not only extended: a process that writes a mapped page without disk space is killed.
            os.posix_fallocate(fd, 0, nbytes)
            return _for_readers(fd, nbytes), fd.detach()
        except InvalidRegion as error:
            raise OutOfBudget("the file system reserves no room for a file", where=folder) from error
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise OutOfBudget(
                "the disk is full", expected=f"{nbytes} bytes", found=_text_of(error), where=folder
            ) from error


def _text_of(error: OSError) -> str:
    return f"{error.strerror} ({errno.errorcode.get(error.errno or 0, error.errno)})"


def map_writable_slab(fd: int, nbytes: int, uuid: bytes) -> Slab:
    """Map another process's memory for writing, all pages present. Takes ownership of `fd`, whatever happens.

    Forked children do not inherit the mapping: nothing could report that they have stopped writing.
    """
    try:
        check_sealed(fd, nbytes)
        try:
            memory, address = mapped(fd, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, filled=True)
        except (OSError, ValueError) as error:
            raise InvalidRegion("a writable region cannot be mapped", found=str(error)) from error
        memory.madvise(mmap.MADV_DONTFORK)
    finally:
        close_descriptor(fd)
    return Slab(cpu(), memory, address, nbytes, uuid, writable=True)


def free_pages(fd: int, nbytes: int, offset: int = 0) -> bool:
    """Give back whole pages of a slab that is mapped still but read no more; return whether the system did it.

    A process that reads there finds zeros, and takes memory anew.
    """
    try:
        with mmap.mmap(fd, nbytes, offset=offset) as memory:
            memory.madvise(mmap.MADV_REMOVE)
    except (OSError, ValueError):
        return False
    return True


def used_elsewhere(fd: int) -> bool:
    """Whether a slab is open or mapped other than by this descriptor; false where the system does not tell.

    The system grants a write lease only for a descriptor that is the only one.
    """
    # A process that opens it at this moment makes the system signal us, by default with SIGIO, which is fatal.
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _for_readers(fd: int, nbytes: int) -> Slab:
    slab = cpu().map_slab(reopen(fd, os.O_RDONLY), nbytes, os.urandom(16))
    slab.fd = reopen(fd, os.O_RDONLY)
    return slab


def _unlinked(folder: str) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
    fd, path = tempfile.mkstemp(prefix="bowstring-", dir=folder)
    os.unlink(path)
    return fd
