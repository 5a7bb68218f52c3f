"""A reader in a process of its own that does not see the producer's device."""

from __future__ import annotations

import sys
from typing import Any

import bowstring as bow

__all__ = ["BlindReader"]


class BlindReader:
    """Reads data sets; sees the fake device of that number alone, or none, of which it has not even the code."""

    def __init__(self, sees: int | None = None) -> None:
        if sees is not None:
            from bowstring.memory.devices import register_devices
            from bowstring.testing import fake_device
            from bowstring.testing.fake_device import EXT_DEV

            def find(uuid: bytes) -> bow.Device:
                device = fake_device(sees)
                if device.uuid == uuid:
                    return device
                raise bow.NotOnDevice(
                    "this process does not see it", found="another one", hint="Look elsewhere."
                )

            register_devices(EXT_DEV, "fake", find, fake_device)

    def read(self, endpoint: str, device: str | None = None, **options: Any) -> dict[str, Any]:
        """Return the rows of a data set and what the stream says of itself."""
        if device is not None and device.startswith("fake"):
            import bowstring.testing  # noqa: F401  which makes these names known
        with bow.connect(endpoint, device=device, **options) as stream:
            opened = stream.stats
            batches = list(stream)
            stats = stream.stats
        rows = [row for batch in batches for row in batch.to_device("cpu").to_arrow().to_pylist()]
        return {
            "rows": rows,
            "opened": opened.path,
            "path": stats.path,
            "why": stats.why,
            "device": stats.device,
            "copied": stats.copied,
            "devices": sorted({batch.device.name for batch in batches}),
            "testing": "bowstring.testing" in sys.modules,
            "cuda": any(name.partition(".")[0] in ("cuda", "cupy") for name in sys.modules),
        }

    def stop_early(self, endpoint: str) -> str:
        """Open a data set, take one batch and go."""
        with bow.connect(endpoint) as stream:
            next(iter(stream))
            return stream.stats.path
