"""Run the probe, print what it found, and write it down."""

from __future__ import annotations

import argparse
import json
import sys

from bowstring.benchmarks.environment import environment
from tests.gpu.probe.checks import CHECKS, run

_MOST = 8 << 30


def main() -> int:
    """Return 0 where all that the design relies on holds."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.probe", description=__doc__)
    parser.add_argument("checks", nargs="*", choices=[[], *CHECKS], help="by default all")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--most", type=int, default=_MOST, help="bytes of the largest memory")
    parser.add_argument("--json", help="where to write the figures")
    chosen = parser.parse_args()
    found = {}
    for name in chosen.checks or CHECKS:
        seen = found[name] = run(name, chosen.device, chosen.most)
        print(
            f"{'holds' if seen.holds else 'DOES NOT HOLD':14}{name:24}{json.dumps(seen.figures)}", flush=True
        )
    if chosen.json:
        whole = {
            "device": chosen.device,
            "environment": environment(chosen.device),
            "checks": {name: seen._asdict() for name, seen in found.items()},
        }
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump(whole, file, indent=1)
    return 0 if all(seen.holds for seen in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
