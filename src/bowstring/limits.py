"""Every bound and every deadline, in one frozen object that `connect` and `Server` take and pass down."""

from __future__ import annotations

import dataclasses
import math
import numbers

from bowstring.errors import UsageError

_KIB = 1 << 10
_MIB = 1 << 20
_GIB = 1 << 30


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what a peer or a file may make this process do. Sizes are bytes, times are seconds.

    All are positive. Sizes and counts are whole: integers, also NumPy's, and floats such as ``1e6``, which become
    an int. The ratio and the times become floats.

    Parameters
    ----------
    metadata_bytes
        Largest metadata of one message.
    control_bytes
        Largest control message (hello, errors, tickets).
    message_bytes
        Largest body of one message.
    decompressed_bytes
        Largest body of one message, decompressed.
    decompression_ratio
        How many times larger than the body of its message that may be, where it is larger than
        ``decompression_floor``. A column of zeros can be 30,000 times smaller in ZSTD, text is seldom 20 times.
    decompression_floor
        Up to this size bodies may be decompressed whatever the ratio is.
    depth
        Most levels of a schema: the record batch is the first one, its columns are the second, children and the
        values of dictionaries are one more each. Arrow C++ takes 64 at most by the C data interface. Of Variants
        and JSON: most values inside each other.
    columns
        Most nodes (fields, children included) in a schema.
    json_bytes
        Largest JSON text of one row.
    extracted_bytes
        Most bytes that one column may have that is made of a Variant column.
    regions
        Most regions that one stream may announce.
    region_bytes
        Largest single region, and the most bytes of regions that one stream may announce.
    window_bytes
        Credit a reader starts with: bytes of packed bodies and of lazily produced batches that may be
        under way or unreleased at once.
    outstanding_bytes
        How far a reader that keeps its batches lets that credit grow before it says ``Starved``.
    connections
        Most readers' connections that a server serves at once.
    connect_timeout
        Time to reach a server and be answered.
    reply_timeout
        Time a reader waits for the next batch before ``DeadlineExceeded``.
    stall_timeout
        Longest silence inside one message, in either direction.
    heartbeat
        Silence after which a server asks whether its reader is still there.
    lease_timeout
        How long a reader may leave that question unanswered before its leases expire.
    close_timeout
        Time that closing may take to flush what is queued.
    device_timeout
        Time that a device may take to finish what this process queued on it, before its memory is published,
        copied or used again.
    release_timeout
        Time that ``Server.wait_released`` waits where the call says nothing.
    early_messages
        Most messages of one stream that wait for an earlier one, for their body, or for their metadata.
    early_bytes
        Most bytes of metadata that wait so.

    Raises
    ------
    UsageError
        A number is not positive, or that of a size or count is not whole.

    Examples
    --------
    >>> limits = Limits(reply_timeout=5, message_bytes=1e9)
    >>> limits.reply_timeout, limits.message_bytes
    (5.0, 1000000000)
    """

    metadata_bytes: int = 64 * _MIB
    control_bytes: int = 256 * _KIB
    message_bytes: int = 1 << 40
    decompressed_bytes: int = 1 << 36
    decompression_ratio: float = 1024.0
    decompression_floor: int = 128 * _MIB
    depth: int = 64
    columns: int = 65_536
    json_bytes: int = 128 * _MIB
    extracted_bytes: int = 1 << 36
    regions: int = 4_096
    region_bytes: int = 1 << 42
    window_bytes: int = 256 * _MIB
    outstanding_bytes: int = 4 * _GIB
    connections: int = 1024
    connect_timeout: float = 10.0
    reply_timeout: float = 60.0
    stall_timeout: float = 30.0
    heartbeat: float = 5.0
    lease_timeout: float = 30.0
    close_timeout: float = 5.0
    device_timeout: float = 120.0
    release_timeout: float = 3600.0
    early_messages: int = 65_536
    early_bytes: int = 256 * _MIB

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            number = _whole(value) if field.type == "int" else _real(value)
            if number is None or not 0 < number < math.inf:
                what = "a positive whole number" if field.type == "int" else "a positive, finite number"
                raise UsageError(f"Limits.{field.name} is {what}", found=repr(value)[:80])
            object.__setattr__(self, field.name, number)

    def __setstate__(self, state: list[float]) -> None:
        # A pickle of an earlier version has fewer fields: new ones are at the end, and keep their defaults.
        fields = dataclasses.fields(self)
        known = [*state, *(field.default for field in fields[len(state) :])]
        for field, value in zip(fields, known, strict=True):
            object.__setattr__(self, field.name, value)
        self.__post_init__()

    def replace(self, **changes: float) -> Limits:
        """Return a copy with some bounds changed.

        Examples
        --------
        >>> DEFAULT_LIMITS.replace(depth=8).depth
        8
        """
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]  # mypy cannot match names


def _whole(value: object) -> int | None:
    """Return a whole number of any type as an int: in arrays of bounds a float would turn all into floats."""
    if isinstance(value, bool) or not isinstance(value, (numbers.Integral, float)):
        return None
    return int(value) if isinstance(value, numbers.Integral) or value.is_integer() else None


def _real(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (numbers.Integral, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


DEFAULT_LIMITS = Limits()


def limits_or_default(limits: Limits | None) -> Limits:
    """Return the limits that a caller gave, or those by default; raise `UsageError` for another type."""
    if limits is None:
        return DEFAULT_LIMITS
    if not isinstance(limits, Limits):
        raise UsageError("limits is a bowstring.Limits", found=repr(limits)[:80])
    return limits


def most_decompressed(nbytes: int, limits: Limits) -> int:
    """Return how many bytes a body of `nbytes` may become."""
    in_proportion = max(limits.decompression_floor, limits.decompression_ratio * nbytes)
    return int(min(limits.decompressed_bytes, in_proportion))  # a large ratio makes more than a float holds
