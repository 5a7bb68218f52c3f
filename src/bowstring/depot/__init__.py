"""The depot: a small process that owns shared memory, for writers that come and go.

- ``publish`` copies a table into it under a name, ``get`` returns it in any process, ``drop`` frees it.
- ``connect`` returns a ``Depot``, whose ``status`` says what it holds; ``Options`` are its budgets.

Processes that end before others read what they made, such as Spark's Python workers, borrow memory from the depot
of their host and user, write into it, and hand it back; the depot serves it::

    with bow.depot.connect() as depot:
        with depot.begin(application="app-1", dataset="app-1/trips", partition=0, attempt=0) as attempt:
            for batch in batches:
                attempt.write(batch)
            endpoint = attempt.commit().endpoint

    with bow.connect(endpoint) as stream:  # in any process
        ...

It starts with its first client, and ends some minutes after it holds nothing any more.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bowstring.depot.client import Depot
    from bowstring.depot.launch import connect
    from bowstring.depot.options import DataSetStatus, DepotStatus, Options
    from bowstring.depot.publishing import drop, get, publish
    from bowstring.depot.writing import Attempt, Committed

__all__ = [
    "Attempt",
    "Committed",
    "DataSetStatus",
    "Depot",
    "DepotStatus",
    "Options",
    "connect",
    "drop",
    "get",
    "publish",
]


def __dir__() -> list[str]:
    return __all__


_HOMES = {
    "Attempt": "bowstring.depot.writing",
    "Committed": "bowstring.depot.writing",
    "DataSetStatus": "bowstring.depot.options",
    "Depot": "bowstring.depot.client",
    "DepotStatus": "bowstring.depot.options",
    "Options": "bowstring.depot.options",
    "connect": "bowstring.depot.launch",
    "drop": "bowstring.depot.publishing",
    "get": "bowstring.depot.publishing",
    "publish": "bowstring.depot.publishing",
}


def __getattr__(name: str) -> Any:
    # The process of a depot begins here, and forks before it imports anything that may start threads.
    if name not in _HOMES:
        raise AttributeError(f"module 'bowstring.depot' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
