"""The cases of a GPU, tried on the fake device, and what a result says about the device."""

from __future__ import annotations

import json
import subprocess
import types
from pathlib import Path
from typing import Any

import pytest

from bowstring.benchmarks import main
from bowstring.benchmarks.case import LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.cases import GPU_CASES, case_named
from bowstring.benchmarks.document import case_document
from bowstring.benchmarks.gpu import device as gpu
from bowstring.benchmarks.gpu.facts import device_facts
from bowstring.benchmarks.measuring import measure

pytestmark = pytest.mark.usefixtures("forked")

pytest.importorskip("numba", reason="kernels are not installed")


@pytest.mark.parametrize("case", GPU_CASES)
def test_every_case_runs_through_on_the_fake_device(case: str, tmp_path: Path, no_leaks: None) -> None:
    """Every line-up of every case is measured, its bytes checked, marked as no GPU's, and held to nothing."""
    file = tmp_path / "result.json"
    assert main([case, "--device", "fake:0", "--repeat", "1", "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    line_ups = result["cases"][0]["line_ups"]
    assert line_ups
    for line_up in line_ups:
        assert "no GPU" in line_up["name"]
        assert line_up["targets"] == []
        assert {way["name"] for way in line_up["ways"]} > {gpu.COPY}
    assert result["environment"]["device"]["is_gpu"] is False
    assert result["command"][-2:] == ["--device", "fake:0"]


@pytest.mark.parametrize("case", GPU_CASES)
def test_without_a_gpu_a_case_is_skipped_with_the_reason(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no such device, every case says so, and nothing else."""
    monkeypatch.setattr("bowstring.benchmarks.gpu.device.device_by_name", _none)
    [skipped] = case_named(case).line_ups(Scale())
    assert isinstance(skipped, Skipped)
    assert "no GPU here" in skipped.why


@pytest.mark.parametrize("case", GPU_CASES)
def test_what_is_done_without_kernels_is_not_measured(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing compiles kernels for the device, other code would run in their place: the case is skipped."""
    monkeypatch.setattr("bowstring.benchmarks.gpu.device.can_launch", lambda _array: False)
    [skipped] = case_named(case).line_ups(Scale(device="fake:0"))
    assert isinstance(skipped, Skipped)
    assert "no compiler of kernels" in skipped.why


def _none(name: str) -> Any:
    from bowstring.errors import NotOnDevice

    raise NotOnDevice("no GPU here", found=name)


def test_targets_are_judged_by_the_clock_of_the_device() -> None:
    """A line-up that asks for it is judged by events, where all ways have them; both clocks are in the result."""

    def way(name: str, wall: float, device: float | None) -> Way:
        return Way(name, "subject", lambda: Measured(wall, "", "", device))

    for events, holds in ((0.25, True), (None, False)):
        ways = way("kernel", 4.0, 0.25), way("copy", 1.0, events)
        target = Target("kernel", "at least", 0.8, "copy")
        line_up = LineUp("bits", ways, 3, (target,), clock="device")
        case = case_named("gpu_kernels")
        [said] = case_document(case, [measure(line_up)])["line_ups"]
        assert (said["targets"][0]["verdict"] == "holds") is holds
        assert said["ways"][0]["median"] == 4.0
        assert said["ways"][0]["device_median"] == 0.25
        assert ("device_samples" in said["ways"][1]) is (events is not None)


def test_a_gpu_is_named_with_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the driver's tool answers is in the environment; without the tool there is nothing."""
    answer = "Some GPU, 580.65.06, 143771 MiB, 1980 MHz, 3201 MHz, 700.00 W, Enabled, Disabled\n"
    asked: list[list[str]] = []

    def run(command: list[str], **_options: Any) -> Any:
        asked.append(command)
        return type("Done", (), {"stdout": answer})

    seen = types.SimpleNamespace(uuid=bytes(range(16)))  # CUDA's number 3 may be the tool's number 0
    monkeypatch.setattr("bowstring.benchmarks.gpu.facts.device_by_name", {"cuda:3": seen}.__getitem__)
    monkeypatch.setattr(subprocess, "run", run)
    facts = device_facts("cuda:3")
    assert "--id=GPU-00010203-0405-0607-0809-0a0b0c0d0e0f" in asked[0]
    assert (facts["is_gpu"], facts["name"], facts["driver"]) == (True, "Some GPU", "580.65.06")
    assert facts["memory_bytes"] == 143771 << 20
    monkeypatch.setattr(subprocess, "run", _missing)
    assert device_facts("cuda:3")["is_gpu"] is False
    monkeypatch.setattr("bowstring.benchmarks.gpu.facts.device_by_name", _none)
    assert device_facts("cuda:0")["is_gpu"] is False


def _missing(*_arguments: Any, **_options: Any) -> Any:
    raise FileNotFoundError


def test_sums_see_what_changed() -> None:
    """The sum that stands for all bytes is another one when a number, or the order of columns, is."""
    device = gpu.made_ready("fake:0")
    table = gpu.columns(device, 1 << 12, 4, seed=1)
    arrays = list(table.values())
    before = gpu.sums(device, arrays)
    assert before == gpu.sums(device, list(gpu.columns(device, 1 << 12, 4, seed=1).values()))
    assert before != gpu.sums(device, list(gpu.columns(device, 1 << 12, 4, seed=2).values()))
    assert before != gpu.sums(device, arrays[::-1])
    arrays[2][7] += 1
    assert before != gpu.sums(device, arrays)
