"""The floor of a hand-over: a plain Unix socket that answers one question with one descriptor, nothing else."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import socket
import struct
import threading
from typing import Final

_SIZE: Final = struct.Struct("<Q")
_SECONDS: Final = 30.0
_numbers = itertools.count()


class DescriptorServer:
    """Hands a descriptor, and the size behind it, to everybody who asks."""

    def __init__(self, fd: int, size: int) -> None:
        self.name = f"bowstring-benchmark-{os.getpid()}-{next(_numbers)}"
        self._answer = _SIZE.pack(size), [fd]
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(f"\0{self.name}")
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            with peer, contextlib.suppress(OSError):
                peer.settimeout(_SECONDS)
                if peer.recv(1):
                    socket.send_fds(peer, [self._answer[0]], self._answer[1])

    def close(self) -> None:
        """Answer no more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def ask(name: str) -> mmap.mmap:
    """Ask, and map what comes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(_SECONDS)
        peer.connect(f"\0{name}")
        peer.sendall(b"?")
        data, fds, _, _ = socket.recv_fds(peer, _SIZE.size, 1)
    try:
        return mmap.mmap(fds[0], _SIZE.unpack(data)[0], prot=mmap.PROT_READ)
    finally:
        os.close(fds[0])
