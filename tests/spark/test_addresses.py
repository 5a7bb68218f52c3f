"""Where a task's host is found from others: by the address that it would send to the driver from."""

from __future__ import annotations

import pytest

from bowstring.spark.task import own_address
from bowstring.transport import dial, listen


@pytest.mark.parametrize("driver", ["127.0.0.1", "localhost", "[::1]", "::1"])
def test_the_drivers_host_reaches_it(driver: str) -> None:
    """What a task says of itself can be listened on and dialled, in either family, with brackets or without."""
    address = own_address(driver)
    assert address is not None
    with listen(address) as listener, dial(listener.uri) as channel:
        assert not channel.closed


def test_without_other_hosts_there_is_none() -> None:
    """Where the driver says nothing, nobody listens; a host that nobody knows is an error, and no other address."""
    assert own_address(None) is None
    with pytest.raises(OSError, match=r".+"):
        own_address("no-such-host.invalid")
