"""Memory of a server that is read by keys (an rkey of UCX), into memory of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.dissociated.addresses import AnnouncedRegions
from bowstring.errors import LimitExceeded

if TYPE_CHECKING:
    import numpy.typing as npt

    from bowstring.client.connection.wire import Wire
    from bowstring.limits import Limits
    from bowstring.memory import KeyedHandle, Region

_ALIGNMENT: Final = 64


class RemoteMemory:
    """The memory of a server that one stream may read remotely."""

    def __init__(self, wire: Wire, key: bytes | None, limits: Limits) -> None:
        self._wire = wire
        self._key = key  # of the server's URI: addresses of bodies are then those of the server
        self._limits = limits
        self._announced = AnnouncedRegions(limits)
        self.used = False  # whether anything was read

    @property
    def known(self) -> bool:
        return self._key is not None or bool(self._announced.regions)

    def announce(self, base: int, handle: KeyedHandle) -> None:
        self._announced.check(base, handle.nbytes)
        stands_for: Any = handle
        self._announced.add(base, stands_for, handle.nbytes)

    def forget(self) -> None:
        self._announced = AnnouncedRegions(self._limits)

    def fetch(self, pairs: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], tuple[Region, ...]]:
        """Read the buffers of one body; return where they lie now, like `Assembler.resolve`."""
        lengths = pairs[:, 1]
        total = sum(lengths.tolist())  # as Python's integers, which do not wrap
        if total > self._limits.message_bytes:
            raise LimitExceeded(
                "the buffers of a body are larger than Limits.message_bytes",
                expected=f"at most {self._limits.message_bytes} bytes",
                found=f"{total} bytes",
            )
        self.used = True
        if self._key is not None:
            reads = [(self._key, address, nbytes) for address, nbytes in pairs.tolist()]
        else:
            handles: list[Any] = self._announced.regions
            reads = [
                (handles[index].key, handles[index].address + offset, nbytes)
                for index, offset, nbytes in self._announced.resolve(pairs).tolist()
            ]
        padded = -(-lengths.astype(np.int64) // _ALIGNMENT) * _ALIGNMENT
        places = np.cumsum(padded) - padded
        buffer = self._wire.read_remote(int(padded.sum()), places.tolist(), reads)
        spans = np.zeros((len(pairs), 3), np.int64)
        spans[:, 1] = places + buffer.offset
        spans[:, 2] = lengths
        spans *= (lengths != np.uint64(0))[:, None]
        return spans, (buffer.region,)
