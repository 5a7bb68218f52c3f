"""Every transport keeps the promises of ``bowstring.transport.channel``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bowstring import transport
from tests.transport.certified import authority
from tests.transport.kit import CHANNEL_CHECKS, LISTENER_CHECKS, Maker, pairs_at

ADDRESSES = [
    *("inproc:", "unix:", "tcp://", "certified://"),
    *("tcp://[::1]:0", "certified://[::1]:0", "certified://localhost:0"),
]

pytestmark = pytest.mark.usefixtures("certified")


@pytest.fixture
def certified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``certified:`` be ``tls:`` with certificates that are trusted."""
    transport.register("certified", "tests.transport.certified")
    monkeypatch.setenv("SSL_CERT_FILE", authority().path)


def name_of(thing: object) -> str:
    return getattr(thing, "__name__", str(thing)).removeprefix("check_")


@pytest.mark.parametrize("check", CHANNEL_CHECKS, ids=name_of)
@pytest.mark.parametrize("address", ADDRESSES[:4])
def test_channel(no_leaks: None, address: str, check: Callable[[Maker], None]) -> None:
    """A channel of this transport passes the check and leaves nothing behind."""
    check(pairs_at(address))


@pytest.mark.parametrize("check", LISTENER_CHECKS, ids=name_of)
@pytest.mark.parametrize("address", ADDRESSES)
def test_listener(no_leaks: None, address: str, check: Callable[[str], None]) -> None:
    """A listener of this transport passes the check and leaves nothing behind."""
    check(address)
