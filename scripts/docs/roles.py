"""Docstrings as the reference shows them: references are links, and fields that are not for users are left out.

An extension of griffe, which reads the docstrings for ``mkdocstrings``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))
from reference import MODULES, ROLE, entries, public_names

_EXAMPLE = re.compile(r"^>>> (?:.+\n)+", re.MULTILINE)
_LITERAL = re.compile(r"^::\n|:(?=:$)", re.MULTILINE)
_ATTRIBUTES = re.compile(r"^Attributes\n-+\n(.*?)(?=^\w[^\n]*\n---|\Z)", re.MULTILINE | re.DOTALL)
_ATTRIBUTE = re.compile(r"^(\S[^\n:]*)(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)


class Roles(griffe.Extension):
    """Rewrites docstrings as they are read."""

    def __init__(self) -> None:
        self._public = public_names()
        self._members = {
            name: members for area in MODULES for kind, name, members in entries(area) if kind == "class"
        }

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring:
            text, examples, rest = obj.docstring.value.partition("\nExamples\n----")
            text = _LITERAL.sub("", ROLE.sub(self._link, text))
            text = _EXAMPLE.sub(r"```pycon\n\g<0>```\n", text + "\n") + examples + ROLE.sub(self._link, rest)
            if obj.is_class and (members := self._members.get(obj.name)):
                text = _ATTRIBUTES.sub(lambda found: _for_users(found, members), text)
            obj.docstring.value = text

    def _link(self, role: re.Match[str]) -> str:
        name = role[1]
        return f"[`{name}`][{name}]" if name in self._public else f"`{name}`"


def _for_users(section: re.Match[str], members: list[str]) -> str:
    """Return a section of attributes with those that are members for users; the others may change."""
    kept = []
    for names, description in _ATTRIBUTE.findall(section[1]):
        found = [name for name in names.split(", ") if name.strip() in members]
        kept += [", ".join(found) + description] if found else []
    text = "".join(kept)
    return f"Attributes\n----------\n{text}" if kept else ""
