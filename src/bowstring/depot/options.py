"""How a depot is started."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from typing import Self

from bowstring.errors import UsageError
from bowstring.memory import default_budget

__all__ = ["Options"]


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What a depot may use, and how long it waits for whom. Whoever starts it decides.

    Parameters
    ----------
    memory_budget
        The most bytes of memory for slabs; half of what the host, or the container, has by default.
    disk_budget
        The most bytes of files where there is no memory left; half of what is free in `spill_folder` by default.
    spill_folder
        Where those files are made when a client names no folder of its own; that for temporary files by default.
    lease_seconds
        How long what belongs to an application is kept after its last sign of life.
    idle_seconds
        How long a depot that holds nothing waits to be asked for something, before it ends.
    warm_seconds
        How long slabs that nobody uses are kept.

    Examples
    --------
    >>> Options.from_json(Options(memory_budget=1 << 30).to_json()).memory_budget
    1073741824
    """

    memory_budget: int | None = None
    disk_budget: int | None = None
    spill_folder: str | None = None
    lease_seconds: float = 600.0
    idle_seconds: float = 300.0
    warm_seconds: float = 60.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "spill_folder" or value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
                raise UsageError(
                    f"Options.{field.name} is not a number that means anything", found=repr(value)
                )

    def to_json(self) -> str:
        """Return the options as text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the options that a text says."""
        return cls(**json.loads(text))

    @property
    def folder(self) -> str:
        """Where files go."""
        return os.path.abspath(self.spill_folder or tempfile.gettempdir())

    @property
    def memory(self) -> int:
        """The budget of memory, in bytes."""
        return default_budget() if self.memory_budget is None else self.memory_budget

    @property
    def disk(self) -> int:
        """The budget of disk, in bytes."""
        if self.disk_budget is not None:
            return self.disk_budget
        try:
            return shutil.disk_usage(self.folder).free // 2
        except OSError:
            return 0
