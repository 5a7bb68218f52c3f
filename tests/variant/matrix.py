"""The generated matrix: every width of ids, offsets and counts x every kind of dictionary x every primitive."""

from __future__ import annotations

import functools
import random
from typing import NamedTuple

from bowstring.variant import Value
from tests.variant.encoding import Widths, encode, encode_with, metadata_bytes
from tests.variant.get_columns import Row
from tests.variant.typed_values import PRIMITIVE_VALUES

DICTIONARIES = ("sorted", "unsorted", "duplicates", "lying")
WIDTHS = [
    Widths(ids, offsets, large) for ids in (1, 2, 3, 4) for offsets in (1, 2, 3, 4) for large in (False, True)
]
NAMES = ["", "a", "é", "\uffe5", "😀"]
"""Keys of no byte, and of one to four bytes a character, in the order of UTF-8."""


class Cells(NamedTuple):
    """Rows, the trees that they are, and the same trees as we write them."""

    rows: list[Row]
    trees: list[Value]
    ours: list[Row]


def tree_of(value: Value) -> Value:
    """Return a primitive as a field, as an element, and as a field of an element."""
    inside = Value("array", [value, Value("object", {"": Value("boolean", True), "é": value})])
    return Value("object", {"": Value("int8", 1), "a": inside, "\uffe5": Value("null", None), "😀": value})


@functools.cache
def cells(dictionary: str) -> Cells:
    """Return every primitive at its bounds in every width over one kind of dictionary."""
    drawn = random.Random(dictionary)
    found = Cells([], [], [])
    for widths in WIDTHS:
        listed = listed_names(dictionary, drawn)
        blob = metadata_bytes(listed, width=widths.offsets, sorted_flag=dictionary in ("sorted", "lying"))
        places = {name: [place for place, each in enumerate(listed) if each == name] for name in NAMES}
        for value in PRIMITIVE_VALUES:
            if widths != WIDTHS[0] and isinstance(value.value, str | bytes) and len(value.value) > 99:
                continue
            tree = tree_of(value)
            ids = {name: drawn.choice(each) for name, each in places.items()}
            found.rows.append((blob, encode_with(ids, tree, widths)))
            found.trees.append(tree)
            found.ours.append(encode(tree))
    return found


def listed_names(dictionary: str, drawn: random.Random) -> list[str]:
    """Return the names in the order of a dictionary of one kind."""
    if dictionary == "sorted":
        return NAMES
    listed = NAMES * 3 if dictionary == "duplicates" else NAMES[::-1]
    return drawn.sample(listed, len(listed)) if dictionary == "duplicates" else listed
