"""``connect("grpc://…")``: the best way that the answer names, down to ``DoGet``, also of servers of others."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight

import bowstring as bow
from bowstring.cli import main
from bowstring.dissociated.endpoint import Offer
from bowstring.flight import catalogs
from tests.flight.conftest import LIMITS, TABLE, TOKEN, Serve, read
from tests.transport.certified import serving, trusting
from tests.ucx import needs_ucx

NUMBERS = pa.record_batch({"n": [1, 2, 3]})

Plain = Callable[[flight.FlightServerBase], str]


@pytest.mark.parametrize(
    ("address", "way"),
    [("unix:", "unix: mapped"), ("tcp://127.0.0.1:0", "tcp: packed"), ("inproc:", "flight: packed")],
)
def test_the_best_way(serve: Serve, address: str, way: str) -> None:
    """On the same host the server's memory is mapped; else bytes come by TCP, or by Flight."""
    server, flights = serve(address, token=TOKEN)
    server.publish("t", TABLE)
    for source in (f"{flights.uri}/t", flights.uri):
        with bow.connect(source, token=TOKEN) as stream:
            assert stream.stats.path == way
            assert stream.schema.equals(TABLE.schema)
            assert stream.read_all().equals(TABLE)
            assert stream.stats.rows == TABLE.num_rows


@pytest.mark.parametrize("address", ["unix:", "inproc:"])
def test_awaited(serve: Serve, address: str) -> None:
    """``connect_async`` takes the same way, and a reader that is cancelled while it waits leaves nothing."""
    server, flights = serve(address, token=TOKEN)
    server.publish("t", TABLE)
    go_on = threading.Event()

    def slow() -> Iterator[pa.RecordBatch]:
        yield NUMBERS
        go_on.wait(30)

    server.publish("slow", slow)

    async def work() -> None:
        async with bow.connect_async(f"{flights.uri}/t", token=TOKEN) as stream:
            assert (await stream.to_arrow()).equals(TABLE)
        async with bow.connect_async(f"{flights.uri}/slow", token=TOKEN) as stream:
            assert (await anext(stream)).to_arrow().equals(NUMBERS)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(stream), 0.05)
            go_on.set()
            with pytest.raises(StopAsyncIteration):
                await anext(stream)

    asyncio.run(work())


@pytest.mark.slow
@needs_ucx
def test_over_ucx(serve: Serve) -> None:
    """A location of ``ucx:`` is read over UCX, alone or where it is asked for among others."""
    server, flights = serve("ucx://127.0.0.1:0", token=TOKEN)
    server.publish("t", TABLE)
    with bow.connect(f"{flights.uri}/t", token=TOKEN) as stream:
        assert stream.stats.path.startswith("ucx: ")
        assert stream.read_all().equals(TABLE)
    server.listen_too("unix:")
    server.listen_too("tcp://127.0.0.1:0")
    for transport, way in ((None, "unix: mapped"), ("ucx", "ucx: "), ("tcp", "tcp: packed")):
        with bow.connect(
            f"{flights.uri}/t", token=TOKEN, options=bow.ConnectOptions(transport=transport)
        ) as stream:
            assert stream.stats.path.startswith(way)
            assert stream.read_all().equals(TABLE)


def test_memory_before_bytes(serve: Serve) -> None:
    """Memory of the same host is better than TCP, whatever the server's order is."""
    server, flights = serve("tcp://127.0.0.1:0", token=TOKEN)
    server.listen_too("unix:")
    server.publish("t", TABLE)
    with bow.connect(flights.uri, "t", token=TOKEN) as stream:
        assert stream.stats.path == "unix: mapped"


def test_down_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of another host takes Flight, and is told why nothing better; its endpoint goes on to others."""
    with bow.Server() as server:
        endpoint = server.publish("t", TABLE)
        there = dataclasses.replace(endpoint, host="another")
        with bow.flight.serve(bow.Dataset((there,), TABLE.schema, metadata={"name": "t"})) as flights:
            # What passes it on is on that other host.
            monkeypatch.setattr(catalogs, "connect", lambda _: bow.connect(endpoint))
            with bow.connect(f"{flights.uri}/t") as stream:
                assert stream.stats.path == "flight: packed"
                assert "another host" in stream.stats.why
                found = stream.endpoint
                assert stream.read_all().equals(TABLE)
            assert isinstance(found, bow.Endpoint)
            for other in (pickle.loads(pickle.dumps(found)), str(found), bow.Endpoint.parse(str(found))):
                assert read(other).equals(TABLE)


def test_a_server_that_refuses(serve: Serve) -> None:
    """Where none of our ways works, Flight does; and where Flight does not either, the error names them all."""
    server, flights = serve("tcp://127.0.0.1:0", token=TOKEN)
    server.publish("t", TABLE)
    with bow.connect(flights.uri, "t", token=TOKEN) as stream:
        [ours, *_] = stream.endpoint.offers  # type: ignore[union-attr]  # one endpoint
    dead = "tcp://127.0.0.1:9"
    uri = ours.uri.replace(server.address, dead)
    broken = bow.Endpoint(uri, b"t", others=(Offer(f"{flights.uri}?token={TOKEN.replace(' ', '+')}"),))
    with bow.connect(broken) as stream:
        assert stream.stats.path == "flight: packed"
        assert dead in stream.stats.why
        assert stream.read_all().equals(TABLE)
    flights.close()
    with pytest.raises(bow.BrokenError) as caught:
        bow.connect(broken, limits=LIMITS)
    assert dead in str(caught.value)


def test_what_connect_takes(serve: Serve) -> None:
    """Columns, copies, writable batches and a device are as for every stream; shards are not."""
    server, flights = serve("inproc:")
    table = pa.table({"a": np.arange(100), "b": np.arange(100.0)})
    server.publish("t", table)
    assert read(flights.uri, "t", columns=["b"]).equals(table.select(["b"]))
    assert read(flights.uri, "t", mode="copy").equals(table)
    with bow.connect(flights.uri, "t", writable=True) as stream:
        [batch] = stream
        batch["a"].values[0] = 7
        assert batch["a"].to_pylist()[0] == 7
    with bow.connect(flights.uri, "t", device="cpu") as stream:
        assert next(stream).device.name == "cpu"
    with pytest.raises(bow.UnknownColumn):
        bow.connect(flights.uri, "t", columns=["c"])
    with pytest.raises(bow.Unsupported, match="shards"):
        bow.connect(flights.uri, "t", shard=(0, 2))
    with bow.connect(flights.uri, "t") as stream:
        pass
    with pytest.raises(bow.ClosedError):
        next(stream)


def test_names(serve: Serve) -> None:
    """Without a name there must be one data set; errors name those that there are."""
    server, flights = serve()
    with pytest.raises(bow.UnknownTicket, match="no data set"):
        bow.connect(flights.uri)
    server.publish("a", TABLE)
    assert read(flights.uri).equals(TABLE)
    server.publish("b", TABLE)
    with pytest.raises(bow.UnknownTicket, match="'a', 'b'"):
        bow.connect(flights.uri)
    with pytest.raises(bow.UnknownTicket, match="'c'"):
        bow.connect(f"{flights.uri}/c")


def test_the_command_line(serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``list``, ``fetch`` and ``inspect`` take a Flight server as any other."""
    server, flights = serve(token=TOKEN)
    server.publish("trips", TABLE)
    secret = tmp_path / "token"
    secret.write_text(TOKEN)
    token = ["--token-file", str(secret)]
    assert main(["list", flights.uri, *token]) == 0
    assert "trips" in capsys.readouterr().out
    assert main(["fetch", flights.uri, "trips", "--to", str(tmp_path / "t.arrow"), *token]) == 0
    assert main(["fetch", f"{flights.uri}/trips", "--limit", "1", *token]) == 0
    assert main(["inspect", f"{flights.uri}/trips", *token]) == 0
    assert "grpc" in capsys.readouterr().out
    assert main(["list", flights.uri]) == 1
    assert "token" in capsys.readouterr().err


class _Heard(flight.ServerMiddlewareFactory):
    """Notes the token of each call, and lets in whoever has the one that is asked for."""

    def __init__(self, does: dict[str, Any]) -> None:
        super().__init__()
        self._does = does

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
        [given] = headers.get("authorization", [""])
        self._does.setdefault("heard", []).append(given)
        if given != self._does.get("asks", given):
            raise flight.FlightUnauthenticatedError("wrong")


class Foreign(flight.FlightServerBase):
    """A Flight server that knows nothing of ours: each test says what it does."""

    def __init__(self, address: str = "grpc://127.0.0.1:0", certificates: Any = None, **does: Any) -> None:
        super().__init__(address, tls_certificates=certificates, middleware={"heard": _Heard(does)})
        self.does = does

    def _info(self, descriptor: Any) -> Any:
        places = self.does.get("locations", [])
        count = self.does.get("endpoints", 1)
        found = [flight.FlightEndpoint(str(number), places) for number in range(count)]
        return flight.FlightInfo(TABLE.schema, descriptor, found, -1, -1)

    def list_flights(self, context: Any, criteria: Any) -> Any:
        yield self._info(flight.FlightDescriptor.for_path(*self.does.get("path", ["t"])))

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        if descriptor.path != [each.encode() for each in self.does.get("path", ["t"])]:
            raise KeyError(str(descriptor))
        return self._info(descriptor)

    def do_get(self, context: Any, ticket: Any) -> Any:
        give = self.does.get("give")
        if give is not None:
            return flight.GeneratorStream(NUMBERS.schema, give())
        return flight.RecordBatchStream(TABLE)


@pytest.mark.parametrize(
    "locations",
    [
        [],
        ["arrow-flight-reuse-connection://?"],
        ["ucx://127.0.0.1:13337?want_data=7", "ucx://127.0.0.1:13337?want_data=8"],
        ["https://example.org/t.arrow"],
        ["fabric://127.0.0.1:1", "grpc+tcp://127.0.0.1:9"],
        ["unix:/not/there.sock?want_data=1&bow=1&hello=2"],
        ["unix:/not/there.sock?want_data=x&bow=1", "tcp://127.0.0.1:9?want_data=1&bow=1&hello=2"],
    ],
)
def test_servers_of_others(plain: Plain, locations: list[str]) -> None:
    """Any Flight server is read by DoGet, whatever locations it names that are none of ours or lead nowhere."""
    address = plain(Foreign(locations=locations))
    with bow.connect(address, "t", limits=LIMITS) as stream:
        assert stream.stats.path == "flight: packed"
        assert stream.read_all().equals(TABLE)
    assert read(address).equals(TABLE)
    [info] = bow.list_datasets(address)
    assert (info.name, info.num_rows, info.published_at) == ("t", None, None)


def _encrypted(**does: Any) -> Foreign:
    pem = Path(str(serving().cert)).read_bytes()
    return Foreign("grpc+tls://127.0.0.1:0", [(pem, pem)], **does)


@pytest.mark.parametrize("listed", ["nothing", "host", "host and port", "another port"])
@pytest.mark.parametrize("encrypted", [(True, True), (True, False), (False, True), (False, False)])
def test_the_token_goes_to_the_server_that_was_asked(
    plain: Plain, encrypted: tuple[bool, bool], listed: str
) -> None:
    """Other hosts that a Flight server names get its token if they are listed, and none without encryption is taken
    where the server that was asked has it.
    """
    bearer = f"Bearer {TOKEN}"
    other = _encrypted() if encrypted[1] else Foreign()
    schemes = ["grpc+tls:" if each else "grpc:" for each in encrypted]
    place = plain(other).replace("grpc:", schemes[1]).replace("127.0.0.1", "localhost")
    does: dict[str, Any] = {"asks": bearer, "locations": [place]}
    asked = _encrypted(**does) if encrypted[0] else Foreign(**does)
    token_hosts = {
        "nothing": [],
        "host": ["localhost"],
        "host and port": [f"localhost:{other.port}"],
        "another port": ["localhost:1"],
    }[listed]
    address = plain(asked).replace("grpc:", schemes[0])
    table = read(
        address, "t", token=TOKEN, options=bow.ConnectOptions(token_hosts=token_hosts), tls=trusting()
    )
    assert table.equals(TABLE)
    below = encrypted == (True, False)
    sent = not below and listed in ("host", "host and port")
    assert other.does.get("heard", []) == ([] if below else [bearer if sent else ""])


def test_a_host_that_lacks_the_token_is_named(plain: Plain) -> None:
    """Where a named host wants the token that was withheld from it, the error names the host and `token_hosts`."""
    bearer = f"Bearer {TOKEN}"
    place = plain(Foreign(asks=bearer)).replace("127.0.0.1", "localhost")

    def fails() -> Any:
        raise flight.FlightServerError("not here")

    address = plain(Foreign(asks=bearer, locations=[place], give=fails))
    with pytest.raises(bow.BowstringError, match=rf"{place}: the token goes to.*token_hosts"):
        read(address, "t", token=TOKEN)
    assert read(address, "t", token=TOKEN, options=bow.ConnectOptions(token_hosts=["localhost"])).equals(
        TABLE
    )
    with pytest.raises(bow.UsageError, match="token_hosts is a list"):
        bow.connect(address, "t", token=TOKEN, options=bow.ConnectOptions(token_hosts="localhost"))


def test_many_endpoints(plain: Plain) -> None:
    """Endpoints of one flight are one data set, in their order; none are an empty one."""
    assert read(plain(Foreign(endpoints=3)), "t").equals(pa.concat_tables([TABLE] * 3))
    assert read(plain(Foreign(endpoints=0)), "t").num_rows == 0


def test_paths_of_several_parts(plain: Plain) -> None:
    """What a list calls by several parts is found by that name, and by a path in the address."""
    address = plain(Foreign(path=["a", "b c"]))
    [info] = bow.list_datasets(address)
    assert info.name == "a/b c"
    assert read(address, info.name).equals(TABLE)
    assert read(f"{address}/a/b%20c").equals(TABLE)


def test_a_server_that_fails(plain: Plain) -> None:
    """What a server raises in the midst of a stream is an error, never a shorter table."""

    def fails() -> Any:
        yield NUMBERS
        raise flight.FlightServerError("the disk is gone")

    address = plain(Foreign(give=fails))
    with pytest.raises(bow.ProducerFailed, match="the disk is gone"):
        read(address, "t")


def test_a_server_that_says_nothing(plain: Plain) -> None:
    """A server that stops in the midst of a stream is waited for no longer than was said."""
    go_on = threading.Event()

    def stalls() -> Any:
        yield NUMBERS
        assert go_on.wait(30.0)

    address = plain(Foreign(give=stalls))
    hasty = LIMITS.replace(reply_timeout=0.5, connect_timeout=5.0)
    with bow.connect(address, "t", limits=hasty) as stream:
        assert next(stream).num_rows == 3
        began = time.monotonic()
        with pytest.raises(bow.DeadlineExceeded, match="Flight server"):
            next(stream)
        assert time.monotonic() - began < 5.0
    go_on.set()


def test_a_server_that_does_not_begin(plain: Plain) -> None:
    """A call of DoGet that is not answered ends `connect` after its time."""
    go_on = threading.Event()

    def waits() -> Any:
        assert go_on.wait(30.0)
        return iter([NUMBERS])

    address = plain(Foreign(give=waits))
    try:
        began = time.monotonic()
        with pytest.raises(bow.DeadlineExceeded, match="Flight server"):
            bow.connect(address, "t", limits=LIMITS.replace(connect_timeout=1.0))
        assert time.monotonic() - began < 8.0
    finally:
        go_on.set()


def test_closing_wakes_a_reader(plain: Plain) -> None:
    """Closing a stream ends a wait for its next batch."""
    go_on = threading.Event()

    def stalls() -> Any:
        yield NUMBERS
        assert go_on.wait(30.0)

    with bow.connect(plain(Foreign(give=stalls)), "t", limits=LIMITS) as stream:
        next(stream)
        found: list[BaseException] = []

        def wait() -> None:
            try:
                next(stream)
            except bow.BowstringError as error:
                found.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.1)
        stream.close()
        thread.join(10.0)
        assert isinstance(found[0], bow.ClosedError)
    go_on.set()


def test_nobody_is_there() -> None:
    """An address where no Flight server is says so, soon."""
    for call in (
        lambda: bow.connect("grpc://127.0.0.1:9/t", limits=LIMITS),
        lambda: bow.list_datasets("grpc://127.0.0.1:9", limits=LIMITS),
    ):
        with pytest.raises(bow.BrokenError, match=r"127\.0\.0\.1:9"):
            call()
    with bow.Server("tcp://127.0.0.1:0") as server, pytest.raises((bow.BrokenError, bow.DeadlineExceeded)):
        bow.connect(server.address.replace("tcp", "grpc"), "t", limits=LIMITS.replace(connect_timeout=2.0))


def test_numbers_lie_as_they_must(serve: Serve) -> None:
    """Bodies of gRPC lie at odd addresses; what NumPy gets does not."""
    server, flights = serve("inproc:")
    table = pa.table(
        {"d": pa.array([1.5, None] * 500), "s": ["ab", "c"] * 500, "t": pa.array([0, 1] * 500, "time64[us]")}
    )
    server.publish("t", table)
    with bow.connect(flights.uri, "t") as stream:
        batches = list(stream)
    for batch in batches:
        assert batch["d"].raw_values.flags.aligned


def test_data_sets_that_grow(serve: Serve, plain: Plain) -> None:
    """``DoGet`` gives what is there; to follow needs a server of ours, and is refused elsewhere by name."""
    server, flights = serve()
    for number in range(3):
        position = server.append("t", {"n": [number]})
    with flight.connect(flights.uri) as client:
        ticket = client.get_flight_info(flight.FlightDescriptor.for_path("t")).endpoints[0].ticket
        assert client.do_get(ticket).read_all().to_pydict() == {"n": [0, 1, 2]}
    with bow.connect(flights.uri, "t", follow=True, since=position, limits=LIMITS) as stream:
        server.append("t", {"n": [3]})
        assert stream.read_next_batch()["n"].to_pylist() == [3]
    address = plain(Foreign(locations=[]))
    every: list[dict[str, Any]] = [{"follow": True}, {"since": position}]
    for options in every:
        with pytest.raises(bow.Unsupported, match="followed"):
            bow.connect(address, "t", limits=LIMITS, **options)
