"""Failures: the message that says what went wrong at the other end, as an error there and here."""

from __future__ import annotations

import json
from typing import Final

from bowstring.dissociated.wire import json_object, text_of
from bowstring.errors import (
    AccessDenied,
    BowstringError,
    BrokenError,
    ClosedError,
    DatasetReplaced,
    DatasetWithdrawn,
    DeadlineExceeded,
    DeviceError,
    InvalidBody,
    InvalidData,
    InvalidMetadata,
    InvalidRegion,
    LeaseExpired,
    LimitExceeded,
    MissingDependency,
    NotExportable,
    NotOnDevice,
    OutOfBudget,
    PositionExpired,
    ProducerFailed,
    ProtocolError,
    RefusedError,
    Truncated,
    UnknownColumn,
    UnknownName,
    UnknownTicket,
    Unsupported,
    UsageError,
)

_MOST_TEXT: Final = 4000
DETAILS: Final = {"what": 500, "expected": 1500, "found": 2000, "where": 500, "hint": 500}
"""The parts of an error that travel, and the most characters of each."""

# The kinds of errors that travel, by their name in the message.
_ERRORS: Final[dict[str, type[BowstringError]]] = {
    "unknown_ticket": UnknownTicket,
    "unknown_name": UnknownName,
    "dataset_replaced": DatasetReplaced,
    "dataset_withdrawn": DatasetWithdrawn,
    "position_expired": PositionExpired,
    "access_denied": AccessDenied,
    "producer_failed": ProducerFailed,
    "unsupported": Unsupported,
    "lease_expired": LeaseExpired,
    "deadline_exceeded": DeadlineExceeded,
    "device": DeviceError,
    "out_of_budget": OutOfBudget,
    "limit_exceeded": LimitExceeded,
    "protocol": ProtocolError,
    "invalid_metadata": InvalidMetadata,
    "invalid_body": InvalidBody,
    "invalid_region": InvalidRegion,
    "truncated": Truncated,
    "invalid_data": InvalidData,
    "unknown_column": UnknownColumn,
    "missing_dependency": MissingDependency,
    "not_exportable": NotExportable,
    "not_on_device": NotOnDevice,
    "usage": UsageError,
    "refused": RefusedError,
    "closed": BrokenError,
    "broken": BrokenError,
}
# An error of a class that has no name of its own travels as the nearest class above it that has one.
_CODES: Final = {cls: code for code, cls in _ERRORS.items()}


def pack_error(error: BaseException) -> bytes:
    """Return an error message: its kind, and the part of it that a reader may see."""
    if not isinstance(error, BowstringError):
        error = ProducerFailed("the producer raised", found=f"{type(error).__name__}: {error}"[:2000])
    if isinstance(error, ClosedError):
        error = BrokenError("the producer closed the stream", found=str(error))
    code = next((_CODES[cls] for cls in type(error).__mro__ if cls in _CODES), "broken")
    return json.dumps({"code": code, **details_of(error)}).encode()


def details_of(error: BowstringError) -> dict[str, str | None]:
    """Return what an error says, each part cut to a length that a message may have and without half characters."""
    return {
        name: None if (value := getattr(error, name)) is None else _cut(str(value), most)
        for name, most in DETAILS.items()
    }


def _cut(text: str, most: int) -> str:
    return text[:most].encode(errors="backslashreplace").decode()[: 2 * most]


def unpack_error(data: bytes | memoryview) -> BowstringError:
    """Return the error that a peer sent, as an exception of ours; raise `ProtocolError` if it is malformed."""
    fields = json_object(bytes(data), "error")
    cls = _ERRORS.get(text_of(fields, "code", 40) or "", BrokenError)
    said = {name: text_of(fields, name, _MOST_TEXT) for name in DETAILS}
    return cls(said.pop("what") or "the peer failed", **said)
