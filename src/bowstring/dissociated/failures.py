"""Failures: the message that says what went wrong at the other end, as an error there and here."""

from __future__ import annotations

import json
from typing import Final

from bowstring import errors
from bowstring.dissociated.wire import json_object, text_of

_MOST_TEXT: Final = 4000
DETAILS: Final = {"what": 500, "expected": 1500, "found": 2000, "where": 500, "hint": 500}
"""The parts of an error that travel, and the most characters of each."""

# The kinds of errors that travel, by their name in the message.
_ERRORS: Final[dict[str, type[errors.BowstringError]]] = {
    "unknown_ticket": errors.UnknownTicket,
    "unknown_name": errors.UnknownName,
    "dataset_replaced": errors.DatasetReplaced,
    "dataset_withdrawn": errors.DatasetWithdrawn,
    "position_expired": errors.PositionExpired,
    "access_denied": errors.AccessDenied,
    "producer_failed": errors.ProducerFailed,
    "unsupported": errors.Unsupported,
    "lease_expired": errors.LeaseExpired,
    "deadline_exceeded": errors.DeadlineExceeded,
    "device": errors.DeviceError,
    "out_of_budget": errors.OutOfBudget,
    "limit_exceeded": errors.LimitExceeded,
    "protocol": errors.ProtocolError,
    "invalid_metadata": errors.InvalidMetadata,
    "invalid_body": errors.InvalidBody,
    "invalid_region": errors.InvalidRegion,
    "truncated": errors.Truncated,
    "invalid_data": errors.InvalidData,
    "unknown_column": errors.UnknownColumn,
    "missing_dependency": errors.MissingDependency,
    "not_exportable": errors.NotExportable,
    "not_on_device": errors.NotOnDevice,
    "usage": errors.UsageError,
    "refused": errors.RefusedError,
    "closed": errors.BrokenError,
    "broken": errors.BrokenError,
}
# An error of a class that has no name of its own travels as the nearest class above it that has one.
_CODES: Final = {cls: code for code, cls in _ERRORS.items()}


def pack_error(error: BaseException) -> bytes:
    """Return an error message: its kind, and the part of it that a reader may see."""
    if not isinstance(error, errors.BowstringError):
        error = errors.ProducerFailed("the producer raised", found=f"{type(error).__name__}: {error}"[:2000])
    if isinstance(error, errors.ClosedError):
        error = errors.BrokenError("the producer closed the stream", found=str(error))
    code = next((_CODES[cls] for cls in type(error).__mro__ if cls in _CODES), "broken")
    # Each part is cut to a length that a message may have, and without half characters.
    parts = {
        name: None if (value := getattr(error, name)) is None else _cut(str(value), most)
        for name, most in DETAILS.items()
    }
    return json.dumps({"code": code, **parts}).encode()


def _cut(text: str, most: int) -> str:
    return text[:most].encode(errors="backslashreplace").decode()[: 2 * most]


def unpack_error(data: bytes | memoryview) -> errors.BowstringError:
    """Return the error that a peer sent, as an exception of ours; raise `ProtocolError` if it is malformed."""
    fields = json_object(bytes(data), "error")
    cls = _ERRORS.get(text_of(fields, "code", 40) or "", errors.BrokenError)
    said = {name: text_of(fields, name, _MOST_TEXT) for name in DETAILS}
    return cls(said.pop("what") or "the peer failed", **said)
