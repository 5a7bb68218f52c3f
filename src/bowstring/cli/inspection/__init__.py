"""``bowstring inspect``: what a file or a published data set is made of, as a tree or as JSON."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING

from bowstring.cli.failure import FAILED, as_json
from bowstring.cli.files import Format, recognise
from bowstring.cli.inspection.facts import Facts, tree_of
from bowstring.cli.tree import print_tree

if TYPE_CHECKING:
    import argparse

    from bowstring.errors import BowstringError

__all__ = ["run"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+]*:")


def run(arguments: argparse.Namespace) -> int:
    """Look at one file or data set; what could be seen is printed, also where something is wrong further on."""
    source: str = arguments.source
    if _SCHEME.match(source) and not os.path.exists(source):
        from bowstring.cli.inspection.endpoint import inspect_endpoint
        from bowstring.cli.tokens import endpoint_with_token

        facts, error = inspect_endpoint(
            endpoint_with_token(source, arguments.ticket, arguments.token_file), arguments.most
        )
    else:
        facts, error = _inspect_file(source, arguments.most)
    if arguments.json:
        print(json.dumps(facts if error is None else {**facts, "error": as_json(error)}))
    else:
        print_tree(tree_of(source.partition("?")[0], facts))
    if error is not None:
        print(f"bowstring inspect: {error}", file=sys.stderr)
        return FAILED
    return 0


def _inspect_file(path: str, most: int) -> tuple[Facts, BowstringError | None]:
    file = recognise(path)
    facts: Facts = {"format": file.format.value, "bytes": os.path.getsize(path)}
    if file.format is Format.PARQUET:
        from bowstring.cli.inspection.parquet import inspect_parquet

        return facts | inspect_parquet(path, most), None
    if file.format is Format.ARROW_FILE:
        from bowstring.cli.inspection.arrow import inspect_arrow_file

        found, error = inspect_arrow_file(path, most)
    elif file.format is Format.VORTEX_STREAM:
        from bowstring.cli.inspection.vortex_stream import inspect_vortex_stream

        found, error = inspect_vortex_stream(path, most)
    else:
        from bowstring.cli.inspection.arrow import inspect_arrow_stream

        found, error = inspect_arrow_stream(path, most)
    return facts | found, error
