"""``bowstring bench``: the benchmarks, which have arguments of their own."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from bowstring.errors import MissingDependency

if TYPE_CHECKING:
    import argparse

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> int:
    """Hand over to :mod:`bowstring.benchmarks`."""
    try:
        benchmarks = importlib.import_module("bowstring.benchmarks")
    except ModuleNotFoundError as error:
        if error.name != "bowstring.benchmarks":
            raise
        raise MissingDependency("this installation came without its benchmarks") from error
    code: int = benchmarks.main(arguments.rest)
    return code
