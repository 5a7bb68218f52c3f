"""The regions that this process made and uses now, by address: how data are recognised that lie in one already."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import numpy as np

from bowstring.memory.distinct import distinct
from bowstring.memory.region import Region

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["note_owned", "owned_regions"]

_owned: weakref.WeakValueDictionary[int, Region] = weakref.WeakValueDictionary()


def note_owned(region: Region) -> None:
    """Enter a region that was taken from a pool; it is forgotten when it goes home."""
    _owned[region.address] = region


def _sorted() -> list[tuple[int, Region]]:
    while True:
        try:
            return sorted(_owned.items())
        except RuntimeError:  # another thread entered one; look again
            continue


def owned_regions(
    addresses: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> tuple[list[Region], npt.NDArray[np.int64]]:
    """Find the regions of ours in which some pieces of host memory lie.

    Parameters
    ----------
    addresses, sizes
        Shape ``(n,)``, in bytes.

    Returns
    -------
    regions
        Those that were found, each once.
    index : ndarray of int64, shape (n,)
        Which of them each piece lies in, or -1.

    Examples
    --------
    >>> from bowstring.memory import Pool
    >>> buffer = Pool(budget=1 << 20).allocate(100)
    >>> found, index = owned_regions(np.array([buffer.address + 50, 64]), np.array([50, 8]))
    >>> found == [buffer.region], index.tolist()
    (True, [0, -1])
    """
    known = _sorted()
    index = np.full(len(addresses), -1, np.int64)
    if not known:
        return [], index
    starts = np.array([address for address, _ in known], np.int64)
    ends = starts + np.array([region.nbytes for _, region in known], np.int64)
    place = np.searchsorted(starts, addresses, side="right") - 1
    inside = (place >= 0) & (addresses + sizes <= ends[place])
    found = place[inside]
    if not len(found):
        return [], index
    used = distinct(found)
    index[inside] = np.searchsorted(used, found)
    return [known[place][1] for place in used], index
