"""What a fork leaves behind: nothing of the parent's connections."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from bowstring.errors import BrokenError, ForkedError
from bowstring.transport import Message, dial, listen
from tests.transport.kit.harness import PATIENCE

if TYPE_CHECKING:
    from bowstring.transport import Channel

Spawn = Callable[..., "subprocess.Popen[bytes]"]

PARENT = """
import os, sys
from bowstring.transport import dial, listen
with dial(sys.argv[1]) as channel, listen(sys.argv[2]) as listener:
    if os.fork() == 0:
        print(listener.uri, flush=True)
        sys.stdin.read()  # lives on after its parent
        os._exit(0)
    sys.stdin.read()
"""


@pytest.mark.parametrize("address", ["unix:", "tcp://"])
def test_child_does_not_keep_connections_alive(spawn: Spawn, address: str) -> None:
    """When a process dies its peers see the end, and its listener is gone, although a child of it lives on."""
    with listen(address) as listener:
        process = spawn(PARENT, listener.uri, address)
        channel = listener.accept(PATIENCE)
        assert channel is not None
        with channel:
            assert process.stdout is not None
            uri = process.stdout.readline().decode().strip()
            process.kill()
            with pytest.raises(BrokenError):
                channel.receive(PATIENCE)
            process.wait(PATIENCE)
            with pytest.raises(BrokenError):
                dial(uri)
    if address == "unix:":
        os.unlink(uri.removeprefix("unix:"))


@pytest.mark.parametrize("address", ["inproc:", "unix:", "tcp://"])
def test_listener_in_a_child(no_leaks: None, address: str) -> None:
    """A forked child cannot accept, and closing there takes nothing from the parent."""
    with listen(address) as listener:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                try:
                    listener.accept(0.0)
                except ForkedError:
                    listener.close()
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with dial(listener.uri), listener.accept(PATIENCE) as there:  # type: ignore[union-attr]  # it waits
            assert not there.closed


def _descriptors() -> set[int]:
    """Return the descriptors that are open, but for that which lists them."""
    return {fd for fd in map(int, os.listdir("/proc/self/fd")) if os.path.lexists(f"/proc/self/fd/{fd}")}


def test_child_holds_no_descriptor(no_leaks: None) -> None:
    """A forked child has none of the parent's sockets and pidfds."""
    before = _descriptors()
    with listen("unix:") as listener, dial(listener.uri):
        there = listener.accept(PATIENCE)
        assert there is not None
        with there:
            fds = _descriptors() - before
            assert len(fds) >= 5  # three sockets, and who is at either end
            child = os.fork()
            if child == 0:
                os._exit(sum(os.path.lexists(f"/proc/self/fd/{fd}") for fd in fds))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_keeps_nothing_that_is_on_its_way(no_leaks: None) -> None:
    """What a descriptor stands for that has come, and has no other owner yet, is not kept for a child's sake."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
        inodes = [os.fstat(file.fileno()).st_ino for file in files]
        listener = stack.enter_context(listen("unix:"))
        here = stack.enter_context(dial(listener.uri))
        there = stack.enter_context(cast("Channel", listener.accept(PATIENCE)))
        here.send([Message(1, [b"a"], tuple(file.fileno() for file in files))], PATIENCE)
        received = there.receive(PATIENCE)
        assert received is not None
        owned, loose = cast("tuple[Any, Any]", received.attachments)
        number = owned.detach()
        child = os.fork()
        if child == 0:
            found = [os.fstat(fd).st_ino for fd in (number, loose, *(file.fileno() for file in files))]
            os._exit(0 if found[0] == found[2] == inodes[0] and found[1] != inodes[1] == found[3] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert os.fstat(loose).st_ino == inodes[1]
        os.close(number)
