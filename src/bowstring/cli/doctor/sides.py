"""The two processes of a trial: one publishes a small table, the other reads it and compares each byte."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import secrets
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.cli.doctor.child import be_a_child
from bowstring.cli.failure import as_json
from bowstring.client import connect
from bowstring.columnar.batch import Batch
from bowstring.errors import InvalidData, Unsupported
from bowstring.memory import Pool, device_by_name
from bowstring.server import Server

if TYPE_CHECKING:
    from bowstring.memory import Device

__all__ = ["CONSUMER", "IN_PLACE", "PRODUCER", "consume", "produce", "sample"]

PRODUCER: Final = "from bowstring.cli.doctor.sides import produce; produce()"
CONSUMER: Final = "from bowstring.cli.doctor.sides import consume; consume()"
IN_PLACE: Final = "in place"
_ROWS: Final = 100_000
_BUDGET: Final = 64 << 20


def sample() -> pa.Table:
    """Return the table of all trials: numbers, text, nulls.

    Examples
    --------
    >>> sample().num_rows
    100000
    """
    numbers = np.arange(_ROWS)
    text = pa.array(["bow", None, "string", "→"] * (_ROWS // 4))
    return pa.table({"n": numbers, "f": numbers / 7, "text": text})


def produce() -> None:
    """Run the producer: report where the table is published, and wait until stdin closes."""
    order, say = be_a_child()
    _load(order["preload"])
    with contextlib.ExitStack() as servers:
        say(_offers(order, servers))
        sys.stdin.read()


def _load(modules: list[str]) -> None:
    for name in modules:
        importlib.import_module(name)


def _offers(order: dict[str, Any], servers: contextlib.ExitStack) -> dict[str, Any]:
    """Return, for each way to offer, the URI, or what is in its way."""
    offers: dict[str, Any] = {}
    for way, address in order["ways"].items():
        try:
            offers[way] = {"uri": _offer(way, address, device_by_name(order["device"]), servers)}
        except Exception as error:  # noqa: BLE001  whatever is wrong with this machine is what is wanted
            offers[way] = {"error": as_json(error)}
    return offers


def _offer(way: str, address: str, device: Device, servers: contextlib.ExitStack) -> str:
    server = servers.enter_context(Server(address, pool=Pool(device, budget=_BUDGET)))
    if way != IN_PLACE:
        batch = Batch.from_arrow(sample().combine_chunks()).to_device(device, server.pool)
        return str(server.publish("doctor", batch))
    if "share" not in inspect.signature(server.publish).parameters:
        raise Unsupported("this version of Bowstring hands over no memory in place")
    # Arrays as a user has them, not one of our regions.
    columns = {
        name: device.from_host(sample().column(name).combine_chunks().to_numpy()) for name in ("n", "f")
    }
    in_place: dict[str, Any] = {"share": "in_place"}
    return str(server.publish("doctor", columns, **in_place))


def consume() -> None:
    """Run the consumer: read the table by one path after the other, and report each outcome."""
    order, say = be_a_child()
    _load(order["preload"])
    for trial in order["trials"]:
        try:
            say(_take(**trial))
        except Exception as error:  # noqa: BLE001  as above
            say({"error": as_json(error)})


def _take(uri: str | None, mode: Any, device: str | None, own: str) -> dict[str, Any]:
    if own != "cpu":
        device_by_name(own).synchronize()  # a context takes its time, and is no part of a hand-over
    with contextlib.ExitStack() as stack:
        if uri is None:
            server = stack.enter_context(Server(f"inproc:doctor-{secrets.token_hex(4)}"))
            uri = str(server.publish("doctor", sample()))
        started = time.perf_counter()
        stream = stack.enter_context(connect(uri, mode=mode, device=device))
        batches = [next(iter(stream))]
        first_view = time.perf_counter() - started
        batches += stream
        found = pa.Table.from_batches([batch.to_arrow() for batch in batches], schema=stream.schema)
        if not found.num_columns or not found.equals(sample().select(found.column_names)):
            raise InvalidData("other bytes came than were sent")
        stats = stream.stats
        return {
            "first_view": first_view,
            "nbytes": stats.nbytes,
            "device": batches[0].device.name,
            "path": stats.path,
            "why": stats.why,
            # How it was copied, where the stream tells.
            "copied": ": ".join(
                filter(None, (getattr(stats, name, "") for name in ("copied", "copied_why")))
            ),
        }
