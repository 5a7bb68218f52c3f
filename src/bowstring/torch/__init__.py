"""Training with PyTorch on data sets: each rank and worker reads its share, as tensors.

:class:`bowstring.torch.IterableDataset` is what ``torch.utils.data.DataLoader`` takes. It needs ``torch``
(``pip install 'bowstring[torch]'``), which is imported when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bowstring.errors import MissingDependency

if TYPE_CHECKING:
    from bowstring.torch.iterable import IterableDataset

__all__ = ["IterableDataset"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name != "IterableDataset":
        raise AttributeError(f"module 'bowstring.torch' has no attribute {name!r}")
    try:
        value = importlib.import_module("bowstring.torch.iterable").IterableDataset
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingDependency("PyTorch is not installed", hint="pip install 'bowstring[torch]'") from error
    globals()[name] = value
    return value
