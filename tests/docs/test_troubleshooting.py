"""What the page about error messages quotes is what the code says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "troubleshooting.md"
OF_OTHERS = {"assignment destination is read-only"}  # NumPy's


def quoted() -> list[str]:
    """Return the messages in the first column of the page's tables."""
    rows = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    return [row for row in rows if row not in OF_OTHERS]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Return the texts in the source, ``…`` in the place of what they are filled with."""
    found: list[str] = []
    for folder in ("src/bowstring", "kernels"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = [
                        str(each.value) if isinstance(each, ast.Constant) else "…" for each in node.values
                    ]
                    found.append("".join(parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return found


@pytest.mark.parametrize("message", quoted())
def test_a_message_is_in_the_source(message: str, texts: list[str]) -> None:
    """Each message is a text of the source, or a part of one, whatever it is filled with."""
    assert any(message in text for text in texts)


def test_the_page_quotes_messages() -> None:
    """The page has some dozens of messages, each once."""
    assert len(quoted()) == len(set(quoted())) > 40
