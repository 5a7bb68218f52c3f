"""Buffers: slices of regions, which they keep alive."""

from __future__ import annotations

import contextlib
import sys
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bowstring.errors import InvalidBody, NotOnDevice, UsageError
from bowstring.memory.device import cpu
from bowstring.memory.region import Draft, Region, foreign_region, private_region

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from bowstring.memory.device import Device
    from bowstring.memory.lease import Lease


class _Writer:
    """The owner of a writable array: its region, and the draft that tracks it."""

    __slots__ = ("__weakref__", "draft", "region")

    def __init__(self, region: Region, draft: Draft) -> None:
        self.region = region
        self.draft = draft


class Buffer:
    """A slice of a region.

    Parameters
    ----------
    region
        The memory.
    offset, nbytes
        Where in the region, in bytes.
    lease
        What must stay alive while a view of the bytes is.

    Raises
    ------
    InvalidBody
        The slice does not lie in the region.
    """

    __slots__ = ("_draft", "lease", "nbytes", "offset", "region")

    def __init__(
        self,
        region: Region,
        offset: int,
        nbytes: int,
        lease: Lease | None = None,
        *,
        draft: Draft | None = None,
    ) -> None:
        if offset < 0 or nbytes < 0 or offset > region.nbytes - nbytes:
            raise InvalidBody(
                "a buffer lies outside its region",
                expected=f"within {region.nbytes} bytes",
                found=f"{nbytes} bytes at offset {offset}",
            )
        self.region = region
        self.offset = offset
        self.nbytes = nbytes
        self.lease = lease
        self._draft = draft

    @classmethod
    def fresh(cls, region: Region, offset: int, nbytes: int) -> Buffer:
        """Return a buffer that may still be written, through `writable`, until it is frozen."""
        return cls(region, offset, nbytes, draft=region.draft(offset, nbytes))

    @property
    def device(self) -> Device:
        """Where the bytes are."""
        return self.region.device

    @property
    def address(self) -> int:
        """Address of the first byte in this process."""
        return self.region.address + self.offset

    @property
    def frozen(self) -> bool:
        """Whether the bytes can no longer be written through Bowstring."""
        return self._draft is None or self._draft.frozen

    def owner(self) -> object:
        """Return what a view of the bytes must keep alive."""
        # The lease of a slice of a batch does not cover regions that were made for the slice.
        return self.region if self.lease is None else (self.region, self.lease.export())

    def array(self, dtype: npt.DTypeLike = np.uint8) -> Any:
        r"""Return the bytes as an array of the device's namespace, without a copy.

        It is read-only, except over private memory (``connect(writable=True)``).

        Parameters
        ----------
        dtype
            Element type; bytes behind the last whole element are left out.

        Raises
        ------
        ClosedError
            The batch that the buffer belongs to was released.

        Examples
        --------
        >>> wrap(b"\x01\x00\x02\x00").array("<u2").tolist()
        [1, 2]
        """
        size = np.dtype(dtype).itemsize
        nbytes = self.nbytes - self.nbytes % size
        private = self.region.private
        raw = self.region.device.array(self.address, nbytes, self.owner(), writable=private)
        return raw.view(dtype)

    def to_arrow(self) -> pa.Buffer:
        """Return the bytes as a pyarrow buffer, without a copy.

        Raises
        ------
        NotOnDevice
            The bytes are not on the host.
        """
        if not self.region.device.is_host:
            raise NotOnDevice(
                "pyarrow cannot look at memory of a device",
                found=self.region.device.name,
                hint='Use batch.to_device("cpu") first, or the C Device interface.',
            )
        return pa.foreign_buffer(self.address, self.nbytes, base=self.owner())

    def to_host(self, dtype: npt.DTypeLike = np.uint8) -> np.ndarray[Any, Any]:
        """Return the bytes as a NumPy array: a view on the host, a copy from any other device."""
        return self.device.to_host(self.array(dtype))

    def slice(self, offset: int, nbytes: int) -> Buffer:
        """Return a part of the buffer.

        Raises
        ------
        InvalidBody
            The part does not lie in the buffer.
        """
        if offset < 0 or nbytes < 0 or offset > self.nbytes - nbytes:
            raise InvalidBody(
                "a slice lies outside its buffer",
                expected=f"within {self.nbytes} bytes",
                found=f"{nbytes} bytes at offset {offset}",
            )
        return Buffer(self.region, self.offset + offset, nbytes, self.lease, draft=self._draft)

    @contextlib.contextmanager
    def writable(self, dtype: npt.DTypeLike = np.uint8) -> Iterator[Any]:
        """Give a writable array for the time of a ``with`` block; it turns read-only at the end.

        Raises
        ------
        UsageError
            The buffer is frozen.

        Examples
        --------
        >>> from bowstring.memory import Pool
        >>> buffer = Pool().allocate(8)
        >>> with buffer.writable("<i4") as numbers:
        ...     numbers[:] = [1, 2]
        >>> buffer.array("<i4").tolist()
        [1, 2]
        """
        if self._draft is None or self._draft.frozen:
            raise UsageError(
                "the buffer is frozen", hint="Allocate a new one: what is published never changes."
            )
        root, tracked = _writable(self, self._draft)
        array = root.view(dtype)
        # Slices of `array` refer to `root`, other views (memoryview, Arrow buffers) to `array` itself, so their
        # reference counts show whether any is left. One more reference to `array` is the caller's variable.
        slices, views = sys.getrefcount(root), sys.getrefcount(array) + 1
        try:
            yield array
        finally:
            alone = sys.getrefcount(root) <= slices and sys.getrefcount(array) <= views
            if isinstance(root, np.ndarray):
                root.flags.writeable = array.flags.writeable = False
                if alone:
                    self._draft.writers.remove(tracked)

    def freeze(self) -> None:
        """End all writing through Bowstring. Does nothing the second time.

        Raises
        ------
        ViewsAlive
            An array made by `writable` is still alive, and might be written through.
        """
        if self._draft is not None:
            self._draft.freeze()

    def __len__(self) -> int:
        return self.nbytes

    def __repr__(self) -> str:
        return f"<Buffer {self.nbytes} bytes at {self.offset} of {self.region!r}>"


def _writable(buffer: Buffer, draft: Draft) -> tuple[Any, weakref.ref[_Writer]]:
    """Return a writable array, and what shows whether it is alive still, or a view of it."""
    writer = _Writer(buffer.region, draft)
    tracked = weakref.ref(writer)
    draft.writers.append(tracked)
    return buffer.device.array(buffer.address, buffer.nbytes, writer, writable=True), tracked


def array_to_fill(buffer: Buffer) -> Any:
    """Return the bytes as an array: writable until the buffer is frozen, which views that are alive refuse."""
    draft = buffer._draft
    if draft is None or draft.frozen:
        return buffer.array()
    draft.writers[:] = [each for each in draft.writers if each() is not None]
    return _writable(buffer, draft)[0]


def is_written(buffer: Buffer) -> bool:
    """Whether a writable array of the buffer is alive, or a view of one."""
    return buffer._draft is not None and buffer._draft.is_written


class PrivateMemory:
    """Allocates host memory that is never shared, so that views of it may be written: in the place of a pool."""

    device = cpu()

    def allocator(self, *, prepare: bool = True) -> PrivateMemory:  # noqa: ARG002  as that of a pool
        """Return what allocates: this object, which keeps nothing."""
        return self

    def allocate(self, nbytes: int) -> Buffer:
        """Return a fresh buffer in a region of its own."""
        return Buffer.fresh(private_region(nbytes), 0, nbytes)

    def reset(self) -> None:
        """Do nothing: no region is kept for the next buffer."""


def wrap(source: Any) -> Buffer:
    """Return host memory as a buffer, without a copy; `source` is kept alive.

    Parameters
    ----------
    source
        Anything with the buffer protocol (bytes, arrays, memory maps) or a ``pyarrow.Buffer``.

    Examples
    --------
    >>> wrap(b"abc").nbytes
    3
    """
    buffer = source if isinstance(source, pa.Buffer) else pa.py_buffer(source)
    return Buffer(foreign_region(buffer.address, buffer.size, buffer), 0, buffer.size)
