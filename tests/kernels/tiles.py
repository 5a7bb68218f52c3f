"""The cases of `cases.py` over again, side by side: as many work items as fill several blocks of a GPU.

Arrays are repeated; what counts rows counts those of all copies; what says where an item writes, points into the
copy of its own, so that no two items write the same place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bowstring.kernels.signature import Kernel, Signature, match
from bowstring.kernels.validation.text import blocks_of
from tests.kernels.cases import Case, cases

Array = np.ndarray[Any, Any]

# Kernels whose cases cannot be repeated, and why.
ALONE = {
    "add_lengths": "one item adds up all lengths",
    "check_batches": "one item checks a whole batch",
    "check_deltas": "one item reads a whole page, and writes the lengths of its values",
    "check_dense_order": "an item for each child of a union, of which there are 128 at most",
    "copy_bytes": "each item copies a page of one array",
    "evaluate": "one table says for all items where their code and their registers lie",
    "gather_pieces": "one table says for all items where the pieces lie",
    "import_batch": "one item takes a whole batch",
    "make_views_of_prefixed": "one item reads all values: only the length of one says where the next one begins",
    "note_order": "each item looks at the end of the next one too",
    "order_keys": "bounds say which keys each item has, up to those of the next one",
    "quote_names": "its cases have metadata with more names than there is room for ends, but for the last of them",
    "read_footer": "one item reads a whole footer",
    "read_nodes": "one item reads a whole body",
    "read_objects": "one item reads a whole list",
    "read_pages": "one item reads a whole chunk, and facts of all chunks stand behind each other, a kind at a time",
    "read_rows": "one plan says for all items which rows each of them reads, and where it writes",
    "train_symbols": "one item reads all rows of a text, and counts in tables that are the call's",
    "value_lengths": "one item reads a whole page, and writes the lengths of its values",
    "walk_schema": "one item walks a whole schema, in room that is the call's",
    "weigh_runs": "one item reads a whole page",
    "write_batch": "one item writes a whole batch",
    "write_keys": "bounds say which keys each item has, and offsets where the next one writes",
    "write_objects": "one item writes all rows",
}
_COUNTS = ("rows", "length", "stop", "runs")
# The array that positions point into, by the name and the type of the positions.
_INTO = {
    ("places", "i64"): "out",
    ("begins", "i64"): "out",
    ("limits", "i64"): "out",
    ("firsts", "u64"): "children",
    ("starts", "i64"): "children",
    ("stops", "i64"): "children",
    ("indices", "u64"): "out",
}
# Not of items: lengths of children or of symbols, and the nodes of a tree of paths.
_OF_ALL = ("lengths", "families", "kinds", "meanings", "singles", "pairs", "symbols", "masks")
_MOST_BYTES, _BLOCK = 16 << 20, 128


def tiled(kernel: Kernel, items: int) -> list[Case]:
    """Return two cases of each signature of so many items or more, or of fewer where they take much memory.

    None fills all its blocks.
    """
    ones: dict[Signature, list[Case]] = {}
    for few, arguments in cases(kernel):
        if few and (case := tile(kernel, few, arguments, 1)) is not None:
            ones.setdefault(match(kernel, arguments)[0], []).append(case)
    found = []
    for each in ones.values():
        for few, arguments in each[:: max(len(each) - 1, 1)]:
            most = _MOST_BYTES // _nbytes(arguments)
            count, many = tile(kernel, few, arguments, min(-(-items // few), most)) or (few, arguments)
            if count < items:  # copies share an item
                count, many = tile(kernel, few, arguments, min(items * items // count // few + 1, most)) or (
                    count,
                    many,
                )
            found.append((count - (count % _BLOCK == 0), many))
    return found


def _nbytes(arguments: tuple[Any, ...]) -> int:
    return sum(each.nbytes for each in arguments if isinstance(each, np.ndarray))


def tile(kernel: Kernel, items: int, arguments: tuple[Any, ...], copies: int) -> Case | None:
    """Return a case so many times; nothing where its positions are wrong on purpose, or not one for each item."""
    parameters = match(kernel, arguments)[0].parameters
    by_name = {kind.name: each for kind, each in zip(parameters, arguments, strict=True)}
    own = items >> int(arguments[0]) if parameters[0].name == "log" else items
    if "code_offsets" in by_name:  # items take some rows each
        own = len(by_name["code_offsets"]) - 1
    rows = by_name.get("rows")
    step = max(len(by_name.get("out", ())), max(by_name.get("limits", ()), default=0))
    width = by_name["words"] if isinstance(by_name.get("words"), int) else 1
    many: list[Any] = []
    for kind, each in zip(parameters, arguments, strict=True):
        into = by_name.get(_INTO.get((kind.name, kind.scalar), ""))
        if not isinstance(each, np.ndarray):
            is_count = kind.name in _COUNTS or (kind.name == "stride" and each == rows)
            many.append(each * copies if is_count else each)
        elif kind.name in _OF_ALL and not kind.written:
            many.append(each)
        elif kind.name == "columns":
            many.append(each * copies)
        elif kind.name == "child_sizes":
            many.append(np.tile(each.reshape(by_name["fields"], by_name["rows"]), (1, copies)).reshape(-1))
        elif kind.written:
            room = np.zeros(copies * step - len(each) * copies if kind.name == "out" else 0, each.dtype)
            many.append(np.append(np.tile(each, copies), room))
        elif kind.name.endswith(("offsets", "ends", "bases", "starts", "places")) and len(each) == own + 1:
            last = int(each[-1])
            if kind.name == "offsets" and "flags" in by_name and last > len(by_name["starts"]):
                return None  # a row would have the keys of all copies
            falls = "bad" not in by_name and bool((each[1:] < each[:-1]).any())
            if falls or not 0 <= last * copies <= np.iinfo(each.dtype).max:
                return None
            many.append(np.append(_shifted(each[:-1], copies, last), each.dtype.type(last * copies)))
        elif into is not None:
            if len(each) != own:
                return None
            many.append(
                _shifted(each, copies, step if kind.name in ("begins", "limits") else len(into) // width)
            )
        elif kind.name == "bases" and len(keyed := by_name.get("ranks", by_name.get("ends", ()))):
            many.append(_shifted(each, copies, len(keyed)))
        else:
            many.append(np.tile(each, copies))
    if "code_offsets" in by_name:
        return -(-own * copies // by_name["step"]), tuple(many)
    if "bad" in by_name and rows is not None and items == blocks_of(rows):
        return blocks_of(rows * copies), tuple(many)
    return items * copies, tuple(many)


def _shifted(positions: Array, copies: int, step: int) -> Array:
    """Return positions of each copy; negative ones stay what they are: of what is not there."""
    steps = np.repeat(np.arange(copies) * step, len(positions)).astype(positions.dtype)
    again = np.tile(positions, copies)
    return np.where(again >= 0, again + steps, again)
