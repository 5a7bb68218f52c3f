"""The rules of JSON that Variants are read and written by."""

from __future__ import annotations

from typing import Literal

from bowstring.errors import UsageError

__all__ = ["Rules", "check_rules"]

Rules = Literal["plain", "spark"]


def check_rules(rules: str) -> None:
    """Refuse a set of rules that is not there."""
    if rules not in ("plain", "spark"):
        raise UsageError("rules of JSON", expected="'plain' or 'spark'", found=repr(rules))
