"""What a stream over UCX says of its way: transports, protocol, and why not another one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.client.connection import wire
from bowstring.memory import this_process
from bowstring.testing import fake_device

Over = Callable[[str], None]
TABLE = pa.table({"n": np.arange(1_000_000)})


@pytest.mark.parametrize(
    ("tls", "path", "transports", "protocol"),
    [
        ("tcp", "ucx: packed", "tcp/lo", "rendezvous"),
        ("tcp,posix,cma", "ucx: read", "posix/memory, cma/memory", "zero-copy cma/memory"),
        ("", "ucx: read", "tcp/lo, cma/memory", "zero-copy cma/memory"),
    ],
)
def test_how_bodies_move(ucx_over: Over, tls: str, path: str, transports: str, protocol: str) -> None:
    """A reader is told the transports and devices of UCX, and how bodies move by them, in UCX's words."""
    ucx_over(tls)
    with bow.Server("ucx://") as server:
        endpoint = server.publish("t", TABLE)
        for _ in range(5):  # a server may learn it only when so short a stream is over
            with bow.connect(endpoint) as stream:
                assert stream.read_all().equals(TABLE)
                stats = stream.stats
            assert stats.path == path
            if "(" in stats.why:
                break
        assert f"; by {transports} (" in stats.why
        assert protocol in stats.why.partition("(")[2]


@pytest.mark.parametrize("apart", [False, True])
def test_memory_of_a_gpu(ucx_over: Over, monkeypatch: pytest.MonkeyPatch, *, apart: bool) -> None:
    """Memory of a GPU is copied, which is said; and that a reader of this machine is in another PID namespace."""
    ucx_over("tcp,posix,cma")
    if apart:
        elsewhere = dataclasses.replace(this_process(), namespace=1).place
        monkeypatch.setattr(wire, "this_place", lambda: elsewhere)
    pool = bow.Pool(fake_device(0), budget=64 << 20)
    with bow.Server("ucx://", pool=pool) as server, bow.connect(server.publish("t", TABLE)) as stream:
        assert stream.read_all().equals(TABLE)
        assert stream.stats.path == "ucx: packed"
        assert stream.stats.why.startswith(
            "memory of a GPU is copied to the host through two pinned buffers, and sent"
        )
        assert ("PID namespace" in stream.stats.why) == apart
