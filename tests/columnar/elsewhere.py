"""What another library has on a device."""

from __future__ import annotations

from typing import Any

from bowstring.columnar.batch import Batch

__all__ = ["Elsewhere"]


class Elsewhere:
    """It knows this one method, and is no batch of ours."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def __arrow_c_device_array__(self, requested_schema: Any = None, **_: Any) -> Any:
        return self.batch.__arrow_c_device_array__(requested_schema)
