"""Writing systems of names, as Unicode knows them."""

from __future__ import annotations

import unicodedata
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["system_of", "systems_of"]

_SAME: Final = {"CJK": "Han", "HIRAGANA": "Kana", "KATAKANA": "Kana", "NEW": "Tai Lue", "OL": "Ol Chiki"}
# The first words of names of letters that belong to no one system.
_NONE: Final = frozenset({"MODIFIER", "FULLWIDTH", "HALFWIDTH", "FEMININE", "MASCULINE"})


def system_of(letter: str) -> str | None:
    """Return the writing system of a letter, None for what is no letter.

    Examples
    --------
    >>> system_of("ж"), system_of("Ω"), system_of("京"), system_of("ト"), system_of("7")
    ('Cyrillic', 'Greek', 'Han', 'Kana', None)
    """
    if not letter or not unicodedata.category(letter).startswith("L"):
        return None
    first = unicodedata.name(letter, "MODIFIER").split()[0]
    return None if first in _NONE else _SAME.get(first, first.capitalize())


def systems_of(names: Any) -> Any:
    """Return the writing system of the first character of each name, null where there is none.

    Parameters
    ----------
    names : pyarrow.Array
        Strings.

    Examples
    --------
    >>> systems_of(pa.array(["Wien", "Вена", "", None, "ウィーン"])).to_pylist()
    ['Latin', 'Cyrillic', None, None, 'Kana']
    """
    letters = pc.utf8_slice_codeunits(names, 0, 1).dictionary_encode()
    systems = pa.array([system_of(letter) for letter in letters.dictionary.to_pylist()], pa.string())
    return systems.take(letters.indices)
