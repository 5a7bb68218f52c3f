"""Descriptors that came beside a message belong to us, and must not stay open when nobody wants them."""

from __future__ import annotations

import contextlib
import os
from typing import Any

__all__ = ["close_descriptors"]


def close_descriptors(attachments: tuple[Any, ...]) -> None:
    """Close the file descriptors among some attachments."""
    for attachment in attachments:
        if isinstance(attachment, int):
            with contextlib.suppress(OSError):
                os.close(attachment)
