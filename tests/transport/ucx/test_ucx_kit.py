"""``ucx:`` keeps the promises of ``bowstring.transport.channel``, whatever UCX moves the bytes with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.transport.kit import CHANNEL_CHECKS, LISTENER_CHECKS, Maker, pairs_at
from tests.transport.test_kit import name_of
from tests.transport.ucx.conftest import WAYS

Over = Callable[[str], None]


@pytest.mark.parametrize("check", CHANNEL_CHECKS, ids=name_of)
@pytest.mark.parametrize("tls", WAYS)
def test_channel(
    ucx_over: Over, tls: str, check: Callable[[Maker], None], request: pytest.FixtureRequest
) -> None:
    """A channel passes the check and leaves nothing behind."""
    ucx_over(tls)
    request.getfixturevalue("no_leaks")
    check(pairs_at("ucx://"))


@pytest.mark.parametrize("check", LISTENER_CHECKS, ids=name_of)
@pytest.mark.parametrize("address", ["ucx://", pytest.param("ucx://[::1]:0", marks=pytest.mark.slow)])
def test_listener(
    ucx_over: Over, address: str, check: Callable[[str], None], request: pytest.FixtureRequest
) -> None:
    """A listener passes the check and leaves nothing behind."""
    ucx_over("all")
    request.getfixturevalue("no_leaks")
    check(address)
