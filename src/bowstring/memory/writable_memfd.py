"""Lent slabs: memory that one process owns and another one writes.

The owner makes it, keeps it mapped for reading, and lends the descriptor by which another process of the same user
maps it for writing. So it is sealed against shrinking and growing, but not against being written. Where there is no
memory left, an unlinked file does the same, with its room on the disk reserved before anybody writes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import signal
import tempfile
from typing import TYPE_CHECKING, Final

from bowstring.errors import InvalidRegion, OutOfBudget
from bowstring.memory.pages import mapped
from bowstring.memory.slab import (
    SEALS,
    Slab,
    check_sealed,
    fresh_memfd,
    map_host_slab,
    opened_anew,
    reopened_read_only,
)

if TYPE_CHECKING:
    from bowstring.memory.device import Device

__all__ = ["borrowed_slab", "emptied", "file_to_lend", "memory_to_lend", "reopened", "used_elsewhere"]

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def memory_to_lend(device: Device, nbytes: int) -> tuple[Slab, int]:
    """Make host memory that another process may write.

    Returns
    -------
    slab
        Mapped for reading; its descriptor is for readers.
    fd
        The descriptor by which it is written, owned by the caller.

    Raises
    ------
    OutOfBudget
        The system refuses that much memory.

    Examples
    --------
    >>> from bowstring.memory import cpu
    >>> slab, fd = memory_to_lend(cpu(), 1 << 20)
    >>> os.pwrite(fd, b"x", 7), int(cpu().array(slab.address, slab.nbytes, slab)[7])
    (1, 120)
    >>> os.close(fd)
    """
    made = fresh_memfd(nbytes)
    try:
        fcntl.fcntl(made, fcntl.F_ADD_SEALS, SEALS)
        fd = reopened(made)  # as the system counts it, which it does not do for the first one
    finally:
        os.close(made)
    try:
        try:
            return _for_readers(device, fd, nbytes), fd
        except InvalidRegion as error:  # there is nothing wrong with it but its size: RLIMIT_AS
            raise OutOfBudget("the system has no room to map a region", found=f"{nbytes} bytes") from error
    except BaseException:
        os.close(fd)
        raise


def file_to_lend(device: Device, nbytes: int, folder: str) -> tuple[Slab, int]:
    """Make a file without a name that another process may write, all of its room on the disk reserved.

    Returns
    -------
    slab, fd
        As for :func:`memory_to_lend`.

    Raises
    ------
    OutOfBudget
        The disk is full, or the folder cannot be used.
    """
    try:
        fd = _unlinked(folder)
    except OSError as error:
        raise OutOfBudget("no file can be made in the folder", found=error.strerror, where=folder) from error
    try:
        # Reserved, not only as long as that: who writes a mapped page without room on the disk is killed.
        os.posix_fallocate(fd, 0, nbytes)
        return _for_readers(device, fd, nbytes), fd
    except InvalidRegion as error:
        os.close(fd)
        raise OutOfBudget("the file system reserves no room for a file", where=folder) from error
    except OSError as error:
        os.close(fd)
        if error.errno in _FULL:
            raise OutOfBudget("the disk is full", found=f"{nbytes} bytes asked for", where=folder) from error
        raise
    except BaseException:
        os.close(fd)
        raise


def borrowed_slab(device: Device, fd: int, nbytes: int, uuid: bytes) -> Slab:
    """Map memory that another process lends us, for writing. Takes ownership of `fd`, whatever happens.

    Its pages are all there when this returns. Children of a fork do not have them: nobody could tell the owner when
    they write no more.

    Raises
    ------
    InvalidRegion
        The descriptor is not what a slab is, or not of that size.
    """
    try:
        check_sealed(fd, nbytes)
        try:
            memory, address = mapped(fd, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, filled=True)
        except (OSError, ValueError) as error:
            raise InvalidRegion("a lent region cannot be mapped", found=str(error)) from error
        memory.madvise(mmap.MADV_DONTFORK)
    finally:
        os.close(fd)
    return Slab(device, memory, address=address, nbytes=nbytes, uuid=uuid, writable=True)


def emptied(fd: int, nbytes: int) -> None:
    """Give back what a slab takes that nobody looks at any more, though processes have it mapped still."""
    with contextlib.suppress(OSError, ValueError), mmap.mmap(fd, nbytes) as memory:
        memory.madvise(mmap.MADV_REMOVE)


def reopened(fd: int) -> int:
    """Return another descriptor for writing a slab, which is not the one that others were sent."""
    return opened_anew(fd, os.O_RDWR)


def used_elsewhere(fd: int) -> bool:
    """Whether somebody has a slab open or mapped, other than by this descriptor; false where nobody can know.

    The system grants a lease for writing to whoever is the only one.

    Examples
    --------
    >>> from bowstring.memory import cpu
    >>> slab, fd = memory_to_lend(cpu(), 1 << 20)
    >>> used_elsewhere(fd)
    True
    >>> del slab
    >>> used_elsewhere(fd)
    False
    >>> os.close(fd)
    """
    # Who opens it in just this moment makes the system signal us, by default with one that ends the process.
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _for_readers(device: Device, fd: int, nbytes: int) -> Slab:
    slab = map_host_slab(device, reopened_read_only(fd), nbytes, os.urandom(16))
    slab.fd = reopened_read_only(fd)
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
