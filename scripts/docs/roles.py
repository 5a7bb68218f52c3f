"""References in docstrings (``:class:`bowstring.Limits```) become links, where the name is public.

An extension of griffe, which reads the docstrings for ``mkdocstrings``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))
from reference import public_names

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([\w.]+)`")
_LITERAL = re.compile(r"::$", re.MULTILINE)


class Roles(griffe.Extension):
    """Rewrites docstrings as they are read."""

    def __init__(self) -> None:
        self._public = public_names()

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = _LITERAL.sub(":", _ROLE.sub(self._link, obj.docstring.value))

    def _link(self, role: re.Match[str]) -> str:
        name = role[1]
        return f"[`{name}`][{name}]" if name in self._public else f"`{name}`"
