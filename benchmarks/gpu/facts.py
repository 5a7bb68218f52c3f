"""What a result must say about the GPU that it came from: no serial numbers."""

from __future__ import annotations

import ctypes
import subprocess
from typing import Any, Final

from bowstring.errors import BowstringError
from bowstring.memory import device_by_name
from bowstring.memory.cuda.driver import uuid_text

_ASKED: Final = {
    "name": "name",
    "driver": "driver_version",
    "memory": "memory.total",
    "sm_clock_most": "clocks.max.sm",
    "memory_clock_most": "clocks.max.mem",
    "power_limit": "power.limit",
    "persistence": "persistence_mode",
    "mig": "mig.mode.current",
}
_SECONDS: Final = 20.0


def device_facts(device: str) -> dict[str, Any]:
    """Return what the driver says about a device; ``None`` for what it does not."""
    kind = device.partition(":")[0]
    facts = _asked(device) if kind == "cuda" else {}
    memory = facts.get("memory")
    mebibytes = memory.split()[0] if memory else ""
    return {
        "asked": device,
        "is_gpu": bool(facts.get("name")),
        **{name: facts.get(name) for name in _ASKED if name != "memory"},
        "memory_bytes": int(mebibytes) << 20 if mebibytes.isdecimal() else None,
        "cuda": _cuda_version() if kind == "cuda" else None,
    }


def _asked(device: str) -> dict[str, str]:
    """Ask the tool that comes with the driver: by the UUID, since CUDA may number the GPUs otherwise."""
    try:
        uuid = uuid_text(device_by_name(device).uuid)
    except BowstringError:
        return {}
    command = [
        "nvidia-smi",
        f"--id=GPU-{uuid}",
        f"--query-gpu={','.join(_ASKED.values())}",
        "--format=csv,noheader",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return dict(zip(_ASKED, values, strict=True)) if len(values) == len(_ASKED) else {}


def _cuda_version() -> str | None:
    """Return the newest version of CUDA that the driver knows, such as ``"13.0"``."""
    found = ctypes.c_int()
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(found))
    except (OSError, AttributeError):
        return None
    return None if failed else f"{found.value // 1000}.{found.value % 1000 // 10}"
