"""The probe: on a fake driver in every run, on a real one where there is one."""

from __future__ import annotations

import pytest

from tests.gpu.probe.checks import CHECKS, run

pytest.importorskip("numba", reason="kernels are not installed")

SMALL = 16 << 20


@pytest.mark.parametrize("check", CHECKS)
def test_a_driver_as_it_should_be_passes(check: str) -> None:
    """On a driver that does what is written of CUDA's, every check holds: the probe itself is right."""
    seen = run(check, "fake:0", SMALL)
    assert seen.holds, seen.figures


@pytest.mark.gpu
@pytest.mark.parametrize("check", CHECKS)
def test_this_driver_passes(check: str) -> None:
    """What the design relies on holds on the GPU of this machine."""
    seen = run(check, "cuda:0", 8 << 30)
    assert seen.holds, seen.figures
