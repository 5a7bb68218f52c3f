"""Every transport keeps the promises of ``bowstring.transport.channel``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bowstring import transport
from bowstring.testing.transport_kit import CHANNEL_CHECKS, LISTENER_CHECKS, Maker, pairs_at

ADDRESSES = ["inproc:", "unix:", "tcp://", "tls://", "tcp://[::1]:0", "tls://[::1]:0", "tls://localhost:0"]

pytestmark = pytest.mark.usefixtures("certified")


@pytest.fixture
def certified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``tls:`` have certificates without a word, for the length of a test."""
    monkeypatch.setitem(transport._modules, "tls", "tests.transport.certified")


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
