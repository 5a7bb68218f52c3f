"""``bowstring depot``: look at the depot of this host and user, end it, or be one."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from bowstring.cli.arguments import tls_config
from bowstring.cli.terminal import duration, number, print_table, size
from bowstring.depot import Options, connect
from bowstring.errors import BrokenError

if TYPE_CHECKING:
    from bowstring.depot import DepotStatus

_SECONDS = 10.0
_KINDS_OF_BYTES = ("data", "in_use", "slack", "warm", "lost", "budget")


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked of the depot; return the exit code."""
    if arguments.action == "run":
        return _run(arguments)
    try:
        tls = tls_config(arguments)
        depot = connect(start=False, folder=arguments.folder, tls=tls, timeout=_SECONDS)
    except BrokenError:
        # That there is none is what `stop` wants, and what `status` says.
        _say(arguments, {"running": False}, "no depot runs")
        return 0
    with depot:
        if arguments.action == "stop":
            depot.stop(everywhere=arguments.everywhere)
            _say(arguments, {"stopped": True}, "the depot has ended")
            return 0
        status = depot.status()
    if arguments.json:
        print(json.dumps(status.to_json()))
    else:
        _show(status)
    return 0


def _say(arguments: argparse.Namespace, facts: dict[str, bool], text: str) -> None:
    print(json.dumps(facts) if arguments.json else text)


def _run(arguments: argparse.Namespace) -> int:
    from bowstring.depot.daemon import serve
    from bowstring.depot.launch import Paths

    given = {
        "memory_budget": arguments.memory,
        "disk_budget": arguments.disk,
        "spill_folder": arguments.spill_folder,
        "idle_seconds": arguments.idle_seconds,
        "plaintext": arguments.plaintext,
        "tls": tls_config(arguments),
    }
    options = Options(**{name: value for name, value in given.items() if value is not None})
    paths = Paths(arguments.folder)

    def ready(remote: str | None) -> None:
        facts = {"address": paths.control, "remote": remote}
        print(json.dumps(facts) if arguments.json else paths.control, flush=True)
        if not arguments.json:
            print("a depot; Ctrl-C ends it", file=sys.stderr)
            if remote is not None:
                print(f"from other hosts: {remote}", file=sys.stderr)

    serve(paths, options, tcp=arguments.tcp, ready=ready, kept=True)
    return 0


def _show(status: DepotStatus) -> None:
    print(f"depot, protocol {status.version}, pid {status.pid}, up {duration(status.uptime)}")
    rows = []
    for kind in ("memory", "disk"):
        numbers = (getattr(status, f"{kind}_{each}") for each in _KINDS_OF_BYTES)
        rows.append([kind, *map(size, numbers)])
    print_table(["", "Data", "Held", "Slack", "Warm", "Lost", "Budget"], rows, right=[1, 2, 3, 4, 5, 6])
    if status.lost_slabs:
        slabs = "1 slab is" if status.lost_slabs == 1 else f"{number(status.lost_slabs)} slabs are"
        print(
            f"{slabs} lost, {size(status.memory_lost + status.disk_lost)}: mapped by processes that the depot lost "
            "sight of; their room is free again when those end"
        )
    print(f"{status.clients} clients, {status.readers} readers, {status.waiting} wait for room")
    if status.datasets:
        print_table(
            ["Data set", "Application", "Streams", "Attempts", "Rows", "Size", "Held", "Readers"],
            [
                [
                    each.name,
                    each.application,
                    each.streams,
                    each.attempts,
                    number(each.num_rows),
                    size(each.nbytes),
                    size(each.held),
                    each.readers,
                ]
                for each in status.datasets
            ],
            right=[2, 3, 4, 5, 6, 7],
        )
