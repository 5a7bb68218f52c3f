"""URIs: what is printed is read back, whatever is in it, and no secret gets into an error."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import pickle
import urllib.parse
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from bowstring.dissociated.endpoint import Dataset, Endpoint, Offer, this_host
from bowstring.dissociated.location import Location
from bowstring.errors import BrokenError, UsageError

U64 = st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PATHS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)
ADDRESSES = st.one_of(
    st.sampled_from(
        [
            "tcp://127.0.0.1:4711",
            "tcp://[::1]:4711",
            "tcp://[fe80::1%25eth0]:1",
            "inproc:name",
            "ucx://[::1]:13337",
        ]
    ),
    # As the transport spells a path: what means something in a URI is percent-encoded, & and = and + are not.
    PATHS.map(lambda path: "unix:/" + urllib.parse.quote(path, safe="/:@,+=~!$&'()*;")),
)


@st.composite
def locations(draw: st.DrawFn) -> Location:
    return Location(
        draw(ADDRESSES),
        draw(U64),
        draw(st.none() | U64),
        draw(st.none() | st.binary(max_size=80)),
        draw(st.none() | U64),
        draw(st.none() | TEXT),
    )


@given(location=locations())
@example(Location("unix:/a b", 0, 2**64 - 1, b"\xfb\xff\xfe+/==", 3, "a+b &c=d%20/é"))
def test_what_is_printed_is_read_back(location: Location) -> None:
    """``parse(str(x)) == x`` for any address, tags, handle and token."""
    assert Location.parse(str(location)) == location


@given(location=locations(), other=locations(), ticket=st.binary(max_size=60), separate=st.booleans())
def test_an_endpoint_is_read_back(
    location: Location, other: Location, ticket: bytes, *, separate: bool
) -> None:
    """An endpoint, of one connection or of two, survives being printed and pasted, and names its locations."""
    endpoint = Endpoint(str(location), ticket, str(other) if separate else None)
    assert Endpoint.parse(str(endpoint)) == endpoint
    assert endpoint.locations == ((location, other) if separate else (location,))


@given(
    here=locations(),
    there=st.none() | locations(),
    ticket=st.binary(max_size=60),
    host=st.none() | TEXT,
    separate=st.none() | locations(),
)
def test_an_endpoint_with_two_roads_is_read_back(
    here: Location, there: Location | None, ticket: bytes, host: str | None, separate: Location | None
) -> None:
    """Both roads and the host survive being printed and pasted; what is not there is not printed."""
    endpoint = Endpoint(
        str(here),
        ticket,
        None if separate is None else str(separate),
        None if there is None else str(there),
        host,
    )
    assert Endpoint.parse(str(endpoint)) == endpoint
    assert pickle.loads(pickle.dumps(endpoint)) == endpoint
    assert Dataset.from_json(Dataset((endpoint,), pa.schema([]), 1).to_json()).endpoints == (endpoint,)
    assert ("elsewhere=" in str(endpoint).replace(str(here), "")) == (there is not None)


def test_a_reader_takes_the_road_of_its_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who sees the producer's socket takes `uri`, others take `elsewhere`; where there is none it is an error."""
    monkeypatch.setenv("BOWSTRING_HOST", "one")
    here = f"unix:{urllib.parse.quote(str(tmp_path))}/a%20b"
    both = Endpoint(f"{here}?want_data=1", b"t", None, "tcp://h:1?want_data=2", this_host())
    one = Endpoint(f"{here}?want_data=1", b"t", host=this_host())
    assert [each.is_here for each in (both, one)] == [True, True]
    assert both.locations == one.locations == (Location(here, 1),)
    monkeypatch.setenv("BOWSTRING_HOST", "two")
    assert both.locations == (Location("tcp://h:1", 2),)
    with pytest.raises(BrokenError, match="another host"):
        _ = one.locations
    anywhere = Endpoint(f"{here}?want_data=1", b"t", None, "tcp://h:1?want_data=2")
    assert anywhere.locations == (Location(here, 1),)
    monkeypatch.delenv("BOWSTRING_HOST")
    assert this_host() not in ("", "one", "two", Path("/proc/sys/kernel/random/boot_id").read_text().strip())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"endpoints": ["x"], "schema": "", "num_rows": 1}', "nul"])
def test_what_is_no_data_set_is_refused(text: str) -> None:
    """A text that says no data set is a wrong call, whatever it is."""
    with pytest.raises(UsageError):
        Dataset.from_json(text)


@given(at=st.integers(0, 199), byte=st.integers(0, 255))
def test_a_damaged_schema_is_a_data_set_or_none(at: int, byte: int) -> None:
    """The schema in the text of a data set may have any byte in it."""
    fields = json.loads(Dataset((), pa.schema({"a": pa.list_(pa.utf8())})).to_json())
    schema = bytearray(base64.b64decode(fields["schema"]))
    schema[at % len(schema)] = byte
    fields["schema"] = base64.b64encode(schema).decode()
    with contextlib.suppress(UsageError):
        Dataset.from_json(json.dumps(fields))


@given(endpoint=st.builds(Endpoint, locations().map(str), st.binary(max_size=20)))
def test_endpoints_and_datasets_pickle(endpoint: Endpoint) -> None:
    """Endpoint and Dataset survive pickling, and a data set knows its endpoints in order."""
    dataset = Dataset((endpoint, endpoint), pa.schema({"a": pa.int64()}), 7, 56, {"k": [1]})
    assert pickle.loads(pickle.dumps(endpoint)) == endpoint
    assert pickle.loads(pickle.dumps(dataset)) == dataset
    assert list(dataset) == [endpoint, endpoint]
    assert len(dataset) == 2


@given(handle=st.binary(max_size=80), token=TEXT)
def test_base64_survives_form_encoding(handle: bytes, token: str) -> None:
    """A handle's ``+``, ``/`` and ``=`` are printed percent-encoded, as a reader of form-encoded queries needs."""
    uri = str(Location("ucx://h:1", 1, None, handle, None, token))
    assert urllib.parse.parse_qs(uri.partition("?")[2], keep_blank_values=True)["remote_handle"] == [
        base64.b64encode(handle).decode()
    ]


@given(handle=st.binary(max_size=80), strip=st.booleans())
def test_base64_is_read_in_every_spelling(handle: bytes, *, strip: bool) -> None:
    """Raw ``+`` (which arrives as a space), percent-encoded, url-safe and unpadded base64 mean the same."""
    plain, safe = base64.b64encode(handle).decode(), base64.urlsafe_b64encode(handle).decode()
    for text in (plain, urllib.parse.quote(plain, safe=""), safe):
        spelt = text.rstrip("=") if strip else text
        assert Location.parse(f"ucx://h:1?want_data=7&remote_handle={spelt}").remote_handle == handle


@pytest.mark.parametrize(
    "number",
    ["", "-1", "+1", "1.0", "0x10", "1e3", "٣", "²", "1_0", " 1", "18446744073709551616", "9" * 5000],
)
@pytest.mark.parametrize("name", ["want_data", "free_data", "hello"])
def test_tags_are_decimal_u64(name: str, number: str) -> None:
    """A tag that is no decimal uint64 is refused, and the error names it."""
    tags = {"want_data": "1", "free_data": "2", "hello": "3"} | {name: urllib.parse.quote(number)}
    query = "&".join(f"{key}={value}" for key, value in tags.items())
    with pytest.raises(UsageError, match=name):
        Location.parse(f"tcp://h:1?bow=1&{query}")


def test_the_reference_implementation_is_understood() -> None:
    """The URIs that the reference server prints are read, and it is not taken for one with our extensions."""
    location = Location.parse("ucx://127.0.0.1:13337?want_data=18446741783881759408")
    assert location == Location("ucx://127.0.0.1:13337", 0xFFFF_FDEA_DBA0_BAB0)


def test_ipv6_and_odd_paths_keep_their_address() -> None:
    """What a transport dials is everything before the question mark, unchanged."""
    for address in ("tcp://[::1]:4711", "unix:/tmp/a%3Fb%23c&d=e+f.sock", "ucx+cuda://[fe80::1%25eth0]:1"):
        assert Location.parse(f"{address}?want_data=1").address == address


@pytest.mark.parametrize(
    "name",
    [
        "want_data",
        "free_data",
        "remote_handle",
        "bow",
        "hello",
        "token",
        "ticket",
        "data",
        "elsewhere",
        "host",
    ],
)
def test_nothing_is_said_twice(name: str) -> None:
    """A known parameter that comes twice is refused: which one counts would be a guess."""
    value = "YQ" if name == "ticket" else "1"
    once = {"want_data": "1", "bow": "1", "hello": "3", "ticket": "YQ", name: value}
    query = "&".join(f"{key}={value}" for key, value in once.items())
    with pytest.raises(UsageError, match="twice"):
        Endpoint.parse(f"tcp://h:1?{query}&{name}={value}")


def test_unknown_parameters_are_ignored() -> None:
    """Parameters of others, also repeated, do no harm, and stay in the endpoint."""
    uri = "tcp://h:1?colour=red&want_data=7&colour=blue"
    assert Location.parse(uri).want_data == 7
    assert Endpoint.parse(uri, b"t").uri == uri


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        ":",
        "tcp:",
        "?want_data=1",
        "tcp:?want_data=1",
        "+:x?want_data=1",
        "a b:x?want_data=1",
        "é:x?want_data=1",
    ],
)
def test_what_is_no_uri_is_refused(text: str) -> None:
    """Text without a scheme and an address is refused as such."""
    with pytest.raises(UsageError):
        Location.parse(text)


def test_extensions_need_a_hello_tag() -> None:
    """``bow=1`` without ``hello`` is refused; an unknown version of our extensions is the plain protocol."""
    with pytest.raises(UsageError, match="hello"):
        Location.parse("tcp://h:1?want_data=1&bow=1")
    assert Location.parse("tcp://h:1?want_data=1&bow=2&hello=5").hello is None
    assert Location.parse("tcp://h:1?want_data=1&hello=5").hello is None


def test_a_ticket_is_needed() -> None:
    """A URI that names no data set is refused unless the call does; an empty ticket is a ticket."""
    with pytest.raises(UsageError, match="no data set"):
        Endpoint.parse("tcp://h:1?want_data=1")
    assert Endpoint.parse("tcp://h:1?want_data=1", "trips").ticket == b"trips"
    assert Endpoint.parse("tcp://h:1?want_data=1&ticket=").ticket == b""


def test_a_text_and_its_ticket_name_one_endpoint() -> None:
    """White space around a text does not count, and another ticket makes another endpoint of it."""
    text = str(Endpoint("tcp://h:1?want_data=1", b"t"))
    assert Endpoint.parse(text) == Endpoint.parse(f" {text}\n")
    assert [Endpoint.parse(text, ticket).ticket for ticket in ("a", b"b", None)] == [b"a", b"b", b"t"]


@given(before=st.text(" \t\r\n", max_size=3), after=st.text(" \t\r\n", max_size=3))
def test_white_space_around_is_not_of_it(before: str, after: str) -> None:
    """An endpoint that was written to a file with a line's end, or copied with one, is read as it was printed."""
    endpoint = Endpoint("unix:/tmp/a.sock?want_data=1", b"trips")
    assert Endpoint.parse(f"{before}{endpoint}{after}") == endpoint
    assert Endpoint.parse(f"{before}{endpoint.uri}{after}", "trips") == endpoint


def test_a_cut_endpoint_is_refused() -> None:
    """A URI that was not copied whole says what to do about it."""
    with pytest.raises(UsageError, match="whole URI"):
        Endpoint.parse("unix:/tmp/a.sock?want_data=1&ticket=dHJpc")


SECRET = "s3cr3tS3CR3T"


@given(
    mark=st.sampled_from(["&", "?", "%26", "%3F", ";", ""]),
    name=st.sampled_from(
        [
            "token=",
            "token%3D",
            "tok%65n=",
            "Token=",
            "tokn=",
            "token",
            "ticket=",
            "data=tcp://h:2?token=",
            "data=tcp%3A//h%3A2%3Ftoken%3D",
        ]
    ),
    middle=st.sampled_from(
        ["want_data=x", "want_data=7", "want_data=", "bow=1", "hello=q&bow=1", "remote_handle=!", "q"]
    ),
    first=st.booleans(),
    query=st.sampled_from(["?", "%3F", "&", ""]),
)
@example(mark="", name="token", middle="want_data=x", first=False, query="?")
def test_no_secret_is_in_an_error(mark: str, name: str, middle: str, query: str, *, first: bool) -> None:
    """However a URI with a token is garbled, the error, its hint and its cause do not show the token."""
    secret = name + SECRET
    parameters = f"{secret}{mark}{middle}" if first else f"{middle}{mark}{secret}"
    # With no mark in front of it at all, the secret would be part of the address, which is shown.
    assume(query or (mark and not first))
    for parse in (Location.parse, Endpoint.parse, lambda text: Endpoint.parse(text, "t")):
        try:
            parse(f"tcp://h:1{query}{parameters}")
        except UsageError as error:
            shown: BaseException | None = error
            while shown is not None:
                assert SECRET not in str(shown)
                assert SECRET not in str(getattr(shown, "hint", ""))
                shown = None if shown.__suppress_context__ else shown.__cause__


def test_a_location_does_not_show_its_token() -> None:
    """The representation of a location, as tracebacks show it, leaves the token out."""
    assert SECRET not in repr(Location("tcp://h:1", 1, token=SECRET))


@given(text=st.text(max_size=60), query=st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str, query: str) -> None:
    """No text at all raises anything but a UsageError."""
    for uri in (text, f"tcp://h:1?{query}", f"tcp://h:1?want_data=7&{query}"):
        for parse in (Location.parse, Endpoint.parse):
            try:
                parse(uri)
            except UsageError:
                continue


@pytest.mark.parametrize("before", [None, "old one"])
def test_with_token(before: str | None) -> None:
    """A token is put into every URI of an endpoint, in the place of one that is there; None takes it out."""
    uris = [str(Location(f"tcp://h:{port}", port, 1, None, 2, before)) for port in (1, 2, 3)]
    endpoint = Endpoint(uris[0], b"t", uris[1], uris[2])
    for token in ("a+b&c=é%", None):
        changed = endpoint.with_token(token)
        for old, uri in zip(uris, (changed.uri, changed.data_uri, changed.elsewhere), strict=True):
            assert uri is not None
            assert Location.parse(uri) == dataclasses.replace(Location.parse(old), token=token)
        assert Endpoint.parse(str(changed)) == changed
    assert Endpoint("tcp://h:1", b"t").with_token("x").uri == "tcp://h:1?token=x"


OFFERS = st.lists(
    st.sampled_from(
        [
            Offer("tcp://h:1?want_data=1&token=a+b"),
            Offer("unix:/a%20b.sock?want_data=1", "unix:/c.sock?want_data=2", "one"),
            Offer("ucx://10.0.0.1:13337?want_data=7", None, "hôte"),
        ]
    ),
    max_size=5,
)


@given(OFFERS)
def test_all_offers_are_printed_and_pickled(offers: list[Offer]) -> None:
    """However many offers an endpoint has, they survive being printed and pasted, and pickled, in their order."""
    endpoint = Endpoint("inproc:a?want_data=1", b"t", None, "tcp://h:2?want_data=2", "one", tuple(offers))
    assert Endpoint.parse(str(endpoint)) == endpoint
    assert pickle.loads(pickle.dumps(endpoint)) == endpoint
    assert endpoint.offers[2:] == tuple(offers)
    assert "a+b" not in repr(endpoint)
    changed = endpoint.with_token("new")
    assert all(each.token == "new" for offer in changed.offers for each in offer.locations)


NO_OFFERS = [
    "[1]",
    "{",
    "[[]]",
    "[[1, null, null]]",
    '[["tcp://h", 1, null]]',
    "[" * 10_000,
    "{}",
    str([[1]] * 20),
]


@pytest.mark.parametrize("others", NO_OFFERS, ids=range(len(NO_OFFERS)))
def test_offers_that_cannot_be_read(others: str) -> None:
    """What is no list of offers is refused, and not shown."""
    with pytest.raises(UsageError, match="offers"):
        Endpoint.parse("tcp://h:1?want_data=1&ticket=dA&others=" + urllib.parse.quote(others))


def test_offers_are_addresses() -> None:
    """An offer whose address means nothing is refused with the endpoint."""
    others = urllib.parse.quote('[["no address", null, null]]')
    with pytest.raises(UsageError, match="not a URI"):
        Endpoint.parse("tcp://h:1?want_data=1&ticket=dA&others=" + others)
