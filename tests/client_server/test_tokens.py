"""Who may come in: tokens, where one is needed, and that nobody reads one in an error."""

from __future__ import annotations

import contextlib
import gc
import sys
import traceback
import types
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.dissociated.wire import Hello
from tests.client_server.conftest import PATIENCE, read

TABLE = pa.table({"n": [1, 2, 3]})
SECRET = "sesame-2718281828"


@pytest.fixture
def guarded(serve: Callable[..., bow.Server], address: str) -> bow.Server:
    """Return a server that asks for a token."""
    return serve(address, token=SECRET)


def other_token(endpoint: bow.Endpoint, token: str) -> bow.Endpoint:
    """Return an endpoint with another token in its URI."""
    return bow.Endpoint(endpoint.uri.replace(SECRET, token), endpoint.ticket)


@pytest.mark.parametrize("separate", [False, True], ids=["one connection", "two connections"])
def test_the_right_token(guarded: bow.Server, separate: bool) -> None:
    """The endpoint of a guarded server carries the token, printed too."""
    endpoint = guarded.publish("t", TABLE, separate=separate)
    assert SECRET in str(endpoint)
    assert read(endpoint).equals(TABLE)
    assert read(str(endpoint)).equals(TABLE)


@pytest.mark.parametrize(
    "token", ["sesame", SECRET + "0", SECRET[:-1] + "9", SECRET.upper(), "é", ""], ids=repr
)
def test_a_wrong_token(guarded: bow.Server, token: str) -> None:
    """With a wrong token nothing is served, whatever it shares with the right one."""
    endpoint = guarded.publish("t", TABLE, readers=1)
    with pytest.raises(bow.AccessDenied, match="token"):
        bow.connect(other_token(endpoint, token), limits=PATIENCE)
    assert read(endpoint).equals(TABLE)


@pytest.mark.parametrize("ticket", ["t", "no such thing"])
def test_no_token(guarded: bow.Server, ticket: str) -> None:
    """Without the token nobody learns whether a data set exists."""
    endpoint = guarded.publish("t", TABLE)
    without = bow.Endpoint(endpoint.uri.replace(f"&token={SECRET}", ""), ticket.encode())
    assert SECRET not in without.uri
    with pytest.raises(bow.AccessDenied, match="token"):
        bow.connect(without, limits=PATIENCE)


def test_a_token_where_none_is_asked_for(serve: Callable[..., bow.Server], address: str) -> None:
    """A server without a token lets in who brings one."""
    endpoint = serve(address).publish("t", TABLE)
    assert read(bow.Endpoint(endpoint.uri + "&token=any", endpoint.ticket)).equals(TABLE)


@pytest.mark.parametrize("token", ["", "é", "\x80"])
def test_tokens_that_are_none(token: str) -> None:
    """An empty token guards nothing, and one beyond ASCII does not travel: both are refused at once."""
    with pytest.raises(bow.UsageError, match="ASCII"):
        bow.Server("inproc:", token=token)


@settings(max_examples=25)
@given(token=st.text(st.characters(min_codepoint=1, max_codepoint=126), min_size=1, max_size=40))
def test_any_token(token: str) -> None:
    """Every token that a server takes comes through its URIs."""
    with bow.Server("inproc:", token=token, limits=PATIENCE) as server:
        endpoint = server.publish("t", TABLE)
        assert read(str(endpoint)).equals(TABLE)


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:0", "tcp://[::]:0"])
def test_off_loopback_without_a_token(address: str) -> None:
    """A server that other machines can reach does not start without a token."""
    with pytest.raises(bow.UsageError, match="token"):
        bow.Server(address)


@pytest.mark.parametrize("length", [1, 15, 16])
def test_off_loopback_with_a_short_token(length: int) -> None:
    """Other machines can try many tokens, so one that guards against them has at least 16 characters."""
    token = "0123456789abcdef"[:length]
    if length == 16:
        bow.Server("tcp://0.0.0.0:0", token=token, plaintext=True).close()
        return
    with pytest.raises(bow.UsageError, match=r"16 characters.*token=secrets") as caught:
        bow.Server("tcp://0.0.0.0:0", token=token)
    assert token not in str(caught.value.found)
    bow.Server("tcp://127.0.0.1:0", token=token).close()


def test_off_loopback_without_the_word() -> None:
    """A server does not let data and token cross a network unencrypted before its user has said so."""
    with pytest.raises(bow.UsageError, match="plaintext=True"):
        bow.Server("tcp://0.0.0.0:0", token=SECRET)
    with bow.Server(token=SECRET) as server, pytest.raises(bow.UsageError, match="plaintext=True"):
        server.listen_too("tcp://0.0.0.0:0")


def test_off_loopback_with_a_token(serve: Callable[..., bow.Server]) -> None:
    """With a token a server may listen for other machines."""
    server = serve("tcp://0.0.0.0:0", token=SECRET, plaintext=True)
    endpoint = server.publish("t", TABLE)
    local = bow.Endpoint(endpoint.uri.replace("0.0.0.0", "127.0.0.1"), endpoint.ticket)
    assert read(local).equals(TABLE)
    with pytest.raises(bow.AccessDenied):
        bow.connect(other_token(local, "sesame"), limits=PATIENCE)


def test_no_error_shows_it(guarded: bow.Server) -> None:
    """Whatever goes wrong with a URI or on its way, no message, cause or repr of it shows the token."""
    endpoint = guarded.publish("t", TABLE)
    address = endpoint.uri.partition("?")[0]
    attempts: list[tuple[bow.Endpoint | str, str | None]] = [
        (endpoint.uri, None),
        (f"{address}?token={SECRET}", "t"),
        (f"{address}?token={SECRET}&token={SECRET}&want_data=1", "t"),
        (f"{address}?want_data=x&token={SECRET}", "t"),
        (f"{address}?want_data=1;token={SECRET}", "t"),
        (f"{endpoint.uri}&free_data=1", "t"),
        (endpoint, "no such thing"),
        (other_token(endpoint, SECRET + "x"), None),
        (f"{address}?token={SECRET}&want_data", "t"),
    ]
    for source, ticket in attempts:
        with pytest.raises(bow.BowstringError) as caught:
            bow.connect(source, ticket, limits=PATIENCE)
        assert SECRET not in said(caught.value)
    guarded.close()
    with pytest.raises(bow.BrokenError) as caught_broken:
        bow.connect(endpoint, limits=PATIENCE)
    assert SECRET not in said(caught_broken.value)
    assert SECRET not in repr(guarded)


def said(error: BaseException) -> str:
    """Return all that an error tells, with its causes, but for the lines of code that it passed."""
    lines = traceback.TracebackException.from_exception(error, limit=0).format()
    return "".join(lines) + repr(error)


def test_a_stream_does_not_show_it(guarded: bow.Server) -> None:
    """Neither a stream nor what it counts shows the token."""
    with bow.connect(guarded.publish("t", TABLE)) as stream:
        assert SECRET not in repr(stream) + repr(stream.stats) + repr(guarded.stats)


def caches() -> dict[str, object]:
    """Return what remembers answers of ours from call to call."""
    modules = {name: module for name, module in sys.modules.items() if name.startswith("bowstring.")}
    return {
        f"{name}.{each}": found
        for name, module in modules.items()
        for each, found in vars(module).items()
        if hasattr(found, "cache_info")
    }


def holds(root: object, secret: str) -> bool:
    """Whether a text with the secret is reached from an object, other than through code."""
    seen, left = {id(root)}, [root]
    while left:
        for each in gc.get_referents(left.pop()):
            if isinstance(each, str | bytes) and secret in (
                each if isinstance(each, str) else each.decode("latin-1")
            ):
                return True
            if id(each) not in seen and not isinstance(each, type | types.ModuleType | types.FunctionType):
                seen.add(id(each))
                left.append(each)
    return False


def test_no_cache_keeps_it(serve: Callable[..., bow.Server], address: str) -> None:
    """When its stream is over, what is remembered for the next ones does not hold the token."""
    secret = "kept-nowhere-314159"
    endpoint = serve(address, token=secret).publish("t", TABLE, separate=True)
    moved = bow.Endpoint("unix:/nowhere?want_data=1", endpoint.ticket, None, endpoint.uri, "elsewhere")
    assert read(endpoint).equals(TABLE)
    assert read(str(endpoint)).equals(TABLE)
    assert bow.Endpoint.parse(str(moved)) == moved
    known = caches()
    assert known
    assert [name for name, cache in known.items() if holds(cache, secret)] == []


@pytest.mark.parametrize("name", ["%74oken", "%2574oken", "t%6fken", "%25252574oken"])
def test_no_cache_keeps_one_whose_name_is_encoded(name: str) -> None:
    """However often the name of a token is encoded in a URI, it is neither kept nor shown."""
    secret = f"never-kept-{name[-6:]}"
    uri = f"tcp://127.0.0.1:1?want_data=1&{name}={secret}"
    endpoint = bow.Endpoint.parse(uri, "t")
    assert endpoint.uri == uri
    assert secret not in repr(endpoint)
    with contextlib.suppress(bow.BowstringError):
        assert len(endpoint.locations) == 1
    assert [key for key, cache in caches().items() if holds(cache, secret)] == []


def test_no_cache_keeps_one_that_is_escaped() -> None:
    """A hello whose token is written with escapes is read, and not kept."""
    secret = "escaped-161803"
    hello = Hello.unpack(b'{"version":1,"\\u0074oken":"%s"}' % secret.encode())
    assert hello.token == secret
    assert [key for key, cache in caches().items() if holds(cache, secret)] == []


def test_what_is_long_is_not_remembered() -> None:
    """Long tickets, URIs and names of columns are not kept."""
    long = "a-long-one-" * 1000
    with contextlib.suppress(bow.BowstringError):
        bow.connect(bow.Endpoint("unix:/nowhere?want_data=1", long.encode()), limits=PATIENCE)
    assert bow.Endpoint.parse(f"tcp://{long}:1?want_data=1", "t").ticket == b"t"
    assert bow.Endpoint.parse("tcp://a:1?want_data=1", long).ticket == long.encode()
    assert Hello.unpack(Hello((long,)).pack()).columns == (long,)
    kept = "a-long-one-" * 999
    assert [key for key, cache in caches().items() if holds(cache, kept)] == []
