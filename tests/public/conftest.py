"""The option that writes what the tests of this folder compare with."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """``python -m pytest tests/public --update-public`` keeps what users see today as what they shall see."""
    parser.addoption(
        "--update-public", action="store_true", help="write tests/data/public anew; look at the difference"
    )
