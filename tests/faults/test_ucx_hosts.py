"""Two hosts, as network namespaces with a cable between them, that talk over UCX: whole, slow and cut."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.ucx import needs_ucx

pytestmark = [needs_ucx, pytest.mark.slow]

PRODUCER = """
import sys, time
import numpy as np, bowstring as bow
def batches():
    for number in range(200):
        yield {"n": np.full(20_000, number)}
        time.sleep(0.01)
with bow.Server("ucx://10.77.0.1:0", token="0123456789abcdef", plaintext=True) as server:
    print(server.publish("t", batches), flush=True)
    time.sleep(120)
"""
READER = """
import sys, time, bowstring as bow
limits = bow.Limits(connect_timeout=10.0, reply_timeout=3.0, stall_timeout=3.0, heartbeat=0.5)
begin, count, error = 0.0, 0, ""
try:
    with bow.connect(sys.argv[1], limits=limits) as stream:
        for batch in stream:
            assert (batch["n"].to_numpy() == count).all()
            count += 1
            if count == 10:
                print("reads", flush=True)
except bow.BowstringError as raised:
    error = type(raised).__name__
print(count, error or "whole", flush=True)
"""


class Hosts(NamedTuple):
    one: str
    two: str

    def run(self, host: str, text: str, *arguments: str) -> subprocess.Popen[str]:
        command = ["ip", "netns", "exec", host, sys.executable, "-c", text, *arguments]
        environment = {**os.environ, "UCX_TLS": "tcp"}
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """Return two namespaces, 10.77.0.1 and 10.77.0.2; skipped where this user or kernel has none."""
    if shutil.which("ip") is None:
        pytest.skip("needs ip of iproute2")
    mark = secrets.token_hex(3)
    found = Hosts(f"bow-{mark}-1", f"bow-{mark}-2")
    with contextlib.ExitStack() as stack:
        try:
            for number, host in enumerate(found, 1):
                _ip("netns", "add", host)
                stack.callback(_ip, "netns", "del", host)
                _ip("-n", host, "link", "set", "lo", "up")
                if number == 1:
                    _ip("-n", host, "link", "add", "bow0", "type", "veth", "peer", "name", f"b{mark}")
            _ip("-n", found.one, "link", "set", f"b{mark}", "netns", found.two, "name", "bow0")
            for number, host in enumerate(found, 1):
                _ip("-n", host, "addr", "add", f"10.77.0.{number}/24", "dev", "bow0")
                _ip("-n", host, "link", "set", "bow0", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"needs network namespaces and veth: {error.stderr.decode().strip()}")
        yield found


@contextlib.contextmanager
def reading(hosts: Hosts) -> Iterator[subprocess.Popen[str]]:
    """Have one host read what the other publishes, and be in the midst of it."""
    with contextlib.ExitStack() as stack:
        producer = stack.enter_context(hosts.run(hosts.one, PRODUCER))
        stack.callback(producer.kill)
        assert producer.stdout is not None
        reader = stack.enter_context(hosts.run(hosts.two, READER, producer.stdout.readline().strip()))
        stack.callback(reader.kill)
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reads\n"
        yield reader


def _outcome(reader: subprocess.Popen[str]) -> list[str]:
    return reader.communicate(timeout=60.0)[0].split()


def test_between_hosts(hosts: Hosts) -> None:
    """A reader on another host gets the whole table."""
    with reading(hosts) as reader:
        assert _outcome(reader) == ["200", "whole"]


def test_a_cut_cable(hosts: Hosts) -> None:
    """Where the cable is cut the reader has an error within its deadlines, and no shorter table."""
    with reading(hosts) as reader:
        _ip("-n", hosts.one, "link", "set", "bow0", "down")
        count, outcome = _outcome(reader)
        assert int(count) < 200
        assert outcome in ("BrokenError", "DeadlineExceeded")


def test_a_bad_line(hosts: Hosts) -> None:
    """Over a line that is slow and loses packets the table is whole."""
    with reading(hosts) as reader:
        netem = [
            "tc",
            "-n",
            hosts.one,
            "qdisc",
            "add",
            "dev",
            "bow0",
            "root",
            "netem",
            "delay",
            "5ms",
            "loss",
            "1%",
        ]
        if shutil.which("tc") is None or subprocess.run(netem, capture_output=True).returncode:
            pytest.skip("needs tc, and a kernel with netem")
        assert _outcome(reader) == ["200", "whole"]
