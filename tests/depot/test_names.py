"""Names: what each means, that one meaning takes the place of another at once, and until when."""

from __future__ import annotations

import dataclasses
import functools
import pickle
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from tests.depot.conftest import APP, Connect, commit, read, runs, until
from tests.transport.certified import serving, trusting

ONE = pa.table({"n": [1]})
TWO = pa.table({"n": [2, 2]})


def named(depot: bow.depot.Depot, name: str, table: pa.Table, part: str, **given: object) -> bow.Dataset:
    """Write a partition and let a name mean it."""
    application = str(given.pop("application", APP))
    written = commit(depot, table, part, application=application)
    dataset = bow.Dataset((written.endpoint,), table.schema, table.num_rows, table.nbytes)
    depot.announce(name, dataset, application=application, part=part, **given)  # type: ignore[arg-type]
    return dataset


def parts(depot: bow.depot.Depot) -> list[str]:
    """Return the data sets that a depot holds."""
    return [each.name for each in depot.status().datasets]


def test_a_name_means_the_last_one(depot: bow.depot.Depot) -> None:
    """What a name meant before is freed when it means something else; a name that must be new is refused."""
    named(depot, "trips", ONE, "a")
    named(depot, "trips", TWO, "b")
    assert (parts(depot), read(depot.lookup("trips")).to_pydict()) == (["b"], {"n": [2, 2]})
    with pytest.raises(bow.UsageError, match="there already"):
        named(depot, "trips", ONE, "c", new=True)
    assert read(depot.lookup("trips")).num_rows == 2
    depot.release("c")
    depot.check_name("trips", application=APP)
    depot.check_name("free", application=APP, new=True)
    for refused in ({"application": APP, "new": True}, {"application": "other"}):
        with pytest.raises(bow.UsageError):
            depot.check_name("trips", **refused)
    with pytest.raises(bow.UsageError, match="another application"):
        named(depot, "trips", ONE, "d", application="other")
    depot.end("other")
    named(depot, "trips", ONE, "e", append=True)
    assert read(depot.lookup("trips")).num_rows == 3
    assert sorted(parts(depot)) == ["b", "e"]
    depot.drop("trips")
    assert parts(depot) == []
    for gone in ("trips", "never"):
        with pytest.raises(bow.UnknownTicket):
            depot.lookup(gone)
        with pytest.raises(bow.UnknownTicket):
            depot.drop(gone)


def test_a_version_is_kept_while_it_grows(depot: bow.depot.Depot) -> None:
    """Appending keeps the version of a name and its positions; whatever else gives it a meaning makes new ones."""
    seen: list[str] = []

    def version() -> str:
        position, dataset = depot.lookup_version("trips")
        assert dataset == depot.lookup("trips")
        found, _, count = str(position).partition(":")
        assert (pickle.loads(pickle.dumps(position)), int(count)) == (position, len(dataset))
        for since in (f"{found}:0", position):
            now, some = depot.lookup_range("trips", since)
            assert (now, some.endpoints) == (position, dataset.endpoints[int(str(since).partition(":")[2]) :])
        for gone in (*(f"{each}:0" for each in seen if each != found), f"{found}:{len(dataset) + 1}"):
            for given in ({"since": gone}, {"until": gone}):
                with pytest.raises(bow.DatasetReplaced, match=found):
                    depot.lookup_range("trips", **given)
        return found

    for number, given in enumerate(({}, {}, {"batch": 7}, {"batch": 7}, {"append": True, "batch": 8})):
        named(depot, "trips", ONE, f"a{number}", **given)
        if given.get("append"):
            assert version() == seen[-1]
        else:
            seen.append(version())
        named(depot, "trips", TWO, f"b{number}", append=True)
        assert version() == seen[-1]
    named(depot, "trips", ONE, "dropped")
    seen.append(version())
    depot.drop("trips")
    named(depot, "trips", ONE, "again", append=True)
    seen.append(version())
    depot.end(APP)
    named(depot, "trips", ONE, "another's", append=True, application="another")
    seen.append(version())
    assert len(set(seen)) == len(seen)
    for part in ("c", "d"):
        named(depot, "trips", ONE, part, application="another", version="the same rows")
        seen.append(version())
    assert seen[-2] == seen[-1]


@pytest.mark.parametrize(
    "position", ["0", "0123456789abcdef", "0123456789ABCDEF:0", 3, b"0123456789abcdef:0"]
)
def test_what_is_no_position(depot: bow.depot.Depot, position: Any) -> None:
    """What no depot gave as a position is refused."""
    named(depot, "trips", ONE, "a")
    for given in ({"since": position}, {"until": position}):
        with pytest.raises(bow.UsageError, match="not a position"):
            depot.lookup_range("trips", **given)


def test_what_is_released_has_no_name(depot: bow.depot.Depot) -> None:
    """A name goes with the last data set that it means."""
    named(depot, "trips", ONE, "a")
    named(depot, "trips", TWO, "b", append=True)
    depot.release("a")
    assert [each.name for each in depot.list_datasets()] == ["trips"]
    depot.release("b")
    assert depot.list_datasets() == []


def _is_freed(depot: bow.depot.Depot, part: str) -> bool:
    return part not in parts(depot)


def test_a_name_ends_with_its_data(depot: bow.depot.Depot) -> None:
    """What its readers have read has no name any more, unless it grows or another host may hold some of it."""
    cases: list[dict[str, Any]] = [{}, {"append": True}, {"depots": ["unix:/not/there.sock"]}]
    for number, given in enumerate(cases):
        name, endpoints = f"n{number}", []
        for partition in range(2):
            endpoints += [commit(depot, ONE, name, partition=partition, readers=1).endpoint]
        dataset = bow.Dataset(tuple(endpoints), ONE.schema)
        depot.announce(name, dataset, application=APP, part=name, **given)
        read(endpoints[0])
        assert depot.lookup(name) == dataset
        read(endpoints[1])
        until(functools.partial(_is_freed, depot, name), "it is freed")
        if given:
            assert depot.lookup(name) == dataset
        else:
            assert name not in [each.name for each in depot.list_datasets()]
            with pytest.raises(bow.UnknownTicket, match="no data set of that name"):
                depot.lookup(name)
    before, _ = depot.lookup_version("n1")
    named(depot, "n1", ONE, "more", append=True)
    assert len(depot.lookup_range("n1", before)[1]) == 1


def test_names_are_listed(depot: bow.depot.Depot) -> None:
    """A list says of each name its schema, rows and bytes, and who reads it now."""
    named(depot, "trips", TWO, "a")
    named(depot, "zones", ONE, "b")
    with bow.connect(depot.lookup("trips")) as stream:
        batch = stream.read_next_batch()
        found = {each.name: each for each in depot.list_datasets()}
        assert (found["trips"].num_rows, found["trips"].nbytes, found["trips"].readers) == (2, 16, 1)
        assert found["trips"].schema.equals(TWO.schema)
        assert (found["zones"].readers, found["zones"].ticket) == (0, b"b")
        del batch


def test_a_name_has_its_time(depot: bow.depot.Depot) -> None:
    """After ttl seconds a name means nothing, and neither are its data there; others stay."""
    kept = named(depot, "kept", ONE, "a")
    short = named(depot, "short", TWO, "b", ttl=0.5)
    depot.settle("b", short.endpoints, ttl=0.5)
    assert read(depot.lookup("short")).num_rows == 2
    until(lambda: parts(depot) == ["a"], "it is freed")
    assert [each.name for each in depot.list_datasets()] == ["kept"]
    with pytest.raises(bow.UnknownTicket):
        bow.connect(short).read_next_batch()
    assert read(kept).num_rows == 1


@pytest.fixture
def elsewhere() -> Iterator[bow.depot.Depot]:
    """Return a second depot, as another host has one."""
    with tempfile.TemporaryDirectory(prefix="bow-") as folder, bow.depot.connect(folder=folder) as depot:
        yield depot
        depot.stop()


def test_other_hosts_are_told(depot: bow.depot.Depot, elsewhere: bow.depot.Depot) -> None:
    """What other depots hold of a name is released when it is replaced or dropped, where they can be reached."""
    for number, end in enumerate(("replaced", "dropped")):
        part = f"part {number}"
        commit(elsewhere, ONE, part)
        named(depot, "trips", ONE, part, depots=[elsewhere.address, "unix:/not/there.sock"])
        assert parts(elsewhere) == [part]
        if end == "replaced":
            named(depot, "trips", ONE, "next")
        else:
            depot.drop("trips")
        assert parts(elsewhere) == []


def test_an_application_that_ends_may_leave_something(connect: Connect) -> None:
    """What stays is kept with its name for its seconds, also while it is held; the rest is freed at once."""
    depot = connect()
    depot.hold(APP)
    named(depot, "goes", ONE, "a")
    named(depot, "stays", TWO, "b")
    assert depot.end(APP, stays={"b": 1.0, "unknown": 5.0})
    assert parts(depot) == ["b"]
    assert [each.name for each in depot.list_datasets()] == ["stays"]
    assert read(depot.lookup("stays")).num_rows == 2
    depot.hold(APP)
    until(lambda: parts(depot) == [] and depot.list_datasets() == [], "it goes")
    assert not depot.end("never seen")


def test_names_of_what_other_hosts_keep_stay(depot: bow.depot.Depot, elsewhere: bow.depot.Depot) -> None:
    """A data set that stays keeps its name, also in a depot that holds none of its streams, and no longer."""
    for name, part in (("goes", "a"), ("stays", "b")):
        found = bow.Dataset((commit(elsewhere, ONE, part).endpoint,), ONE.schema)
        depot.announce(name, found, application=APP, part=part, depots=elsewhere.addresses)
    for each in (elsewhere, depot):
        each.end(APP, stays={"b": 3.0})
    assert parts(elsewhere) == ["b"]
    assert [each.name for each in depot.list_datasets()] == ["stays"]
    assert read(depot.lookup("stays")).equals(ONE)
    until(lambda: parts(elsewhere) == [] and depot.list_datasets() == [], "it goes")
    until(lambda: APP not in depot.status().applications, "so does the application")


def test_an_application_stops_its_depots_everywhere(connect: Connect) -> None:
    """Depots that hold its named data end with it, and those that hold data of others stay, without its own."""
    with (
        tempfile.TemporaryDirectory(prefix="bow-") as near,
        tempfile.TemporaryDirectory(prefix="bow-") as far,
    ):
        catalog = connect()
        depots = [connect(folder=each, tcp="tcp://127.0.0.1:0") for each in (near, far)]
        pids = [each.pid or 0 for each in depots]
        for number, each in enumerate(depots):
            found = bow.Dataset((commit(each, ONE, "part").endpoint,), ONE.schema)
            catalog.announce(str(number), found, application=APP, part="part", depots=each.addresses)
        commit(depots[1], TWO, "others", application="another")
        assert catalog.stop(application=APP, everywhere=True)
        until(lambda: not runs(pids[0]), "it ends")
        assert (runs(pids[1]), parts(depots[1])) == (True, ["others"])
        depots[1].stop()


def test_depots_of_tls_are_stopped_by_whoever_is_trusted_and_are_named_otherwise(connect: Connect) -> None:
    """A depot elsewhere with a certificate ends for a client that trusts it; else a warning says where it is."""
    certificate = dataclasses.replace(serving(), ca=trusting().ca)
    with tempfile.TemporaryDirectory(prefix="bow-") as near:
        options = {"tls": certificate}
        far = connect(folder=near, tcp="tls://127.0.0.1:0", options=options)
        pid = far.pid or 0
        for tls in (None, certificate):
            catalog = connect(tls=tls)
            found = bow.Dataset((commit(far, ONE, "part").endpoint,), ONE.schema)
            # By its address for other hosts alone: its socket would lead there without a certificate.
            catalog.announce("far", found, application=APP, part="part", depots=far.addresses[1:])
            if tls is None:
                with pytest.warns(RuntimeWarning, match="no depot answers at tls:") as said:
                    assert catalog.stop(application=APP, everywhere=True)
                assert (said[0].filename, runs(pid)) == (__file__, True)
                assert "token" not in str(said[0].message)
            else:
                assert catalog.stop(application=APP, everywhere=True)
        until(lambda: not runs(pid), "it ends")
