"""Connections whose other end is a plain socket, and processes that end with their test."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.transport import Channel, Listener, dial, listen
from tests.transport.kit.harness import PATIENCE

Raw = Callable[..., tuple[Channel, socket.socket]]
Spawn = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def raw(no_leaks: None) -> Iterator[Raw]:
    """Return a function that makes a channel and the plain socket at its other end."""
    with contextlib.ExitStack() as stack:

        def make(limits: Limits = DEFAULT_LIMITS) -> tuple[Channel, socket.socket]:
            with listen("unix:", limits) as listener:
                far = stack.enter_context(socket.socket(socket.AF_UNIX))
                far.connect(listener.uri.removeprefix("unix:"))
                channel = listener.accept(PATIENCE)
            assert channel is not None
            return stack.enter_context(channel), far

        yield make


@pytest.fixture
def unix_pair(no_leaks: None) -> Iterator[tuple[Channel, Channel]]:
    """Return the two ends of a connection over a Unix socket."""
    with listen("unix:") as listener, dial(listener.uri) as here:
        there = listener.accept(PATIENCE)
        assert there is not None
        with there:
            yield here, there


@pytest.fixture
def spawn(no_leaks: None) -> Iterator[Spawn]:
    """Return a function that runs a script in a new process, which is killed when the test ends."""
    with contextlib.ExitStack() as stack:

        def start(script: str, *arguments: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [sys.executable, "-c", script, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )

            def end() -> None:
                # The whole session: what it forked, too.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate(timeout=PATIENCE)

            stack.callback(end)
            return process

        yield start


@pytest.fixture
def listening(no_leaks: None) -> Iterator[Listener]:
    """Return a listener on a Unix socket."""
    with listen("unix:") as listener:
        yield listener
