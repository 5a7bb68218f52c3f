"""The cases, one file each. A new one is a file here, and a line in this list."""

from __future__ import annotations

import importlib
from typing import Final

from bowstring.benchmarks.case import Case

__all__ = ["GPU_CASES", "case_named", "case_names"]

_CASES: Final = {
    "connect_views": "connect_views",
    "connect_read": "connect_read",
    "hand_over": "hand_over",
    "publish": "publish",
    "tcp": "tcp",
    "tls": "tls",
    "ucx": "ucx",
    "flight": "flight",
    "metadata": "metadata",
    "ipc_read": "ipc_read",
    "ipc_compressed": "ipc_compressed",
    "parquet": "parquet",
    "validation": "validation",
    "variant_get": "variant_get",
    "variant_json": "variant_json",
    "variant_shredded": "variant_shredded",
    "variant_first_get": "variant_first_get",
    "geo": "geo",
    "vortex": "vortex",
    "spark_publish": "spark_publish",
    "import": "import_time",
    "gpu_handover": "gpu_handover",
    "gpu_publish": "gpu_publish",
    "gpu_kernels": "gpu_kernels",
    "gpu_validation": "gpu_validation",
    "gpu_variant": "gpu_variant",
}

GPU_CASES: Final = tuple(name for name in _CASES if name.startswith("gpu_"))
"""Cases that need a GPU, or are tried on a fake one."""


def case_names() -> list[str]:
    """Return the names of all cases, in the order in which they run."""
    return list(_CASES)


def case_named(name: str) -> Case:
    """Return a case.

    Examples
    --------
    >>> case_named("import").name
    'import'
    """
    found: Case = importlib.import_module(f"bowstring.benchmarks.cases.{_CASES[name]}").CASE
    return found
