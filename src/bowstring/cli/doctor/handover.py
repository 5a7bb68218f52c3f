"""A real hand-over: this process publishes, a process of its own reads, over each transport."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pyarrow as pa

from bowstring.cli.doctor.check import Check, attempt
from bowstring.errors import BrokenError, DeadlineExceeded, InvalidData
from bowstring.server import Server

__all__ = ["TCP", "UNIX", "probe", "try_handover"]

UNIX = "unix: to another process"
TCP = "tcp: to another process"
_ADDRESSES = {UNIX: "unix:", TCP: "tcp://127.0.0.1:0"}
_ROWS = 100_000
_SECONDS = 30.0
_CHILD = "import sys; from bowstring.cli.doctor.handover import probe; probe(sys.argv[1])"


def try_handover() -> list[Check]:
    """Return what came of a small table's way to a child process, which has ended in any case."""
    hint = "Look at what failed above; a child process must be able to start, and to import bowstring."
    return [
        attempt(name, lambda address=address: _hand_over(address), hint)  # type: ignore[misc]  # bound now
        for name, address in _ADDRESSES.items()
    ]


def _hand_over(address: str) -> str:
    table = pa.table({"n": pa.array(range(_ROWS), pa.int64()), "text": ["bow", None] * (_ROWS // 2)})
    with Server(address) as server:
        endpoint = server.publish("doctor", table)
        answer = _ask(str(endpoint))
    if answer["sum"] != _ROWS * (_ROWS - 1) // 2 or answer["nulls"] != _ROWS // 2:
        raise InvalidData("the other process read something else", found=answer)
    return f"{answer['path']}: {answer['why']}"


def _ask(uri: str) -> dict[str, Any]:
    try:
        done = subprocess.run(  # noqa: S603  our own program
            [sys.executable, "-c", _CHILD, uri],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DeadlineExceeded("the other process did not end", expected=f"within {_SECONDS:g} s") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise BrokenError(
            "the other process failed", found=said[-1] if said else f"exit code {done.returncode}"
        )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def probe(uri: str) -> None:
    """Be the other process: read the table, and print what was seen."""
    from bowstring.client import connect

    total = nulls = 0
    with connect(uri) as stream:
        for batch in stream:
            total += int(batch["n"].values.sum())
            nulls += batch["text"].null_count
        stats = stream.stats
    print(json.dumps({"sum": total, "nulls": nulls, "path": stats.path, "why": stats.why}))
