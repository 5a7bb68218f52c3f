"""Placing the dictionaries of a batch that is on its device already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bowstring.columnar.batch import Batch
from bowstring.columnar.dictionary import Dictionary
from bowstring.columnar.materialize import placed

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from bowstring.memory import Allocator

__all__ = ["dictionaries_placed"]


def dictionaries_placed(
    batch: Batch, allocator: Allocator, known: MutableMapping[Dictionary, Dictionary]
) -> Batch:
    """Return a batch whose dictionaries are where it is itself; the batch where they are.

    Parameters
    ----------
    batch
        On the allocator's device.
    allocator
        Where copies go.
    known
        Dictionaries placed before; what is placed now is added.

    Raises
    ------
    OutOfBudget
        The allocator has no room.

    Examples
    --------
    >>> from bowstring.memory import Pool
    >>> batch = Batch.from_arrow({"a": [1, 2]})
    >>> dictionaries_placed(batch, Pool().allocator(), {}) is batch
    True
    """
    if all(each.values.device is batch.device for each in batch.dictionaries.values()):
        return batch
    inner = {}
    for id_, dictionary in batch.dictionaries.items():
        if dictionary not in known:
            known[dictionary] = Dictionary(id_, placed(dictionary.values, allocator, known, in_place=False))
        inner[id_] = known[dictionary]
    return Batch.from_parts(
        batch.layout,
        batch.num_rows,
        batch.nodes,
        variadic_counts=batch.variadic_counts,
        dictionaries=inner,
        lease=batch.lease,
        custom_metadata=batch.custom_metadata,
        spans=batch.spans.table,
        regions=batch.spans.regions,
        device=batch.device,
    )
