"""Process A: loads the flights, publishes them, and stays until it is told to end."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from bowstring.cli.demo.flight_side import serve_flight
from bowstring.cli.demo.flights import airlines, data_folder, flights, report
from bowstring.errors import MissingDependency
from bowstring.server import Server

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    import pyarrow as pa

__all__ = ["ADDRESSES", "publish"]

ADDRESSES = {"unix": "unix:", "tcp": "tcp://127.0.0.1:0"}


def publish(arguments: argparse.Namespace) -> int:
    """Publish three data sets on one server, and print the URI of the flights.

    ``flights``; ``airlines``, the names of their carriers; and ``expected``, what pyarrow computes here, with
    facts about this process in the schema's metadata. A reader finds the others by name.
    """
    folder = data_folder()
    began = time.perf_counter()
    table = flights(folder)
    loaded = time.perf_counter()
    with Server(ADDRESSES[arguments.transport]) as server, _flight(table) as location:
        began_to_publish = time.perf_counter()
        endpoint = server.publish("flights", table)
        facts = {
            "pid": os.getpid(),
            "seconds_to_load": loaded - began,
            "seconds_to_publish": time.perf_counter() - began_to_publish,
            **location,
        }
        server.publish("airlines", airlines(folder))
        server.publish("expected", report(table).replace_schema_metadata({"demo": json.dumps(facts)}))
        with contextlib.suppress(KeyboardInterrupt):
            print(json.dumps({"uri": str(endpoint)}) if arguments.json else endpoint, flush=True)
            _wait(end_with_stdin=arguments.end_with_stdin)
    return 0


@contextlib.contextmanager
def _flight(table: pa.Table) -> Iterator[dict[str, Any]]:
    try:
        server, location = serve_flight(table)
    except MissingDependency as error:
        yield {"flight": None, "no_flight": str(error)}
        return
    try:
        yield {"flight": location}
    finally:
        server.shutdown()


def _wait(*, end_with_stdin: bool) -> None:
    """Wait for Ctrl-C; or for the end of a pipe, which comes even if the process at its other end is killed."""
    if end_with_stdin:
        sys.stdin.buffer.read()
    else:
        threading.Event().wait()
