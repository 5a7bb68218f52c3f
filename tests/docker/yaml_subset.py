"""YAML as far as the files of this folder use it: maps and lists by indentation, scalars, and JSON lists."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["parsed"]


def parsed(text: str) -> Any:
    """Return what a text says; anything beyond the subset is a ValueError."""
    lines: list[tuple[int, str]] = []
    for line in text.splitlines():
        stripped = line.lstrip(" ")
        if stripped and not stripped.startswith("#"):
            if "\t" in line:
                raise ValueError("a tab")
            lines.append((len(line) - len(stripped), stripped.rstrip()))
    found, rest = _block(lines, 0)
    if rest:
        raise ValueError(f"not understood: {rest[0][1]}")
    return found


def _block(lines: list[tuple[int, str]], indent: int) -> tuple[Any, list[tuple[int, str]]]:
    if lines and lines[0][1].startswith("- "):
        return _list(lines, indent)
    found: dict[str, Any] = {}
    while lines and lines[0][0] == indent:
        key, colon, value = lines[0][1].partition(":")
        if not colon or key in found or (value and not value.startswith(" ")):
            raise ValueError(f"no entry of a map, or one twice: {lines[0][1]}")
        lines = lines[1:]
        if value.strip():
            found[key] = _scalar(value.strip())
            continue
        if not lines or lines[0][0] <= indent:
            raise ValueError(f"nothing under {key}")
        found[key], lines = _block(lines, lines[0][0])
    if lines and lines[0][0] > indent:
        raise ValueError(f"indented too far: {lines[0][1]}")
    return found, lines


def _list(lines: list[tuple[int, str]], indent: int) -> tuple[Any, list[tuple[int, str]]]:
    found: list[Any] = []
    while lines and lines[0][0] == indent and lines[0][1].startswith("- "):
        text = lines[0][1][2:].strip()
        if ": " in text and not text.startswith(('"', "[")):
            # A map that begins behind the dash.
            first = [(indent + 2, text)]
            item, lines = _block(first + lines[1:], indent + 2)
            found.append(item)
        else:
            found.append(_scalar(text))
            lines = lines[1:]
    return found, lines


def _scalar(text: str) -> Any:
    if text == "{}":
        return {}
    if text.startswith(("[", '"')):
        return json.loads(text)
    if text[0] in "{&*!|>'%@`":
        raise ValueError(f"beyond the subset: {text}")
    return text
