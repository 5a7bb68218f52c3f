"""How a data set is read: what the options of :func:`bowstring.connect` come to, for all of its streams."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from bowstring.columnar.parts import Validated
    from bowstring.dissociated.wire import Hello
    from bowstring.limits import Limits
    from bowstring.memory import Allocator, Device, NamedStream, Pool
    from bowstring.memory.buffer import PrivateMemory
    from bowstring.transport import Channel
    from bowstring.transport.certificates import TlsConfig


@dataclasses.dataclass(slots=True)
class Reading:
    """How a data set is read."""

    hello: Hello  # without what a connection adds
    limits: Limits
    landing: Pool  # where bodies land that are read-only
    private: PrivateMemory | None  # where bodies land, and copies on the host go, that may be written
    copies: Pool
    device: Device | None  # that was asked for
    mode: Literal["map", "copy"] | None
    streams: Sequence[NamedStream]  # on which what was lent is read
    tls: TlsConfig | ssl.SSLContext | None
    dialled: (
        Callable[[Channel], None] | None
    )  # is told of each channel; then the loop receives, and no caller
    timeout: float | None  # seconds that a call waits for a batch, as long as the producer is there
    validate: Validated | None
    allocators: dict[Device, Allocator] = dataclasses.field(default_factory=dict)  # of copies
