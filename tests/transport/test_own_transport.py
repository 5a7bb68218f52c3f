"""A transport is one file: one written for this test passes all checks and carries a data set."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring import transport
from tests.transport.kit import CHANNEL_CHECKS, LISTENER_CHECKS, Maker, pairs_at
from tests.transport.test_kit import name_of

pytestmark = pytest.mark.usefixtures("no_leaks", "registered")


@pytest.fixture
def registered() -> None:
    """Know ``abstract:`` from now on."""
    transport.register("abstract", "tests.transport.abstract_sockets")


@pytest.mark.parametrize("check", CHANNEL_CHECKS, ids=name_of)
def test_channel(check: Callable[[Maker], None]) -> None:
    """A channel of the transport keeps the promise."""
    check(pairs_at("abstract:"))


@pytest.mark.parametrize("check", LISTENER_CHECKS, ids=name_of)
def test_listener(check: Callable[[str], None]) -> None:
    """A listener of the transport keeps the promise."""
    check("abstract:")


def test_a_data_set() -> None:
    """Server and client use what the transport can do, and ask for nothing by its name."""
    table = pa.table({"n": range(1000), "s": [str(number) for number in range(1000)]})
    pool = bow.Pool()
    with bow.Server("abstract:own-transport", token="s" * 16) as server:
        endpoint = server.publish("t", table, readers=1)
        with bow.connect(str(endpoint), options=bow.ConnectOptions(pool=pool)) as stream:
            assert stream.read_all().equals(table)
            assert stream.stats.path == "abstract: packed"
        server.wait_released("t", timeout=10.0)
    pool.close()
