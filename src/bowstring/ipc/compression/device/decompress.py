"""Compressed bodies for a device: one upload for each message, of frames where the device decompresses itself.

A frame goes to the device where something there decompresses it
(:mod:`bowstring.ipc.compression.device.nvcomp`), and finds out what
may be wrong with it or is told to trust it. The host decompresses all other frames, and one that
the device could not decompress: its error names what is wrong with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.errors import DeviceError
from bowstring.ipc.compression.codec import PREFIX_BYTES, Claims
from bowstring.ipc.compression.device.frames import Chunk, chunks_of
from bowstring.ipc.compression.device.nvcomp import CAREFUL, NvComp, Work, decompressor_of
from bowstring.memory import Allocator, Device, Pool, Region
from bowstring.memory.arrays import distinct

if TYPE_CHECKING:
    from bowstring.ipc.flatbuf.message import RecordBatchHeader

_PLACE: Final = 8
_UNTRUSTED: Final = "it does not find out every damaged frame, and what is read is not trusted"

Table = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclasses.dataclass(slots=True)
class DecompressCounts:
    """How many compressed buffers were decompressed, and where."""

    on_device: int = 0
    on_host: int = 0
    by: str = ""  # the decompressor; empty if unused
    why: str = ""  # why frames were last decompressed on the host

    def __str__(self) -> str:
        """Return it in words; empty where no frame came."""
        said = [f"{self.on_device} buffers by {self.by}"] * bool(self.on_device)
        said += [f"{self.on_host} buffers on the host ({self.why})"] * bool(self.on_host)
        return ", ".join(said)


class DeviceBodies:
    """Decompresses the bodies of one stream or file for a device, by default into a pool of its own.

    `trusted` says whether frames may be given to a decompressor that does not detect all damage.
    """

    def __init__(self, device: Device, allocator: Allocator | None = None, *, trusted: bool = False) -> None:
        self.device = device
        self.allocator = allocator or Pool(device).allocator()
        self.counts = DecompressCounts()
        self._trusted = trusted

    def decompressed(
        self,
        header: RecordBatchHeader,
        claims: Claims,
        body: Bytes,
        on_host: Callable[[list[int]], list[pa.Buffer]],
    ) -> tuple[Table, list[Region]]:
        """Decompress a body on the host whose claims were checked; return its spans and regions.

        `on_host` decompresses some of its frames on the host, and checks them.
        """
        codec = header.compression or ""
        decompressor = decompressor_of(self.device)
        if not isinstance(decompressor, str) and not self._trusted and codec not in CAREFUL:
            decompressor = f"{decompressor.name} could, but {_UNTRUSTED}"
        plans: dict[int, list[Chunk]] = {}
        if isinstance(decompressor, str):
            self.counts.why = decompressor
        else:
            plans = self._plans(header, claims, body, codec, decompressor)
        rows = [row for row in claims.framed if row not in plans]
        pieces = dict(zip(rows, self._from_host(on_host, rows), strict=True))
        for row in claims.stored:
            start = int(header.buffers[row, 0]) + PREFIX_BYTES
            pieces[row] = body[start : start + claims.lengths[row]]
        spans = np.zeros((len(claims.lengths), 3), np.int64)
        spans[:, 2] = claims.lengths
        places, alignment = [0], self.device.alignment
        for row in (*pieces, *plans):  # one after the other
            spans[row, 1] = places[-1]
            places.append(places[-1] + -(-int(spans[row, 2]) // alignment) * alignment)
        middle, end = places[len(pieces)], places[-1]
        if not end:
            return spans, []
        target = self.allocator.allocate(end)
        bytes_, work, raw = _staged(middle, pieces, plans, spans, body)
        # What is read here is ready: it must not wait for what the user has queued.
        with self.device.use(), self.device.aside(), target.writable() as array:
            uploaded = self.device.from_host(bytes_)
            # What lay here before belongs to somebody else's table.
            array[:middle] = uploaded[:middle]
            array[middle:] = 0
            for place, start, nbytes in raw:
                array[place : place + nbytes] = uploaded[start : start + nbytes]
            failed: list[int] = []
            if plans and not isinstance(decompressor, str):
                table = np.array(work, np.int64).reshape(-1, 4)
                todo = Work(codec, uploaded.data.ptr, array.data.ptr, table)
                failed = self._run(decompressor, todo, plans, spans)
            for row, data in zip(failed, self._from_host(on_host, failed), strict=True):
                place = int(spans[row, 1])
                array[place : place + len(data)] = self.device.from_host(data)
            if failed or not work:  # every byte is written, whatever stream looks at it next
                self.device.to_host(array[:1])
        del array  # a region with a writable view is not frozen
        target.freeze()
        spans[:, 1] += target.offset
        return spans, [target.region]

    def _plans(
        self, header: RecordBatchHeader, claims: Claims, body: Bytes, codec: str, decompressor: NvComp
    ) -> dict[int, list[Chunk]]:
        """Take apart the frames that the device shall decompress."""
        view, plans = body.data, {}
        for row in claims.framed:
            start, nbytes = header.buffers[row].tolist()
            first = start + PREFIX_BYTES
            chunks = chunks_of(view[first : start + nbytes], claims.lengths[row], codec)
            if isinstance(chunks, str):
                self.counts.why = chunks
            elif chunks and decompressor.takes(codec, max(chunk.size for chunk in chunks), _PLACE):
                plans[row] = [chunk._replace(start=chunk.start + first) for chunk in chunks]
            else:
                self.counts.why = f"nothing for {decompressor.name}"
        return plans

    def _from_host(self, on_host: Callable[[list[int]], list[pa.Buffer]], rows: list[int]) -> list[Bytes]:
        self.counts.on_host += len(rows)
        return [np.frombuffer(buffer, np.uint8) for buffer in on_host(rows)]

    def _run(
        self, decompressor: NvComp, work: Work, plans: dict[int, list[Chunk]], spans: Table
    ) -> list[int]:
        """Decompress on the device; return the rows that did not become what they should."""
        self.counts.by = decompressor.name
        failed = []
        try:
            fine = decompressor.run(self.device, work) if len(work.places) else np.ones(0, np.bool_)
        except (DeviceError, MemoryError) as error:
            self.counts.why = f"{decompressor.name}: {error}"
            failed = list(plans)
        else:
            wrong = work.places[~fine, 2]
            if len(wrong):
                self.counts.why = f"{decompressor.name} could not"
                begins = spans[list(plans), 1]
                failed = [list(plans)[at] for at in distinct(begins.searchsorted(wrong, side="right") - 1)]
        self.counts.on_device += len(plans) - len(failed)
        return failed


def _staged(
    end: int, pieces: dict[int, Bytes], plans: dict[int, list[Chunk]], spans: Table, body: Bytes
) -> tuple[Bytes, list[tuple[int, int, int, int]], list[tuple[int, int, int]]]:
    """Return the upload: buffers that the host has, at their final offsets, and the chunks from `end` on.

    Then chunks to decompress (offset and bytes there, offset and bytes in the target), and what is only copied
    (offset in the target, offset there, bytes; neighbours are merged).
    """
    parts = [(int(spans[row, 1]), data) for row, data in pieces.items()]
    work: list[tuple[int, int, int, int]] = []
    raw: list[tuple[int, int, int]] = []
    for row, chunks in plans.items():
        for chunk in chunks:
            place = int(spans[row, 1]) + chunk.target
            last, here, nbytes = raw[-1] if raw else (0, 0, -1)
            if chunk.raw and (last + nbytes, here + nbytes) == (place, end):
                raw[-1] = (last, here, nbytes + chunk.nbytes)
            else:
                end += -end % _PLACE
                if chunk.raw:
                    raw.append((place, end, chunk.nbytes))
                else:
                    work.append((end, chunk.nbytes, place, chunk.size))
            parts.append((end, body[chunk.start : chunk.start + chunk.nbytes]))
            end += chunk.nbytes
    together = np.zeros(end, np.uint8)
    for place, data in parts:
        together[place : place + len(data)] = data
    return together, work, raw
