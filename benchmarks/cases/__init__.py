"""The cases, one file each. A new one is a file in one of these folders, and a line in this list.

A wheel has those that a user would run (``pyproject.toml``), a checkout has all.
"""

from __future__ import annotations

import importlib
import os
from typing import Final

from bowstring.benchmarks.case import Case

_ALL: Final = {
    "connect_views": "transport.connect_views",
    "connect_read": "transport.connect_read",
    "hand_over": "transport.hand_over",
    "tools": "transport.tools",
    "publish": "transport.publish",
    "tcp": "transport.tcp",
    "tls": "transport.tls",
    "ucx": "transport.ucx",
    "flight": "transport.flight",
    "many_clients": "transport.many_clients",
    "slow_consumer": "transport.slow_consumer",
    "partitions": "transport.partitions",
    "first_call": "transport.first_call",
    "import": "transport.import_time",
    "metadata": "formats.metadata",
    "ipc_read": "formats.ipc_read",
    "ipc_write": "formats.ipc_write",
    "ipc_compressed": "formats.ipc_compressed",
    "parquet": "formats.parquet",
    "validation": "formats.validation",
    "geo": "formats.geo",
    "kernels": "formats.kernels",
    "vortex": "formats.vortex",
    "variant_get": "variant.get",
    "variant_json": "variant.json",
    "variant_functions": "variant.functions",
    "variant_shredded": "variant.shredded",
    "variant_first_get": "variant.first_get",
    "spark_publish": "spark.publish",
    "spark_job": "spark.job",
    "gpu_handover": "gpu.handover",
    "gpu_publish": "gpu.publish",
    "gpu_kernels": "gpu.kernels",
    "gpu_validation": "gpu.validation",
    "gpu_variant": "gpu.variant",
}

_FOLDER: Final = os.path.dirname(__file__)
_CASES: Final = {
    name: module
    for name, module in _ALL.items()
    if os.path.exists(f"{os.path.join(_FOLDER, *module.split('.'))}.py")
}

GROUPS: Final = {
    group: tuple(name for name, module in _CASES.items() if module.startswith(f"{group}."))
    for group in ("transport", "formats", "variant", "spark", "gpu")
}
"""The cases of each folder, which one name on the command line stands for."""

GPU_CASES: Final = GROUPS["gpu"]
"""Cases that need a GPU, or are tried on a fake one."""


def case_names() -> list[str]:
    """Return the names of all cases, in the order in which they run."""
    return list(_CASES)


def case_named(name: str) -> Case:
    """Return a case."""
    found: Case = importlib.import_module(f"bowstring.benchmarks.cases.{_CASES[name]}").CASE
    return found
