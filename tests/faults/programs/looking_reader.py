"""A reader that takes three batches, and then does what it is told, line by line.

Called with an endpoint and the window in bytes.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import bowstring as bow

LIMITS = bow.Limits(heartbeat=0.1, reply_timeout=20.0, close_timeout=0.5, window_bytes=int(sys.argv[2]))


def look(views: list[Any]) -> None:
    for view in views:
        assert (view == view[0]).all()
    print(*(int(view[0]) for view in views), flush=True)


def main() -> None:
    stream = bow.connect(sys.argv[1], limits=LIMITS)
    views = [stream.read_next_batch()["n"].values for _ in range(3)]
    look(views)
    for line in sys.stdin:
        match line.split():
            case ["look"]:
                look(views)
            case ["read"]:
                try:
                    count = 3 + sum(1 for _ in stream)
                    print(f"all {count}", flush=True)
                except bow.BowstringError as error:
                    print(type(error).__name__, flush=True)
            case ["next", uri]:
                with bow.connect(uri, limits=LIMITS) as other:
                    print(sum(1 for _ in other), flush=True)
            case ["sleep"]:
                time.sleep(1.5)
                print("slept", flush=True)
            case _:
                return


main()
