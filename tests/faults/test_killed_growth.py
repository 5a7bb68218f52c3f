"""Data sets that grow, where one end is killed at or inside any message, or in an append: no batch is skipped."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest

import bowstring as bow
from tests.faults.conftest import LIMITS, TLS, until
from tests.faults.program import Program

COUNT = 6
POINTS = {"message": 24, "append": 400, "half": 6}  # about as many as there are
ADDRESSES = [pytest.param(each, id=each.partition(":")[0]) for each in ("unix:", "tcp://127.0.0.1:0", TLS)]
SEEDS = [*range(2), *(pytest.param(each, marks=pytest.mark.slow) for each in range(2, 60))]


def batch_of(number: int) -> pa.RecordBatch:
    """Return a batch of a number, and a dictionary that has grown by one with each of them."""
    words = pa.array([f"{each}" for each in range(number + 1)]).dictionary_encode()
    return pa.record_batch({"n": [number] * (number + 1), "d": words})


def follow(
    endpoint: bow.Endpoint | str,
    since: bow.Position | None = None,
    begun: Callable[[], object] = lambda: None,
) -> tuple[list[int], bow.Position | None, bow.BowstringError | None]:
    """Read as far as it goes: which batches came, where the stream was then, and what ended it."""
    found: list[int] = []
    with bow.connect(endpoint, follow=True, since=since, limits=LIMITS) as stream:
        position, error = stream.position, None
        begun()
        try:
            for batch in stream:
                number = batch["n"].to_pylist()[0]
                assert batch.to_pydict() == pa.table(batch_of(number)).to_pydict()
                del batch
                found.append(number)
                position = stream.position
        except bow.BowstringError as raised:
            error = raised.with_traceback(None)
        assert stream.position == position
    return found, position, error


def lines(program: Program) -> list[str]:
    """Return what a program printed until it ended, or was done."""
    found: list[str] = []
    try:
        while found[-1:] != ["finished"]:
            found.append(program.hear())
    except AssertionError as error:
        if " ended. " not in str(error):
            raise
    return found


@pytest.mark.parametrize("kind", POINTS)
@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_server_that_is_killed(run: Callable[..., Program], address: str, kind: str, seed: int) -> None:
    """Its follower has the first batches, all there were up to where it is, and then the error or the end."""
    point = random.Random(f"{address} {kind} {seed}").randint(1, POINTS[kind])
    program = run("growing", "serve", address, kind, str(point))
    first, uri = program.hear(), program.hear()
    version = first.split()[1].rpartition(":")[0]
    found, position, error = follow(uri, begun=program.say)
    said = lines(program)
    assert found == [*range(len(found))]
    assert str(position) == f"{version}:{len(found)}"
    if error is None:
        assert len(found) == COUNT
    else:
        assert type(error) is bow.BrokenError
    # Each append that returned says the place behind its batch.
    assert (
        said[: COUNT - 1] == [f"{number} {version}:{number + 1}" for number in range(1, COUNT)][: len(said)]
    )
    program.kill()


@pytest.mark.parametrize("kind", ["message", "half"])
@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_reader_that_is_killed(
    serve: Callable[..., bow.Server], run: Callable[..., Program], address: str, kind: str, seed: int
) -> None:
    """Who goes on from the last position that it told has all others; the server notices, and appends meanwhile."""
    point = random.Random(f"{address} {kind} {seed}").randint(1, POINTS[kind])
    server = serve(address, token="0123456789abcdef")
    server.append("t", batch_of(0))
    program = run("growing", "read", str(server.endpoints["t"]), kind, str(point))
    for number in range(1, COUNT):
        server.append("t", batch_of(number))
    server.finish("t")
    told = [line.split() for line in lines(program) if line != "finished"]
    assert [number for number, _ in told] == [f"{number}" for number in range(len(told))]
    since = bow.Position.parse(told[-1][1]) if told else None
    found, position, error = follow(server.endpoints["t"], since)
    assert error is None
    assert found == [*range(len(told), COUNT)]
    assert str(position).endswith(f":{COUNT}")
    program.kill()
    until(lambda: server.stats.connections == 0, "all sessions end")
    server.withdraw("t")
    server.wait_released()
