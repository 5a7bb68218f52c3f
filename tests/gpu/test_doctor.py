"""Doctor on a machine with a GPU: what it says is what the driver says, and its roads are taken."""

from __future__ import annotations

import uuid

import pytest

from bowstring.cli.doctor import examine
from bowstring.memory import device_by_name

pytestmark = pytest.mark.gpu


def test_doctor_knows_this_gpu() -> None:
    """Each GPU that CUDA shows is one that NVML shows, by its UUID, and each path works or says why not."""
    report = examine()
    assert report.topology is not None
    device = device_by_name("cuda:0")
    shown = report.topology["visible"]["shown"][0]
    assert uuid.UUID(shown.partition("-")[2]).bytes == device.uuid
    paths = {path.name: path for path in report.paths}
    for name in ("cuda:0: mapped", "cuda:0: copied", "cuda:0 → host"):
        assert paths[name].works, paths[name].in_the_way
    assert all(path.works or path.in_the_way[0].what for path in report.paths)
