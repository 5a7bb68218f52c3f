"""Lend memory that is published in place: the allocation of each buffer, and what must be copied."""

from __future__ import annotations

import bisect
import collections
import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from bowstring.columnar.dictionary import Dictionary
from bowstring.columnar.materialize import elsewhere
from bowstring.memory import lend, lendable, owned_regions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.columnar.batch import Batch
    from bowstring.memory import Device, Region

__all__ = ["Lender", "Lending", "wholly_lent"]


@dataclasses.dataclass(frozen=True, slots=True)
class Lending:
    """How much of a data set is lent where it lies.

    Attributes
    ----------
    nbytes
        Bytes of the buffers that are lent.
    refused
        Bytes of those that are not, by reason.
    """

    nbytes: int
    refused: dict[str, int]

    @property
    def why(self) -> str:
        """Which part was copied, and the reasons; empty where all is lent."""
        parts = [f"{nbytes} bytes: {reason}" for reason, nbytes in sorted(self.refused.items())]
        return f"copied were {', '.join(parts)}" if parts else ""


class Lender:
    """Finds the allocations of one data set. Each is one region, which keeps all alive whose buffers lie in it."""

    def __init__(self) -> None:
        self._starts: dict[Device, list[int]] = collections.defaultdict(list)
        self._found: dict[tuple[Device, int], tuple[Region, list[object]]] = {}
        self._known: dict[Dictionary, Dictionary] = {}
        self._nbytes: collections.Counter[Device] = collections.Counter()
        self._refused: collections.Counter[str] = collections.Counter()

    def result(self, placed: Sequence[Batch], device: Device) -> Lending:
        """Return how much is lent.

        Parameters
        ----------
        placed
            The batches as they are offered.
        device
            Where those were copied that could not be lent altogether.
        """
        dictionaries = {id(each): each.values for batch in placed for each in batch.dictionaries.values()}
        nbytes = sum(
            int(each.spans.table[each.spans.lent, 2].sum()) for each in (*placed, *dictionaries.values())
        )
        refused = dict(self._refused)
        for source, lent in self._nbytes.items():
            if source is not device and lent > nbytes:
                refused[f"memory of {source.name}, where the server has no pool"] = lent - nbytes
        return Lending(nbytes, refused)

    def keep(self, owner: object) -> None:
        """Keep something alive as long as any reader may have open what is lent."""
        for _, owners in self._found.values():
            owners.append(owner)

    def lent(self, batch: Batch) -> Batch:
        """Return a batch with its buffers in lent regions, as far as they can be; the others stay what they are.

        Raises
        ------
        DeviceError
            The driver refuses to describe an address, or to make a handle.
        """
        dictionaries = {id_: self._dictionary(each) for id_, each in batch.dictionaries.items()}
        spans, device = batch.spans, batch.device
        table, regions = spans.table.copy(), list(spans.regions)
        places: dict[int, int] = {}
        addresses, present = spans.addresses(), table[:, 2] != 0
        ours = owned_regions(np.where(present, addresses, 0), table[:, 2])[1] >= 0
        for row in np.flatnonzero(present & ~ours).tolist():
            index, _, nbytes = table[row].tolist()
            owner = (spans.regions[index], batch.lease.export())
            address = int(addresses[row])
            found = self._region(device, address, nbytes, owner)
            if isinstance(found, str):
                self._refused[found] += nbytes
                continue
            self._nbytes[device] += nbytes
            place = places.setdefault(id(found), len(regions))
            if place == len(regions):
                regions.append(found)
            table[row] = place, address - found.address, nbytes
        if not places and all(dictionaries[id_] is batch.dictionaries[id_] for id_ in dictionaries):
            return batch
        return elsewhere(batch, dictionaries, table, regions, device)

    def _dictionary(self, dictionary: Dictionary) -> Dictionary:
        done = self._known.get(dictionary)
        if done is None:
            values = self.lent(dictionary.values)
            done = dictionary if values is dictionary.values else Dictionary(dictionary.id, values)
            self._known[dictionary] = done
        return done

    def _region(
        self, device: Device, address: int, nbytes: int, owner: tuple[Region, object]
    ) -> Region | str:
        """Return the allocation that a buffer lies in as a region, which keeps `owner` alive now, or why not."""
        if owner[0].slab is not None:
            return "memory of another producer"
        starts = self._starts[device]
        place = bisect.bisect_right(starts, address) - 1
        if place >= 0:
            region, owners = self._found[device, starts[place]]
            if address + nbytes <= region.address + region.nbytes:
                owners.append(owner)
                return region
        handle = lendable(device, address)
        if isinstance(handle, str):
            return handle
        if address < handle.address or address + nbytes > handle.address + handle.nbytes:
            return "memory that is not one allocation"
        owners = [owner]
        region = lend(device, handle, owners)
        if (device, handle.address) not in self._found:
            bisect.insort(starts, handle.address)
        self._found[device, handle.address] = region, owners
        return region


def wholly_lent(batch: Batch) -> bool:
    """Whether a batch and its dictionaries lie in lent memory altogether, so that nothing of it must be placed."""
    batches = [batch, *(dictionary.values for dictionary in batch.dictionaries.values())]
    lent = [each.spans.lent[each.spans.table[:, 2] != 0] for each in batches]
    return any(len(each) for each in lent) and all(each.all() for each in lent)
