"""What the kernel and the container let this process see of GPUs: device nodes, capabilities, modules."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from bowstring.cli.doctor.check import Check, State

__all__ = ["find_gpu_files"]

_NODES: Final = "GPU device nodes"
_GIVE: Final = "Start the container with its GPUs: docker run --gpus all"


def find_gpu_files(root: Path = Path("/")) -> list[Check]:
    """Return one check for each; where nothing of a GPU is there, that is the one check.

    Parameters
    ----------
    root
        Where ``/dev``, ``/proc`` and ``/sys`` are looked for.
    """
    gpus = sorted((root / "dev").glob("nvidia[0-9]*"), key=lambda path: (len(path.name), path.name))
    module = _read(root / "proc/driver/nvidia/version")
    if not gpus and module is None:
        return [Check(_NODES, State.ABSENT, "none (/dev/nvidia0), and no driver in the kernel", _GIVE)]
    return [
        _nodes(root, gpus),
        Check("kernel's driver", *_told(module)),
        _capabilities(root),
        _channels(root),
        _peer_memory(root),
    ]


def _told(text: str | None) -> tuple[State, str]:
    return (State.ABSENT, "not told") if text is None else (State.OK, text)


def _read(path: Path) -> str | None:
    with contextlib.suppress(OSError):
        lines = path.read_text(errors="replace").splitlines()
        return " ".join(lines[0].removeprefix("NVRM version:").split()) if lines else None
    return None


def _nodes(root: Path, gpus: list[Path]) -> Check:
    needed = [root / "dev" / name for name in ("nvidiactl", "nvidia-uvm")]
    missing = [path.name for path in needed if not path.exists()]
    forbidden = [
        path.name for path in (*gpus, *needed) if path.exists() and not os.access(path, os.R_OK | os.W_OK)
    ]
    if not gpus:
        return Check(_NODES, State.ABSENT, "the kernel has a driver, but /dev has no GPU", _GIVE)
    if forbidden:
        hint = "Give this user the right to read and write them (the group of /dev/nvidia*)."
        return Check(_NODES, State.BROKEN, f"may not be used: {', '.join(forbidden)}", hint)
    if missing:
        hint = f"{_GIVE}; on the host: nvidia-modprobe -u -c=0"
        return Check(_NODES, State.BROKEN, f"/dev lacks {', '.join(missing)}", hint)
    return Check(_NODES, State.OK, ", ".join(path.name for path in gpus))


def _capabilities(root: Path) -> Check:
    found = sorted((root / "dev/nvidia-caps").glob("nvidia-cap*"))
    readable = [path.name for path in found if os.access(path, os.R_OK)]
    name, hint = "MIG capabilities", "Needed for MIG alone; a container gets those of its instances."
    if not found:
        return Check(name, State.ABSENT, "/dev/nvidia-caps is not there", hint)
    return Check(name, State.OK, f"{len(readable)} of {len(found)} in /dev/nvidia-caps may be read")


def _channels(root: Path) -> Check:
    found = sorted((root / "dev/nvidia-caps-imex-channels").glob("channel*"))
    usable = [path.name for path in found if os.access(path, os.R_OK)]
    name = "IMEX channels"
    if usable:
        return Check(name, State.OK, ", ".join(usable))
    seen = "there, but may not be read" if found else "none"
    return Check(name, State.ABSENT, f"{seen}; fabric handles need one, Bowstring does not", None)


def _peer_memory(root: Path) -> Check:
    name = "nvidia-peermem"
    if (root / "sys/module/nvidia_peermem").exists():
        return Check(name, State.OK, "loaded")
    return Check(name, State.ABSENT, "not loaded; for RDMA of a GPU's memory", "modprobe nvidia-peermem")
