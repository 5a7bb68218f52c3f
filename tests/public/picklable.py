"""One of each public object that pickles, and the texts that stand for some of them.

As a program it writes them: ``python tests/public/picklable.py FOLDER``. What lies in ``tests/data/pickles`` was
written by the build of commit 6da4e3a, and is not written anew: what others stored must go on loading. An object
that is added here needs a file of its own from the commit that has it first.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

import bowstring as bow

__all__ = ["objects", "texts"]

_FULL = bow.Endpoint(
    "unix:/run/a%20b/t.sock?want_data=12754194144713244417&free_data=12754194144713244420&bow=1"
    "&hello=12754194144713244421",
    b"trips\x00\xff",
    "unix:/run/b.sock?want_data=3",
    "tcp://192.0.2.7:4711?want_data=7&token=secret",
    "0123456789abcdef",
)
_SHORT = bow.Endpoint("tcp://127.0.0.1:4711?want_data=7", b"trips")
_SCHEMA = pa.schema(
    [
        pa.field("fare", pa.float64(), metadata={"unit": "USD"}),
        ("city", pa.dictionary(pa.int8(), pa.string())),
    ],
    metadata={"of": "a data set"},
)


def objects() -> dict[str, Any]:
    """Return each object by the name of its file."""
    found: dict[str, Any] = {
        "endpoint": _SHORT,
        "endpoint-full": _FULL,
        "dataset": bow.Dataset(
            (_SHORT, _FULL), _SCHEMA, 3, 1 << 40, {"application": "app-1", "parts": [1, 2]}
        ),
        "dataset-empty": bow.Dataset((), pa.schema([])),
        "limits": bow.DEFAULT_LIMITS,
        "limits-changed": bow.Limits(depth=8, connect_timeout=1.5, window_bytes=1 << 20),
        "position": bow.Position.parse("0123456789abcdef:7"),
        "depot-options": bow.depot.Options(
            memory_budget=1 << 30, spill_folder="/tmp/spill", idle_seconds=1.0
        ),
        "depot-committed": bow.depot.Committed(_SHORT, 1, 2, 3, 4, 5),
        "ipc-read-options": bow.ipc.IpcReadOptions(use_threads=False, included_fields=[0, 2]),
        "variant-type": bow.variant.type(),
        "variant-status": bow.variant.Status.TYPE_MISMATCH,
        "variant-path": bow.variant.parse_path("$.a[0]['b c']"),
    }
    for name in bow.errors.__all__:
        error = getattr(bow, name)
        found[f"error-{name}"] = error("what", expected="this", found=4, where="there", hint="Do it.")
    return found


def texts() -> dict[str, str]:
    """Return what endpoints print, and data sets as JSON."""
    known = objects()
    return {
        name: value.to_json() if isinstance(value, bow.Dataset) else str(value)
        for name, value in known.items()
        if isinstance(value, (bow.Dataset, bow.Endpoint))
    }


def _write(folder: Path) -> None:
    # The protocol of Python 3.8 and later, and one that every pickler can be asked for.
    for name, value in objects().items():
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(value, 4))
    (folder / "texts.json").write_text(json.dumps(texts(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
