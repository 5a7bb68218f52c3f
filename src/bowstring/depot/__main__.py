"""The process: ``python -m bowstring.depot``, started by the first client, or by ``bowstring depot run``."""

from __future__ import annotations

import argparse
import os
import sys


def main() -> int:
    """Become the depot; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m bowstring.depot")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--options", default="{}")
    parser.add_argument(
        "--ready", type=int, required=True, help="descriptor of a pipe that hears of the start"
    )
    given = parser.parse_args()
    # The starter waits for this process, and nobody for the depot: it is no child of whoever started it.
    if os.fork():
        os._exit(0)
    from bowstring.depot.daemon import run

    return run(given.folder, given.options, given.ready)


if __name__ == "__main__":
    sys.exit(main())
