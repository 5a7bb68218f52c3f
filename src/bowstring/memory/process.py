"""The identity of a process, beyond its PID: PIDs are used again, and repeat between containers."""

from __future__ import annotations

import dataclasses
import functools
import os
import struct
from typing import Final

from bowstring.errors import ProtocolError

__all__ = ["PROCESS_BYTES", "Process", "start_time", "this_process"]

# boot id, pid namespace, start time, pid, reserved
_PROCESS: Final = struct.Struct("<16sQQII")
PROCESS_BYTES: Final = _PROCESS.size
_START_FIELD: Final = 18  # starttime, counted from what is behind the state
_OVER: Final = (b"Z", b"X")  # has ended, but its parent has not collected its status


@dataclasses.dataclass(frozen=True, slots=True)
class Process:
    """One process of one machine; no two are equal.

    Attributes
    ----------
    boot_id
        16 bytes that the kernel drew when the machine started.
    namespace
        The inode of its PID namespace, in which `pid` means something.
    started
        When it started, in clock ticks since the machine did.
    pid
        Its number in that namespace.
    """

    boot_id: bytes
    namespace: int
    started: int
    pid: int

    def pack(self) -> bytes:
        """Return the 40 bytes of the name."""
        return _PROCESS.pack(self.boot_id, self.namespace, self.started, self.pid, 0)

    @classmethod
    def unpack(cls, data: bytes) -> Process:
        """Read a name.

        Raises
        ------
        ProtocolError
            The bytes are not one.
        """
        if len(data) != PROCESS_BYTES:
            raise ProtocolError(
                "the name of a process has the wrong length", expected=PROCESS_BYTES, found=len(data)
            )
        *fields, reserved = _PROCESS.unpack(data)
        if reserved:
            raise ProtocolError("reserved bits of a process are set", expected=0, found=reserved)
        return cls(*fields)

    @property
    def place(self) -> str:
        """Where its number means something: the machine since it started, and the PID namespace."""
        return f"{self.boot_id.hex()}:{self.namespace}"

    @property
    def alive(self) -> bool:
        """Whether it still runs; false for a process of another place, of which nothing is known."""
        return self.place == this_process().place and start_time(self.pid) == self.started


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since the machine did; ``None`` where none runs."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the program stands in brackets and may hold blanks and brackets itself.
            state, *fields = file.read().rpartition(b")")[2].split()
        return None if state in _OVER else int(fields[_START_FIELD])
    except (OSError, IndexError, ValueError):
        return None


def this_process() -> Process:
    """Return the identity of this process."""
    return _of(os.getpid())


@functools.lru_cache(1)
def _of(pid: int) -> Process:
    # A forked child has another PID, so it is looked up anew.
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot_id = bytes.fromhex(file.read().strip().replace("-", ""))
        return Process(boot_id, os.stat("/proc/self/ns/pid").st_ino, start_time(pid) or 0, pid)
    except (OSError, ValueError):
        # A sandbox hides it: no other process has a random boot id, so none opens memory of this one by a handle.
        return Process(os.urandom(16), 0, 0, pid)
