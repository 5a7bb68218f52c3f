"""Which road the bytes can take here, and what is in the way of the others."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterable

from bowstring.cli.doctor.check import Check, State
from bowstring.cli.doctor.devices import CUDA, CUPY, UCX
from bowstring.cli.doctor.handover import TCP, UNIX

__all__ = ["Path", "judge_paths"]

_NOT_YET = "this version of Bowstring does not have it"


@dataclasses.dataclass(frozen=True, slots=True)
class Path:
    """One way from a producer to its reader.

    Attributes
    ----------
    name, meaning
        Which, and what happens on it.
    in_the_way
        What keeps it from being taken; nothing where it works.
    """

    name: str
    meaning: str
    in_the_way: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        """Whether it can be taken here."""
        return not self.in_the_way


def judge_paths(checks: Iterable[Check]) -> list[Path]:
    """Return all paths, the default one first, judged by what the checks saw.

    Examples
    --------
    >>> [path.name for path in judge_paths([]) if path.works]
    ['inproc:']
    """
    seen = {check.name: check for check in checks}
    return [
        Path("unix: mapped", "the producer's memory, mapped read-only", _unmapped(seen)),
        Path("tcp: packed", "bytes through a socket, on this machine or another", _missing(seen, TCP)),
        Path("inproc:", "the buffers themselves, between threads"),
        Path(
            "unix: mapped CUDA memory",
            "the producer's memory on its GPU",
            (*_missing(seen, CUDA, CUPY), *_room("bowstring.memory.cuda")),
        ),
        Path(
            "ucx:",
            "RDMA, NVLink, CUDA memory of another machine",
            (*_missing(seen, UCX), *_room("bowstring.transport.ucx")),
        ),
    ]


def _unmapped(seen: dict[str, Check]) -> tuple[str, ...]:
    check = seen.get(UNIX)
    if check is not None and check.state is State.OK:
        return () if "mapped" in check.detail else (f"the bytes were sent instead: {check.detail}",)
    causes = _broken(
        seen, "sealed memfd", "/proc", "read-only for readers", "folder for sockets", "Unix socket"
    )
    return causes or _missing(seen, UNIX)


def _broken(seen: dict[str, Check], *names: str) -> tuple[str, ...]:
    return tuple(
        f"{name}: {seen[name].detail}" for name in names if name in seen and seen[name].state is not State.OK
    )


def _missing(seen: dict[str, Check], *names: str) -> tuple[str, ...]:
    untried = tuple(f"{name}: not tried" for name in names if name not in seen)
    return (*untried, *_broken(seen, *names))


def _room(module: str) -> tuple[str, ...]:
    return () if importlib.util.find_spec(module) is not None else (_NOT_YET,)
