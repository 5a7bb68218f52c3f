"""The producer that cases connect to: one process with a server, and with what the others need."""

from __future__ import annotations

import mmap
import os
import threading
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import bowstring as bow
from bowstring import Pool, Server
from bowstring.benchmarks.data.payload import fingerprint, nbytes, payload, read_every_byte
from bowstring.benchmarks.data.tables import table
from bowstring.benchmarks.environment import available_bytes
from bowstring.benchmarks.peers.descriptor_server import DescriptorServer


class Producer:
    """A role for a started process."""

    def __init__(self, address: str = "unix:") -> None:
        self._server = Server(address, pool=Pool(budget=max(available_bytes(), 1 << 30)))
        self._closed: list[Any] = [self._server]
        self._names = 0
        self._busy = threading.Event()

    def offer(
        self,
        kind: str,
        size: int,
        *,
        batches: int = 1,
        seed: int = 1,
        file: bool = False,
        flight: bool = False,
    ) -> dict[str, Any]:
        """Publish a table; return where it is and what it holds."""
        # file: also lay it into shared memory as an Arrow file, to be mapped by path or handed over as a descriptor
        # flight: also serve it with Arrow Flight
        data = table(kind, size, seed, batches)
        more: dict[str, Any] = {}
        if file:
            data, more = self._as_file(data)
        views = payload(data.to_batches())
        self._names += 1
        more["name"] = name = f"offer {self._names}"
        endpoint = self._server.publish(name, data)
        if flight:
            more["flight"] = self._serve_flight(data)
        return {
            "endpoint": str(endpoint),
            "nbytes": nbytes(views),
            "rows": data.num_rows,
            "fingerprint": fingerprint(views),
            "sum": str(read_every_byte(views)),
            "first_sum": str(pc.sum(data.column(0)).as_py())
            if pa.types.is_floating(data.schema.types[0])
            else "",
            **more,
        }

    def _as_file(self, data: pa.Table) -> tuple[pa.Table, dict[str, Any]]:
        fd = os.memfd_create("bowstring-benchmark", os.MFD_CLOEXEC)
        path = f"/proc/{os.getpid()}/fd/{fd}"
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, data.schema) as writer:
            writer.write_table(data)
        mapped = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
        sockets = DescriptorServer(fd, len(mapped))
        self._closed.append(sockets)
        about = {"path": path, "socket": sockets.name, "raw_fingerprint": fingerprint([memoryview(mapped)])}
        return pa.ipc.open_file(pa.py_buffer(mapped)).read_all(), about

    def _serve_flight(self, data: pa.Table) -> str:
        from bowstring.benchmarks.peers.flight_server import serve

        server = serve(data)
        self._closed.append(server)
        return f"grpc://127.0.0.1:{server.port}"

    def serve_flights(self) -> tuple[str, str]:
        """Serve all that is offered by Arrow Flight, too; return where, and where the server itself is."""
        flights = bow.flight.serve(self._server)
        self._closed.append(flights)
        return flights.uri, self._server.address

    def busy(self, *, on: bool) -> None:
        """Start or stop a thread that does nothing but run Python."""
        if not on:
            self._busy.clear()
        elif not self._busy.is_set():
            self._busy.set()
            threading.Thread(target=self._spin, daemon=True).start()

    def _spin(self) -> None:
        count = 0
        while self._busy.is_set():
            count += 1

    def close(self) -> None:
        """End everything."""
        self._busy.clear()
        for each in reversed(self._closed):
            getattr(each, "shutdown", each.close)()
