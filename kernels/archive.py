"""The archive of code for GPUs that the build compiled: a zip file beside the library of kernels.

For each signature it holds PTX, which a driver compiles for any GPU from compute capability 8.0 on, and machine
code for the GPUs that the build's compiler knew (:data:`CAPABILITIES`). Its comment holds the hash of the sources:
an archive of other sources is not used.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, Final

from bowstring.kernels import library
from bowstring.kernels.library import NotUsable
from bowstring.kernels.signature import Signature

# Major and minor compute capability of a GPU.
Capability = tuple[int, int]

NAME: Final = "kernels-cuda.zip"

# Compute capabilities that the build makes machine code for, where its compiler knows them; others get the text.
CAPABILITIES: Final[tuple[Capability, ...]] = ((8, 0), (9, 0), (10, 0), (12, 0))
OLDEST: Final[Capability] = (8, 0)
# Machine code of a family does not run on its members for embedded systems.
_EMBEDDED: Final = frozenset({(8, 7), (10, 1), (11, 0)})
# The folder of texts in the archive.
TEXT: Final = "text"


@dataclasses.dataclass(frozen=True, slots=True)
class Archive:
    """An archive that fits the sources."""

    path: str
    # The version of CUDA that compiled it. Drivers of an older major version take no machine code.
    toolkit: tuple[int, int]
    capabilities: tuple[Capability, ...]  # the compute capabilities that it has machine code for
    oldest: tuple[int, int]  # the oldest version of CUDA whose drivers take the text

    def choose(self, capability: Capability, driver: tuple[int, int]) -> str | NotUsable:
        """Return which code a GPU takes: the name of its folder in the archive."""
        made = [each for each in self.capabilities if fits(each, capability)]
        if made and driver[0] >= self.toolkit[0]:
            return folder_of(max(made))
        if capability < OLDEST:
            reason = f"the build compiled kernels for compute capability {_dotted(OLDEST)} and newer"
            return NotUsable(f"{reason}, and this GPU has {_dotted(capability)}", is_there=True)
        if driver < self.oldest:
            reason = f"the build compiled kernels for drivers of CUDA {_dotted(self.oldest)} and newer"
            return NotUsable(f"{reason}, and the driver is of CUDA {_dotted(driver)}", is_there=True)
        return TEXT


def find(signature: Signature, capability: Capability, driver: tuple[int, int]) -> bytes | NotUsable:
    """Return what a driver loads for a signature, or why there is nothing."""
    archive = load()
    if isinstance(archive, NotUsable):
        return archive
    folder = archive.choose(capability, driver)
    if isinstance(folder, NotUsable):
        return folder
    try:
        with zipfile.ZipFile(archive.path) as file:
            code = file.read(f"{folder}/{signature.name}")
    except KeyError:
        return NotUsable(f"the code for GPUs does not have {signature.kernel.__name__}", is_there=True)
    except (OSError, zipfile.BadZipFile, zlib.error) as error:
        return NotUsable(f"the code for GPUs cannot be read: {error}", is_there=True)
    # A driver takes text up to a zero.
    return code + b"\0" if folder == TEXT else code


def load() -> Archive | NotUsable:
    """Return the archive, opened once per process, or why it cannot be used."""
    return _load(os.path.join(library.FOLDER, NAME))


@functools.cache
def _load(path: str) -> Archive | NotUsable:
    if not os.path.lexists(path):
        return NotUsable("the build compiled no code for GPUs", is_there=False)
    comment = read_comment(path)
    try:
        capabilities = tuple(map(_pair, comment["capabilities"]))
        archive = Archive(path, _pair(comment["toolkit"]), capabilities, _pair(comment["oldest"]))
    except (KeyError, TypeError, ValueError):
        return NotUsable(f"{path} is damaged", is_there=True)
    if comment.get("sources") != library.compiled_sources():
        return NotUsable(
            f"{path} was compiled from other sources (`python -m bowstring.kernels.build` compiles it anew)",
            is_there=True,
        )
    return archive


def _pair(numbers: tuple[int, int]) -> tuple[int, int]:
    major, minor = map(int, numbers)
    return major, minor


def fits(made: Capability, capability: Capability) -> bool:
    """Whether machine code made for one compute capability runs on GPUs of another."""
    if capability in _EMBEDDED:
        return made == capability
    return made[0] == capability[0] and made[1] <= capability[1]


def folder_of(capability: Capability) -> str:
    """Return the folder of machine code in the archive."""
    return f"sm_{capability[0]}{capability[1]}"


def read_comment(path: str) -> Mapping[str, Any]:
    """Return what the comment of an archive says; nothing where there is no archive that can be read."""
    try:
        with zipfile.ZipFile(path) as file:
            found = json.loads(file.comment)
    except (OSError, zipfile.BadZipFile, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write(path: str, code: Mapping[str, bytes], comment: Mapping[str, object]) -> None:
    """Write an archive of code by its names; the same code gives the same bytes."""
    with zipfile.ZipFile(path, "w") as file:
        file.comment = json.dumps(comment).encode()
        for name in sorted(code):
            # A file has a date, which this one does not take from the clock.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            file.writestr(entry, code[name], zipfile.ZIP_DEFLATED, 9)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
