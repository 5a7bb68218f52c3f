"""What forks do to readers and producers, one way for each name; prints ``ok``, or what went wrong on stderr."""

from __future__ import annotations

import collections.abc
import contextlib
import ctypes
import faulthandler
import functools
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring as bow
from bowstring.memory import Pool, mappings
from bowstring.transport import dial, listen

ROWS = 20_000
SCHEMA = pa.schema([("n", pa.int64())])
LIMITS = bow.Limits(heartbeat=0.1, reply_timeout=10.0, close_timeout=1.0, window_bytes=1 << 20)


def batch_of(number: int) -> pa.RecordBatch:
    return pa.record_batch({"n": np.full(ROWS, number)})


def many(count: int = 50) -> Iterator[pa.RecordBatch]:
    return (batch_of(number) for number in range(count))


def republish(server: bow.Server, times: int = 100) -> None:
    for number in range(times):
        server.publish("again", pa.Table.from_batches([batch_of(1000 + number)] * 3))
        server.withdraw("again")


def in_child(check: Callable[[], object]) -> int:
    """Fork; the child runs a function, and ends with 0 if that did not raise."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        faulthandler.dump_traceback_later(10.0, exit=True)
        check()
        code = 0
    except BaseException:  # noqa: BLE001  a child must not run into its parent's code
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


# Unlike `CDLL`, `PyDLL` keeps the interpreter's lock, which a child without other threads could not take again.
libc = ctypes.PyDLL(None)


def others_sleep() -> bool:
    """Whether no other thread runs or is about to: one that comes late asks for the interpreter's lock."""
    for task in set(os.listdir("/proc/self/task")) - {str(threading.get_native_id())}:
        with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{task}/stat") as stat:
            if stat.read().rpartition(")")[2].split()[0] == "R":
                return False
    return True


def in_c_child(values: Any, number: int, go: int, tell: int = -1) -> int:
    """Fork without Python's hooks; the child waits for a byte, and ends with 0 if it sees what it should.

    What the parent's other threads hold is held in the child for ever. So the child calls C functions only, and
    the parent asks that nobody wants the interpreter's lock at that moment.
    """
    expected = np.full_like(values, number)
    pointers = ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(expected.ctypes.data)
    size, answer = ctypes.c_size_t(values.nbytes), ctypes.create_string_buffer(1)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    time.sleep(4 * interval)  # until those that wait have it behind them
    while not others_sleep():  # on a busy machine they take longer
        time.sleep(interval)
    pid: int = libc.fork()
    if not pid:
        libc.alarm(60)
        libc.read(go, answer, 1)
        differs = libc.memcmp(*pointers, size) != 0
        libc.write(tell, b"n" if differs else b"y", 1)
        os._exit(differs)
    sys.setswitchinterval(interval)
    return pid


def reap(pid: int) -> None:
    end = time.monotonic() + 15.0
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert status == 0, f"the child ended with {status}"
            return
        assert time.monotonic() < end, "the child does not end"
        time.sleep(0.005)


def looked_at(values: Any, number: int, go: int, seconds: float = 0.0) -> Callable[[], None]:
    """Return what a child does: wait for a byte, and look."""

    def look() -> None:
        os.read(go, 1)
        time.sleep(seconds)
        assert (values == number).all(), values

    return look


def child_looks(address: str, data: Callable[[], Any], *, by_c: bool = False) -> None:
    """A child looks at what its parent freed after the fork, and the producer used again."""
    go, start = os.pipe()
    server = bow.Server(address, limits=LIMITS, pool=Pool(budget=32 << 20))
    stream = bow.connect(server.publish("t", data(), schema=None), limits=LIMITS)
    batch = stream.read_next_batch()
    values = batch["n"].values
    child = in_c_child(values, 0, go) if by_c else in_child(looked_at(values, 0, go))
    del values, batch
    assert sum(1 for _ in stream) in (2, 49)
    stream.close()
    gc.collect()
    server.withdraw("t")
    server.wait_released("t", timeout=10.0)
    republish(server)
    os.write(start, b"x")
    reap(child)
    server.close()


def resident_unix() -> None:
    child_looks("unix:", lambda: pa.Table.from_batches([batch_of(0)] * 3))


def resident_inproc() -> None:
    child_looks("inproc:", lambda: pa.Table.from_batches([batch_of(0)] * 3))


def lazy_unix() -> None:
    child_looks("unix:", lambda: many)


def lazy_tcp() -> None:
    child_looks("tcp://127.0.0.1:0", lambda: many)


def c_fork_of_a_reader(address: str, kind: str) -> None:
    """A child that no Python code knew of looks at what its parent freed since then."""
    table = pa.Table.from_batches([batch_of(0)] * 3)
    child_looks(address, (lambda: table) if kind == "resident" else (lambda: many), by_c=True)


def between_forked_and_fork() -> None:
    """Many forks while another thread reads and frees: whatever a child inherits stays true for it."""
    server = bow.Server(limits=LIMITS, pool=Pool(budget=64 << 20))
    endpoint = server.publish("t", lambda: many(3000), schema=SCHEMA)
    held: list[Any] = []
    ended = threading.Event()

    def read() -> None:
        with bow.connect(endpoint, limits=LIMITS) as stream:
            for number, batch in enumerate(stream):
                held.append((number, batch["n"].values))
                if len(held) > 2:
                    held.pop(0)
                if ended.is_set():
                    return

    thread = threading.Thread(target=read)
    thread.start()
    go, start = os.pipe()
    children = []
    while not held:
        time.sleep(0.001)

    def look() -> None:
        os.read(go, 1)
        for number, values in held:
            assert (values == number).all(), (number, values)

    for _ in range(15):
        children.append(in_child(look))
        time.sleep(0.002)
    ended.set()
    thread.join(10.0)
    assert not thread.is_alive()
    held.clear()
    republish(server, 20)
    os.write(start, b"x" * len(children))
    for child in children:
        reap(child)
    server.close()


def locks_of(*roots: object) -> list[Any]:
    """Return every lock that objects reach."""
    seen: set[int] = set()
    locks: list[Any] = []

    def find(thing: Any, depth: int) -> None:
        if id(thing) in seen or depth > 6 or isinstance(thing, (str, bytes, type, threading.Thread)):
            return
        seen.add(id(thing))
        if hasattr(thing, "acquire") and hasattr(thing, "release"):
            locks.append(thing)
            return
        parts: list[Any] = []
        if type(thing).__module__.startswith("bowstring"):
            names = [name for cls in type(thing).__mro__ for name in getattr(cls, "__slots__", ())]
            parts = [getattr(thing, name, None) for name in (*names, *getattr(thing, "__dict__", {}))]
        elif isinstance(thing, (list, tuple, set, collections.deque)):
            parts = list(thing)
        elif isinstance(thing, dict):
            parts = list(thing.values())
        for part in parts:
            find(part, depth + 1)

    for root in roots:
        find(root, 0)
    return locks


def in_child_of_holder(lock: Any, check: Callable[[], object]) -> bool:
    """Run a function in a child, forked while a thread of ours holds a lock; return whether it did until then.

    Some locks are taken to prepare for the fork: they are let go.
    """
    held, forked = threading.Event(), threading.Event()
    until_then = False

    def hold() -> None:
        nonlocal until_then
        taken = lock.acquire(timeout=0.2)
        held.set()
        until_then = forked.wait(0.5) and taken
        if taken:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(20.0)
    child = in_child(check)
    forked.set()
    thread.join(10.0)
    reap(child)
    return until_then


def forbidden(calls: dict[str, Callable[[], object]], allowed: dict[str, Callable[[], object]]) -> None:
    for name, call in calls.items():
        began = time.monotonic()
        try:
            call()
        except bow.ForkedError:
            assert time.monotonic() - began < 5.0, f"{name} waited"
            continue
        raise AssertionError(f"{name} was allowed in the child")
    for name, call in allowed.items():
        began = time.monotonic()
        call()
        assert time.monotonic() - began < 5.0, f"{name} waited"


def every_lock_held(address: str) -> None:
    """A child that uses its parent's objects is told at once, whoever held whatever lock."""
    server = bow.Server(address, limits=LIMITS, pool=Pool(budget=32 << 20))
    server.publish("u", pa.table({"n": [1]}))
    endpoint = server.publish("t", many, schema=SCHEMA)
    stream = bow.connect(endpoint, limits=LIMITS)
    batch = stream.read_next_batch()
    listener = listen(address)
    channel = dial(listener.uri)
    pool = server.pool
    view, table = batch["n"].values, batch.to_arrow()
    calls: dict[str, Callable[[], object]] = {
        "read": stream.read_next_batch,
        "read_all": stream.read_all,
        "iterate": lambda: next(stream),
        "publish": lambda: server.publish("v", pa.table({"n": [1]})),
        "withdraw": lambda: server.withdraw("u"),
        "wait": server.wait_released,
        "statistics": lambda: server.stats,
        "allocate": lambda: pool.allocate(10),
        "region": lambda: pool.region(10),
        "allocator": lambda: pool.allocator().allocate(10),
        "warm": lambda: pool.warm(10),
        "trim": pool.trim,
        "pool statistics": lambda: pool.stats,
        "send": lambda: channel.send([], 1.0),
        "receive": lambda: channel.receive(0.0),
        "accept": lambda: listener.accept(0.0),
    }

    def own() -> None:
        mine = bow.Server(limits=LIMITS, pool=Pool(budget=8 << 20))
        with mine, bow.connect(mine.publish("t", pa.table({"n": [1, 2]}))) as reader:
            assert reader.read_all().num_rows == 2

    allowed: dict[str, Callable[[], object]] = {
        "look": view.sum,
        "look by Arrow": table.validate,
        "close the stream": stream.close,
        "close the server": server.close,
        "close the pool": pool.close,
        "close the channel": channel.close,
        "close the listener": listener.close,
        "clear mappings": lambda: mappings().clear(),
        "a server and a stream of its own": own,
    }
    locks = locks_of(server, stream, listener, channel, mappings())
    held = sum(in_child_of_holder(lock, lambda: forbidden(calls, allowed)) for lock in locks)
    assert held > 8, (held, len(locks))
    locks.clear()
    assert (view == 0).all()
    del batch, view, table
    calls.clear()
    allowed.clear()
    assert sum(1 for _ in stream) == 49
    stream.close()
    channel.close()
    listener.close()
    server.close()


def data_sets() -> None:
    """A data set of many endpoints is a stream too: its child is told at once."""
    server = bow.Server(limits=LIMITS, pool=Pool(budget=32 << 20))
    table = pa.table({"n": [1, 2, 3]})
    endpoints = tuple(server.publish(f"t{number}", table) for number in range(6))
    for ordered in (True, False):
        stream = bow.connect(
            bow.Dataset(endpoints, table.schema), options=bow.ConnectOptions(ordered=ordered), limits=LIMITS
        )
        stream.read_next_batch()
        read, close = stream.read_next_batch, stream.close
        reap(in_child(functools.partial(forbidden, {"read": read}, {"close": close})))
        assert sum(1 for _ in stream) == 5
        stream.close()
    server.close()


def producer_forks() -> None:
    """A producer that forks in the middle goes on, and its child's views of its regions stay what they are."""
    go, start = os.pipe()
    server = bow.Server(limits=LIMITS, pool=Pool(budget=64 << 20))
    buffer = server.pool.allocate(8 * ROWS)
    with buffer.writable(np.int64) as values:
        values[:] = 5
    view = buffer.array(np.int64)
    endpoint = server.publish("t", many, schema=SCHEMA)
    stream = bow.connect(endpoint, limits=LIMITS)
    first = stream.read_next_batch()
    child = in_child(looked_at(view, 5, go))
    del view, buffer, values
    assert sum(1 for _ in stream) == 49
    assert (first["n"].values == 0).all()
    del first
    stream.close()
    republish(server, 50)
    os.write(start, b"x")
    reap(child)
    server.close()


def c_fork_of_a_producer() -> None:
    """A pool never uses again what was in use when C code forked; what it took later, it does."""
    go, start = os.pipe()
    pool = Pool(budget=64 << 20)
    region = pool.region(1 << 20)
    values = region.array(0, region.nbytes, writable=True)
    values[:] = 5
    child = in_c_child(values, 5, go)
    del values, region
    for _ in range(3):
        region = pool.region(1 << 20)
        region.array(0, region.nbytes, writable=True)[:] = 7
        del region
    assert (pool.stats.retired, pool.stats.reused) == (1, 2), pool.stats
    os.write(start, b"x")
    reap(child)


def square(number: int) -> int:
    return number * number


def pool_in_the_middle() -> None:
    """A multiprocessing pool that forks while a stream is read works, and ends, and so does the stream."""
    server = bow.Server(limits=LIMITS, pool=Pool(budget=64 << 20))
    stream = bow.connect(server.publish("t", many, schema=SCHEMA), limits=LIMITS)
    first = stream.read_next_batch()
    with multiprocessing.get_context("fork").Pool(2) as workers:
        assert workers.map_async(square, range(10)).get(10.0) == [number * number for number in range(10)]
        rest = [int(batch["n"].values[0]) for batch in stream]
    workers.join()
    assert rest == list(range(1, 50))
    assert (first["n"].values == 0).all()
    stream.close()
    server.close()


def parent_killed(*, by_c: bool = False) -> None:
    """A child looks on after its parent was killed, and the producer has used its memory again."""
    go, start = os.pipe()
    done, told = os.pipe()
    server = bow.Server(limits=LIMITS.replace(lease_timeout=0.5), pool=Pool(budget=64 << 20))
    endpoint = server.publish("t", lambda: many(30), schema=SCHEMA)
    uri = str(endpoint)
    parent = os.fork()
    if not parent:
        try:
            with bow.connect(uri, limits=LIMITS) as stream:
                values = stream.read_next_batch()["n"].values
                if by_c:
                    in_c_child(values, 0, go, told)
                    os.write(told, b"h")
                elif os.fork() == 0:
                    signal.alarm(20)
                    os.write(told, b"h")
                    os.read(go, 1)
                    os.write(told, b"y" if (values == 0).all() else b"n")
                    os._exit(0)
                time.sleep(30)
        finally:
            os._exit(1)
    assert os.read(done, 1) == b"h"
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    end = time.monotonic() + 10.0
    while server.stats.connections:
        assert time.monotonic() < end, "the session does not end"
        time.sleep(0.01)
    server.withdraw("t")
    republish(server)
    os.write(start, b"x")
    assert os.read(done, 1) == b"y"
    server.close()


def c_fork_then_killed() -> None:
    """The same, where no Python code knew of the fork."""
    parent_killed(by_c=True)


def c_fork_then_exit() -> None:
    """A child that no Python code knew of looks on after its parent ended normally, with batches alive."""
    go, start = os.pipe()
    told, tell = os.pipe()
    server = bow.Server(limits=LIMITS, pool=Pool(budget=64 << 20))
    uri = str(server.publish("t", lambda: many(30), schema=SCHEMA))
    parent = os.fork()
    if not parent:
        stream = bow.connect(uri, limits=LIMITS)
        batch = stream.read_next_batch()
        values = batch["n"].values
        in_c_child(values, 0, go, tell)
        sys.exit(0)
    _, status = os.waitpid(parent, 0)
    assert status == 0, status
    server.withdraw("t")
    server.wait_released("t", timeout=10.0)
    republish(server)
    os.write(start, b"x")
    assert os.read(told, 1) == b"y"
    server.close()


def child_ends_normally() -> None:
    """A child that runs to Python's end takes nothing from its parent."""
    server = bow.Server(limits=LIMITS, pool=Pool(budget=64 << 20))
    stream = bow.connect(server.publish("t", many, schema=SCHEMA), limits=LIMITS)
    batch = stream.read_next_batch()
    pid = os.fork()
    if not pid:
        del batch
        gc.collect()
        sys.exit(0)
    reap(pid)
    assert (batch["n"].values == 0).all()
    assert sum(1 for _ in stream) == 49
    del batch
    stream.close()
    server.close()


globals()[sys.argv[1]](*sys.argv[2:])
print("ok", flush=True)
