"""What Hatchling runs when a wheel is made: the kernels are compiled ahead of time, and the library goes into it.

Where numba or a C compiler is not installed, the wheel is the pure one, whose kernels are compiled when they are
first used, and one line says so. Where they are there and fail, the build fails. The pure wheel in any case:
``HATCH_BUILD_NO_HOOKS=true``.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKAGE = "src/bowstring/kernels"
# The library needs no symbol with a version, which its link checks: so it runs wherever such wheels do.
_TAG = f"py3-none-manylinux_2_17_{platform.machine()}"
# What `bowstring.kernels.build` exits with where a compiler is not installed.
_UNAVAILABLE = 3


class KernelsHook(BuildHookInterface):
    """Compiles the library of kernels: beside the sources for an editable install, else outside of the packages."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and have the library put into the wheel; called before the wheel is made."""
        if self.target_name != "wheel":
            return
        objects = os.path.join(self.root, "build", "kernels")
        if version == "editable":
            self._compile(os.path.join(self.root, _PACKAGE, "_native"), objects)
            return
        folder = os.path.join(self.root, "build", "library")
        if self._compile(folder, objects):
            for name in sorted(os.listdir(folder)):
                build_data["force_include"][os.path.join(folder, name)] = f"bowstring/kernels/_native/{name}"
            build_data["pure_python"] = False
            build_data["tag"] = _TAG

    def _compile(self, folder: str, objects: str) -> bool:
        """Return whether the library is in a folder: not where a compiler is missing. A failure ends the build."""
        path = os.pathsep.join(filter(None, (os.path.join(self.root, "src"), os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-m", "bowstring.kernels.build", "--into", folder, "--objects", objects]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False)  # noqa: S603  ours
        if done.returncode == _UNAVAILABLE:
            self.app.display_warning(
                "bowstring: this is the pure wheel, without compiled kernels: numba compiles them on first use"
            )
        elif done.returncode:
            # No traceback: pip shows what a build printed where it fails, and this is its last line.
            self.app.abort(
                "bowstring: compiling the kernels failed, as a line above says. To install without compiled ones, "
                "so that Numba compiles them on first use: HATCH_BUILD_NO_HOOKS=true pip install '.[kernels]'"
            )
        return done.returncode == 0
