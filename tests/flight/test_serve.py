"""``bow.flight.serve``: what clients of pyarrow and ADBC are told, given, and refused."""

from __future__ import annotations

import datetime as dt
import json
import tempfile
from typing import Any

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi
import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import flight

import bowstring as bow
from bowstring.dissociated.endpoint import this_host
from tests.flight.conftest import LIMITS, TABLE, TOKEN, Serve, client_of, path, read, until
from tests.transport.certified import authority, serving, trusting


def test_pyarrow_reads(serve: Serve) -> None:
    """A client of pyarrow's finds a data set, its schema and sizes, and reads it as it was published."""
    server, flights = serve()
    server.publish("t", TABLE)
    with client_of(flights) as (client, options):
        info = client.get_flight_info(path("t"), options)
        assert info.total_records == TABLE.num_rows
        assert info.total_bytes > 0
        assert info.schema.equals(TABLE.schema)
        assert client.get_schema(path("t"), options).schema.equals(TABLE.schema)
        [endpoint] = info.endpoints
        assert client.do_get(endpoint.ticket, options).read_all().equals(TABLE)


def test_all_flights(serve: Serve) -> None:
    """All data sets are listed, by name, with sizes where these are known; and none that is gone."""
    server, flights = serve()
    server.publish("b", TABLE)
    server.publish("a", lambda: iter(TABLE.to_batches()))
    server.publish("gone", TABLE)
    server.withdraw("gone")
    with client_of(flights) as (client, options):
        found = list(client.list_flights(options=options))
        assert [each.descriptor.path for each in found] == [[b"a"], [b"b"]]
        assert [each.total_records for each in found] == [-1, TABLE.num_rows]
        with pytest.raises(NotImplementedError):
            list(client.list_flights(b"criteria", options))
    first, second = bow.list_datasets(flights.uri)
    assert (first.name, first.num_rows) == ("a", None)
    assert (second.name, second.num_rows, second.schema) == ("b", TABLE.num_rows, TABLE.schema)
    assert second.published_at is not None


@pytest.mark.parametrize("name", ["plain", "with/slash", "ü ñ %2F", "?&#", "a" * 1000])
def test_odd_names(serve: Serve, name: str) -> None:
    """A name is one part of a path, whatever is in it."""
    server, flights = serve()
    server.publish(name, TABLE)
    with client_of(flights) as (client, options):
        info = client.get_flight_info(path(name), options)
        assert client.do_get(info.endpoints[0].ticket, options).read_all().equals(TABLE)
    assert read(flights.uri, name).equals(TABLE)


def test_where_a_data_set_is(serve: Serve) -> None:
    """The Flight server is the first location, the server's own addresses follow, for the host that they are of."""
    server, flights = serve("unix:", token=TOKEN)
    server.listen_too("tcp://127.0.0.1:0")
    endpoint = server.publish("t", TABLE)
    with client_of(flights, TOKEN) as (client, options):
        [found] = client.get_flight_info(path("t"), options).endpoints
    schemes = [location.uri.partition(b":")[0] for location in found.locations]
    assert schemes == [b"grpc+tcp", b"unix", b"tcp"]
    assert found.locations[1].uri.decode() == endpoint.uri
    assert b"ticket" not in found.locations[1].uri
    assert found.ticket.ticket == endpoint.ticket
    facts = json.loads(found.app_metadata)
    assert facts["roles"] == ["flight", "data", "data"]
    assert facts["hosts"] == [None, this_host(), this_host()]


def test_places_of_two_connections_are_none(serve: Serve) -> None:
    """Locations are alternatives: metadata and bodies at two addresses, or within a process, are not among them."""
    for address in ("unix:", "inproc:"):
        server, flights = serve(address)
        server.publish("t", TABLE, separate=True)
        with client_of(flights) as (client, options):
            [found] = client.get_flight_info(path("t"), options).endpoints
        assert len(found.locations) == (2 if address == "unix:" else 1)
        assert read(f"{flights.uri}/t").equals(TABLE)


def test_readers_are_counted(serve: Serve) -> None:
    """A call of DoGet is a reader; a question is none, and one who breaks off gives the place back."""
    server, flights = serve()
    batches = [pa.record_batch({"b": [bytes(1 << 20)]})] * 40
    server.publish("once", pa.Table.from_batches(batches), readers=1)
    with client_of(flights) as (client, options):
        for _ in range(3):
            [endpoint] = client.get_flight_info(path("once"), options).endpoints
        broken = client.do_get(endpoint.ticket, options)
        broken.read_chunk()
        with pytest.raises(KeyError, match="all its readers"):
            client.do_get(endpoint.ticket, options).read_all()
        broken.cancel()
        del broken
        until(lambda: server.stats.connections == 0 and bow.list_datasets(server.address)[0].readers == 0)
        assert client.do_get(endpoint.ticket, options).read_all().num_rows == 40
        with pytest.raises(KeyError, match=r"no longer|all its readers|no such"):
            client.do_get(endpoint.ticket, options).read_all()
    server.wait_released("once", timeout=10.0)


def test_lazy_data_sets(serve: Serve) -> None:
    """What a generator makes is made as it is read, and what it raises comes out at the client."""
    made: list[int] = []

    def batches() -> Any:
        for number in range(3):
            made.append(number)
            yield pa.record_batch({"n": [number]})

    def fails() -> Any:
        yield pa.record_batch({"n": [1]})
        raise RuntimeError("the source ran dry")

    server, flights = serve()
    server.publish("lazy", batches)
    server.publish("fails", fails)
    with client_of(flights) as (client, options):
        for _ in range(2):
            [endpoint] = client.get_flight_info(path("lazy"), options).endpoints
            assert client.do_get(endpoint.ticket, options).read_all().column(0).to_pylist() == [0, 1, 2]
        [endpoint] = client.get_flight_info(path("fails"), options).endpoints
        reader = client.do_get(endpoint.ticket, options)
        with pytest.raises(flight.FlightError, match="ran dry"):
            reader.read_all()
    assert made == [0, 1, 2] * 2
    assert [each.readers for each in bow.list_datasets(server.address)] == [0, 0]


def test_the_token(serve: Serve) -> None:
    """Where the server has a token every call needs it, since answers hold it; a wrong one is told from none."""
    server, flights = serve(token=TOKEN)
    server.publish("t", TABLE)
    calls: list[Any] = [
        lambda client, options: client.get_flight_info(path("t"), options),
        lambda client, options: list(client.list_flights(options=options)),
        lambda client, options: client.do_get(flight.Ticket(b"t"), options).read_all(),
        lambda client, options: list(client.do_action("renew", options)),
        lambda client, options: client.list_actions(options),
        lambda client, options: client.do_put(path("x"), TABLE.schema, options)[0].close(),
    ]
    for token in (None, "wrong", TOKEN[:-1]):
        for call in calls:
            with (
                client_of(flights, token) as (client, options),
                pytest.raises(flight.FlightUnauthenticatedError),
            ):
                call(client, options)
        with pytest.raises(bow.AccessDenied, match="token"):
            bow.connect(flights.uri, "t", token=token)
        with pytest.raises(bow.AccessDenied, match="token"):
            bow.list_datasets(flights.uri, token=token)
    assert read(f"{flights.uri}/t", token=TOKEN).equals(TABLE)
    assert TOKEN not in repr(flights)


def test_what_must_be_said(serve: Serve) -> None:
    """Off loopback Flight needs a token, and encryption or the word; publishing needs a token everywhere."""
    with bow.Server() as server, bow.Server(token=TOKEN) as guarded:
        wrong: list[tuple[Any, str, dict[str, Any]]] = [
            (server, "grpc://0.0.0.0:0", {}),
            (guarded, "grpc://0.0.0.0:0", {}),
            (server, "grpc://0.0.0.0:0", {"plaintext": True}),
            (server, "grpc+tls://0.0.0.0:0", {"tls": serving()}),
            (server, "grpc+tls://127.0.0.1:0", {}),
            (server, "grpc://127.0.0.1:0", {"tls": serving()}),
            (server, "grpc+tls://127.0.0.1:0", {"tls": bow.TlsConfig()}),
            (server, "grpc://127.0.0.1:0", {"allow_put": True}),
            (server, "tcp://127.0.0.1:0", {}),
            (server, "grpc://192.0.2.1:0", {"token": TOKEN, "plaintext": True}),
            (server, "grpc://127.0.0.1:0", {"token": ""}),
            (TABLE, "grpc://127.0.0.1:0", {}),
            (bow.Dataset((), pa.schema([])), "grpc://127.0.0.1:0", {}),
        ]
        for source, address, options in wrong:
            with pytest.raises(bow.UsageError):
                bow.flight.serve(source, address, **options)
        for address, options in (
            ("grpc://0.0.0.0:0", {"plaintext": True}),
            ("grpc+tls://0.0.0.0:0", {"tls": serving()}),
        ):
            with pytest.raises(bow.UsageError, match="unbounded_requests=True"):
                bow.flight.serve(guarded, address, **options)
            bow.flight.serve(guarded, address, unbounded_requests=True, **options).close()
        mutual = bow.TlsConfig(cert=serving().cert, ca=authority().path)
        bow.flight.serve(server, "grpc+tls://0.0.0.0:0", tls=mutual).close()


def test_an_address_that_is_no_place(serve: Serve) -> None:
    """A server on all interfaces says by what name it is reached, or that clients know it already."""
    for advertise, location in (
        ("localhost", b"grpc+tcp://localhost"),
        (None, b"arrow-flight-reuse-connection"),
    ):
        server, flights = serve(
            token=TOKEN,
            flight_address="grpc://0.0.0.0:0",
            flight_plaintext=True,
            flight_unbounded_requests=True,
            flight_advertise=advertise,
        )
        server.publish("t", TABLE)
        uri = f"grpc://127.0.0.1:{flights.port}"
        with flight.connect(uri) as client:
            headers = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
            [endpoint] = client.get_flight_info(path("t"), headers).endpoints
        assert endpoint.locations[0].uri.startswith(location)
        assert read(uri, "t", token=TOKEN).equals(TABLE)


def test_over_tls(serve: Serve) -> None:
    """Flight over TLS, with readers' certificates where they are asked for, and no reader without trust."""
    mutual = bow.TlsConfig(cert=authority().issue("127.0.0.1"), ca=authority().path)
    for server_tls, client_tls in ((serving(), trusting()), (mutual, mutual)):
        server, flights = serve("inproc:", flight_address="grpc+tls://127.0.0.1:0", flight_tls=server_tls)
        server.publish("t", TABLE)
        assert flights.uri.startswith("grpc+tls:")
        assert read(f"{flights.uri}/t", tls=client_tls).equals(TABLE)
        assert [each.name for each in bow.list_datasets(flights.uri, tls=client_tls)] == ["t"]
        for wrong in (None, bow.TlsConfig(ca=authority("another one").path)):
            with pytest.raises(bow.AccessDenied, match=r"certificate.*TlsConfig.ca="):
                bow.connect(f"{flights.uri}/t", tls=wrong, limits=LIMITS.replace(connect_timeout=2.0))
    with pytest.raises((bow.BrokenError, bow.DeadlineExceeded)):
        bow.connect(f"{flights.uri}/t", tls=trusting(), limits=LIMITS.replace(connect_timeout=2.0))
    with pytest.raises(bow.UsageError, match="TlsConfig"):
        bow.connect(f"{flights.uri}/t", tls=trusting().for_client())


def test_an_address_in_use(serve: Serve) -> None:
    """A port belongs to one server: a second one is refused, and does not share it."""
    _, flights = serve()
    with bow.Server() as other, pytest.raises(bow.UsageError, match="in use"):
        bow.flight.serve(other, flights.uri)


def test_addresses_of_ipv6(serve: Serve) -> None:
    """An address of IPv6 is told with its brackets, and read from."""
    server, flights = serve("inproc:", flight_address="grpc://[::1]:0")
    server.publish("t", TABLE)
    assert flights.uri.startswith("grpc+tcp://[::1]:")
    assert read(flights.uri, "t").equals(TABLE)


def test_a_data_set_of_depots() -> None:
    """Partitions that a depot keeps are read where they lie by our readers, and passed on to others."""
    with tempfile.TemporaryDirectory(prefix="bow-") as folder, bow.depot.connect(folder=folder) as depot:
        parts = [TABLE.slice(start, 5000) for start in (0, 5000)]
        endpoints = []
        for number, part in enumerate(parts):
            with depot.begin(application="app", dataset="d", partition=number) as attempt:
                attempt.write(part)
                endpoints.append(attempt.commit().endpoint)
        dataset = bow.Dataset(tuple(endpoints), TABLE.schema, metadata={"name": "d"})
        with bow.flight.serve(dataset, token=TOKEN) as flights:
            with bow.connect(flights.uri, "d", token=TOKEN) as stream:
                assert stream.read_all().to_pydict() == TABLE.to_pydict()
                assert stream.stats.path == "unix: mapped"
            with client_of(flights, TOKEN) as (client, options):
                info = client.get_flight_info(path("d"), options)
                [endpoint] = info.endpoints
                assert len(endpoint.ticket.ticket) < 100
                table = client.do_get(endpoint.ticket, options).read_all()
            assert table.to_pydict() == TABLE.to_pydict()
            del table
        depot.stop()


def test_a_data_set_of_two_processes() -> None:
    """There is an endpoint of Flight for each process; our readers see the endpoints of the data set, in order."""
    words = [pa.array([f"word {number}", None]).dictionary_encode() for number in range(8)]
    schema = pa.schema({"word": words[0].type})
    with bow.Server() as one, bow.Server() as two:
        endpoints = tuple(
            (one, two)[number % 2].publish(f"part {number}", pa.table({"word": word}), readers=2)
            for number, word in enumerate(words)
        )
        dataset = bow.Dataset(endpoints, schema, 16, metadata={"name": "d"})
        with bow.flight.serve(dataset, token=TOKEN) as flights:
            with client_of(flights, TOKEN) as (client, options):
                for _ in range(5):  # asking uses nothing up
                    info = client.get_flight_info(path("d"), options)
                assert (len(info.endpoints), info.ordered) == (2, False)
                found = [client.do_get(each.ticket, options).read_all() for each in info.endpoints]
            rows = [table["word"].to_pylist() for table in found]
            assert rows == [[each for word in words[at::2] for each in word.to_pylist()] for at in (0, 1)]
            del found
            with bow.connect(flights.uri, "d", token=TOKEN, limits=LIMITS) as stream:
                assert stream.read_all()["word"].to_pylist() == [
                    each for word in words for each in word.to_pylist()
                ]
                assert stream.stats.path == "unix: mapped"
            for server in (one, two):
                server.wait_released(timeout=10.0)
            assert [each.ticket for each in bow.list_datasets(flights.uri, token=TOKEN)] == [b""]


def test_a_data_set_of_many_endpoints_where_only_flight_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that reaches no server but that of Flight reads each endpoint by ``DoGet``, in order."""
    parts = [TABLE.slice(start, 2500) for start in range(0, 10_000, 2500)]
    with bow.Server() as server:
        endpoints = tuple(server.publish(f"part {number}", part) for number, part in enumerate(parts))
        with bow.flight.serve(bow.Dataset(endpoints, TABLE.schema, metadata={"name": "d"})) as flights:
            monkeypatch.setattr("bowstring.flight.mapping._host_of", lambda _: "another")
            with bow.connect(flights.uri, "d", limits=LIMITS) as stream:
                assert stream.read_all().equals(TABLE)
                assert stream.stats.path == "flight: packed"


def test_put_and_withdraw(serve: Serve) -> None:
    """A client that may publish replaces what has the name, and withdraws it; one that may not is refused."""
    server, flights = serve(token=TOKEN, flight_allow_put=True)
    with client_of(flights, TOKEN) as (client, options):
        for table in (TABLE, TABLE.slice(5, 10)):
            writer, _ = client.do_put(path("put"), table.schema, options)
            writer.write_table(table, max_chunksize=1000)
            writer.close()
            assert read(server.address, "put", token=TOKEN).equals(table)
        assert [each.type for each in client.list_actions(options)] == [
            "renew",
            "RenewFlightEndpoint",
            "withdraw",
        ]
        list(client.do_action(flight.Action("withdraw", b"put"), options))
        assert bow.list_datasets(server.address, token=TOKEN) == []
        with pytest.raises(KeyError):
            list(client.do_action(flight.Action("withdraw", b"put"), options))
        with pytest.raises(pa.ArrowInvalid):
            list(client.do_action(flight.Action("withdraw", b"\xff"), options))
    server, flights = serve(token=TOKEN)
    server.publish("t", TABLE)
    with client_of(flights, TOKEN) as (client, options):
        assert "withdraw" not in [each.type for each in client.list_actions(options)]
        with pytest.raises(flight.FlightUnauthorizedError):
            list(client.do_action(flight.Action("withdraw", b"t"), options))
        writer, _ = client.do_put(path("t"), TABLE.schema, options)
        with pytest.raises(flight.FlightUnauthorizedError):
            writer.close()
    assert read(server.address, "t", token=TOKEN).equals(TABLE)


@pytest.mark.parametrize(
    "column",
    [
        pa.StringArray.from_buffers(2, pa.array([0, 9, 3], pa.int32()).buffers()[1], pa.py_buffer(b"abc")),
        pa.StringArray.from_buffers(
            2, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe")
        ),
        pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int8()), ["x"], safe=False),
        pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(bytes(16))], null_count=2),
    ],
    ids=["offsets", "text", "indices", "null count"],
)
def test_puts_that_are_malformed_are_refused(serve: Serve, column: pa.Array) -> None:
    """Elements that lead anywhere are refused where they arrive: readers of the same user trust it."""
    server, flights = serve(token=TOKEN, flight_allow_put=True)
    server.publish("t", TABLE)
    with client_of(flights, TOKEN) as (client, options):
        batch = pa.RecordBatch.from_arrays([column], ["c"])
        writer, _ = client.do_put(path("t"), batch.schema, options)
        with pytest.raises(pa.ArrowInvalid, match="at c"):
            _write_all(writer, [batch])
    assert read(server.address, "t", token=TOKEN).equals(TABLE)


def test_a_put_without_room(serve: Serve) -> None:
    """What is larger than the server's pool is refused before it has all come, and replaces nothing."""
    server, flights = serve(token=TOKEN, flight_allow_put=True, pool=bow.Pool(budget=4 << 20))
    server.publish("t", TABLE)
    batch = pa.record_batch({"b": [bytes(1 << 20)]})
    with client_of(flights, TOKEN) as (client, options):
        writer, _ = client.do_put(path("t"), batch.schema, options)
        with pytest.raises(flight.FlightError, match="room"):
            _write_all(writer, [batch] * 1000)
    assert read(server.address, "t", token=TOKEN).equals(TABLE)


def _write_all(writer: Any, batches: list[pa.RecordBatch]) -> None:
    for batch in batches:
        writer.write_batch(batch)
    writer.close()


def test_what_expires_is_renewed(serve: Serve) -> None:
    """An endpoint says when it expires, if it does; renewed, it has all of its time again."""
    server, flights = serve()
    server.publish("stays", TABLE)
    server.publish("goes", TABLE, ttl=60.0)
    with client_of(flights) as (client, options):
        assert client.get_flight_info(path("stays"), options).endpoints[0].expiration_time is None
        [endpoint] = client.get_flight_info(path("goes"), options).endpoints
        first = endpoint.expiration_time.as_py()
        assert dt.timedelta(seconds=50) < first - dt.datetime.now(dt.UTC) < dt.timedelta(seconds=61)
        [result] = client.do_action(flight.Action("renew", b"goes"), options)
        until_then = dt.datetime.fromisoformat(result.body.to_pybytes().decode())
        assert (
            until_then > first.to_pydatetime(warn=False)
            if hasattr(first, "to_pydatetime")
            else until_then > first
        )
        inner = endpoint.serialize()
        length = len(inner)
        request = b"\x0a" + bytes([length & 0x7F | 0x80, length >> 7]) + inner
        [result] = client.do_action(flight.Action("RenewFlightEndpoint", request), options)
        renewed = flight.FlightEndpoint.deserialize(result.body.to_pybytes())
        assert renewed.ticket == endpoint.ticket
        assert renewed.expiration_time.as_py() >= first
        [result] = client.do_action(flight.Action("renew", b"stays"), options)
        assert result.body.to_pybytes() == b""
        for bad in (
            b"",
            b"\x0a",
            request[:-1],
            request + b"x",
            b"\x0a\x80\x80\x80\x80\x80\x80",
            b"\x12" + request[1:],
        ):
            with pytest.raises(pa.ArrowException):
                list(client.do_action(flight.Action("RenewFlightEndpoint", bad), options))


def test_a_renewed_data_set_stays(serve: Serve) -> None:
    """Renewing puts off the end, by the time that the data set was given; without it, it comes."""
    server, flights = serve()
    server.publish("renewed", TABLE, ttl=1.0)
    server.publish("left", TABLE, ttl=1.0)
    with client_of(flights) as (client, options):

        def names() -> list[str]:
            list(client.do_action(flight.Action("renew", b"renewed"), options))
            return [each.name for each in bow.list_datasets(server.address)]

        until(lambda: names() == ["renewed"])


def test_what_is_not_known(serve: Serve) -> None:
    """Commands, actions and names that mean nothing are refused, each as what it is."""
    server, flights = serve()
    server.publish("t", TABLE)
    with client_of(flights) as (client, options):
        for unknown in (
            lambda: client.get_flight_info(flight.FlightDescriptor.for_command(b"SELECT 1"), options),
            lambda: client.get_schema(flight.FlightDescriptor.for_command(b"t"), options),
            lambda: client.get_flight_info(flight.FlightDescriptor.for_path(), options),
            lambda: list(client.do_action("CancelFlightInfo", options)),
        ):
            with pytest.raises(NotImplementedError):
                unknown()
        for missing in (
            lambda: client.get_flight_info(path("nothing"), options),
            lambda: client.do_get(flight.Ticket(b"nothing"), options).read_all(),
            lambda: list(client.do_action(flight.Action("renew", b"nothing"), options)),
        ):
            with pytest.raises(KeyError, match=r"no .*data set"):
                missing()


def test_a_closed_server(serve: Serve) -> None:
    """Closing ends calls, twice is once; a Flight server whose server was closed offers nothing."""
    server, flights = serve()
    server.publish("t", TABLE)
    server.close()
    with (
        client_of(flights) as (client, options),
        pytest.raises(flight.FlightUnavailableError, match="closed"),
    ):
        client.get_flight_info(path("t"), options)
    flights.close()
    flights.close()
    assert "closed" in repr(flights)
    with pytest.raises(bow.BrokenError):
        bow.connect(flights.uri, "t", limits=LIMITS)


def test_data_sets_of_others(serve: Serve) -> None:
    """Data sets of many endpoints, of servers or depots, are one flight, whose endpoints are read or passed on."""
    parts = [TABLE.slice(start, 2500) for start in range(0, 10_000, 2500)]
    with bow.Server(token=TOKEN) as server:
        endpoints = tuple(server.publish(f"part-{number}", part) for number, part in enumerate(parts))
        dataset = bow.Dataset(endpoints, TABLE.schema, TABLE.num_rows, metadata={"name": "all"})
        with pytest.raises(bow.UsageError, match="token"):
            bow.flight.serve(dataset)
        with bow.flight.serve(
            {"all": dataset, "first": bow.Dataset(endpoints[:1], TABLE.schema)}, token="other"
        ) as flights:
            with client_of(flights, "other") as (client, options):
                info = client.get_flight_info(path("all"), options)
                assert len(info.endpoints) == 1
                tables = [client.do_get(each.ticket, options).read_all() for each in info.endpoints]
                assert pa.concat_tables(tables).equals(TABLE)
                for action in ("renew", "withdraw"):
                    with pytest.raises((KeyError, flight.FlightUnauthorizedError)):
                        list(client.do_action(flight.Action(action, b"none"), options))
            with bow.connect(f"{flights.uri}/all", token="other") as stream:
                assert stream.read_all().equals(TABLE)
                assert stream.stats.path == "unix: mapped"
            assert read(f"{flights.uri}/first", token="other").equals(parts[0])
        with bow.flight.serve(dataset, token="other") as flights:
            assert [each.name for each in bow.list_datasets(flights.uri, token="other")] == ["all"]


@pytest.mark.parametrize("more", ["unix", "tcp", "unix, tcp", "ucx", ""])
def test_adbc_reads(serve: Serve, more: str) -> None:
    """ADBC's driver for Flight SQL takes the first location, and reads through whatever follows it."""
    server, flights = serve(
        "unix:" if "unix" in more else "inproc:" if not more else "tcp://127.0.0.1:0", token=TOKEN
    )
    if more == "unix, tcp":
        server.listen_too("tcp://127.0.0.1:0")
    server.publish("t", TABLE)
    with client_of(flights, TOKEN) as (client, options):
        info = client.get_flight_info(path("t"), options)
    if more == "ucx":
        [found] = info.endpoints
        places = [found.locations[0], flight.Location("ucx://127.0.0.1:13337?want_data=7")]
        info = flight.FlightInfo(
            info.schema, info.descriptor, [flight.FlightEndpoint(found.ticket, places)], -1, -1
        )
    secret = {adbc_driver_flightsql.DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {TOKEN}"}
    with (
        adbc_driver_flightsql.dbapi.connect(flights.uri, db_kwargs=secret, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.adbc_read_partition(info.serialize())
        assert cursor.fetch_arrow_table().equals(TABLE)


def test_adbc_fails_at_what_it_does_not_know(serve: Serve) -> None:
    """ADBC's driver fails where only a scheme of ours is named: that is why Flight comes first."""
    server, flights = serve()
    server.publish("t", TABLE)
    with client_of(flights) as (client, options):
        info = client.get_flight_info(path("t"), options)
    places = ["ucx://127.0.0.1:13337?want_data=7"]
    only = flight.FlightInfo(
        info.schema, info.descriptor, [flight.FlightEndpoint(info.endpoints[0].ticket, places)], -1, -1
    )
    with (
        adbc_driver_flightsql.dbapi.connect(flights.uri, autocommit=True) as connection,
        connection.cursor() as cursor,
        pytest.raises(adbc_driver_flightsql.dbapi.Error),
    ):
        cursor.adbc_read_partition(only.serialize())
    for place in (*places, "unix:/tmp/x.sock", "tcp://127.0.0.1:1"):
        with pytest.raises((pa.ArrowException, KeyError)):
            flight.connect(place)


def test_polars_and_duckdb(serve: Serve) -> None:
    """What reads Arrow reads a flight."""
    server, flights = serve()
    server.publish("t", TABLE)
    with client_of(flights) as (client, options):
        [endpoint] = client.get_flight_info(path("t"), options).endpoints
        frame = pl.from_arrow(client.do_get(endpoint.ticket, options).read_all())
        assert isinstance(frame, pl.DataFrame)
        assert frame["n"].sum() == sum(range(10_000))
        flown = client.do_get(endpoint.ticket, options).to_reader()
        assert duckdb.from_arrow(flown).aggregate("count(s)").fetchall() == [(5_000,)]
