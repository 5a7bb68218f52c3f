"""Errors keep their kind when a producer reports them to its reader."""

from __future__ import annotations

import pytest

import bowstring as bow
from bowstring import errors
from bowstring.dissociated.failures import pack_error
from bowstring.dissociated.tags import Control
from bowstring.transport import Message
from tests.faults.conftest import LIMITS
from tests.peer.raw import RawServer

KINDS = [
    errors.DeadlineExceeded,
    errors.DeviceError,
    errors.NotOnDevice,
    errors.NotExportable,
    errors.MissingDependency,
    errors.InvalidMetadata,
    errors.InvalidBody,
    errors.InvalidRegion,
    errors.Truncated,
    errors.Unsupported,
    errors.OutOfBudget,
    errors.LimitExceeded,
    errors.LeaseExpired,
    errors.ProducerFailed,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_reported_error_keeps_its_kind(address: str, kind: type[bow.BowstringError]) -> None:
    """`connect` raises the class and the words of the error that the producer reports."""
    reported = kind("the work stopped", expected="a result", found="nothing", hint="Start it again.")
    with RawServer(address, [Message(Control.ERROR, [pack_error(reported)])]) as server:
        with pytest.raises(bow.BowstringError) as raised:
            bow.connect(server.uri, limits=LIMITS)
        error = raised.value.with_traceback(None)
        del raised
    assert type(error) is kind
    assert str(error) == "the work stopped; expected a result; found nothing. Start it again."


def test_a_class_without_a_name_travels_as_the_nearest_class_above() -> None:
    """An error of a subclass arrives as the nearest class of the table, so `except` finds it."""

    class DriverGone(errors.DeviceError):
        """A device that went away."""

    assert b'"device"' in pack_error(DriverGone("it is gone"))
    assert b'"limit_exceeded"' in pack_error(errors.Starved("too many batches are kept"))
