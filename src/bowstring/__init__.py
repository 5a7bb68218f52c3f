"""Bowstring hands Arrow tables from one process to another and leaves the bytes where they are.

Metadata is read on the host; bodies stay on the device, or in memory that both processes map.

>>> import pyarrow as pa, bowstring as bow
>>> with bow.Server() as server:
...     endpoint = server.publish("trips", pa.table({"fare": [1.5, 2.5]}), readers=1)
...     with bow.connect(endpoint) as stream:
...         fares = [float(batch["fare"].to_numpy().sum()) for batch in stream]
>>> fares
[4.0]
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from bowstring import errors as errors
from bowstring.errors import *  # noqa: F403  the tree is part of the façade
from bowstring.errors import __all__ as _error_names
from bowstring.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from bowstring import depot as depot
    from bowstring import flight as flight
    from bowstring import geo as geo
    from bowstring import ipc as ipc
    from bowstring import parquet as parquet
    from bowstring import spark as spark
    from bowstring import torch as torch
    from bowstring import variant as variant
    from bowstring import vortex as vortex
    from bowstring.client import ConnectOptions, connect, list_datasets
    from bowstring.client.async_stream import AsyncStream, connect_async, list_datasets_async
    from bowstring.client.scan import scan_polars
    from bowstring.client.stream import Stream, StreamStatistics
    from bowstring.client.waiting import wait_for, wait_for_async
    from bowstring.columnar.batch import Batch, Column
    from bowstring.dissociated.endpoint import Dataset, Endpoint
    from bowstring.dissociated.listing import DatasetInfo
    from bowstring.dissociated.position import Position
    from bowstring.local_server import get, put, release
    from bowstring.memory import Buffer, Device, Pool, Region, cpu
    from bowstring.server import EmptyTable, Server, ServerStatistics
    from bowstring.transport.certificates import TlsConfig

__version__ = "0.1.0"

__all__ = [  # noqa: PLE0604  the names of the errors are listed where the tree is
    "DEFAULT_LIMITS",
    "AsyncStream",
    "Batch",
    "Buffer",
    "Column",
    "ConnectOptions",
    "Dataset",
    "DatasetInfo",
    "Device",
    "EmptyTable",
    "Endpoint",
    "Limits",
    "Pool",
    "Position",
    "Region",
    "Server",
    "ServerStatistics",
    "Stream",
    "StreamStatistics",
    "TlsConfig",
    "connect",
    "connect_async",
    "cpu",
    "depot",
    "errors",
    "flight",
    "geo",
    "get",
    "ipc",
    "list_datasets",
    "list_datasets_async",
    "parquet",
    "put",
    "release",
    "scan_polars",
    "spark",
    "torch",
    "variant",
    "vortex",
    "wait_for",
    "wait_for_async",
    *_error_names,
]

# Where each name lives; a module is imported when its first name is asked for, so that importing Bowstring
# costs little.
_HOMES = {
    "AsyncStream": "bowstring.client.async_stream",
    "Batch": "bowstring.columnar.batch",
    "Buffer": "bowstring.memory",
    "Column": "bowstring.columnar.batch",
    "ConnectOptions": "bowstring.client",
    "Dataset": "bowstring.dissociated.endpoint",
    "DatasetInfo": "bowstring.dissociated.listing",
    "Device": "bowstring.memory",
    "EmptyTable": "bowstring.server",
    "Endpoint": "bowstring.dissociated.endpoint",
    "Pool": "bowstring.memory",
    "Position": "bowstring.dissociated.position",
    "Region": "bowstring.memory",
    "Server": "bowstring.server",
    "ServerStatistics": "bowstring.server",
    "Stream": "bowstring.client.stream",
    "StreamStatistics": "bowstring.client.stream",
    "TlsConfig": "bowstring.transport.certificates",
    "connect": "bowstring.client",
    "connect_async": "bowstring.client.async_stream",
    "list_datasets": "bowstring.client",
    "list_datasets_async": "bowstring.client.async_stream",
    "cpu": "bowstring.memory",
    "get": "bowstring.local_server",
    "put": "bowstring.local_server",
    "release": "bowstring.local_server",
    "scan_polars": "bowstring.client.scan",
    "wait_for": "bowstring.client.waiting",
    "wait_for_async": "bowstring.client.waiting",
}
_MODULES = frozenset(
    {
        "columnar",
        "depot",
        "flight",
        "geo",
        "ipc",
        "kernels",
        "memory",
        "parquet",
        "spark",
        "testing",
        "torch",
        "transport",
        "variant",
        "vortex",
    }
)


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name not in _MODULES:
        raise AttributeError(f"module 'bowstring' has no attribute {name!r}")
    try:
        module = importlib.import_module(_HOMES.get(name) or f"bowstring.{name}")
    except BaseException:  # such as an interrupt
        _forget_orphans()
        raise
    value = getattr(module, name) if name in _HOMES else module
    globals()[name] = value
    return value


def _forget_orphans() -> None:
    """Forget modules whose package is gone: the next import would find them half initialised."""
    for name in sorted(sys.modules):
        package = name.rpartition(".")[0]
        if package.startswith("bowstring") and package not in sys.modules:
            del sys.modules[name]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
