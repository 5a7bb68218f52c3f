"""``bowstring list``: the data sets that a server offers."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

from bowstring.cli.arguments import tls_config, token_apart
from bowstring.cli.facts import schema_facts
from bowstring.cli.terminal import clipped, number, print_table, shown, size
from bowstring.client.names import list_datasets

if TYPE_CHECKING:
    import argparse

    from bowstring.dissociated.listing import DatasetInfo

_COLUMNS_WIDTH = 60


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each data set, or with ``--json`` a list of objects."""
    tls = tls_config(arguments)
    datasets = list_datasets(arguments.address, token=token_apart(arguments.token_file), tls=tls)
    if arguments.json:
        print(json.dumps([_facts(info) for info in datasets]))
        return 0
    if not datasets:
        print("no data sets")
        return 0
    rows = [
        [
            shown(info.name),
            number(info.num_rows),
            "" if info.nbytes is None else size(info.nbytes),
            info.readers,
            "" if (time := _time(info)) is None else time.strftime("%Y-%m-%d %H:%M:%S"),
            clipped(", ".join(map(shown, info.schema.names)), _COLUMNS_WIDTH),
        ]
        for info in datasets
    ]
    print_table(["Name", "Rows", "Size", "Readers", "Published", "Columns"], rows, right=[1, 2, 3])
    return 0


def _time(info: DatasetInfo) -> dt.datetime | None:
    known = info.published_at
    return None if known is None else dt.datetime.fromtimestamp(known).astimezone()


def _facts(info: DatasetInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "rows": info.num_rows,
        "bytes": info.nbytes,
        "readers": info.readers,
        "readers_left": info.readers_left,
        "published_at": None if (time := _time(info)) is None else time.isoformat(),
        "schema": schema_facts(info.schema),
    }
