"""The table of verified hardware in the documentation says what the result files say."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from bowstring.benchmarks.gpu.verified import BEGIN, END, NONE, table, verified

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"

RESULT: dict[str, Any] = {
    "command": ["bowstring", "bench", "gpu_publish", "--device", "cuda:0"],
    "environment": {
        "cpu": "Some CPU",
        "commit": "0123456789abcdef",
        "device": {"asked": "cuda:0", "is_gpu": True, "name": "Some GPU", "driver": "580.1", "cuda": "13.0"},
    },
    "cases": [
        {
            "name": "gpu_publish",
            "line_ups": [
                {"name": "a", "ways": [{}], "targets": [{"verdict": "holds"}, {"verdict": "missed"}]},
                {"name": "b", "skipped": "too large"},
            ],
        }
    ],
}


def written(folder: Path, result: dict[str, Any]) -> Path:
    """Write a result into a folder of its own."""
    (folder / "gpu-some.json").write_text(json.dumps(result))
    return folder


def test_the_page_about_gpus_says_what_the_files_say() -> None:
    """Between its two marks the page has exactly the table that is made of the result files."""
    text = (ROOT / "docs/guides/gpu.md").read_text(encoding="utf-8")
    if BEGIN not in text:
        # Before there are marks, there is nothing to show.
        assert not list(verified(RESULTS))
        assert NONE in text
        return
    said = text.partition(BEGIN)[2].partition(END)[0].strip()
    assert said == table(RESULTS)


def test_each_result_is_cited_and_described() -> None:
    """Every result file of a CPU is linked by a page of the documentation, and described in its folder."""
    cited = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    described = (RESULTS / "README.md").read_text(encoding="utf-8")
    names = [path.name for path in RESULTS.glob("*.json") if not path.name.startswith("gpu-")]
    assert names
    assert [name for name in names if f"results/{name})" not in cited or f"`{name}`" not in described] == []


def test_results_without_a_gpu_are_no_evidence(tmp_path: Path) -> None:
    """Runs on a CPU, or tried on the fake device, never come into the table."""
    fake = copy.deepcopy(RESULT)
    fake["environment"]["device"] = {"asked": "fake:0", "is_gpu": False}
    assert table(written(tmp_path, fake)) == NONE
    del fake["environment"]["device"]
    assert table(written(tmp_path, fake)) == NONE


@pytest.mark.parametrize("what", [{"skipped": "no CuPy"}, {"failed": "out of memory", "wrong_bytes": False}])
def test_a_gpu_on_which_nothing_was_measured_is_no_line(tmp_path: Path, what: dict[str, Any]) -> None:
    """A machine with a GPU where every case was skipped or failed has verified nothing."""
    result = copy.deepcopy(RESULT)
    result["cases"][0]["line_ups"] = [{"name": "a", **what}]
    assert table(written(tmp_path, result)) == NONE


def test_cases_of_the_host_are_not_said_of_a_gpu(tmp_path: Path) -> None:
    """Of a run of all cases only those of a GPU, and their targets, are told; without one there is no line."""
    result = copy.deepcopy(RESULT)
    host = {"name": "ipc_read", "line_ups": [{"name": "c", "ways": [{}], "targets": [{"verdict": "holds"}]}]}
    result["cases"].insert(0, host)
    assert "| gpu_publish | 1 of 2 |" in table(written(tmp_path, result))
    result["cases"] = [host]
    assert table(written(tmp_path, result)) == NONE


def test_a_run_on_a_gpu_is_a_line(tmp_path: Path) -> None:
    """GPU, driver, CUDA, commit, cases, targets and the file stand in its line."""
    head, ruler, line = table(written(tmp_path, RESULT)).splitlines()
    assert head.count("|") == ruler.count("|") == line.count("|")
    assert "| Some GPU | 580.1, 13.0 | `0123456789ab` | gpu_publish | 1 of 2 |" in line
    assert "gpu-some.json" in line


@pytest.mark.parametrize("where", ["commit", "cpu", "device.driver", "device.cuda", "device.name"])
def test_a_run_that_does_not_say_what_it_must_is_refused(tmp_path: Path, where: str) -> None:
    """A result of a GPU names its machine, commit, command, GPU, driver and CUDA."""
    result = copy.deepcopy(RESULT)
    part = result["environment"]
    *above, last = where.split(".")
    for each in above:
        part = part[each]
    part[last] = None
    with pytest.raises(ValueError, match="does not say"):
        table(written(tmp_path, result))


def test_a_run_of_uncommitted_changes_is_refused(tmp_path: Path) -> None:
    """What nobody can check out is no evidence."""
    result = copy.deepcopy(RESULT)
    result["environment"]["commit"] += "+"
    with pytest.raises(ValueError, match="changes"):
        table(written(tmp_path, result))
