"""One set of checks for all transports, for those of Bowstring and for others.

A transport passes when every check returns; one that fails raises ``AssertionError``, or the error that
should not have happened. No check waits for ever.

Each of :data:`CHANNEL_CHECKS` takes a *maker*: a function of :class:`~bowstring.limits.Limits` that returns a
context manager giving the two ends of a fresh connection. :func:`pairs_at` makes one from an address. Each of
:data:`LISTENER_CHECKS` takes an address to listen on. With pytest::

    @pytest.mark.parametrize("check", CHANNEL_CHECKS, ids=lambda check: check.__name__)
    def test_channel(check):
        check(pairs_at("mine:"))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.transport.kit import delivery, endings
from tests.transport.kit.harness import Maker, in_thread, pairs_at, raises

__all__ = ["CHANNEL_CHECKS", "LISTENER_CHECKS", "Maker", "in_thread", "pairs_at", "raises"]


CHANNEL_CHECKS: Sequence[Callable[[Maker], None]] = (
    *delivery.CHECKS,
    *endings.BOUND_CHECKS,
    *endings.END_CHECKS,
)
LISTENER_CHECKS: Sequence[Callable[[str], None]] = endings.LISTENER_CHECKS
