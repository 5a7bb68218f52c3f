"""Memory of messages and reads that are given up is neither taken for what it was, nor written any more."""

from __future__ import annotations

import contextlib
import gc
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from bowstring.errors import BowstringError, BrokenError, DeadlineExceeded
from bowstring.limits import Limits
from bowstring.memory import Buffer, Pool
from bowstring.transport import Channel, Message, dial, listen
from bowstring.transport.ucx.context import Context
from bowstring.transport.ucx.worker import Endpoint, ListenerHandle, Worker
from tests.transport.ucx.conftest import WAYS

Over = Callable[[str], None]
MIB = 1 << 20
SIZE = 8 * MIB
WAIT = 10.0


@contextlib.contextmanager
def ends() -> Iterator[tuple[Channel, Channel]]:
    """Give both ends of a connection over which messages have gone both ways."""
    with listen("ucx://") as listener, dial(listener.uri) as here:
        there = listener.accept(WAIT)
        assert there is not None
        with there:
            for sender, receiver, tag in ((there, here, 1), (here, there, 0xB5 << 56), (there, here, 2)):
                sending = threading.Thread(target=sender.send, args=([Message(tag, [b"x"])], WAIT))
                sending.start()
                assert receiver.receive(WAIT) is not None
                sending.join()
            yield here, there


def filled(pool: Pool, value: int) -> Buffer:
    buffer = pool.allocate(SIZE)
    with buffer.writable() as place:
        place[:] = value
    return buffer


@pytest.mark.parametrize("tls", WAYS)
def test_a_sender_that_gives_up(ucx_over: Over, tls: str) -> None:
    """A message whose sender gave up, and used its pool again, arrives as it was, or not at all."""
    ucx_over(tls)
    pool = Pool(budget=4 * SIZE)
    with ends() as (here, there):
        lent = [filled(pool, 7)]

        def send() -> None:
            view = memoryview(lent[0].region.array(lent[0].offset, SIZE))
            with contextlib.suppress(DeadlineExceeded):
                there.send([Message(5, [view])], 0.3)

        sending = threading.Thread(target=send)
        place = np.zeros(SIZE, np.uint8)

        def land(_tag: int, _nbytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
            sending.join()
            lent.clear()
            gc.collect()
            lent.extend(filled(pool, 9) for _ in range(3))
            return place

        sending.start()
        try:
            assert here.receive(WAIT, land) is not None
        except BrokenError:
            pass
        else:
            assert (place == 7).all()
        with pytest.raises(BrokenError):
            here.receive(WAIT)


@pytest.mark.parametrize("tls", ["tcp,posix,cma", "all"])
def test_what_is_taken_back_while_it_is_read(ucx_over: Over, tls: str) -> None:
    """Whoever reads memory that its owner has taken back is told so, though it can still be read."""
    ucx_over(tls)
    pool, taken = Pool(budget=4 * SIZE), Pool(budget=4 * SIZE)
    with ends() as (here, there):
        lent = filled(pool, 7)
        handle = there.keyed(lent.region)
        assert handle is not None
        reads = [(handle.key, handle.address + lent.offset, SIZE)]
        place = taken.allocate(SIZE)
        here.read_remote(reads, place, [0])
        assert (place.region.array(place.offset, SIZE) == 7).all()
        there.close()
        lent.region.array(lent.offset, SIZE, writable=True)[:] = 9
        with pytest.raises(BrokenError):
            here.read_remote(reads, place, [0])


def test_memory_of_a_receiver_that_gives_up(ucx_over: Over) -> None:
    """A body that its receiver waits for no longer is not written, when it comes, where it would have landed."""
    ucx_over("tcp")
    pool = Pool(budget=4 * SIZE)
    with listen("ucx://", Limits(stall_timeout=0.2)) as listener, raw_client(listener.uri) as (worker, end):
        until = time.monotonic() + WAIT
        while (channel := listener.accept(0.01)) is None:
            worker.progress()
            assert time.monotonic() < until
        body = np.full(SIZE, 3, np.uint8)
        request = end.send(5, [body.data])
        begun = threading.Event()

        def land(_tag: int, _nbytes: int) -> Any:
            begun.set()
            return pool.allocate(SIZE)

        failed: list[BaseException] = []

        def receive() -> None:
            try:
                channel.receive(WAIT, land)
            except BowstringError as error:
                failed.append(error.with_traceback(None))

        receiving = threading.Thread(target=receive)
        receiving.start()
        while not begun.is_set():
            worker.progress()
        receiving.join()
        assert isinstance(failed.pop(), DeadlineExceeded)
        gc.collect()
        kept = [filled(pool, 9) for _ in range(2)]
        until = time.monotonic() + 0.5
        while time.monotonic() < until and not request.done:
            worker.progress()
        channel.close()
        for buffer in kept:
            assert (buffer.region.array(buffer.offset, SIZE) == 9).all()


@contextlib.contextmanager
def raw_client(uri: str) -> Iterator[tuple[Worker, Endpoint]]:
    """Connect with plain calls of UCX."""
    context = Context({"NET_DEVICES": "lo", "TLS": "tcp", "RNDV_THRESH": "64k"})
    worker = Worker(context)
    host, _, port = uri.removeprefix("ucx://").rpartition(":")
    try:
        yield worker, worker.connect(host, int(port))
    finally:
        worker.close()
        context.close()


READER = """
import resource, sys
from bowstring.limits import Limits
from bowstring.memory import Pool
from bowstring.transport import Message, dial

def most_resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

allocator = Pool(budget=4 << 30).allocator(prepare=False)

def land(_tag, nbytes):
    print(flush=True)
    return allocator.allocate(nbytes)

with dial(sys.argv[1], Limits(stall_timeout=0.5)) as channel:
    channel.send([Message(0xB5 << 56, [b"x"])], 5.0)
    before = most_resident()
    try:
        channel.receive(5.0, land)
    except Exception as error:
        print(type(error).__name__, most_resident() - before)
"""


def test_a_claim_takes_no_memory() -> None:
    """A body of 1 GiB of which nothing ever comes takes as much memory as one step does."""
    context = Context({"NET_DEVICES": "lo", "TLS": "tcp", "RNDV_THRESH": "64k"})
    listening, worker = Worker(context), Worker(context)
    listener = ListenerHandle(listening, "127.0.0.1", 0)
    host, port = listener.address
    command = [sys.executable, "-c", READER, f"ucx://{host}:{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        end = time.monotonic() + 3 * WAIT
        while not listener.requests:
            listening.progress()
            assert time.monotonic() < end
        endpoint = worker.accept(listener.requests.popleft())
        claimed = np.empty(1 << 30, np.uint8)
        request = endpoint.send(5, [claimed.data])
        while not select.select([reader.stdout], [], [], 0)[0]:
            worker.progress()
            assert time.monotonic() < end
        name, grown = reader.communicate(timeout=WAIT)[0].split()
        assert not request.done
    listener.close()
    for each in (listening, worker):
        each.close()
    context.close()
    assert name == "DeadlineExceeded"
    assert int(grown) < 48 * MIB
