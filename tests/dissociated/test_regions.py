"""Announced regions: pairs of addresses and lengths against a brute-force model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bowstring.dissociated.addresses import LOWEST_ADDRESS, AnnouncedRegions
from bowstring.errors import LimitExceeded, ProtocolError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import Region, cpu

FAR = 2**63
# Small numbers, so that pairs hit regions, and the ones where arithmetic goes wrong.
PLACES = st.integers(4090, 4200) | st.sampled_from([0, 1, FAR - 4096, FAR - 1, FAR, 2**64 - 1, 2**64 - 4096])
LENGTHS = st.integers(0, 60) | st.sampled_from([FAR - 1, FAR, 2**64 - 1, 2**64 - 4100, 2**62])
RANGES = st.lists(
    st.tuples(st.integers(4090, 4200) | st.integers(FAR - 200, FAR + 10), st.integers(0, 40)), max_size=6
)


def announced(ranges: list[tuple[int, int]]) -> tuple[AnnouncedRegions, list[tuple[int, int]]]:
    """Return regions at those of the ranges that are accepted, and these ranges in order."""
    regions, taken = AnnouncedRegions(DEFAULT_LIMITS), []
    for base, nbytes in ranges:
        try:
            regions.check(base, nbytes)
        except ProtocolError:
            continue
        regions.add(base, Region(cpu(), 0, nbytes), nbytes)
        taken.append((base, nbytes))
    return regions, sorted(taken)


@given(ranges=RANGES, pairs=st.lists(st.tuples(PLACES, LENGTHS), max_size=6))
@example([(4096, 8), (4104, 8)], [(4100, 8)])
@example([(4096, 8), (4105, 8)], [(4104, 1)])
@example([(4096, 8)], [(4104, 2**64 - 8)])
@example([(4096, 8)], [(2**64 - 1, 2)])
@example([(4096, 8)], [(2**64 - 1, 0), (4096, 8)])
@example([], [(4096, 1)])
@example([(4096, 16)], [(4096, 16), (4111, 1), (0, 0)])
def test_pairs_against_a_model(ranges: list[tuple[int, int]], pairs: list[tuple[int, int]]) -> None:
    """A pair is resolved to the one region in which all of its bytes lie; if one lies in none, all are refused."""
    regions, taken = announced(ranges)
    expected = []
    for address, length in pairs:
        inside = [
            (index, address - base, length)
            for index, (base, nbytes) in enumerate(taken)
            if base <= address and address + length <= base + nbytes
        ]
        expected.append((0, 0, 0) if length == 0 else inside[0] if inside else None)
    table = np.array(pairs, np.uint64).reshape(-1, 2)
    if None in expected:
        with pytest.raises(ProtocolError):
            regions.resolve(table)
    else:
        assert regions.resolve(table).tolist() == [list(each or ()) for each in expected]


@given(ranges=RANGES)
def test_ranges_never_overlap(ranges: list[tuple[int, int]]) -> None:
    """What is accepted lies from 4096 to 2**63, is not empty, and overlaps nothing accepted before."""
    regions = AnnouncedRegions(DEFAULT_LIMITS)
    taken: list[tuple[int, int]] = []
    for base, nbytes in ranges:
        fine = base >= LOWEST_ADDRESS and nbytes > 0 and base + nbytes < FAR
        fine &= all(base + nbytes <= other or other + size <= base for other, size in taken)
        if fine:
            regions.check(base, nbytes)
            regions.add(base, Region(cpu(), 0, nbytes), nbytes)
            taken.append((base, nbytes))
        else:
            with pytest.raises(ProtocolError):
                regions.check(base, nbytes)


@pytest.mark.parametrize("base", [0, 4095, 2**63, 2**64 - 1])
def test_bases_outside_the_address_space(base: int) -> None:
    """Nothing lies below 4096, where 0 stands for nothing, nor beyond 2**63."""
    with pytest.raises(ProtocolError):
        AnnouncedRegions(DEFAULT_LIMITS).check(base, 4096)


def test_regions_are_bounded() -> None:
    """More regions, or more bytes of them, than the limits allow are refused before anything is mapped."""
    regions = AnnouncedRegions(DEFAULT_LIMITS.replace(regions=2, region_bytes=100))
    regions.check(4096, 60)
    regions.add(4096, Region(cpu(), 0, 60), 60)
    with pytest.raises(LimitExceeded):
        regions.check(8192, 41)
    with pytest.raises(LimitExceeded):
        regions.check(8192, 2**64 - 1)
    regions.check(8192, 40)
    regions.add(8192, Region(cpu(), 0, 40), 40)
    with pytest.raises(LimitExceeded, match="too many"):
        regions.check(16384, 1)


def test_a_region_that_comes_between_two_others() -> None:
    """Regions may come in any order of their bases: earlier rows stay right, later ones find theirs."""
    regions = AnnouncedRegions(DEFAULT_LIMITS)
    made = [Region(cpu(), 0, 16) for _ in range(3)]
    for base, region in zip((8192, 16384, 4096), made, strict=True):
        regions.check(base, 16)
        regions.add(base, region, 16)
    spans = regions.resolve(np.array([[4096, 16], [8200, 8], [16385, 15]], np.uint64))
    assert [regions.regions[index] for index in spans[:, 0]] == [made[2], made[0], made[1]]
    assert spans[:, 1:].tolist() == [[0, 16], [8, 8], [1, 15]]
