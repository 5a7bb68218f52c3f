"""The table of verified hardware: what the result files say that ran on a GPU, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bowstring.benchmarks.cases import GPU_CASES

BEGIN: Final = "<!-- verified hardware: begin -->"
END: Final = "<!-- verified hardware: end -->"
NONE: Final = "No GPU has run this code yet."

_HEAD: Final = (
    "| GPU | driver, CUDA | commit | what ran | targets that hold | file |",
    "|---|---|---|---|---|---|",
)
_SHORT: Final = 12


def table(folder: Path) -> str:
    """Return what stands in ``docs/guides/gpu.md`` between `BEGIN` and `END`."""
    rows = [_row(path.name, result) for path, result in verified(folder)]
    return "\n".join([*_HEAD, *rows]) if rows else NONE


def verified(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the result files in which something was measured on a GPU, by name."""
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        device = result["environment"].get("device") or {}
        if not device.get("is_gpu") or not any(_measured(case) for case in _of_gpu(result)):
            continue
        said = {
            "commit": result["environment"].get("commit"),
            "command": result.get("command"),
            "GPU": device.get("name"),
            "driver": device.get("driver"),
            "CUDA": device.get("cuda"),
            "machine": result["environment"].get("cpu"),
        }
        missing = [name for name, found in said.items() if not found]
        if missing:
            raise ValueError(f"{path.name} does not say: {', '.join(missing)}")
        if str(said["commit"]).endswith("+"):
            raise ValueError(f"{path.name} comes from a tree with changes that no commit has")
        yield path, result


def _of_gpu(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cases of a result that run on the device; the others ran on the host beside it."""
    return [case for case in result["cases"] if case["name"] in GPU_CASES]


def _measured(case: dict[str, Any]) -> bool:
    return any("ways" in each for each in case["line_ups"])


def _row(name: str, result: dict[str, Any]) -> str:
    about = result["environment"]
    device = about["device"]
    line_ups = [each for case in _of_gpu(result) for each in case["line_ups"]]
    targets = [target for each in line_ups for target in each.get("targets", ())]
    ran = [case["name"] for case in _of_gpu(result) if _measured(case)]
    failed = sum("failed" in each for each in line_ups)
    cells = (
        device["name"],
        f"{device['driver']}, {device['cuda']}",
        f"`{about['commit'][:_SHORT]}`",
        ", ".join(ran) + f" ({failed} failed)" * bool(failed),
        f"{sum(target['verdict'] == 'holds' for target in targets)} of {len(targets)}",
        f"[{name}](../../benchmarks/results/{name})",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(table(Path(__file__).resolve().parents[1] / "results"))
