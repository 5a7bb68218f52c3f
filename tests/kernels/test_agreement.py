"""A kernel does the same compiled and interpreted, for the cases of `cases.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bowstring.kernels import jit
from bowstring.kernels.checker import check
from bowstring.kernels.launch import launch
from bowstring.kernels.library import Library, load
from bowstring.kernels.signature import Kernel, Signature, kernels, match, signatures, signatures_of
from tests.kernels.cases import CASES, cases, written
from tests.kernels.tiles import ALONE, tile, tiled

pytest.importorskip("numba")

# Numba takes seconds for many: fast tests run those out of the library, for which it compiled the same functions.
SHORT = {
    "pack_flags", "check_offsets", "gather_pieces", "write_views", "scale_doubles", "count_nodes", "check_deltas",
    "check_batches",
}  # fmt: skip
WAYS = [
    pytest.param(way, each, marks=pytest.mark.slow if way == "jit" and each.__name__ not in SHORT else ())
    for way in ("library", "jit")
    for each in CASES
]


def name_of(kernel: Kernel) -> str:
    return f"{kernel.__module__.rpartition('.')[2]}.{kernel.__name__}"


@pytest.mark.parametrize("signature", signatures(), ids=str)
def test_every_kernel_passes_the_checker(signature: Signature) -> None:
    """No kernel does what could differ between its runs."""
    check(signature)


@pytest.mark.parametrize("kernel", kernels(), ids=name_of)
def test_every_kernel_has_cases_for_each_signature(kernel: Kernel) -> None:
    """The cases reach each signature, and have no more items than the simulator can take."""
    found = list(cases(kernel))
    assert {match(kernel, arguments)[0] for _, arguments in found} == set(signatures_of(kernel))
    assert max(items for items, _ in found) <= 256


@pytest.mark.parametrize(
    ("way", "kernel"), WAYS, ids=lambda each: each if each in ("library", "jit") else name_of(each)
)
def test_interpreted_as_compiled(kernel: Kernel, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain function writes what the compiled one writes, and that is not what was there before."""
    if way == "library" and not isinstance(load(), Library):
        pytest.skip("no library of kernels was built here")
    changed = 0
    for (items, compiled), (_, interpreted) in zip(cases(kernel), cases(kernel), strict=True):
        before = [each.copy() for each in written(kernel, compiled)]
        monkeypatch.setenv("BOWSTRING_KERNELS", way)
        launch(kernel, items, *compiled)
        monkeypatch.setenv("BOWSTRING_KERNELS", "interpret")
        launch(kernel, items, *interpreted)
        for old, one, other in zip(
            before, written(kernel, compiled), written(kernel, interpreted), strict=True
        ):
            assert np.array_equal(one, other)
            changed += not np.array_equal(old, one)
    assert changed


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel", [each for each in CASES if each.__name__ not in ALONE], ids=lambda kernel: kernel.__name__
)
def test_items_may_run_in_any_order(kernel: Kernel) -> None:
    """From the last item to the first a kernel writes the same, and within its arrays: so it may on many blocks."""
    small = [tile(kernel, items, arguments, 3) for items, arguments in cases(kernel) if items]
    for items, arguments in filter(None, small):
        forwards, backwards = owned(arguments), owned(arguments)
        signature, values = match(kernel, forwards)
        in_range = jit.compiled(signature, checked=True)
        in_range(0, items, *values)
        for item in reversed(range(items)):
            in_range(item, item + 1, *match(kernel, backwards)[1])
        for one, other in zip(written(kernel, forwards), written(kernel, backwards), strict=True):
            assert np.array_equal(one, other)
    for items, arguments in (*tiled(kernel, 1_000), *tiled(kernel, 70_000)):
        signature, values = match(kernel, arguments)
        jit.compiled(signature, checked=True)(0, items, *values)


def owned(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each.copy() if isinstance(each, np.ndarray) else each for each in arguments)
