"""The whole examination: each group of checks, the GPUs, and every path, tried."""

from __future__ import annotations

import dataclasses

from bowstring.cli.doctor.check import Check
from bowstring.cli.doctor.devices import LOOK, Look, Seen
from bowstring.cli.doctor.environment import find_limits, find_namespaces
from bowstring.cli.doctor.gpu_files import find_gpu_files
from bowstring.cli.doctor.packages import find_gpu_software, find_packages
from bowstring.cli.doctor.paths import Path, default_path, try_paths
from bowstring.cli.doctor.sharing import try_connections, try_shared_memory
from bowstring.cli.doctor.topology import Topology
from bowstring.cli.doctor.trials import REAL, Programs

__all__ = ["Report", "examine"]

_LOOK_SECONDS = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """The findings.

    Attributes
    ----------
    groups
        The checks, by what they are about.
    topology
        The GPUs, from NVML; ``None`` if it could not be asked.
    paths
        The paths between two processes.
    """

    groups: dict[str, list[Check]]
    topology: Topology | None
    paths: list[Path]

    @property
    def default(self) -> Path:
        """The path that is used by default."""
        return default_path(self.paths)


def examine(program: str = LOOK, programs: Programs = REAL, seconds: float = _LOOK_SECONDS) -> Report:
    """Look at everything, and try every path.

    Parameters
    ----------
    program
        Program of the child that looks for GPUs.
    programs
        Programs of the two processes of a trial.
    seconds
        For the look at GPUs, which runs beside the other checks.
    """
    with Look.begin(program) as look:
        groups = {
            "Packages": find_packages(),
            "Namespaces": find_namespaces(),
            "Limits": find_limits(),
            "Shared memory": try_shared_memory(),
            "Connections": try_connections(),
        }
        seen: Seen = look.end(seconds)
    cuda = None if seen.topology is None else seen.topology.cuda
    groups["GPUs"] = [*seen.checks, *find_gpu_files(), *find_gpu_software(cuda)]
    checks = [check for group in groups.values() for check in group]
    return Report(groups, seen.topology, try_paths(checks, seen, programs))
