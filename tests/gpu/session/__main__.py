"""``python -m tests.gpu.session pair|bandwidth --json FILE [--device cuda:0]``, in the root of the project.

Results are written as they come, so that what is cut off loses nothing but the rest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from typing import Any

from bowstring.benchmarks.environment import environment
from tests.gpu.session import bandwidth, pair

_SETS = {"pair": pair.checks, "bandwidth": bandwidth.checks}


def main() -> int:
    """Run the checks of a set, one after the other; return 0 where all hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.session")
    parser.add_argument("set", choices=_SETS)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--json", required=True, help="where to write what is found")
    parser.add_argument("--failed", help="what an earlier run wrote: only what did not hold there is run")
    chosen = parser.parse_args()
    done: dict[str, Any] = {}
    if chosen.failed and os.path.exists(chosen.failed):
        with open(chosen.failed, encoding="utf-8") as file:
            done = json.load(file)["checks"]
    whole: dict[str, Any] = {"device": chosen.device, "environment": environment(chosen.device), "checks": {}}
    with contextlib.closing(_SETS[chosen.set](chosen.device)) as checks:
        for name, check in checks:
            if done.get(name, {}).get("holds"):
                continue
            began = time.monotonic()
            try:
                holds, figures = check()
            except Exception as error:  # noqa: BLE001  what comes next is tried all the same
                holds, figures = False, {"failed": f"{type(error).__name__}: {error}"[:1000]}
            seconds = round(time.monotonic() - began, 3)
            whole["checks"][name] = {"holds": holds, "seconds": seconds, "figures": figures}
            print(
                f"{'holds' if holds else 'DOES NOT HOLD':14}{name:12}{json.dumps(figures)[:240]}", flush=True
            )
            with open(f"{chosen.json}.part", "w", encoding="utf-8") as file:
                json.dump(whole, file, indent=1)
            os.replace(f"{chosen.json}.part", chosen.json)
    found = whole["checks"]
    held = sum(each["holds"] for each in found.values())
    print(f"{held} of {len(found)} hold: {' '.join(name for name in found if not found[name]['holds'])}")
    return 0 if held == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
