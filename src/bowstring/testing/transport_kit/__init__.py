"""One set of checks for all transports, for those of Bowstring and for yours.

A transport passes when every check returns; one that fails raises ``AssertionError``, or the error that
should not have happened. No check waits for ever.

Each of :data:`CHANNEL_CHECKS` takes a *maker*: a function of :class:`~bowstring.limits.Limits` that returns a
context manager giving the two ends of a fresh connection. :func:`pairs_at` makes one from an address. Each of
:data:`LISTENER_CHECKS` takes an address to listen on. With pytest::

    @pytest.mark.parametrize("check", CHANNEL_CHECKS, ids=lambda check: check.__name__)
    def test_channel(check):
        check(pairs_at("mine:"))

Examples
--------
>>> from bowstring.testing import transport_kit
>>> transport_kit.check_transport("inproc:")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bowstring.testing.transport_kit import delivery, endings
from bowstring.testing.transport_kit.harness import Maker, in_thread, pairs_at, raises

__all__ = ["CHANNEL_CHECKS", "LISTENER_CHECKS", "Maker", "check_transport", "in_thread", "pairs_at", "raises"]


def __dir__() -> list[str]:
    return __all__


CHANNEL_CHECKS: Sequence[Callable[[Maker], None]] = (
    *delivery.CHECKS,
    *endings.BOUND_CHECKS,
    *endings.END_CHECKS,
)
LISTENER_CHECKS: Sequence[Callable[[str], None]] = endings.LISTENER_CHECKS


def check_transport(address: str) -> None:
    """Run all checks on the transport of an address.

    Parameters
    ----------
    address
        An address to listen on, again and again; best one that lets the transport choose, such as ``unix:``.

    Raises
    ------
    AssertionError
        The transport breaks one of the promises of :mod:`bowstring.transport.channel`.

    Examples
    --------
    >>> check_transport("inproc:")
    """
    for check in CHANNEL_CHECKS:
        check(pairs_at(address))
    for listener_check in LISTENER_CHECKS:
        listener_check(address)
