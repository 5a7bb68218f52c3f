"""The process that the first client starts: ``python -m bowstring.depot FOLDER OPTIONS DESCRIPTOR``."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    folder, options, ready = sys.argv[1:]
    # The starter waits for this process, and nobody for the depot: its starter is not its parent.
    if os.fork():
        os._exit(0)
    from bowstring.depot.daemon import run

    sys.exit(run(folder, options, int(ready)))
