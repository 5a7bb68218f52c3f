"""Room: memory first, files next, and waiting only where it can end."""

from __future__ import annotations

import concurrent.futures
import errno
import mmap
import os
import resource
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.depot.handlers import Client
from bowstring.depot.manifest import BegunAttempt
from bowstring.depot.registry import Registry
from bowstring.depot.slab_pool import SlabPool, Turn
from bowstring.depot.slabs import Lent
from bowstring.memory import Region
from tests.depot.conftest import APP, MIB, WAIT, Connect, commit, held, read, until, until_free

TABLE = pa.table({"n": np.arange(3 << 17)})  # 3 MiB
SMALL = TABLE.slice(0, 1 << 17)  # 1 MiB

Slab = tuple[Lent, Region]


def borrow(stock: SlabPool, nbytes: int, owner: str = "a", wait: float = 0.0, folder: str = "/tmp") -> Slab:
    """Borrow for somebody who stays, as a session does: again and again."""
    turn, end = Turn(owner, lambda: None), time.monotonic() + wait
    while (found := stock.borrow(turn, nbytes, folder)) is None:
        if time.monotonic() >= end:
            raise stock.too_late(nbytes, wait)
        time.sleep(0.005)
    return found


def test_what_is_beyond_the_budget_goes_to_files(connect: Connect, tmp_path: Path) -> None:
    """Four times the memory budget is read as it was written, some of it from files without a name."""
    depot = connect(options={"memory_budget": 8 * MIB, "disk_budget": 64 * MIB})
    tables = [pa.table({"n": np.arange(3 << 17) + number}) for number in range(8)]
    written = [
        commit(depot, table, partition=number, spill_folder=str(tmp_path)).endpoint
        for number, table in enumerate(tables)
    ]
    status = depot.status()
    assert (status.memory_in_use, status.disk_in_use) == (6 * MIB, 24 * MIB)
    assert os.listdir(tmp_path) == []
    files = [str(fd.readlink()) for fd in Path(f"/proc/{status.pid}/fd").iterdir()]
    assert any(each.startswith(f"{tmp_path}/") and each.endswith(" (deleted)") for each in files)
    dataset = bow.Dataset(tuple(written), tables[0].schema)
    assert read(dataset).equals(pa.concat_tables(tables))
    with bow.connect(dataset) as stream:
        assert stream.read_all().num_rows == 8 * TABLE.num_rows
        assert stream.stats.path == "unix: mapped"
    depot.end(APP)
    until_free(depot)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[str]:
    """Return a file system of 8 MiB, where this process may make one."""
    folder = str(tmp_path / "disk")
    os.mkdir(folder)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True)
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_disk_that_is_full_is_no_crash(connect: Connect, small_disk: str) -> None:
    """A disk with less room than the budget says costs no task its life, and no data set what it has there."""
    depot = connect(options={"memory_budget": 4 * MIB, "disk_budget": 1 << 40})
    before = commit(depot, TABLE, "before", spill_folder=small_disk)
    with depot.begin(application=APP, dataset="data", spill_folder=small_disk, wait=0.2) as attempt:
        attempt.write(TABLE)
        attempt.write(TABLE)
        with pytest.raises(bow.OutOfBudget, match=rf"No space left on device \(ENOSPC\).*{small_disk}"):
            attempt.write(TABLE)
        depot.release("before")
        attempt.write(TABLE)
        with pytest.raises(bow.OutOfBudget):
            attempt.write(TABLE)
        committed = attempt.commit()
    assert read(committed.endpoint).equals(pa.concat_tables([TABLE] * 3))
    with pytest.raises(bow.UnknownTicket):
        bow.connect(before.endpoint)
    depot.stop()


def taken(pid: int) -> int:
    """Return how many bytes the memory files of a depot take, by what the kernel says."""
    found = {}
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if "/memfd:bowstring" in str(fd.readlink()):
                status = fd.stat()
                found[status.st_ino] = status.st_blocks * 512
        except OSError:
            continue
    return sum(found.values())


@pytest.mark.parametrize("rows", [1 << 17, 3 << 16, 5 << 17, (1 << 20) + 1], ids=lambda rows: f"{8 * rows}")
def test_committed_data_take_what_they_are(connect: Connect, rows: int) -> None:
    """After commit, and after they were read, partitions of 1 MiB and more take at most 1.1 x their bytes."""
    depot = connect()
    whole = pa.table({"n": np.arange(rows), "text": np.char.mod("%d", np.arange(rows))})
    pieces = [whole.slice(start, 10_000) for start in range(0, rows, 10_000)]
    written = [commit(depot, pieces, partition=number).endpoint for number in range(3)]
    nbytes = 3 * whole.nbytes
    status = depot.status()
    assert taken(status.pid) <= 1.1 * nbytes + status.memory_warm
    assert abs(status.memory_data - nbytes) < 0.02 * nbytes
    assert status.memory_data <= status.memory_in_use <= 1.1 * nbytes
    assert status.memory_slack == status.memory_in_use - status.memory_data
    assert [each.held for each in status.datasets] == [status.memory_in_use]
    dataset = bow.Dataset(tuple(written), whole.schema)
    with bow.connect(dataset) as stream:
        kept = stream.read_all()
        assert stream.stats.path == "unix: mapped"
        assert kept.equals(pa.concat_tables([whole] * 3))
        assert taken(status.pid) <= 1.1 * nbytes + depot.status().memory_warm
        del kept
    depot.end(APP)
    until_free(depot)


def test_a_slab_that_was_cut_is_lent_again_whole(connect: Connect) -> None:
    """What was given back of a slab is there again for the next data set, and counts then."""
    depot = connect(options={"memory_budget": 8 * MIB, "disk_budget": 0})
    large = pa.table({"n": np.arange(5 << 16)})  # 2.5 MiB in a slab of 4 MiB
    for number in range(4):
        first = commit(depot, large, "first")
        assert depot.status().memory_in_use <= 2.6 * MIB
        second = commit(depot, large, "second", wait=0.0)
        assert read(first.endpoint).equals(large)
        assert read(second.endpoint).equals(large), number
        depot.end(APP)
        until_free(depot)
        status = depot.status()
        assert status.memory_warm <= 5.2 * MIB
        full = commit(depot, pa.table({"n": np.arange(1 << 19) + number}), "full")
        assert depot.status().memory_in_use == 4 * MIB
        assert read(full.endpoint)["n"][-1].as_py() == (1 << 19) - 1 + number
        depot.end(APP)
        until_free(depot)


def test_small_partitions_share_memory(connect: Connect) -> None:
    """Partitions of a few rows lie side by side in a few slabs, and are read as one data set that is kept."""
    depot = connect(options={"memory_budget": 64 * MIB, "disk_budget": 0})
    parts = [pa.table({"n": [number, -number], "text": ["a" * number, None]}) for number in range(1000)]
    parts = [part.append_column("d", part["text"].dictionary_encode()) for part in parts]
    written = [commit(depot, part, partition=number) for number, part in enumerate(parts)]
    status = depot.status()
    assert status.memory_in_use <= 2 * MIB
    assert taken(status.pid) <= 2.1 * MIB
    dataset = bow.Dataset(tuple(each.endpoint for each in written), parts[0].schema)
    rows = pa.concat_tables(parts).to_pylist()
    assert read(dataset).to_pylist() == rows
    depot.settle("data", [each.endpoint for each in written[:500]])
    assert read(bow.Dataset(dataset.endpoints[:500], dataset.schema)).to_pylist() == rows[:1000]
    depot.end(APP)
    until_free(depot)


def test_small_partitions_stay_where_they_are_without_room(connect: Connect) -> None:
    """Where there is no room for the copy that joins small partitions, they are committed all the same."""
    depot = connect(options={"memory_budget": MIB, "disk_budget": 0})
    parts = [pa.table({"n": np.arange(60_000) + number}) for number in range(2)]
    written = [commit(depot, part, partition=number, wait=0.0) for number, part in enumerate(parts)]
    assert read(bow.Dataset(tuple(each.endpoint for each in written), parts[0].schema)).equals(
        pa.concat_tables(parts)
    )
    assert depot.status().memory_in_use <= MIB


def test_slabs_leave_descriptors_to_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slab is refused where its descriptor would be one of the last, and counts for nothing then."""
    most = len(os.listdir("/proc/self/fd")) + 200
    monkeypatch.setattr("resource.getrlimit", lambda _: (most, most))
    stock = SlabPool(memory=1 << 30, disk=0)
    held: list[Slab] = []
    with pytest.raises(bow.LimitExceeded, match="left for readers"):
        held.extend(borrow(stock, 1) for _ in range(most))
    assert 20 < len(held) <= 100
    assert len(os.listdir("/proc/self/fd")) <= most - most // 4 + 2
    assert stock.figures()["memory_in_use"] == len(held) * 64 << 10
    held.pop()
    borrow(stock, 1)
    del held
    stock.close()


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_all_of_the_budget_can_be_used(connect: Connect, tmp_path: Path, kind: str) -> None:
    """An attempt that asks for more with every slab is refused only when what it needs does not fit."""
    depot = connect(options={"memory_budget": 0, "disk_budget": 0, f"{kind}_budget": 24 * MIB})
    with depot.begin(application=APP, dataset="data", spill_folder=str(tmp_path), wait=0.0) as attempt:
        for _ in range(24):
            attempt.write(SMALL)
        with pytest.raises(bow.OutOfBudget):
            attempt.write(SMALL)
        committed = attempt.commit()
    assert read(committed.endpoint).equals(pa.concat_tables([SMALL] * 24))


def test_all_of_a_small_disk_can_be_used(connect: Connect, small_disk: str) -> None:
    """Where the file system has less room than the budget says, what is needed is asked for before it is full."""
    depot = connect(options={"memory_budget": 0, "disk_budget": 1 << 40})
    with depot.begin(application=APP, dataset="data", spill_folder=small_disk, wait=0.0) as attempt:
        for _ in range(8):
            attempt.write(SMALL)
        committed = attempt.commit()
    assert read(committed.endpoint).equals(pa.concat_tables([SMALL] * 8))


def test_a_folder_that_is_not_there_is_refused(depot: bow.depot.Depot) -> None:
    """A spill folder is a folder."""
    with pytest.raises(bow.UsageError, match="folder"):
        depot.begin(application=APP, dataset="data", spill_folder="/nowhere/at/all")


def test_waiting_ends_when_there_is_room(connect: Connect) -> None:
    """A task waits until another data set is released, and goes on."""
    depot = connect(options={"memory_budget": 4 * MIB, "disk_budget": 0})
    commit(depot, TABLE, "before")
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        later = threads.submit(commit, connect(), TABLE, "after", wait=WAIT)
        until(lambda: depot.status().waiting == 1, "it waits")
        assert not later.done()
        depot.release("before")
        assert read(later.result(WAIT).endpoint).equals(TABLE)


def test_waiting_has_a_deadline(connect: Connect) -> None:
    """Where nobody makes room, a task hears so in time, and leaves nothing."""
    depot = connect(options={"memory_budget": 4 * MIB, "disk_budget": 0})
    commit(depot, TABLE, "before")
    began = time.monotonic()
    with pytest.raises(bow.OutOfBudget, match="no room in time"):
        commit(depot, TABLE, wait=0.3)
    assert 0.3 <= time.monotonic() - began < WAIT
    assert held(depot) == 3 * MIB


def test_who_waits_for_himself_fails_at_once(connect: Connect) -> None:
    """Where all room is held by the data set itself, which is not done before it has more, waiting is pointless."""
    depot = connect(options={"memory_budget": 8 * MIB, "disk_budget": 4 * MIB})
    commit(depot, TABLE, "other")
    commit(depot, TABLE, partition=0)
    with depot.begin(application=APP, dataset="data", partition=1, wait=1e6) as attempt:
        attempt.write(TABLE)
        began = time.monotonic()
        attempt._wait = 0.1
        with pytest.raises(bow.OutOfBudget):  # the other one may go
            attempt.write(TABLE)
        depot.release("other")
        attempt._wait = 1e6
        attempt.write(TABLE)
        with pytest.raises(bow.OutOfBudget, match="will have none"):
            attempt.write(TABLE)
    assert time.monotonic() - began < WAIT
    with pytest.raises(bow.OutOfBudget):
        commit(depot, {"n": np.zeros(1 << 24)}, "larger than everything")


def test_a_waiting_task_that_dies_is_forgotten(connect: Connect) -> None:
    """Nothing is lent to somebody who is gone, and whoever waits behind him gets it."""
    depot = connect(options={"memory_budget": 4 * MIB, "disk_budget": 0})
    commit(depot, TABLE, "before")
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        impatient = connect().begin(application=APP, dataset="gone", wait=1e6)
        gone = threads.submit(impatient.write, TABLE)
        until(lambda: depot.status().waiting == 1, "it waits")
        later = threads.submit(commit, connect(), TABLE, "after", wait=WAIT)
        until(lambda: depot.status().waiting == 2, "both wait")
        assert impatient._connection is not None
        impatient._connection.close()
        with pytest.raises(bow.ClosedError):
            gone.result(WAIT)
        until(lambda: depot.status().waiting == 1, "one of them is forgotten")
        depot.release("before")
        assert later.result(WAIT).num_rows == TABLE.num_rows


# The stock by itself.


def test_those_who_wait_are_served_in_order() -> None:
    """A small request does not overtake a large one that came before."""
    stock = SlabPool(4 * MIB, 0)
    kept = [borrow(stock, MIB, "before") for _ in range(4)]
    served: list[str] = []

    def wait_for(nbytes: int, name: str) -> None:
        lent = borrow(stock, nbytes, name, WAIT)
        served.append(name)
        time.sleep(0.1)
        del lent

    threads = []
    for name, nbytes in (("large", 4 * MIB), ("small", MIB), ("smaller", 1)):
        threads.append(threading.Thread(target=wait_for, args=(nbytes, name)))
        threads[-1].start()
        until(lambda: stock.figures()["waiting"] == len(threads), f"{name} waits")
    kept.pop()
    time.sleep(0.2)
    assert served == []
    kept.clear()
    for thread in threads:
        thread.join(WAIT)
    assert served[0] == "large"
    assert sorted(served[1:]) == ["small", "smaller"]
    assert stock.figures()["memory_in_use"] == 0
    stock.close()


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_what_was_lost_counts_while_it_is_mapped(kind: str, tmp_path: Path) -> None:
    """A slab that is not lent again takes its room of the budget for as long as a process has it mapped."""
    stock = SlabPool(*((2 * MIB, 0) if kind == "memory" else (0, 2 * MIB)))

    def again(nbytes: int) -> None:
        assert borrow(stock, nbytes, "next", 0.1, str(tmp_path))[0].kind == kind

    lent, region = borrow(stock, MIB, "lost", folder=str(tmp_path))
    fd = os.dup(lent.fd)
    for protection in (mmap.PROT_READ | mmap.PROT_WRITE, mmap.PROT_READ):
        mapped = mmap.mmap(fd, MIB, mmap.MAP_SHARED, protection)
        os.close(fd)
        region.retire()
        del lent, region
        found = stock.figures()
        assert found["memory_in_use"] + found["disk_in_use"] == 0
        assert (found["memory_lost"], found["disk_lost"]) == ((MIB, 0) if kind == "memory" else (0, MIB))
        assert found["lost_slabs"] == 1
        again(MIB)
        with pytest.raises(bow.OutOfBudget, match="1048576 held by processes"):
            again(2 * MIB)
        mapped.close()
        again(2 * MIB)
        assert stock.figures()["lost_slabs"] == 0
        stock.trim(everything=True)
        lent, region = borrow(stock, MIB, "lost", folder=str(tmp_path))
        fd = os.dup(lent.slab.fd)
    os.close(fd)
    del lent, region
    stock.close()


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_what_is_given_up_takes_no_room(kind: str, tmp_path: Path) -> None:
    """A slab that lay warm is given back to the system though a worker has it mapped still."""
    stock = SlabPool(*((MIB, 0) if kind == "memory" else (0, MIB)))
    lent, region = borrow(stock, MIB, folder=str(tmp_path))
    with mmap.mmap(lent.fd, MIB) as mapped:
        mapped[:] = b"x" * MIB
        fd = os.dup(lent.fd)
        del lent, region
        assert stock.figures()["warm_slabs"] == 1
        assert os.fstat(fd).st_blocks * 512 >= MIB
        stock.trim(everything=True)
        assert os.fstat(fd).st_blocks == 0
    os.close(fd)
    stock.close()


def test_who_holds_room_goes_first() -> None:
    """A data set that is half done gets what there is, as whoever came before may wait for its end."""
    stock = SlabPool(4 * MIB, 0)
    half = borrow(stock, 2 * MIB, "half done")
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        later = threads.submit(borrow, stock, 4 * MIB, "comes anew", WAIT)
        until(lambda: stock.figures()["waiting"] == 1, "it waits")
        rest = borrow(stock, MIB, "half done", WAIT / 4)
        assert not later.done()
        del half, rest
        later.result(WAIT)
    stock.close()


def test_the_next_try_waits_for_the_lost_one() -> None:
    """What an attempt held that was lost is no reason to refuse the next one while it is not back yet."""
    stock = SlabPool(MIB, 0)
    lost = BegunAttempt(APP, "data", partition=0, number=0, readers=None, folder="", limits=bow.Limits())
    first = borrow(stock, MIB, "data")[1]
    lost.lend(first)
    uuid = first.uuid
    del first
    with pytest.raises(bow.OutOfBudget):
        borrow(stock, MIB, "data", WAIT)
    tried: list[concurrent.futures.Future[Slab]] = []

    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        depot: Any = SimpleNamespace(slab_pool=stock, registry=Registry(1.0), clients=set())
        channel: Any = SimpleNamespace(passes_memory="fd")
        client = Client(depot, channel, lambda _: None, lambda: None)
        client.attempt = lost
        client.gone()
        tried.append(threads.submit(borrow, stock, MIB, "data", WAIT))
        until(lambda: stock.figures()["waiting"] == 1, "it waits")
        client.leave(exited=False)
        assert tried[0].result(WAIT)[0].kind == "memory"
    assert tried[0].result()[1].uuid != uuid, "a slab that its writer may still write is lent again"
    tried.clear()
    assert stock.figures()["memory_in_use"] == 0
    stock.close()


def full_disk(monkeypatch: pytest.MonkeyPatch, error: int = errno.ENOSPC) -> None:
    """Let no file have any room."""

    def fail(*_: Any) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "posix_fallocate", fail)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: int) -> None:
    """A disk without room, whatever the budget says, is waited for where another data set may give some back."""
    stock = SlabPool(MIB, 1 << 40)
    other = borrow(stock, MIB, "other")
    with monkeypatch.context() as patched:
        full_disk(patched, error)
        with pytest.raises(bow.OutOfBudget, match=rf"\({errno.errorcode[error]}\).*{tmp_path}"):
            borrow(stock, MIB, "mine", 0.2, str(tmp_path))
    time.sleep(0.5)
    mine = borrow(stock, MIB, "mine", WAIT, str(tmp_path))
    assert mine[0].kind == "disk"
    del other, mine
    assert stock.figures()["disk_in_use"] == stock.figures()["memory_in_use"] == 0
    stock.close()


def test_a_full_disk_that_nobody_empties_fails_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where nobody else holds anything, a full disk is no reason to wait."""
    stock = SlabPool(MIB, 1 << 40)
    mine = borrow(stock, MIB)
    full_disk(monkeypatch)
    with pytest.raises(bow.OutOfBudget, match=rf"No space left on device \(ENOSPC\).*{tmp_path}"):
        borrow(stock, MIB, "a", 1e6, str(tmp_path))
    del mine
    stock.close()


def test_a_system_without_memory_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system refuses memory that the budget allows, and nobody else holds any, nobody waits for it."""

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    stock = SlabPool(2 * MIB, 0)
    monkeypatch.setattr("bowstring.memory.slab.mmap.mmap", fail)
    limits = {resource.RLIMIT_AS: (3 * MIB, 3 * MIB)}
    monkeypatch.setattr("resource.getrlimit", lambda limit: limits.get(limit, (1024, 1024)))
    with pytest.raises(
        bow.OutOfBudget, match=rf"no room to map.*{3 * MIB} bytes of address space \(RLIMIT_AS\)"
    ):
        borrow(stock, MIB, wait=1e6)
    stock.close()


def test_why_there_are_no_files_is_said(tmp_path: Path) -> None:
    """A folder that cannot be used is named by whoever had no room but there."""
    stock = SlabPool(0, 1 << 40)
    with pytest.raises(bow.OutOfBudget, match=r"No such file or directory \(ENOENT\).*not-there"):
        borrow(stock, MIB, folder=str(tmp_path / "not-there"))
    stock.close()


def test_what_fails_midway_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error while a slab is made leaves the account as it was."""
    stock = SlabPool(MIB, 0)
    with monkeypatch.context() as patched:
        patched.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
        with pytest.raises(OSError, match="broken"):
            borrow(stock, MIB)
    lent = borrow(stock, MIB)
    del lent
    stock.close()
    with pytest.raises(bow.ClosedError):
        borrow(stock, MIB)


def test_the_budget_is_never_passed() -> None:
    """Whatever is borrowed and given back by many at once, what is used and warm together is within the budget."""
    stock = SlabPool(16 * MIB, 8 * MIB, warm_seconds=0.0)
    numbers = np.random.default_rng(0)
    sizes = numbers.integers(1, 5 * MIB, 200).tolist()
    worst = []

    def work(mine: list[int]) -> None:
        kept: list[Slab] = []
        for nbytes in mine:
            if len(kept) > 2:
                kept.pop(0)
            try:
                kept.append(borrow(stock, nbytes, str(threading.get_ident()), 0.05))
            except bow.OutOfBudget:
                kept.clear()
            found = stock.figures()
            worst.append(
                (found["memory_in_use"] + found["memory_warm"] <= 16 * MIB)
                and (found["disk_in_use"] + found["disk_warm"] <= 8 * MIB)
            )

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(work, [sizes[start::4] for start in range(4)]))
    assert all(worst)
    assert stock.in_use == 0
    stock.trim()
    assert stock.figures()["warm_slabs"] == 0
    stock.close()
