"""A reader of a data set of many endpoints that takes three batches, and then does what it is told, line by line.

Called with the data set as JSON.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time
import warnings
from typing import Any

import bowstring as bow

LIMITS = bow.Limits(heartbeat=0.1, reply_timeout=20.0, close_timeout=0.5)


def look(views: list[Any]) -> None:
    for view in views:
        assert (view == view[0]).all()
    print(*(int(view[0]) for view in views), flush=True)


def fork(views: list[Any]) -> None:
    """Leave a child behind that looks at the views for as long as nobody ends its input, and end without it."""
    warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
    if os.fork():
        os._exit(0)
    faulthandler.dump_traceback_later(20.0, exit=True)
    time.sleep(0.2)
    print("child", os.getpid(), flush=True)
    for _ in iter(lambda: os.read(0, 1), b""):
        look(views)
    os._exit(0)


def main() -> None:
    stream = bow.connect(bow.Dataset.from_json(sys.argv[1]), limits=LIMITS)
    views = [stream.read_next_batch()["n"].values for _ in range(3)]
    look(views)
    for line in sys.stdin:
        match line.strip():
            case "look":
                look(views)
            case "fork":
                fork(views)
            case "read":
                print("all", 3 + sum(1 for _ in stream), flush=True)
            case _:
                return


main()
