"""The ledger: which addresses a reader holds, against a model, and the regions that live by it."""

from __future__ import annotations

import collections
import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from bowstring.dissociated.addresses import LOWEST_ADDRESS, Ledger
from bowstring.errors import ProtocolError
from bowstring.memory import Pool, Region, cpu

SIZES = st.sampled_from([1, 4096, 1 << 20, (1 << 21) - 1, 1 << 21, (1 << 21) + 1, 5 << 21, 1 << 40])


class Borrowing(RuleBasedStateMachine):
    """A producer that lends, and a reader that frees what it has, and what it has not."""

    bases = Bundle("bases")

    @initialize(extended=st.booleans())
    def begin(self, *, extended: bool) -> None:
        self.extended = extended
        self.ledger = Ledger()
        self.held: collections.Counter[int] = collections.Counter()
        self.regions: dict[int, tuple[int, bytes]] = {}
        self.alive: dict[int, weakref.ref[Region]] = {}

    @rule(target=bases, nbytes=SIZES)
    def announce(self, nbytes: int) -> int:
        """A new region gets a range of its own: above 4096, and apart from all ranges given before."""
        region = Region(cpu(), 0, nbytes)
        key = len(self.regions).to_bytes(16, "little")
        base, new = self.ledger.announce(region, key)
        assert new
        assert base >= LOWEST_ADDRESS
        for other, (size, _) in self.regions.items():
            assert base + nbytes <= other or other + size <= base
        self.regions[base] = nbytes, key
        assert self.ledger.announce(region, key) == (base, False)
        return base

    @rule(base=bases)
    def announce_again(self, base: int) -> None:
        """A region that comes back later, after all of it was freed too, lies where it lay."""
        nbytes, key = self.regions[base]
        assert self.ledger.announce(Region(cpu(), 0, nbytes), key) == (base, False)

    @rule(where=st.lists(st.tuples(bases, st.integers(0, 2**40)), max_size=4))
    def lend(self, where: list[tuple[int, int]]) -> None:
        """A body lends its addresses, as often as it names them."""
        addresses = [base + offset % self.regions[base][0] for base, offset in where]
        lent = []
        for base, count in collections.Counter(base for base, _ in where).items():
            known = self.alive.get(base)
            region = known() if known is not None else None
            if region is None:
                region = Region(cpu(), 0, self.regions[base][0])
                self.alive[base] = weakref.ref(region)
            lent.append((base, region, count))
        self.ledger.lend(addresses, lent)
        self.held.update(addresses)

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        """What is held can be freed, some of it or all, in any order."""
        held = sorted(self.held.elements())
        if not held:
            return
        freed = data.draw(st.lists(st.sampled_from(held), min_size=1, max_size=6))
        if self.extended:
            freed = list((collections.Counter(freed) & self.held).elements())
            self.held -= collections.Counter(freed)
        else:
            for address in freed:
                del self.held[address]
        self.ledger.free(freed, all_occurrences=not self.extended)

    @rule(target=bases, data=st.data(), stranger=st.integers(0, 2**64 - 1))
    def free_too_much(self, data: st.DataObject, stranger: int) -> object:
        """An address that is not held, or not that often, is refused, and nothing is taken back with it."""
        held = sorted(self.held)
        freed = data.draw(st.lists(st.sampled_from(held), max_size=3)) if held else []
        if self.extended and freed and stranger % 2:
            freed += [freed[0]] * self.held[freed[0]]
        elif stranger not in self.held:
            freed.insert(stranger % (len(freed) + 1), stranger)
        else:
            return multiple()
        with pytest.raises(ProtocolError):
            self.ledger.free(freed, all_occurrences=not self.extended)
        return multiple()

    @invariant()
    def agrees(self) -> None:
        """As many addresses are out as the model says, and exactly their regions are alive."""
        assert self.ledger.outstanding == self.held.total()
        bases = sorted(self.regions)
        in_use = {max(base for base in bases if base <= address) for address in self.held}
        assert len(self.ledger.regions) == len(in_use)
        assert {base for base, region in self.alive.items() if region() is not None} == in_use


TestBorrowing = Borrowing.TestCase


def test_a_region_goes_with_its_last_address() -> None:
    """A region is let go exactly when the last occurrence of the last of its addresses is freed."""
    ledger = Ledger()
    region = Region(cpu(), 0, 1 << 20)
    alive = weakref.ref(region)
    base, _ = ledger.announce(region, b"a")
    ledger.lend([base, base, base + 8], [(base, region, 3)])
    del region
    for address in (base + 8, base, base):
        gc.collect()
        assert alive() is not None
        ledger.free([address])
    assert alive() is None
    assert ledger.outstanding == 0


@given(times=st.integers(1, 5))
def test_a_plain_peer_frees_all_occurrences(times: int) -> None:
    """A peer that knows nothing of occurrences frees an address once for all, and not a second time."""
    ledger = Ledger()
    region = Region(cpu(), 0, 4096)
    base, _ = ledger.announce(region, b"a")
    for _ in range(times):
        ledger.lend([base, base], [(base, region, 2)])
    ledger.free([base, base], all_occurrences=True)
    assert ledger.outstanding == 0
    with pytest.raises(ProtocolError):
        ledger.free([base], all_occurrences=True)


def test_what_is_held_is_retired() -> None:
    """Retiring marks the memory of regions that the reader holds now, and of no others; it stays held."""
    ledger, pool = Ledger(), Pool(budget=4 << 20)
    held, freed = pool.region(1 << 20), pool.region(1 << 20)
    for region in (held, freed):
        base, _ = ledger.announce(region, region.uuid)
        ledger.lend([base], [(base, region, 1)])
    ledger.free([base])
    ledger.retire()
    assert held.slab is not None
    assert freed.slab is not None
    assert (held.slab.retired, freed.slab.retired) == (True, False)
    assert ledger.regions == [held]


def test_clearing_lets_go_of_everything() -> None:
    """After a reader is gone nothing of what it held is kept."""
    ledger = Ledger()
    region = Region(cpu(), 0, 4096)
    alive = weakref.ref(region)
    base, _ = ledger.announce(region, b"a")
    ledger.lend([base], [(base, region, 1)])
    del region
    ledger.clear()
    assert alive() is None
    assert ledger.outstanding == 0


def test_the_end_of_a_region_is_not_the_next_one() -> None:
    """Between two regions there is room, so an address just behind one does not count as the other."""
    ledger = Ledger()
    first, _ = ledger.announce(Region(cpu(), 0, 1 << 21), b"a")
    second, _ = ledger.announce(Region(cpu(), 0, 1 << 21), b"b")
    assert second > first + (1 << 21)
