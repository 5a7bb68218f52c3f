"""Handles of lent memory, and who a process is: what they name, byte for byte."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.benchmarks.processes.child import Child
from bowstring.errors import ProtocolError, UsageError
from bowstring.memory import LentHandle, this_process, unpack_handle
from tests.memory.exporter import Exporter

pytestmark = pytest.mark.usefixtures("forked")

HANDLE_BYTES = 168
IDS = st.binary(min_size=16, max_size=16)
NUMBERS = st.integers(0, 2**64 - 1)
PIDS = st.integers(0, 2**32 - 1)
Process = type(this_process())
PROCESSES = st.builds(Process, IDS, NUMBERS, NUMBERS, PIDS)
HANDLES = st.builds(
    LentHandle, st.binary(min_size=64, max_size=64), NUMBERS, NUMBERS, PROCESSES, IDS, NUMBERS, PIDS
)


@given(HANDLES)
def test_handles_travel(handle: LentHandle) -> None:
    """A handle is what it was, also with zeros in the driver's bytes, and 168 bytes long."""
    packed = handle.pack()
    assert len(packed) == HANDLE_BYTES
    assert unpack_handle(packed) == handle
    assert packed[:16] == handle.uuid


@given(HANDLES, st.integers(0, HANDLE_BYTES - 1), st.integers(1, 255))
def test_no_byte_of_a_handle_can_be_changed(handle: LentHandle, place: int, change: int) -> None:
    """Whichever byte is another one, the handle is refused: its UUID is the hash of all the rest."""
    packed = bytearray(handle.pack())
    packed[place] ^= change
    with pytest.raises(ProtocolError):
        unpack_handle(bytes(packed))


@given(HANDLES, st.integers(0, HANDLE_BYTES + 20).filter(lambda size: size != HANDLE_BYTES))
def test_handles_have_one_length(handle: LentHandle, size: int) -> None:
    """A handle that is cut off, or longer, is refused."""
    with pytest.raises(ProtocolError):
        unpack_handle((handle.pack() + bytes(20))[:size])


@given(st.binary(max_size=200))
def test_what_is_no_handle(data: bytes) -> None:
    """Bytes that nobody made are a handle, or refused by the one error."""
    try:
        found = unpack_handle(data)
    except ProtocolError:
        return
    assert found.pack() == data


@pytest.mark.parametrize("size", [0, 63, 65])
def test_the_drivers_bytes_are_64(size: int) -> None:
    """A handle is not made of more or fewer of the driver's bytes, as one that was cut at a zero would be."""
    with pytest.raises(UsageError, match="expected 64"):
        LentHandle(bytes(size), 1, 4096, this_process(), bytes(16), 1, 2)


def test_each_part_has_its_say() -> None:
    """Memory that differs in any of what names it has another UUID: size, buffer id, address, process, device."""
    one = LentHandle(bytes(64), 1, 4096, Process(bytes(16), 1, 2, 3), bytes(16), 100, 12)
    others = [
        dataclasses.replace(one, **change)
        for change in (
            {"token": bytes(63) + b"\1"},
            {"buffer_id": 2},
            {"address": 8192},
            {"device_uuid": bytes(15) + b"\1"},
            {"nbytes": 101},
            {"arrow_device_type": 2},
        )
    ]
    processes = [
        Process(bytes(15) + b"\1", 1, 2, 3),
        Process(bytes(16), 9, 2, 3),
        Process(bytes(16), 1, 9, 3),
        Process(bytes(16), 1, 2, 9),
    ]
    others += [dataclasses.replace(one, exporter=each) for each in processes]
    assert len({each.uuid for each in (one, *others)}) == 11


def test_who_a_process_is() -> None:
    """The running process lives; one of its number that started at another time, or of another place, does not."""
    here = this_process()
    assert here.alive
    assert here.pid == os.getpid()
    assert not dataclasses.replace(here, started=here.started + 1).alive
    assert not dataclasses.replace(here, namespace=here.namespace + 1).alive
    assert not dataclasses.replace(here, boot_id=bytes(16)).alive
    with pytest.raises(ProtocolError):
        Process.unpack(here.pack()[:-1])
    with pytest.raises(ProtocolError):
        Process.unpack(here.pack()[:-1] + b"\1")
    with Child(Exporter) as exporter:
        _, packed = exporter.call("allocate", value=1, nbytes=1000)
        handle = unpack_handle(bytes.fromhex(packed))
        assert isinstance(handle, LentHandle)
        assert handle.exporter.alive
        assert (handle.exporter.pid, handle.exporter.place) == (exporter.pid, here.place)
    assert not handle.exporter.alive


def test_a_process_that_nobody_waited_for() -> None:
    """A process that has ended lends nothing any more, also while its parent has not heard of it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as ended:
        started = int(Path(f"/proc/{ended.pid}/stat").read_text().rpartition(")")[2].split()[19])
        there = dataclasses.replace(this_process(), pid=ended.pid, started=started)
        assert there.alive
        ended.kill()
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert not there.alive


def test_a_sandbox_that_does_not_say(
    in_child: Callable[[Callable[[], bool]], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a process cannot learn its place it has one of its own, which no other process has."""
    here = this_process()
    reading, writing = os.pipe()

    def hidden(_path: str) -> os.stat_result:
        raise FileNotFoundError

    def say() -> bool:
        monkeypatch.setattr(os, "stat", hidden)
        return os.write(writing, this_process().pack()) > 0

    assert in_child(say)
    assert in_child(say)
    size = len(here.pack())
    found = [Process.unpack(os.read(reading, size)) for _ in range(2)]
    os.close(reading)
    os.close(writing)
    assert len({each.place for each in (*found, here)}) == 3
