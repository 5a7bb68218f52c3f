"""Peers over UCX that are killed, stopped, too many, or send what they must not."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.dissociated.tags import Want
from bowstring.memory import Pool
from bowstring.transport import Channel, Message, dial
from tests.ucx import needs_ucx

pytestmark = [needs_ucx, pytest.mark.slow]

LIMITS = bow.Limits(
    connect_timeout=5.0,
    reply_timeout=2.0,
    stall_timeout=2.0,
    heartbeat=0.2,
    lease_timeout=2.0,
    close_timeout=0.5,
)
PRODUCER = """
import sys, time
import numpy as np, pyarrow as pa, bowstring as bow
def batches():
    for number in range(1000):
        yield {"n": np.full(200_000, number)}
        time.sleep(0.005)
with bow.Server("ucx://") as server:
    print(server.publish("t", batches), flush=True)
    time.sleep(60)
"""
READER = """
import sys, time, bowstring as bow
stream = bow.connect(sys.argv[1])
kept = [stream.read_next_batch()]
print("reads", flush=True)
time.sleep(60)
"""
CAREFUL_READER = """
import sys, bowstring as bow
limits = bow.Limits(reply_timeout=20.0, close_timeout=0.5)
try:
    with bow.connect(sys.argv[1], limits=limits) as stream:
        print(stream.stats.path, flush=True)
        for number, batch in enumerate(stream):
            values = batch["n"].to_numpy()
            assert (values == number).all(), (number, values)
    print("all")
except bow.BowstringError as error:
    print(type(error).__name__)
"""


@contextlib.contextmanager
def program(text: str, *arguments: str, tls: str = "") -> Iterator[subprocess.Popen[str]]:
    """Run a program, and kill it in the end."""
    environment = {**os.environ, "UCX_TLS": tls} if tls else None
    command = [sys.executable, "-c", text, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def until(condition: object, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


def receive_all(channel: Channel) -> None:
    """Receive until the peer says nothing more for a while."""
    while channel.receive(10.0) is not None:
        pass


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_producer_that_goes(how: signal.Signals) -> None:
    """Of a producer that is killed or stopped its reader hears in time, and what it has stays true."""
    with program(PRODUCER) as producer, bow.connect(line_of(producer), limits=LIMITS) as stream:
        batches = [stream.read_next_batch() for _ in range(3)]
        producer.send_signal(how)
        begin = time.monotonic()
        with pytest.raises((bow.BrokenError, bow.DeadlineExceeded)):
            batches.extend(stream)
        assert time.monotonic() - begin < 15.0
        for number, batch in enumerate(batches):
            assert (batch["n"].to_numpy() == number).all()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_reader_that_goes(how: signal.Signals) -> None:
    """A reader that is killed or stopped is let go in time, and others are served."""
    table = pa.table({"n": np.arange(3_000_000)})
    with bow.Server("ucx://", limits=LIMITS) as server:
        endpoint = server.publish("t", table.to_batches(100_000), schema=table.schema)
        with program(READER, str(endpoint)) as reader:
            assert line_of(reader) == "reads"
            reader.send_signal(how)
            until(lambda: server.stats.connections == 0)
        with bow.connect(endpoint, limits=LIMITS) as stream:
            assert stream.read_all().equals(table)


@pytest.mark.parametrize("tls", ["tcp", "all", ""])
def test_a_reader_that_is_stopped_while_it_reads(tls: str) -> None:
    """A reader that was stopped anywhere until its lease expired, and whose memory is used again, has an error, and
    never other bytes.
    """
    rows = 100_000
    limits = LIMITS.replace(heartbeat=0.1, lease_timeout=0.1, stall_timeout=0.3)
    with bow.Server("ucx://", limits=limits, pool=Pool(budget=64 << 20)) as server:

        def batches() -> Iterator[dict[str, object]]:
            for number in range(100_000):
                yield {"n": np.full(rows, number)}

        for delay in (0.0, 0.01, 0.05):
            endpoint = server.publish("t", batches, replace=True)
            with program(CAREFUL_READER, str(endpoint), tls=tls) as reader:
                assert line_of(reader) == ("ucx: packed" if tls == "tcp" else "ucx: read")
                time.sleep(delay)
                reader.send_signal(signal.SIGSTOP)
                until(lambda: server.stats.connections == 0)
                for again in range(4):
                    server.publish("u", pa.table({"n": np.full(4 * rows, -1 - again)}), replace=True)
                reader.send_signal(signal.SIGCONT)
                assert line_of(reader) in ("BrokenError", "LeaseExpired", "DeadlineExceeded")


def test_what_strangers_send() -> None:
    """A client that sends too much, bodies, or bytes that mean nothing is refused, and the server goes on."""
    with bow.Server("ucx://", limits=LIMITS, token="0123456789abcdef") as server:
        endpoint = server.publish("t", {"n": [1, 2, 3]})
        for messages in (
            [Message(Want.HELLO, [bytes(100_000)])],
            [Message(None, [bytes(5000)])],
            [Message(7, [bytes(100)])],
            [Message(1 << 56, [bytes(1000)])],
            [Message(0xB0 << 56, [b"\0"])],
            [Message((0xB3 << 56) | 0xFFFF_FF77, [bytes(4)])],
            [Message(Want.HELLO, [os.urandom(50)])],
            [Message(Want.DATA, [b"t"])],
        ):
            with dial(server.address, LIMITS) as channel:
                with contextlib.suppress(bow.BrokenError, bow.DeadlineExceeded):
                    channel.send(messages, 2.0)
                with pytest.raises(bow.BrokenError):
                    receive_all(channel)
        with bow.connect(endpoint, limits=LIMITS) as stream:
            assert stream.read_all().num_rows == 3


def test_a_wrong_token_is_refused() -> None:
    """The token is checked before anything is served."""
    with bow.Server("ucx://", limits=LIMITS, token="0123456789abcdef") as server:
        endpoint = server.publish("t", {"n": [1]})
        with pytest.raises(bow.AccessDenied):
            bow.connect(endpoint.with_token("another"), limits=LIMITS)


def test_off_loopback_plaintext_is_said() -> None:
    """An address that others can reach needs a token, and that its user says that all of it can be read."""
    with pytest.raises(bow.UsageError, match="plaintext"):
        bow.Server("ucx://0.0.0.0:0", token="0123456789abcdef")
    with pytest.raises(bow.UsageError, match="token"):
        bow.Server("ucx://0.0.0.0:0", plaintext=True)


def test_other_fabrics_are_refused_by_name() -> None:
    """A URI of libfabric names a transport that is not there."""
    with pytest.raises(bow.UsageError, match="fabric"):
        bow.connect("fabric://10.0.0.1:4711?want_data=7", ticket=b"t")


def test_a_child_of_a_process_that_used_ucx() -> None:
    """A forked child is told that it cannot use UCX, and does not hang."""
    with bow.Server("ucx://", limits=LIMITS) as server:
        endpoint = server.publish("t", {"n": [1]})
        child = os.fork()
        if child == 0:
            code = 1
            try:
                bow.connect(endpoint, limits=LIMITS)
            except bow.ForkedError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with bow.connect(endpoint, limits=LIMITS) as stream:
            assert stream.read_all().num_rows == 1


def test_few_descriptors() -> None:
    """Where descriptors run out connections fail with an error that says so; UCX would end the process."""
    text = """
import resource, contextlib
import bowstring as bow
from bowstring.transport import dial
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
with bow.Server("ucx://") as server:
    endpoint = server.publish("t", {"n": [1]})
    held = []
    try:
        for _ in range(60):
            held.append(dial(server.address))
        print("no error")
    except bow.LimitExceeded as error:
        print("limit")
    for channel in held:
        channel.close()
    held.clear()
    import time; time.sleep(3)
    with bow.connect(endpoint) as stream:
        print(stream.read_all().num_rows)
"""
    with program(text) as process:
        assert [line_of(process), line_of(process)] == ["limit", "1"]
