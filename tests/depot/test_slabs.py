"""The hardest promise: a slab is never lent again while a reader maps it, or a lost writer may write it."""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.depot.writing import WarmMappings, warm_mappings
from bowstring.errors import InvalidRegion
from bowstring.memory import cpu
from bowstring.memory.writable_memfd import make_writable_file, make_writable_memfd
from tests.depot.conftest import APP, MIB, Connect, Task, commit, held, read, until_free

ONE = pa.table({"n": np.full(1 << 16, 1)})
TWO = pa.table({"n": np.full(1 << 16, 2)})
SLAB = ONE.nbytes  # a power of two


def warm(depot: bow.depot.Depot) -> int:
    """Return how many slabs of the depot lie warm, once nothing is in use."""
    until_free(depot)
    return depot.status().warm_slabs


def lost(depot: bow.depot.Depot) -> tuple[int, int, int]:
    """Return how many slabs the depot says are lost, and their bytes of memory and disk."""
    status = depot.status()
    return status.lost_slabs, status.memory_lost, status.disk_lost


def test_a_slab_is_lent_again(depot: bow.depot.Depot) -> None:
    """What nobody uses any more is lent to the next one, who has it mapped already."""
    for number in range(5):
        committed = commit(depot, [ONE, TWO])
        assert read(committed.endpoint).equals(pa.concat_tables([ONE, TWO]))
        depot.release("data")
        until_free(depot)
        assert (depot.status().warm_slabs, len(warm_mappings().names())) == (2, 2 * 16), number


def test_not_while_a_reader_maps_it(depot: bow.depot.Depot) -> None:
    """A batch that somebody holds keeps its slab from the next writer, whatever becomes of the data set."""
    with bow.connect(commit(depot, ONE).endpoint) as stream:
        batch = stream.read_next_batch()
        depot.release("data")
        for number in range(3):
            commit(depot, TWO, f"other {number}")
            depot.release(f"other {number}")
        assert (batch["n"].values == 1).all()
        assert held(depot) == SLAB
        del batch
    gc.collect()
    assert warm(depot) == 2


def test_not_when_a_live_reader_was_lost(depot: bow.depot.Depot, task: Callable[..., Task]) -> None:
    """A reader whose connection is gone, but not its process, may look at the slab for ever: it is given up."""
    endpoint = commit(depot, ONE).endpoint
    reader = task(
        """
stream = bow.connect(sys.argv[2])
batch = stream.read_next_batch()
for wire in stream._connection._wires:
    wire.channel.close()
say("lost")
say(int((batch["n"].values == 1).all()))
""",
        str(endpoint),
    )
    assert reader.hear() == "lost"
    depot.release("data")
    until_free(depot)
    commit(depot, TWO, "other")
    reader.go_on()
    assert reader.hear() == "1"
    depot.end(APP)
    assert warm(depot) == 1


LOOKS_ON = """
stream = bow.connect(sys.argv[2])
batch = stream.read_next_batch()
for wire in stream._connection._wires:
    wire.channel.close()
say("lost")
"""


def test_what_a_lost_reader_looks_at_is_within_the_budget(
    connect: Connect, task: Callable[..., Task]
) -> None:
    """There is no room where a reader was lost until its process has ended, and then there is."""
    depot = connect(options={"memory_budget": SLAB, "disk_budget": 0})
    reader = task(LOOKS_ON, str(commit(depot, ONE).endpoint))
    assert reader.hear() == "lost"
    depot.release("data")
    until_free(depot)
    with pytest.raises(bow.OutOfBudget, match="lost sight"):
        commit(depot, TWO, "other", wait=0.3)
    reader.kill()
    assert read(commit(depot, TWO, "other").endpoint).equals(TWO)


WRITES_ON = """
import threading
depot = bow.depot.connect(folder=folder)
attempt = depot.begin(application="app", dataset="lost")
attempt.write(pa.table({"n": np.full(1 << 16, 7)}))
region = attempt._allocator._region
memory = region.array(0, region.nbytes, writable=True)
say("written")
{end}
threading.Thread(target=lambda: [memory.fill(9) for _ in iter(int, 1)], daemon=True).start()
say("writes on")
"""


@pytest.mark.parametrize(
    "end",
    ["attempt._connection.close()", "attempt.abort()", "attempt.commit()"],
    ids=["lost", "aborted", "committed"],
)
def test_not_while_a_live_writer_may_write_it(
    depot: bow.depot.Depot, task: Callable[..., Task], end: str
) -> None:
    """A writer that was lost, or holds a view of what it gave back, writes on: nobody else is lent that slab."""
    writer = task(WRITES_ON.replace("{end}", end))
    writer.hear()
    writer.go_on()
    assert writer.hear() == "writes on"
    depot.release("lost")
    until_free(depot)
    for number in range(3):
        committed = commit(depot, ONE, f"data {number}")
        assert read(committed.endpoint).equals(ONE)
    assert read(committed.endpoint).equals(ONE)
    depot.end(APP)
    # Three of ours, and none of the writer's.
    assert warm(depot) == 3
    assert lost(depot) == (1, SLAB, 0)
    writer.kill()
    assert lost(depot) == (0, 0, 0)


def test_a_dead_writer_writes_no_more(depot: bow.depot.Depot, task: Callable[..., Task]) -> None:
    """The slab of a writer that was killed is lent again."""
    writer = task(WRITES_ON.replace("{end}", ""))
    writer.hear()
    writer.kill()
    assert warm(depot) == 1
    assert read(commit(depot, ONE).endpoint).equals(ONE)
    assert depot.status().warm_slabs == 0


def test_writers_and_readers_at_once(connect: Connect, folder: str) -> None:
    """Two processes that write, keep, release and abort in any order never spoil what a third one reads."""
    depot = connect(options={"memory_budget": 24 * MIB, "disk_budget": 24 * MIB})
    code = """
import hashlib, random, sys, numpy as np, pyarrow as pa, bowstring as bow
folder, seed = sys.argv[1], int(sys.argv[2])
random.seed(seed)
numbers = np.random.default_rng(seed)
depot = bow.depot.connect(folder=folder)
kept, seen = [], 0
for turn in range(60):
    data = numbers.integers(0, 256, random.choice([1 << 10, 1 << 18, 1 << 20]), np.uint8)
    name = f"{seed} {turn}"
    with depot.begin(application=str(seed), dataset=name) as attempt:
        for part in np.array_split(data, random.randint(1, 3)):
            attempt.write({"n": part})
        if random.random() < 0.2:
            continue
        endpoint = attempt.commit().endpoint
    stream = bow.connect(endpoint)
    kept.append((name, hashlib.sha256(data).digest(), list(stream)))
    stream.close()
    if random.random() < 0.7:
        depot.release(name)
    while len(kept) > random.randint(0, 4):
        name, digest, batches = kept.pop(random.randrange(len(kept)))
        found = hashlib.sha256()
        for batch in batches:
            found.update(batch["n"].values)
        assert found.digest() == digest, (seed, turn, name)
        seen += 1
        depot.release(name)
        del batches, batch
print(seen)
"""
    workers = [
        subprocess.Popen([sys.executable, "-c", code, folder, str(seed)], stdout=subprocess.PIPE, text=True)
        for seed in (1, 2)
    ]
    for worker in workers:
        said, _ = worker.communicate(timeout=60.0)
        assert worker.returncode == 0
        assert int(said) > 10
    depot.end("1")
    depot.end("2")
    until_free(depot)


# Warm mappings.


def test_warm_mappings_are_bounded_and_the_same_memory() -> None:
    """What is kept mapped is found by its name, is the very memory that is lent, and no more than was allowed."""
    mapped = WarmMappings(2 * MIB)
    lent = [make_writable_memfd(MIB) for _ in range(3)]
    try:
        for slab, fd in lent:
            mapped.put(mapped.open(os.dup(fd), MIB, slab.uuid))
        assert mapped.names() == lent[1][0].uuid + lent[2][0].uuid
        slab, fd = lent[2]
        again = mapped.open(os.dup(fd), MIB, slab.uuid)
        cpu().array(again.address, MIB, again, writable=True)[:4] = [1, 2, 3, 4]
        assert cpu().array(slab.address, MIB, slab)[:4].tolist() == [1, 2, 3, 4]
        mapped.put(again)
        del again
        with pytest.raises(InvalidRegion, match="another slab"):
            mapped.open(os.dup(lent[0][1]), MIB, slab.uuid)
        mapped.forget(lent[1][0].uuid)
        assert mapped.names() == b""
    finally:
        for _, fd in lent:
            os.close(fd)


def test_the_depot_says_what_need_not_stay_mapped(connect: Connect) -> None:
    """Mappings of slabs that the depot gave up end with the next attempt."""
    depot = connect(options={"memory_budget": 2 * MIB, "disk_budget": 0})
    commit(depot, ONE, "a")
    commit(depot, ONE, "b")
    depot.end(APP)
    until_free(depot)
    assert len(warm_mappings().names()) == 2 * 16
    commit(depot, {"n": np.zeros(1 << 17 | 1)})  # takes the room of both
    depot.release("data")
    until_free(depot)
    depot.begin(application=APP, dataset="c").abort()
    assert len(warm_mappings().names()) == 16


# Files.


def test_a_file_is_read_as_memory_is(tmp_path: object) -> None:
    """What is written through a file's descriptor is seen by whoever maps it, and nothing is left in the folder."""
    slab, fd = make_writable_file(MIB, str(tmp_path))
    written = hashlib.sha256(os.urandom(16)).digest()
    os.pwrite(fd, written, 100)
    os.close(fd)
    assert bytes(cpu().array(slab.address, MIB, slab)[100:132]) == written
    assert os.listdir(str(tmp_path)) == []
    assert os.fstat(slab.fd).st_blocks * 512 >= MIB
